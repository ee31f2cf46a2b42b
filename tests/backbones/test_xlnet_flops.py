"""XLNet's formulas against PyTorch's own counter and against what autograd really keeps."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import XLNet, XLNetConfig
from sesame.backbones.flops import flops_per_token, kept_per_token
from sesame.backbones.work import Work
from sesame.data.batch import Batch
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.plm import PermutationLMConfig
from sesame.train.accounting import work_of
from tests.backbones.test_flops import counted

ROWS = 4
BASE: dict[str, Any] = {"vocab": 1000, "width": 64, "depth": 3, "heads": 4, "dropout": 0.1, "attention_dropout": 0.1}
CASES: list[tuple[dict[str, Any], dict[str, Any], int]] = [  # of the backbone, of the objective, length
    ({}, {}, 96),
    ({"depth": 1}, {}, 96),
    ({"inner": 100, "heads": 1}, {"backward": 0.0}, 96),
    ({}, {"part": 48}, 96),
    ({"memory": 20}, {"part": 32}, 96),
    ({"memory": 30, "reuse": 24}, {"part": 32, "every": 4}, 96),
    ({}, {"part": 30}, 100),
]


def made(backbone: dict[str, Any], objective: dict[str, Any], length: int) -> tuple[Model, Batch]:
    torch.manual_seed(0)
    xlnet = XLNet(XLNetConfig(**BASE | backbone))
    roles = {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6}
    config = PermutationLMConfig(**objective)
    model = Model(xlnet, build({"plm": config}, xlnet, Vocab(1000, roles))).train()
    ids = torch.randint(7, 1000, (ROWS, length))
    ids[:, 0], ids[:, length // 2], ids[:, -1] = 3, 4, 4
    segments = (torch.arange(length) > length // 2).long().expand(ROWS, -1)
    words = torch.arange(length).expand(ROWS, -1)
    batch = Batch(ids, torch.full((ROWS,), length), torch.arange(ROWS), segments, words, full=True)
    return model, model.objective.corrupt(batch)


def work(objective: dict[str, Any], length: int, rows: int = ROWS) -> Work:
    found = work_of({"plm": PermutationLMConfig(**objective)}, length)
    return Work(**{**vars(found), "rows": rows})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_formula_is_what_pytorch_counts(case: tuple[dict[str, Any], dict[str, Any], int]) -> None:
    """Within 2 %: a separator that is drawn as a target is not asked for, so the head has a little less to do."""
    _, objective, length = case
    model, batch = made(*case)
    formula = flops_per_token(model.backbone.config, work(objective, length))
    assert counted(model, batch) == pytest.approx(formula, rel=0.02)


def test_one_stream_without_targets() -> None:
    """Fine-tuning: the content stream alone, the last layer where it is read."""
    model, batch = made({}, {}, 96)
    counter = FlopCounterMode(display=False)
    with counter:
        model.backbone(batch).last.sum().backward()
    formula = flops_per_token(model.backbone.config, Work(96, rows=ROWS))
    assert counter.get_total_flops() / batch.ids.numel() == pytest.approx(formula, rel=0.02)


@pytest.mark.parametrize("case", [case for case in CASES if case[0].get("depth") != 1], ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_memory_is_about_what_autograd_keeps(case: tuple[dict[str, Any], dict[str, Any], int], rate: float) -> None:
    backbone, objective, length = case
    model, batch = made(backbone | {"dropout": rate, "attention_dropout": rate}, objective, length)
    seen: dict[int, tuple[int, Tensor]] = {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(batch)
    chosen = work(objective, length)
    found = sum(size for size, _ in seen.values()) / 4 + ROWS * chosen.restored * 1024
    assert found / batch.ids.numel() == pytest.approx(kept_per_token(model.backbone.config, chosen), rel=0.25)
