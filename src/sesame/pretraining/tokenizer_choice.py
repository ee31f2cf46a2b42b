"""Which tokenizer a run takes, and what it puts around a text: the user's, the start model's, the run's own, or a new one."""

from pathlib import Path

from sesame.backbones import BACKBONES
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import check_fit
from sesame.errors import SesameError
from sesame.files import whole_folder
from sesame.pretraining.mixture import mixed_tokenizer
from sesame.pretraining.tokenizer_cache import cached_tokenizer
from sesame.pretraining.wishes import Wishes, languages_of
from sesame.recipe import Recipe
from sesame.text import Tokenizer
from sesame.text.template import framed, with_cls, with_sentinels


def choose_tokenizer(wishes: Wishes, recipe: Recipe, started: Parts | None, files: list[Path], kept: Path) -> Tokenizer:
    """The user's, the start model's, the one that this run made before, or a new one."""
    if wishes.tokenizer:
        tokenizer = Tokenizer.load(wishes.tokenizer, None if started is None else started.backbone.vocab)
        if started is not None:
            check_fit(tokenizer, started.backbone.vocab, wishes.tokenizer)
            _check_pieces(tokenizer, started, wishes)
        return tokenizer
    if started is not None:
        if started.tokenizer is None:
            raise SesameError(f"{wishes.start}: has no tokenizer; name one with --tokenizer")
        return started.tokenizer
    if (kept / "tokenizer.json").is_file():
        return Tokenizer.load(kept)
    if languages_of(wishes):
        tokenizer = mixed_tokenizer(wishes, recipe)
    else:
        tokenizer = cached_tokenizer(files, wishes.field, recipe.tokenizer)
    with whole_folder(kept) as folder:
        tokenizer.save(folder)
    return tokenizer


def _check_pieces(tokenizer: Tokenizer, started: Parts, wishes: Wishes) -> None:
    """The rows of the start model's table are its own tokenizer's pieces."""
    known, given = [] if started.tokenizer is None else started.tokenizer.tokens(), tokenizer.tokens()
    other = next((id for id, (a, b) in enumerate(zip(given, known, strict=False)) if a != b), None)
    if other is not None:
        raise SesameError(
            f"--tokenizer {wishes.tokenizer}: piece {other} is {given[other]!r}, in {wishes.start} it is {known[other]!r}; "
            "leave --tokenizer out, the model has one of its own"
        )


def framed_for(tokenizer: Tokenizer, recipe: Recipe) -> Tokenizer:
    """With the tokens around a text that the recipe's model reads."""
    tokenizer = tokenizer.for_a_new_model()
    if "span" in recipe.objectives:
        tokenizer = with_sentinels(tokenizer)
    if recipe.tokenizer.template == "end":
        return framed(tokenizer, "end")
    return with_cls(tokenizer, BACKBONES[recipe.backbone.get("kind", "encoder")][0].cls_last)
