"""The formulas against PyTorch's own counter and against what autograd really keeps, on forward and backward passes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import BACKBONES, Encoder, EncoderConfig
from sesame.backbones.flops import FORMULAS, flops_per_token, kept_per_token, step_memory, weights_memory
from sesame.backbones.work import Work
from sesame.data.batch import Batch, Targets
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.objectives.pair import NextSentenceConfig
from sesame.train.step import count_targets, step_loss

ROWS, LENGTH = 4, 32
BASE: dict[str, Any] = {"vocab": 1000, "width": 64, "depth": 3, "heads": 4, "dropout": 0.1, "attention_dropout": 0.1}
CHANGES: list[dict[str, Any]] = [
    {},
    {"depth": 1},
    {"inner": 100, "order": "branch"},
    {"activation": "geglu"},
    {"embedding_width": 16, "share": "all"},
    {"embedding_width": 16, "share": "attention", "positions": "sinusoidal"},
    {"order": "pre", "positions": "rotary", "bias": False, "segments": 0},
    {"vocab": 1024, "heads": 1},
]


def made(pair: bool = False, rate: float = 0.15, **changes: Any) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    config = EncoderConfig(**BASE | changes)
    wanted: dict[str, Any] = {"mlm": MaskedLMConfig(rate=rate)}
    if pair:
        wanted["nsp"] = NextSentenceConfig()
    backbone = Encoder(config)
    roles = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    model = Model(backbone, build(wanted, backbone, Vocab(config.vocab, roles))).train()
    ids = torch.randint(5, config.vocab, (ROWS, LENGTH))
    ids[:, 0], ids[:, -1] = 2, 3
    batch = Batch(ids, torch.full((ROWS,), LENGTH), keys=torch.arange(ROWS), full=True)
    if pair:
        batch = batch.with_targets(nsp=Targets(torch.zeros(ROWS, dtype=torch.long)))
    return model, model.objective.corrupt(batch)


def counted(model: Model, batch: Batch) -> float:
    """FLOPs a token of one pass forward and backward, counted by PyTorch."""
    counter = FlopCounterMode(display=False)
    with counter:
        step_loss(model(batch), count_targets([batch])).backward()
    return counter.get_total_flops() / batch.ids.numel()


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_formula_is_what_pytorch_counts(changes: dict[str, Any], pair: bool) -> None:
    """Exactly: with attention dropout the CPU computes attention by plain products, each of which is counted."""
    model, batch = made(pair, **changes)
    assert counted(model, batch) == pytest.approx(
        flops_per_token(model.backbone.config, Work(LENGTH, 0.15, pair)), rel=1e-12
    )


@pytest.mark.parametrize("rate", [0.01, 0.4])
def test_other_mask_rates(rate: float) -> None:
    model, batch = made(rate=rate)
    assert counted(model, batch) == pytest.approx(flops_per_token(model.backbone.config, Work(LENGTH, rate)), rel=1e-12)


def test_fused_attention_is_counted_as_plain() -> None:
    """Without dropout attention is fused; taken apart again, it is counted the same."""
    model, batch = made(attention_dropout=0.0)
    with sdpa_kernel(SDPBackend.MATH):
        found = counted(model, batch)
    assert found == pytest.approx(flops_per_token(model.backbone.config, Work(LENGTH, 0.15)), rel=1e-12)


def test_without_a_token_head_all_states_are_computed() -> None:
    model, batch = made()
    counter = FlopCounterMode(display=False)
    with counter:
        model.backbone(batch).last.sum().backward()
    expected = flops_per_token(model.backbone.config, Work(LENGTH))
    assert counter.get_total_flops() / batch.ids.numel() == pytest.approx(expected, rel=1e-12)


def test_pairs_alone_look_at_one_place() -> None:
    model, batch = made(pair=True)
    alone = replace(batch, targets={"nsp": batch.targets["nsp"]})
    expected = flops_per_token(model.backbone.config, Work(LENGTH, 0.0, pair=True))
    assert counted(model, alone) == pytest.approx(expected, rel=1e-12)


def test_bert_base_by_hand() -> None:
    """Twelve layers of 12 D² + 2 L D multiply-adds, the last at 19 of 128 places but for keys and values, and the head."""
    config = EncoderConfig(30522, 768, 12, 12)
    block = 12 * 768**2 + 2 * 128 * 768
    last = 2 * 768**2 + 19 / 128 * (10 * 768**2 + 2 * 128 * 768)
    head = 19 / 128 * (768**2 + 768 * 30528)
    assert flops_per_token(config, Work(128, 0.15)) == pytest.approx(6 * (11 * block + last + head))


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("changes", [*CHANGES, {"dropout": 0.0, "attention_dropout": 0.0}], ids=str)
def test_memory_is_what_autograd_keeps(changes: dict[str, Any], pair: bool) -> None:
    """Within a tenth: small things (means of norms, labels, heads of pairs) are left out of the formula."""
    model, batch = made(pair, **changes)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, tuple[int, torch.Tensor]] = {}  # the tensor too: a storage that is freed may be another's address

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            seen[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(batch)
    config, work = model.backbone.config, Work(LENGTH, 0.15, pair)
    gradient = ROWS * work.restored * 1024  # of the probabilities, made in the backward pass
    found = sum(size for size, _ in seen.values()) / 4 + gradient
    assert found / batch.ids.numel() == pytest.approx(kept_per_token(config, work), rel=0.1)


def test_memory_of_a_step() -> None:
    model, _ = made()
    config, work = model.backbone.config, Work(LENGTH, 0.15)
    count = sum(p.numel() for p in model.parameters())
    assert weights_memory(model) == 4 * 7 * count
    one, two = (step_memory(model, config, work, rows) for rows in (1, 2))
    assert one - weights_memory(model) == two - one == round(LENGTH * kept_per_token(config, work) * 4)
    model.freeze()
    assert weights_memory(model) < 4 * 7 * count


def test_every_backbone_has_a_formula() -> None:
    assert {config for _, config in BACKBONES.values()} == set(FORMULAS)
