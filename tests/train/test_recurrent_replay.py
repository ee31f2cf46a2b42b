"""Recurrent models on a GPU: the numbers of a CPU, and steps that can be recorded. Needs a GPU."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from sesame.backbones import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.nn.recurrent import RecurrentStack
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from sesame.train.replay import PLAIN, Replay
from sesame.train.shadow import Shadow

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="the other device is a GPU")
LENGTHS = torch.tensor([3, 7, 1, 5, 0])
KINDS: dict[str, dict[str, Any]] = {
    "seq2seq": {"depth": 2},
    "rnnsearch": {"cell": "gru", "bidirectional": True, "start": "tanh", "attention": "global", "score": "additive",
                  "looks": "before", "readout": "maxout"},
    "luong": {"attention": "global", "feed": True},
    "local-p": {"attention": "local-p", "window": 2},
    "hard": {"attention": "hard"},
}  # fmt: skip


@pytest.mark.parametrize("options", [
    {}, {"bidirectional": True}, {"projection": 3}, {"projection": 3, "clips": (0.3, 0.2)}, {"weight_dropout": 0.0},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_stacks_have_the_numbers_of_a_cpu(kind: Any, options: dict[str, Any]) -> None:
    if kind == "gru" and "projection" in options:
        return
    torch.manual_seed(0)
    here = RecurrentStack(kind, 6, [5, 5], **options).double()
    there = deepcopy(here).cuda()
    x = torch.randn(5, 7, 6, dtype=torch.float64)
    for lengths in (LENGTHS, None):
        at = None if lengths is None else lengths.cuda()
        mine, theirs = here(x, lengths), there(x.cuda(), at)
        torch.testing.assert_close(theirs.top.cpu(), mine.top, rtol=0, atol=1e-12)
        for a, b in zip(mine.memory, theirs.memory, strict=True):
            torch.testing.assert_close(tuple(part.cpu() for part in b), a, rtol=0, atol=1e-12)
        theirs.top.square().sum().backward()
        mine.top.square().sum().backward()
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=0, atol=1e-11)


def test_dropped_weights_and_sixteen_bits_run() -> None:
    torch.manual_seed(0)
    stack = RecurrentStack("lstm", 6, [8, 8], weight_dropout=0.5, dropouts=(0.2, 0.2, 0.2)).cuda().train()
    x = torch.randn(5, 7, 6, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        walked = stack(x, LENGTHS.cuda())
        walked = stack(x, memory=walked.memory)
    walked.top.float().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in stack.parameters())


def _model(kind: str, dropout: float) -> Model:
    torch.manual_seed(0)
    backbone = RecurrentSeq2Seq(
        RecurrentSeq2SeqConfig(**{"vocab": 100, "width": 64, "depth": 1, "dropout": dropout} | KINDS[kind])
    )
    vocab = Vocab(100, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4})
    return Model(backbone, build({"seq2seq": Seq2SeqConfig()}, backbone, vocab)).cuda().train()


def _batch(model: Model, seed: int) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 17, (8,), generator=luck)
    labels = torch.randint(5, 100, (8, 12), generator=luck)
    labels = torch.where(torch.arange(12) < torch.randint(3, 13, (8, 1), generator=luck), labels, IGNORE)
    batch = Batch(torch.randint(5, 100, (8, 16), generator=luck), lengths).with_targets(seq2seq=Targets(labels))
    return model.objective.corrupt(batch).to(torch.device("cuda"), pin=True)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_steps_equal_plain_ones(kind: str, dropout: float) -> None:
    machine = choose_machine("cuda", "bf16")
    ends, losses = [], []
    for how in (Shadow, Replay):
        model = _model(kind, dropout)
        call, window = how(model), Window()
        optimizer = build_optimizer(model, OptimConfig(rate=1e-3))
        for step in range(PLAIN + 6):
            take_step(model, call, optimizer, [_batch(model, step)], 1.0, machine, step, window)
        ends.append([p.detach().clone() for p in model.parameters()])
        losses.append(torch.tensor(window.read().losses))
    assert isinstance(call, Replay)
    assert call.known
    if kind == "hard":  # another draw is another path
        assert bool(losses[1].isfinite().all())
        return
    assert torch.allclose(losses[0], losses[1], atol=1e-2)
    for plain, played in zip(*ends, strict=True):
        assert float((plain - played).abs().max()) < 5e-3
