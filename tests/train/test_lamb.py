"""LAMB is its formula, and what LAMB and Adafactor remember survives a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import make_text, weights
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.pretraining.run import Wishes, pretrain
from sesame.train.lamb import Lamb
from sesame.train.optim import OptimConfig, Optimizer, build_optimizer, load_optimizer, optimizer_tensors
from sesame.train.state import Snapshot, State
from tests.crashes import crash_while_saving

KINDS = ("lamb", "adafactor")
RATES = {"lamb": 0.02, "adafactor": 0.02}


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.norm = nn.Embedding(7, 5), nn.Linear(5, 6), nn.LayerNorm(6)
        self.last = nn.Linear(6, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.last(self.norm(torch.tanh(self.first(self.table(ids)))))  # type: ignore[no-any-return]


def small(kind: str, **settings: Any) -> tuple[Small, Optimizer]:
    torch.manual_seed(0)
    model = Small()
    return model, build_optimizer(model, OptimConfig(kind=kind, rate=RATES[kind], decay=0.1, **settings))  # type: ignore[arg-type]


def train(model: Small, optimizer: Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        ids = torch.arange(12) * (step + 1) % 7
        loss = nn.functional.cross_entropy(model(ids), ids % 3)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def numbers(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def by_hand(w: Tensor, grads: list[Tensor], rate: float, decay: float, adapt: bool) -> Tensor:
    """The formula, one tensor, in double precision."""
    w, m, v = w.double(), torch.zeros_like(w).double(), torch.zeros_like(w).double()
    for t, grad in enumerate(grads, 1):
        g = grad.double()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6) + decay * w
        ratio = float(w.norm() / u.norm()) if adapt and w.norm() > 0 and u.norm() > 0 else 1.0
        w = w - rate * ratio * u
    return w


def test_steps_are_the_formula() -> None:
    torch.manual_seed(0)
    shapes = [(6, 4), (3, 3), (2, 3, 4), (5,), (4, 2)]
    starts = [torch.randn(shape) for shape in shapes[:-1]] + [torch.zeros(4, 2)]  # a norm of 0 at the first step
    grads = [[torch.randn(shape) * 10.0 ** (-number) for _ in range(6)] for number, shape in enumerate(shapes)]
    members = [nn.Parameter(start.clone()) for start in starts]
    groups = [
        {"params": [p for p in members if p.ndim > 1], "weight_decay": 0.1, "adapt": True},
        {"params": [p for p in members if p.ndim == 1], "weight_decay": 0.0, "adapt": False},
    ]
    optimizer = Lamb(groups, 0.01, (0.9, 0.999), 1e-6)
    for step in range(6):
        for number, p in enumerate(members):
            p.grad = None if number == 1 and step < 2 else grads[number][step]  # one begins to learn later
        optimizer.step()
    for number, (p, start) in enumerate(zip(members, starts, strict=True)):
        seen = grads[number][2:] if number == 1 else grads[number]
        wanted = by_hand(start, seen, 0.01, 0.1 if p.ndim > 1 else 0.0, p.ndim > 1)
        assert torch.allclose(p.detach().double(), wanted, rtol=1e-4, atol=1e-6)


def test_a_step_is_as_long_as_its_weights() -> None:
    model, optimizer = small("lamb", eps=1e-12)
    before = numbers(model)
    train(model, optimizer, range(1))
    for (name, p), old in zip(model.named_parameters(), before, strict=True):
        if p.ndim > 1:
            assert float((p - old).detach().norm() / old.norm()) == pytest.approx(RATES["lamb"], rel=1e-4), name
    vectors = [(p - old).detach().abs().max() for p, old in zip(model.parameters(), before, strict=True) if p.ndim == 1]
    assert max(map(float, vectors)) <= RATES["lamb"] * 1.001  # plain Adam: no ratio, no decay


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns(kind: str) -> None:
    model, optimizer = small(kind)
    losses = train(model, optimizer, range(150))
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])


@pytest.mark.parametrize("kind", KINDS)
def test_memory_makes_a_round_trip(kind: str) -> None:
    calm, its = small(kind)
    train(calm, its, range(8))
    broken, old = small(kind)
    train(broken, old, range(4))
    kept = {name: tensor.clone() for name, tensor in optimizer_tensors(broken, old).items()}
    assert all(isinstance(tensor, Tensor) for tensor in kept.values())
    fresh, new = small(kind)
    fresh.load_state_dict(broken.state_dict())
    load_optimizer(fresh, new, kept)
    train(fresh, new, range(4, 8))
    assert all(torch.equal(a, b) for a, b in zip(numbers(calm), numbers(fresh), strict=True))
    forgetful, without = small(kind)
    forgetful.load_state_dict(broken.state_dict())
    train(forgetful, without, range(4, 8))
    assert not all(torch.equal(a, b) for a, b in zip(numbers(calm), numbers(forgetful), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_step_is_undone(kind: str) -> None:
    model, optimizer = small(kind)
    train(model, optimizer, range(3))
    snapshot = Snapshot(model, optimizer, State(step=3))
    good = train(model, optimizer, range(3, 6))
    snapshot.restore()
    assert train(model, optimizer, range(3, 6)) == good


def test_rates_by_layer_are_refused() -> None:
    model = Small()
    with pytest.raises(SesameError, match="adamw or muon"):
        build_optimizer(model, OptimConfig(kind="lamb"), {model.last.weight: 0.5})


SETTINGS = (
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "backbone.embedding_width=16", "backbone.dropout=0.1",
    "stages.main.length=32", "stages.main.batch=8", "stages.late.length=32", "stages.late.batch=8",
    "stages.main.share=0.5", "stages.late.share=0.5", "tokenizer.size=400",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_crashed_goes_on_to_the_same_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALBERT with dropout in its first half only: stages, shared layers, both heads and the optimiser come back."""
    text = make_text(tmp_path / "text.txt", 40)

    def run(out: str) -> None:
        settings = (*SETTINGS, f"optimizer.kind={kind}")
        pretrain(
            Wishes("albert", [str(text)], tmp_path / out, settings=settings, steps=16, save_steps=3, device="cpu",
                   precision="fp32")
        )  # fmt: skip

    run("calm")
    with crash_while_saving(after=3):
        run("broken")
    assert (tmp_path / "broken" / "checkpoints" / "step-9").is_dir()
    run("broken")
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
