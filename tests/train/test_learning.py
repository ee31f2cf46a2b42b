"""What can be learnt is learnt: losses come near to the best that a generated language permits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch
from sesame.data.loader import Loader
from sesame.data.pack import Packer, Specials, hold_out
from sesame.data.store import Store
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.objectives.pair import NextSentenceConfig
from sesame.text import Tokenizer
from sesame.train.held_out import held_out
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.schedule import Schedule
from sesame.train.state import State
from tests.languages import Chain, Topics, store_of, word_tokenizer

CPU = Machine(torch.device("cpu"), "fp32")


def learn(
    store: Store,
    tokenizer: Tokenizer,
    objectives: dict[str, object],
    packing: str,
    length: int,
    steps: int,
    rate: float,
) -> tuple[Model, list[Batch]]:
    """Train a small encoder; gives it with fixed held-out batches."""
    torch.manual_seed(0)
    backbone = Encoder(
        EncoderConfig(
            len(tokenizer),
            64,
            2,
            4,
            max_length=length,
            dropout=0.0,
            attention_dropout=0.0,
            order="pre",
            positions="rotary",
        )
    )
    model = Model(backbone, build(objectives, backbone, Vocab(len(tokenizer), tokenizer.ids())))
    train, valid = hold_out(store, 0, 0.05)
    specials = Specials(tokenizer.id("cls"), tokenizer.id("sep"), tokenizer.id("pad"))
    packer, kept = (Packer(part, packing, length, specials) for part in (train, valid))  # type: ignore[arg-type]
    loader = Loader(packer, 64, 64, 0, model.objective.corrupt)
    rows = np.arange(len(kept))
    batches = [model.objective.corrupt(kept.draw(rows, chance.keys(1, rows)))]
    fit(
        model, model, build_optimizer(model, OptimConfig(rate=rate, decay=0.01)),
        lambda step: loader.load(step, 0.0),
        rate=rate, schedule=Schedule(warmup=0.05), clip=1.0, clock=Clock(steps=steps), state=State(), machine=CPU,
        seed=0, hooks=Hooks(),
    )  # fmt: skip
    return model, batches


@pytest.mark.slow
def test_masked_loss_comes_within_3_percent_of_the_optimum(tmp_path: Path) -> None:
    chain = Chain(8, seed=3)
    tokenizer = word_tokenizer(chain.words)
    store = store_of(chain.text(1500, 20, 14, seed=4), tokenizer, tmp_path)
    model, batches = learn(store, tokenizer, {"mlm": MaskedLMConfig()}, "documents", 30, 2800, 3e-3)
    best = chain.best_masked_loss(batches)
    found = held_out(model, model, batches, CPU)["mlm"]
    assert 0.3 < best < 1.5  # there is something to know, and something that nobody can know
    assert found > best * 0.99  # below the optimum something leaks
    assert found < best * 1.03, f"{found:.4f} against the optimum {best:.4f}"


@pytest.mark.slow
def test_next_sentences_are_told_from_strange_ones(tmp_path: Path) -> None:
    topics = Topics(24, 6)
    tokenizer = word_tokenizer(topics.words)
    store = store_of(topics.text(480, 12, 7, seed=5), tokenizer, tmp_path)
    objectives = {"mlm": MaskedLMConfig(), "nsp": NextSentenceConfig()}
    model, batches = learn(store, tokenizer, objectives, "pairs", 48, 500, 3e-3)
    figures = held_out(model, model, batches, CPU)
    assert figures["nsp_accuracy"] > 0.95
    assert figures["mlm"] < np.log(6) * 1.1  # the words of a topic are drawn evenly: nobody does better than log 6
    assert figures["mlm"] > np.log(6) * 0.9
