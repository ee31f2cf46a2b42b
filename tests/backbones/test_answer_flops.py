"""The formula of encoder-decoders against PyTorch's own counter."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig
from sesame.backbones.flops import flops_per_token, kept_per_token
from sesame.backbones.work import Work
from sesame.data.batch import Batch, Targets
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.step import count_targets, step_loss

ROWS, LENGTH, ANSWER = 4, 32, 24
CHANGES: list[dict[str, Any]] = [
    {},
    {"decoder_depth": 1, "inner": 100},
    {"positions": "relative", "order": "pre", "norm": "rms", "bias": False, "scaled": False, "head_size": 8},
    {"activation": "geglu_tanh", "order": "pre", "positions": "learned", "dropout": 0.0},
    {"decoder_heads": 2, "decoder_inner": 100, "inner": 150, "decoder_depth": 1},
]


def made(changes: dict[str, Any]) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    settings = {"vocab": 1000, "width": 64, "depth": 3, "heads": 4, "attention_dropout": 0.1} | changes
    backbone = EncoderDecoder(EncoderDecoderConfig(**settings))
    vocab = Vocab(1000, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})
    model = Model(backbone, build({"seq2seq": Seq2SeqConfig(smoothing=0.0)}, backbone, vocab)).train()
    batch = Batch(torch.randint(5, 1000, (ROWS, LENGTH)), torch.full((ROWS,), LENGTH), full=True)
    batch = batch.with_targets(seq2seq=Targets(torch.randint(5, 1000, (ROWS, ANSWER))))
    return model, model.objective.corrupt(batch)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_flops_are_those_that_are_counted(changes: dict[str, Any]) -> None:
    model, batch = made(changes)
    config = model.backbone.config
    counter = FlopCounterMode(display=False)
    with counter:
        step_loss(model(batch), count_targets([batch])).backward()
    counted = counter.get_total_flops() / batch.ids.numel()
    # What a causal mask hides is computed here all the same, but need not be.
    wide, depth = config.heads * (config.head_size or 16), config.decoder_depth or config.depth
    hidden = 6 * depth * ANSWER * (ANSWER - 1) * wide / LENGTH
    formula = flops_per_token(config, Work(LENGTH, answer=ANSWER / LENGTH))
    assert formula + hidden == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_what_is_kept_is_near_what_autograd_keeps(changes: dict[str, Any]) -> None:
    model, batch = made(changes)
    seen: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if tensor.is_floating_point() and place not in weights:
            seen[place] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step_loss(model(batch), count_targets([batch]))
    kept = sum(seen.values()) / batch.ids.numel()
    assert kept_per_token(model.backbone.config, Work(LENGTH, answer=ANSWER / LENGTH)) == pytest.approx(kept, rel=0.3)
