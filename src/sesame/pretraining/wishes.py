"""What a user asks of a pre-training: the wishes, the recipe as they change it, and what makes two runs the same run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sesame.config import check_options, check_seconds, says_steps, several
from sesame.data.languages import pairs_by_languages, texts_by_language
from sesame.data.unit_files import fingerprint, wanted_entities
from sesame.errors import SesameError
from sesame.recipe import Recipe, resolve, scaled
from sesame.train.parallel import Parallel
from sesame.train.precision import Machine, Precision


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    recipe: str
    text: Sequence[str]
    out: Path
    size: str | None = None
    start: str | None = None
    tokenizer: str | None = None
    valid: Sequence[str] = ()
    pairs: Sequence[str] = ()  # translations, "en-ru=FILE"; see `mixture.py`
    steps: int | None = None
    budget: float | None = None  # seconds
    seed: int = 0
    settings: Sequence[str] = ()
    device: str = "auto"
    precision: Precision = "auto"
    save_minutes: float = 5.0
    save_steps: int = 0
    compile: bool | None = None  # None: on a GPU
    field: str = "text"
    extend: int = 0  # new words for the vocabulary of the start model
    one_pass: bool = False  # over the text, instead of steps or a budget; see `one_pass.py`
    parallel: Parallel = "auto"  # how many processes hold the weights; see `train/parallel.py`
    rehearse: bool = False  # compile first, and count the budget from there; see `train/rehearsal.py`
    ready: Callable[[], None] | None = None  # called between the two: comparisons wait there until the device is free
    entities: str | None = None  # a file, one a line: what stages of units = "entities" hide whole
    keep: int = 0  # checkpoints, for their average; 0: as few as are safe
    vectors: str | None = None  # a file: what the token table starts from
    freeze_vectors: bool = False  # and it does not train
    scale_lr: int = 0  # the batch that the recipe's rate is good for: from there it follows the batch; 0: it stays

    def __post_init__(self) -> None:
        if self.budget is not None and self.steps is not None:
            raise SesameError("--budget and --steps both say when to end; give one of them")
        if self.steps is not None and self.steps < 1:
            raise SesameError(f"--steps {self.steps}: give at least 1")
        check_seconds("budget", self.budget)
        says_steps(self.settings, steps=self.steps, budget=self.budget)


def wishes_of(
    recipe: str | Path,
    text: Sequence[str | Path] | str | Path = (),
    out: str | Path | None = None,
    *,
    size: str | None = None,
    **options: Any,
) -> Wishes:
    """The wishes, out of the options of the command; one text may stand where several may."""
    check_options(Wishes, options, "sesame.pretrain")
    texts = several(text)
    given: dict[str, Any] = {
        name: several(options.pop(name)) for name in ("valid", "pairs", "settings") if name in options
    }
    if not texts and not given.get("pairs"):
        raise SesameError("there is nothing to learn from; name text with --text, or pairs of texts with --pairs")
    for name in ("start", "tokenizer", "vectors", "entities"):
        if options.get(name) is not None:
            options[name] = str(options[name])
    place = Path("runs") / "-".join(part for part in (Path(recipe).stem, size) if part) if out is None else Path(out)
    return Wishes(recipe=str(recipe), text=texts, out=place, size=size, **given, **options)


def chosen_recipe(wishes: Wishes, machine: Machine) -> Recipe:
    """The recipe with everything that the user changed of it."""
    if wishes.start is not None and wishes.size is not None:
        raise SesameError("--start brings a model of its own size; leave --size out")
    if wishes.vectors is not None and wishes.start is not None:
        raise SesameError("--start brings a token table of its own; leave --vectors out")
    if wishes.freeze_vectors and wishes.vectors is None:
        raise SesameError("--freeze-vectors is for vectors that were trained; name them with --vectors FILE")
    if wishes.extend and wishes.start is None:
        raise SesameError(
            "--extend adds words to a model that exists; name it with --start MODEL, or leave --extend out: "
            "a new model gets a vocabulary made from your text"
        )
    budget, device = wishes.budget is not None, machine.device.type
    recipe = resolve(wishes.recipe, size=wishes.size, budget=budget, device=device, settings=wishes.settings)
    if wishes.steps is not None:
        recipe = replace(recipe, steps=wishes.steps)
    return scaled(recipe, wishes.scale_lr) if wishes.scale_lr else recipe


def identity_of(recipe: Recipe, wishes: Wishes, files: list[Path]) -> dict[str, Any]:
    run: dict[str, Any] = {"text": [str(file.resolve()) for file in files], "seed": wishes.seed, "field": wishes.field}
    for key in ("start", "tokenizer", "budget", "extend", "one_pass", "rehearse", "vectors", "freeze_vectors"):
        if getattr(wishes, key) not in (None, 0, False):
            run[key] = getattr(wishes, key)
    if wishes.entities:
        run["entities"] = fingerprint(wanted_entities(wishes.entities, recipe.stages))
    if wishes.valid:
        run["valid"] = [str(Path(file).resolve()) for file in wishes.valid]
    if languages_of(wishes):
        run |= {"languages": list(languages_of(wishes)), "pairs": list(wishes.pairs)}
    plain = recipe.to_dict()
    if wishes.start:  # these are the start model's, whatever the recipe says
        del plain["backbone"]
        plain["tokenizer"] = {"template": recipe.tokenizer.template}
    return {**plain, "run": run}


def languages_of(wishes: Wishes) -> tuple[str, ...]:
    """The languages that the user named, in that order; none: one text in whatever language."""
    texts, pairs = texts_by_language(wishes.text), pairs_by_languages(wishes.pairs)
    if "" in texts and pairs:
        raise SesameError(f"{texts[''][0]}: has no language, but --pairs has; write LANGUAGE={texts[''][0]}")
    return tuple(dict.fromkeys(name for name in [*texts, *(side for pair in pairs for side in pair)] if name))
