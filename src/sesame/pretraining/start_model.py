"""The model that a run begins with: a new one, its table perhaps from vectors or counts, or one that goes on."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sesame import chance
from sesame.backbones import Backbone, build_backbone
from sesame.checkpoint.run import Run
from sesame.data.counts import count_table
from sesame.data.vector_files import read_vectors
from sesame.data.vector_table import token_vectors
from sesame.errors import SesameError
from sesame.files import whole_file
from sesame.objectives.model import Model
from sesame.pretraining.beside import load_beside
from sesame.pretraining.heads import objectives_of, take_heads
from sesame.pretraining.mixture import Mixture
from sesame.pretraining.preparation import Ingredients, new_config
from sesame.pretraining.wishes import Wishes
from sesame.progress import say
from sesame.recipe import Recipe
from sesame.text import Tokenizer

COUNTED = 2.5  # vectors from counts are so much longer than random ones; docs/log.md


def model_at_start(
    found: Ingredients, wishes: Wishes, recipe: Recipe, run: Run, fresh: bool
) -> tuple[Model, dict[str, nn.Module]]:
    """The model at the start, and the heads of the start model that no objective trains; not `fresh`: to be filled."""
    torch.manual_seed(chance.key(wishes.seed) >> 1)
    backbone = _backbone(found, wishes, recipe)
    backbone.spell(found.tokenizer)
    if found.started is None and recipe.table == "counts" and fresh:
        _count(found, backbone, run.folder / "table.npy")
    if wishes.vectors is not None and fresh:
        _place(found.tokenizer, backbone, wishes.vectors)
    if wishes.freeze_vectors:
        backbone.token_table().requires_grad_(False)
    objective = objectives_of(recipe, backbone, found.tokenizer, found.speech)
    untouched = {} if found.started is None else take_heads(objective, found.started)
    if wishes.start and fresh:
        load_beside(objective, wishes.start)
    _check_agreement(recipe, backbone)
    return Model(backbone, objective), untouched


def _backbone(found: Ingredients, wishes: Wishes, recipe: Recipe) -> Backbone:
    if found.started is None:
        return _new_backbone(found, recipe)
    backbone = found.started.backbone
    name, stage = max(recipe.stages.items(), key=lambda item: item[1].length)
    most = backbone.longest if backbone.answers else getattr(backbone.config, "max_length", None)
    if most is not None and stage.length > most:  # T5 and recurrent models have no end
        raise SesameError(
            f"{wishes.start}: takes {most} tokens; a stage has {stage.length}, so set stages.{name}.length={most}"
        )
    return backbone


def _new_backbone(found: Ingredients, recipe: Recipe) -> Backbone:
    config = new_config(recipe, found.tokenizer, found.languages)
    try:
        return build_backbone(config)
    except RuntimeError as error:
        if "memory" not in str(error):  # the CPU's allocator has no error of its own
            raise
        raise SesameError(
            "a model of this size does not fit into this machine's memory; choose a smaller --size, or lower what "
            "makes it large: backbone.width, depth, inner or max_length"
        ) from None


@torch.no_grad()
def _place(tokenizer: Tokenizer, backbone: Backbone, file: str) -> None:
    """Start the token table from static vectors; tokens without one keep their random start."""
    rows = backbone.token_table()
    ids, vectors = token_vectors(tokenizer, read_vectors(file), rows.shape[1])
    rows[ids] = torch.from_numpy(vectors).to(rows)
    say(f"{len(ids):,} of {len(tokenizer):,} tokens start from their vectors in {file}")


@torch.no_grad()
def _count(ingredients: Ingredients, backbone: Backbone, kept: Path) -> None:
    """Start the token table from counts; tokens that the text does not hold keep their random start."""
    if isinstance(ingredients.train, Mixture):
        say("the token table starts at random: neighbours are counted in one language only")
        return
    rows = backbone.token_table()
    if kept.is_file():
        found = np.load(kept)
    else:
        began = time.monotonic()
        found = count_table(ingredients.train, backbone.vocab, rows.shape[1], COUNTED * backbone.config.init)
        with whole_file(kept) as handle:
            np.save(handle, found)
        say(f"the token table starts from counts of neighbours, {time.monotonic() - began:.0f} s")
    table = torch.from_numpy(found)
    seen = table.abs().sum(1) > 0
    rows[: len(table)][seen] = table[seen]


def _check_agreement(recipe: Recipe, backbone: Backbone) -> None:
    """R-Drop's two passes differ by dropout, be it the model's or the stage's; without it they are work for nothing."""
    if not getattr(recipe.objectives.get("seq2seq"), "agreement", 0):
        return
    if getattr(backbone.config, "attention", "") == "hard":
        raise SesameError(
            "objectives.seq2seq.agreement does not go with backbone.attention=hard, whose draws would not learn of it; "
            "take attention=global, or leave agreement out"
        )
    built = any(getattr(backbone.config, name, 0) for name in ("dropout", "attention_dropout", "inner_dropout"))
    for name, stage in recipe.stages.items():
        if stage.dropout == 0 or (stage.dropout < 0 and not built):
            raise SesameError(
                "objectives.seq2seq.agreement needs dropout, by which two passes differ; "
                f"set stages.{name}.dropout=0.1 or leave it out"
            )
