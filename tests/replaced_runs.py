"""Small trainings by replaced-token detection on generated languages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch
from sesame.data.loader import Loader
from sesame.data.pack import Packer, Specials
from sesame.data.parts import hold_out
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.rtd import ReplacedConfig
from sesame.train.health import Health, Look
from sesame.train.held_out import held_out
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.schedule import Schedule
from sesame.train.state import State
from tests.languages import store_of, word_tokenizer

LENGTH, ROWS = 24, 32


@dataclass
class Result:
    figures: dict[str, float]  # on held-out text
    batch: Batch  # of that text


def learn(
    text: str,
    words: list[str],
    folder: Path,
    config: ReplacedConfig,
    steps: int,
    rate: float,
    order: Literal["pre", "post"] = "pre",
) -> Result:
    """Two layers of 32, watched as a run is watched; raises what the watch raises."""
    machine = Machine(torch.device("cpu"), "fp32")
    tokenizer = word_tokenizer(words)
    torch.manual_seed(0)
    backbone = Encoder(
        EncoderConfig(
            len(tokenizer), 32, 2, 2, max_length=LENGTH, dropout=0.0, attention_dropout=0.0, order=order,
            positions="rotary", init=0.1,
        )
    )  # fmt: skip
    model = Model(backbone, build({"rtd": config}, backbone, Vocab(len(tokenizer), tokenizer.ids())))
    specials = Specials(tokenizer.id("cls"), tokenizer.id("sep"), tokenizer.id("pad"))
    parts = hold_out(store_of(text, tokenizer, folder), 0, 0.1)
    packer, kept = (Packer(part, "documents", LENGTH, specials) for part in parts)
    loader = Loader(packer, ROWS, ROWS, 0, model.objective.corrupt)
    optim, schedule, clock = OptimConfig(rate=rate), Schedule(warmup=0.1), Clock(steps=steps)
    health = Health(config, optim, schedule, len(tokenizer))

    def window(state: State, figures: dict[str, Any]) -> None:
        health.check(state.step, clock.progress(state.step), figures)

    fit(
        model, model, build_optimizer(model, optim), lambda step: health.frequencies.see(loader.load(step, 0.0)),
        rate=rate, schedule=schedule, clip=1.0, clock=clock, state=State(), machine=machine, seed=0,
        hooks=Hooks(window=window), spikes=False,
    )  # fmt: skip
    rows = np.arange(min(len(kept), 200))
    batch = model.objective.corrupt(kept.draw(rows, chance.keys(1, rows)))
    look = Look(model)
    return Result(held_out(model, look, [batch], machine) | look.figures(), batch)
