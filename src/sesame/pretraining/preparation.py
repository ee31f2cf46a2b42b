"""What a pre-training is made of: tokenizer, token stores, the model that it goes on from.

Whatever stands whole in the run's folder or in the cache is taken, the rest is made and kept there. Of many ranks the first
makes things while the others wait; then they find them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sesame.backbones import BACKBONES, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.speech import Speech
from sesame.config import build as build_config
from sesame.data import dialogues
from sesame.data.build import build_store
from sesame.data.cache import cache_folder
from sesame.data.corpus_files import corpus_files
from sesame.data.parts import Part, hold_out
from sesame.data.vector_files import read_vectors
from sesame.data.vector_table import check_width
from sesame.errors import SesameError
from sesame.nn.init import Undrawn
from sesame.pretraining.extension import extend
from sesame.pretraining.heads import objectives_of
from sesame.pretraining.mixture import Mixture, gather_mixture, parts_of
from sesame.pretraining.tokenizer_choice import choose_tokenizer, framed_for
from sesame.pretraining.wishes import Wishes, languages_of
from sesame.progress import say
from sesame.recipe import Recipe
from sesame.text import Tokenizer


@dataclass
class Ingredients:
    tokenizer: Tokenizer
    train: Part | Mixture
    valid: Part | Mixture
    started: Parts | None  # the model that training goes on from
    languages: tuple[str, ...] = ()

    @property
    def speech(self) -> Speech | None:
        """How answers of the start model begin and end."""
        return None if self.started is None else self.started.speech


def gather_ingredients(wishes: Wishes, recipe: Recipe, run: Run, files: list[Path]) -> Ingredients:
    """Tokenizer and text; the run is bound to what they hold."""
    turns = any(stage.packing == "dialogues" for stage in recipe.stages.values())
    if turns and wishes.field == "text":  # nobody named another
        wishes = replace(wishes, field=dialogues.FIELD)
    started = load_parts(wishes.start) if wishes.start else None
    if started is not None:
        _check_settings(wishes, recipe, started)
    kept = run.folder / "tokenizer"
    tokenizer = choose_tokenizer(wishes, recipe, started, files, kept)
    if started is not None:  # an objective that is for another kind of model says so now, not after hours of encoding
        with Undrawn():
            objectives_of(recipe, started.backbone, tokenizer, started.speech)
    if started is None:  # a tokenizer that was made for another kind of model keeps its pieces
        tokenizer = framed_for(tokenizer, recipe)
    if wishes.vectors is not None:
        _check_vectors(wishes.vectors, recipe, tokenizer, languages_of(wishes))
    if started is not None and wishes.extend:
        started, tokenizer = extend(started, tokenizer, files, wishes.field, wishes.extend, kept)
    spoken = languages_of(wishes)
    if spoken:
        spoken = _numbered(spoken, started, wishes)
        mixed = gather_mixture(wishes, recipe, tokenizer, spoken)
        _say_single(recipe, parts_of(mixed[0]))
        run.bind([name for mixture in mixed for name in mixture.stores()])
        return Ingredients(tokenizer, *mixed, started, spoken)
    cache = cache_folder()
    build = partial(
        build_store, tokenizer=tokenizer, cache=cache, field=wishes.field, turns=turns, verbatim=recipe.verbatim
    )
    store = build(files)
    if wishes.valid:
        _say_shared(files, corpus_files(wishes.valid))
        held = build(corpus_files(wishes.valid))
        train, valid = hold_out(store, 0, 0.0)[0], hold_out(held, 0, 0.0)[0]
    else:
        train, valid = hold_out(store, wishes.seed)
    _say_single(recipe, [train])
    run.bind([part.store.path.name for part in (train, valid)])
    return Ingredients(tokenizer, train, valid, started)


def _check_settings(wishes: Wishes, recipe: Recipe, started: Parts) -> None:
    """Settings of a backbone or a tokenizer change nothing of a model that exists; a decoder goes on as a decoder."""
    if "mlm" in recipe.objectives and "lm" in started.heads:
        raise SesameError(
            f"{wishes.start}: tells next tokens, and would forget it by learning masks; take recipe gpt or gpt2, or set "
            "objectives.mlm=false, objectives.clm.head=lm"
        )
    if recipe.backbone.get("backward") and not getattr(started.backbone.config, "backward", False):
        raise SesameError(
            f"{wishes.start}: does not read from the end, as recipe {recipe.name} does; start from one that does, or "
            "take a recipe that reads forward, such as adapt-lstm"
        )
    turned = None if started.speech is None else started.speech.reverse
    for name, stage in recipe.stages.items():
        if stage.packing == "answers" and turned is not None and stage.reverse != turned:
            way = ("their end", "their beginning") if turned else ("their beginning", "their end")
            raise SesameError(
                f"{wishes.start}: has learnt to read sources from {way[0]}, and recipe {recipe.name} reads from {way[1]}; "
                f"set stages.{name}.reverse={str(turned).lower()}"
            )
    built = json.loads(json.dumps(asdict(started.backbone.config)))  # lists are lists, as in a recipe
    for setting in wishes.settings:
        name = setting.partition("=")[0].removeprefix("backbone.")
        other = name != "kind" and json.loads(json.dumps(recipe.backbone.get(name))) != built.get(name)
        if setting.startswith("backbone.") and other:
            raise SesameError(
                f"--set {setting}: {wishes.start} stays as it was built; leave it out"
                + (", or set stages.NAME.dropout" if "dropout" in name else "")
            )
        if setting.startswith("tokenizer.") and not setting.startswith("tokenizer.template"):
            say(f"--set {setting} changes nothing: {wishes.start} has a tokenizer of its own")


def _check_vectors(file: str, recipe: Recipe, tokenizer: Tokenizer, languages: tuple[str, ...]) -> None:
    """Vectors that a new model has no room for are told of now, by the first of them, and not after hours of encoding."""
    with torch.device("meta"):
        width = build_backbone(new_config(recipe, tokenizer, languages)).token_table().shape[1]
    check_width(read_vectors(file, most=1), width)


def new_config(recipe: Recipe, tokenizer: Tokenizer, languages: tuple[str, ...]) -> Any:
    """The settings of a new backbone."""
    settings = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    if recipe.languages.embedded:
        settings["languages"] = languages
    _, kind = BACKBONES[recipe.backbone.get("kind", "encoder")]
    return build_config(kind, {**settings, "vocab": len(tokenizer)}, "backbone")


def _numbered(spoken: tuple[str, ...], started: Parts | None, wishes: Wishes) -> tuple[str, ...]:
    """The languages in the order of their embeddings: the start model's, if it has any."""
    known = () if started is None else getattr(started.backbone.config, "languages", ())
    for language in spoken if known else ():
        if language not in known:
            raise SesameError(f"{wishes.start}: does not know the language {language!r}; it knows {', '.join(known)}")
    return known or spoken


def _say_shared(files: list[Path], held: list[Path]) -> None:
    """A held-out file that is learnt from, as where --text is the folder that it lies in."""
    learnt = {file.resolve() for file in files}
    if shared := [file for file in held if file.resolve() in learnt]:
        more = f" and {len(shared) - 1:,} more files of --valid" if len(shared) > 1 else ""
        say(f"warning: {shared[0]}{more}: also in --text; losses on it are too good, so leave it out of one of the two")


def _say_single(recipe: Recipe, parts: Sequence[Part]) -> None:
    """Behind the only sentence of a document there is no next one: its pairs are all of the other kind."""
    sizes = np.concatenate([np.diff(part.store.documents) for part in parts])
    share = float((sizes == 1).mean()) if len(sizes) > 1 else 0.0
    if "nsp" in recipe.objectives and share > 0.5:
        say(
            f"warning: {100 * share:.0f} % of the documents are a single sentence, which has no next one to predict; put "
            "blank lines only between documents, or set objectives.nsp=false"
        )
