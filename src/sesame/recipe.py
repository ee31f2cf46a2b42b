"""A recipe: a tokenizer, a backbone, objectives and an ordered list of stages. It alone sees all rooms.

A recipe is a TOML file, in `recipes/` or the user's own; `base = "bert"` takes another one and lists the differences.
Laid over it, in this order: the size, what changes under a wall-clock budget on this device, what a file of the user's own
says that has it as its base (in the same order), and the user's `--set`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from sesame.backbones import BACKBONES
from sesame.checkpoint.hf import FAMILIES
from sesame.config import build, merge, parse_setting, read_toml, unknown
from sesame.errors import SesameError
from sesame.objectives import CONFIGS, check_together
from sesame.text.template import Template
from sesame.train.optim import OptimConfig
from sesame.train.schedule import Schedule

LINEAR = 8000  # sequences a step up to which the linear scaling rule holds (Goyal et al. 2017, figure 1)


@dataclass(frozen=True)
class TokenizerConfig:
    kind: Literal["wordpiece", "bpe", "unigram", "word", "spaced"] = "wordpiece"
    size: int = 30_000
    lowercase: bool = True
    strip_accents: bool = False
    template: Template = "bert"  # which tokens stand around a text

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 2_000_000:
            raise SesameError(f"tokenizer.size is {self.size}; choose between 16 and 2,000,000 pieces")


MOST = 100_000_000  # rows, tokens or steps of a stage: more is a slip of the hand


@dataclass(frozen=True)
class Stage:
    """A part of the training with its own sequences: `share` of the run, `length` tokens, `batch` sequences a step."""

    share: float
    length: int
    batch: int
    packing: Literal["pairs", "orders", "sentences", "documents", "blocks", "dialogues", "neighbors", "answers"] = (
        "pairs"
    )
    short: float = 0.0  # share of the rows that are cut to any length, so that the model knows short texts too
    micro: int = 0  # sequences at a time; 0: as many as the device takes well
    tokens: int = 0  # answers: so many places a step, padding and all, of pairs of similar length, instead of `batch`
    reverse: bool = False  # answers: sources are read from their end
    cut: bool = False  # answers: a source that is too long loses its end; else the pair is left out
    ramp: int = 0  # steps over which the batch grows from an eighth to its size, in eight stairs
    dropout: float = -1.0  # of this stage, in attention too; below 0: as the backbone has it
    units: Literal["", "pieces", "words", "phrases", "entities"] = ""  # hidden whole; "": as the objective has it

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("length", 8), ("micro", 0), ("ramp", 0), ("tokens", 0)):
            value = getattr(self, name)
            if not least <= value <= MOST:
                limit = f"at least {least}" if value < least else f"at most {MOST:,}"
                raise SesameError(f"a stage's {name} is {value}; it must be {limit}")
        if not 0 <= self.share < 1e9:
            raise SesameError(f"a stage's share is {self.share}; it is a part of the run, such as 0.9 and 0.1")
        if not 0 <= self.short <= 1 or not self.dropout < 1:
            raise SesameError(
                f"a stage's short lies from 0 to 1 and its dropout below 1; found {self.short} and {self.dropout}"
            )
        asked = [name for name in ("tokens", "reverse", "cut") if getattr(self, name)]
        if asked and self.packing != "answers":
            raise SesameError(
                f"a stage's {asked[0]} is for packing = answers, and here it is {self.packing}; leave it out"
            )


@dataclass(frozen=True)
class Languages:
    """How several languages are mixed, where the texts name them (`--text en=FILE`); see `data/languages.py`."""

    exponent: float = 0.7  # of a language's share in the text, for its share of the steps
    vocabulary: float = 0.5  # the same for the text of the tokenizer
    translated: float = 0.5  # of the steps are translations, if there are any
    embedded: bool = False  # a vector for each language is added to all its tokens
    reset: bool = True  # the second side of a translation counts its positions from 0

    def __post_init__(self) -> None:
        if min(self.exponent, self.vocabulary) < 0 or not 0 <= self.translated <= 1:
            raise SesameError("languages: exponents must not be below 0, and translated is a share, from 0 to 1")


@dataclass(frozen=True)
class Evaluation:
    every: float = 0.05  # share of the run between two looks at the held-out text
    tokens: int = 0  # how much held-out text a look takes; 0: what the device does in a moment
    best: bool = False  # the finished model is that of the look with the lowest loss, not the last one

    def __post_init__(self) -> None:
        if not self.every > 0 or self.tokens < 0:
            raise SesameError("evaluation.every must be above 0 and evaluation.tokens not below it")


@dataclass(frozen=True)
class Recipe:
    name: str
    stages: dict[str, Stage]
    paper: str = ""
    about: str = ""
    steps: int = 100_000
    family: str = ""  # the model type to write where several of transformers' fit; "": see `checkpoint/hf`
    table: Literal["random", "counts"] = "random"  # how the token table starts; "counts": data/counts.py
    tokenizer: TokenizerConfig = TokenizerConfig()
    languages: Languages = Languages()
    backbone: dict[str, Any] = field(default_factory=dict)
    objectives: dict[str, Any] = field(default_factory=dict)
    optimizer: OptimConfig = field(default_factory=OptimConfig)
    schedule: Schedule = field(default_factory=Schedule)
    evaluation: Evaluation = Evaluation()

    @property
    def verbatim(self) -> bool:
        """It learns to write texts as they are, with what stands between their sentences."""
        return self.continues or bool({"span", "denoise", "mass"} & set(self.objectives))

    @property
    def continues(self) -> bool:
        """It writes on where a text stops, with nothing around it (GPT)."""
        return self.tokenizer.template == "end" and "clm" in self.objectives

    def to_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(dataclasses.replace(self, objectives={}))
        return plain | {"objectives": {name: dataclasses.asdict(config) for name, config in self.objectives.items()}}


@dataclass(frozen=True)
class Budgets:
    """What lies over a recipe under a wall-clock budget, by device."""

    cpu: dict[str, Any] = field(default_factory=dict)
    cuda: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layers:
    """The part of a recipe's file that lies over the rest of it; `size` is taken where the user names none."""

    size: str | None = None
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    budget: Budgets = Budgets()


