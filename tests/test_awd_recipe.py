"""`sesame pretrain awd-lstm`: it reaches the best loss of a known language, a crash changes nothing, parts are one text."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import make_text, weights
from torch import nn

import sesame
from sesame.backbones import LSTM, LSTMConfig
from sesame.backbones.grow import grow
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.perplexity import Reading, perplexity
from sesame.objectives import Vocab, build
from sesame.objectives.clm import CausalLMConfig
from sesame.objectives.model import Model
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.text.train import train_tokenizer
from sesame.train.optim import OptimConfig, build_optimizer, load_optimizer, optimizer_tensors
from sesame.train.step import count_targets, step_loss
from tests.crashes import crash_while_saving
from tests.languages import Chain

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

SETTINGS = (
    "backbone.width=16", "backbone.cell=24", "backbone.depth=2", "stages.main.length=32", "stages.main.batch=8",
    "tokenizer.size=400",
)  # fmt: skip
ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("awd") / "text.txt", 40)


def run(text: Path, out: Path, *settings: str, **more: Any) -> Path:
    wanted: dict[str, Any] = {"settings": (*SETTINGS, *settings), "steps": 8, "save_steps": 3, "device": "cpu"} | more
    return pretrain(Wishes("awd-lstm", [str(text)], out, **wanted))


@pytest.mark.slow
def test_a_run_that_crashed_goes_on_to_the_same_weights(text: Path, tmp_path: Path) -> None:
    final = run(text, tmp_path / "calm")
    with crash_while_saving(after=1):
        run(text, tmp_path / "broken")
    run(text, tmp_path / "broken")
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
    parts = load_parts(final)
    assert isinstance(parts.backbone, LSTM)
    assert set(parts.heads) == {"lm"}
    assert parts.unused == []
    run(text, tmp_path / "further", start=str(final), steps=4)
    assert len(sesame.load(final).generate(["bado"], most=5)) == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_it_reaches_the_best_loss_of_a_known_language(seed: int, tmp_path: Path) -> None:
    chain = Chain(10, seed)
    (tmp_path / "text.txt").write_text(chain.text(20, 1, 400, seed))
    adam = (
        "optimizer.kind=adamw",
        "optimizer.rate=0.02",
        "optimizer.clip=1.0",
        "optimizer.ema=0.0",
        "schedule.kind=cosine",
    )
    narrow = ("backbone.depth=1", "backbone.width=32", "backbone.init=0.5")
    quiet = ("stages.main.dropout=0.0", "objectives.clm.ar=0.0", "objectives.clm.tar=0.0", "stages.main.batch=16")
    final = run(tmp_path / "text.txt", tmp_path / "run", *adam, *narrow, *quiet, seed=seed, steps=150, save_steps=0)
    parts, held = load_parts(final), chain.text(2, 1, 500, 100 + seed).split("\n\n")
    best = -sum(p * math.log(p) for p in (0.5, 0.25, 0.15, 0.1))
    found = perplexity(parts, held)
    assert found.unknown == 0
    assert found.pieces == found.words == 1001  # a separator between the two
    assert math.log(found.per_word) == pytest.approx(best, abs=0.15)
    assert perplexity(parts, held, Reading(length=7)).nats == pytest.approx(found.nats, rel=1e-5)  # parts are one text
    assert perplexity(parts, held, Reading(length=7, memory=False)).nats > found.nats + 1.0
    with pytest.raises(SesameError, match="recurrent state has no length"):
        perplexity(parts, held, Reading(remember=10))


@pytest.mark.parametrize("seed", range(3))
def test_small_batches_together_are_the_big_one(seed: int) -> None:
    torch.manual_seed(seed)
    drops = dict.fromkeys(("dropout", "input_dropout", "layer_dropout", "word_dropout", "weight_dropout"), 0.0)
    lstm = LSTM(LSTMConfig(50, 8, 2, 10, **drops))  # type: ignore[arg-type]
    model = (
        Model(lstm, build({"clm": CausalLMConfig(head="lm", ar=2.0, tar=1.0)}, lstm, Vocab(50, ROLES))).double().train()
    )
    ids, lengths = torch.randint(5, 50, (4, 9)), torch.tensor([9, 3, 7, 2])
    gradients = []
    for groups in ([[0, 1, 2, 3]], [[3, 1], [0], [2]]):
        batches = [model.objective.corrupt(Batch(ids[rows], lengths[rows])) for rows in groups]
        counts = count_targets(batches)
        model.zero_grad()
        for batch in batches:
            step_loss(model(batch), counts).backward()  # type: ignore[no-untyped-call]
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-9)


def test_plain_steps_and_their_mean_are_remembered() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = build_optimizer(model, OptimConfig("sgd", 30.0, decay=0.0, ema=0.999))
    optimizer.set_rate(0.5)
    mean, seen = None, [p.detach().clone() for p in model.parameters()]
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        seen = [p.detach() - 0.5 * p.grad for p in model.parameters() if p.grad is not None]
        optimizer.step()
        torch.testing.assert_close([p.detach() for p in model.parameters()], seen)
        share = 9 / (11 + step)  # 1 - (1 + t) / (10 + t)
        mean = seen if mean is None else [m + share * (p - m) for m, p in zip(mean, seen, strict=True)]
    again = build_optimizer(model, OptimConfig("sgd", 30.0, ema=0.999))
    load_optimizer(model, again, optimizer_tensors(model, optimizer))
    again.take_means()
    assert mean is not None
    torch.testing.assert_close([p.detach() for p in model.parameters()], mean)


def test_words_between_spaces_are_all_known() -> None:
    tokenizer = train_tokenizer(["the <unk> n't ipo U.S. N", "the N"], "spaced", 300, lowercase=False)
    assert len(tokenizer.encode("the <unk> n't ipo U.S. N").ids) == 6


def test_sizes_resolve_and_tables_grow() -> None:
    for size in ("tiny", "mini", "small", "base"):
        for budget in (False, True):
            assert resolve("awd-lstm", size=size, budget=budget, device="cuda").backbone["kind"] == "lstm"
    base = resolve("awd-lstm", size="base").backbone
    assert (base["width"], base["cell"], base["depth"]) == (400, 1150, 3)
    assert grow(LSTM(LSTMConfig(50, 8, 2, 10)), [[1, 2]]).vocab == 51
