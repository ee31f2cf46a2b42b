"""What replaced-token detection costs, generator included, against PyTorch's own counter."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.flops import flops_per_token, kept_per_token
from sesame.backbones.work import Work
from sesame.data.batch import Batch
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.rtd import ReplacedConfig
from sesame.train.accounting import work_of
from sesame.train.step import count_targets, step_loss

ROWS, LENGTH = 4, 32
CASES: list[tuple[dict[str, Any], dict[str, float]]] = [
    ({}, {}),
    ({"embedding_width": 16}, {"generator_depth": 0.5}),
    ({"inner": 100}, {"generator_width": 1.0, "rate": 0.3}),
    ({"order": "pre", "embedding_norm": True, "positions": "rotary", "bias": False, "activation": "geglu"}, {}),
]


@pytest.mark.parametrize(("shape", "asked"), CASES, ids=str)
def test_the_generator_is_counted(shape: dict[str, Any], asked: dict[str, float]) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(1000, 64, 4, 4, attention_dropout=0.1, **shape)
    objectives = {"rtd": ReplacedConfig(**asked)}  # type: ignore[arg-type]
    backbone = Encoder(config)
    roles = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    model = Model(backbone, build(objectives, backbone, Vocab(1000, roles))).train()
    ids = torch.randint(5, 1000, (ROWS, LENGTH))
    ids[:, 0], ids[:, -1] = 2, 3
    batch = model.objective.corrupt(Batch(ids, torch.full((ROWS,), LENGTH), keys=torch.arange(ROWS), full=True))
    counter = FlopCounterMode(display=False)
    with counter:
        step_loss(model(batch), count_targets([batch])).backward()
    work = work_of(objectives, LENGTH)
    assert counter.get_total_flops() / ids.numel() == pytest.approx(flops_per_token(config, work), rel=1e-12)
    assert flops_per_token(config, work) > flops_per_token(config, Work(LENGTH))
    assert kept_per_token(config, work) > kept_per_token(config, Work(LENGTH))