LAYERS = [part.name for part in dataclasses.fields(Layers)]


def recipe_names() -> list[str]:
    folder = resources.files("sesame") / "recipes"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_recipe(name: str) -> dict[str, Any]:
    """The raw table of a recipe by name or by path, over that of its base."""
    return reduce(merge, _tables(name))


def _tables(name: str, above: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A recipe of ours is one table with its base; one of the user's own comes behind those of its base.

    A base's path starts at the folder of the file.
    """
    ours = not name.endswith(".toml")
    if ours and name not in recipe_names():
        raise SesameError(unknown(name, dict.fromkeys(recipe_names()), "recipes", "recipe") + " (or give a .toml file)")
    path = Path(str(resources.files("sesame") / "recipes" / f"{name}.toml")) if ours else Path(name)
    table = read_toml(path)
    base = table.pop("base", None)
    if base is None:
        return [table]
    if str(path) in above:
        raise SesameError(f"{path}: is its own base, by way of {' and '.join(above)}; end the circle")
    below = _tables(str(path.parent / base) if str(base).endswith(".toml") else str(base), (*above, str(path)))
    return [merge(below[0], table)] if ours else [*below, table]


def resolve(
    name: str,
    *,
    size: str | None = None,
    budget: bool = False,
    device: str = "cpu",
    settings: Sequence[str] = (),
) -> Recipe:
    """Lay size, budget and settings over a recipe, and check every key."""
    table = _layered(name, size, budget, device)
    for setting in settings:
        table = merge(table, parse_setting(setting))
    return check(table, f"recipe {name}")


def _layered(name: str, size: str | None, budget: bool, device: str) -> dict[str, Any]:
    """A recipe's tables one over the other, in each its size over the rest of it, and over both what changes under a budget.

    So what a user's own file says holds, whatever the sizes and budgets of its base say.
    """
    tables, place = _tables(name), f"recipe {name}"
    layers = _layers(reduce(merge, tables), place)
    chosen = size or layers.size or next(iter(layers.sizes), "")
    if layers.sizes and chosen not in layers.sizes:
        raise SesameError(unknown(chosen, layers.sizes, place, "size"))
    found: dict[str, Any] = {}
    for table in tables:
        layers = _layers(table, place)
        sized = dict(layers.sizes.get(chosen, {}))
        budgets = [layers.budget, build(Budgets, sized.pop("budget", {}), f"{place}: sizes.{chosen}.budget")]
        plain = {key: value for key, value in table.items() if key not in LAYERS}
        above = [getattr(changes, device) for changes in budgets] if budget else []
        found = reduce(merge, [plain, sized, *above], found)
    return found


def _layers(table: Mapping[str, Any], place: str) -> Layers:
    return build(Layers, {key: table[key] for key in LAYERS if key in table}, place)


def check(table: Mapping[str, Any], place: str) -> Recipe:
    """A table as a recipe; its open parts (backbone, objectives) are checked by their own dataclasses."""
    _check_stages(table.get("stages"), place)
    recipe = build(Recipe, table, place)
    if recipe.steps < 1:
        raise SesameError(f"{place}: steps is {recipe.steps}; it must be at least 1")
    backbone = dict(recipe.backbone)
    kind = backbone.get("kind", "encoder")
    if str(kind) not in BACKBONES:
        raise SesameError(unknown(str(kind), BACKBONES, f"{place}: backbone", "kind"))
    if "vocab" in backbone:
        raise SesameError(f"{place}: backbone.vocab comes from the tokenizer; set tokenizer.size")
    _, config = BACKBONES[kind]
    build(
        config, {"vocab": 1, **{key: value for key, value in backbone.items() if key != "kind"}}, f"{place}: backbone"
    )
    if recipe.family and recipe.family not in FAMILIES:
        raise SesameError(unknown(recipe.family, FAMILIES, place, "family"))
    objectives = {}
    for name, values in recipe.objectives.items():
        if name not in CONFIGS:
            raise SesameError(unknown(name, CONFIGS, f"{place}: objectives", "objective"))
        if values is not False:  # `--set objectives.nsp=false` takes one out
            objectives[name] = build(CONFIGS[name], values, f"{place}: objectives.{name}")
            if not objectives[name].weight >= 0:
                raise SesameError(f"{place}: objectives.{name}.weight is {values['weight']}; it must not be below 0")
    if not objectives:
        raise SesameError(f"{place}: no objective; add one, such as [objectives.mlm]")
    if not any(objective.weight > 0 for objective in objectives.values()):
        raise SesameError(f"{place}: no objective has a weight; set objectives.{next(iter(objectives))}.weight above 0")
    check_together(objectives)
    stages = {name: stage for name, stage in recipe.stages.items() if stage.share > 0}
    if not stages:
        raise SesameError(f"{place}: no stage with a share above 0")
    needed = (
        ("nsp", "pairs"), ("sop", "orders"), ("dialogue", "dialogues"), ("seq2seq", "answers"),
        ("skip-thought", "neighbors"),
    )  # fmt: skip
    for name, packing in needed:
        if name in objectives and any(stage.packing != packing for stage in stages.values()):
            raise SesameError(f'{place}: the {name} objective needs packing = "{packing}" in every stage')
    if "seq2seq" not in objectives and any(stage.packing == "answers" for stage in stages.values()):
        raise SesameError(f'{place}: packing = "answers" is for objectives.seq2seq; choose another')
    if "skip-thought" not in objectives and any(stage.packing == "neighbors" for stage in stages.values()):
        raise SesameError(f'{place}: packing = "neighbors" is for objectives.skip-thought; choose another')
    if any(stage.units == "pieces" for stage in stages.values()) and getattr(objectives.get("mlm"), "ngram", 1) > 1:
        raise SesameError(f'{place}: n-grams are of words; a stage of units = "pieces" needs objectives.mlm.ngram=1')
    longest = max(stage.length for stage in stages.values())
    if backbone.get("positions", "learned") != "rotary" and longest > backbone.get("max_length", 512):
        raise SesameError(f"{place}: a stage of length {longest} needs backbone.max_length of at least {longest}")
    return dataclasses.replace(recipe, objectives=objectives, stages=stages)


def _check_stages(stages: Any, place: str) -> None:
    """A stage that lacks what every stage has is mostly the wrong name of another one: `--set stages.short.batch=8`."""
    named = stages if isinstance(stages, Mapping) else {}
    parts = {name: stage for name, stage in named.items() if isinstance(stage, Mapping)}
    whole = {name: stage for name, stage in parts.items() if {"share", "length", "batch"} <= stage.keys()}
    for name in parts:
        if whole and name not in whole:
            more = "a stage of your own needs share, length and batch"
            raise SesameError(f"{unknown(name, whole, f'{place}: stages', 'stage')} ({more})")


def scaled(recipe: Recipe, found_at: int) -> Recipe:
    """The linear scaling rule (Goyal et al. 2017, https://arxiv.org/abs/1706.02677): rate * batch / found_at.

    `found_at` is the batch that the recipe's rate is good for, batch that of the first stage.
    """
    name, stage = next(iter(recipe.stages.items()))
    if stage.tokens:
        raise SesameError(
            f"--scale-lr follows stages.{name}.batch, but a step takes so many tokens there (stages.{name}.tokens), whatever "
            "the batch; set optimizer.rate instead"
        )
    batch = stage.batch
    rate = recipe.optimizer.rate * batch / found_at
    return dataclasses.replace(recipe, optimizer=dataclasses.replace(recipe.optimizer, rate=rate))


def how_scaled(recipe: Recipe, found_at: int) -> str:
    """How the rule came to the rate of a scaled recipe, for people."""
    batch, rate = next(iter(recipe.stages.values())).batch, recipe.optimizer.rate
    doubt = f" (the linear rule breaks near {LINEAR:,} sequences a step: watch the loss)" if batch > LINEAR else ""
    return f"rate {rate * found_at / batch:.3g} * {batch:,} / {found_at:,} = {rate:.3g}{doubt}"
