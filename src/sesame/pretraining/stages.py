"""What changes in a model from stage to stage: its dropout, its places; and all shapes of all stages, compiled beforehand."""

import torch

from sesame.backbones import Backbone
from sesame.data.loader import STAIRS
from sesame.nn.embeddings import Embeddings, lengthened
from sesame.pretraining.prepared import Prepared
from sesame.progress import say
from sesame.recipe import Stage
from sesame.train.rehearsal import rehearse
from sesame.train.replay import Replay
from sesame.train.shadow import Shadow
from sesame.train.shares import as_share, whole

REHEARSED = 32  # steps whose shapes are compiled beforehand: batches without padding have one or two


def drop(parts: Prepared, stage: Stage) -> None:
    """The stage's dropout, in the model and in its copy that computes."""
    models = [parts.model, parts.call.copy] if isinstance(parts.call, Shadow) else [parts.model]
    for module in (module for model in models for module in model.modules()):
        if isinstance(module, Backbone):
            module.drop(None if stage.dropout < 0 else stage.dropout)
    if isinstance(parts.call, Replay):
        parts.call.forget()


def lengthen(parts: Prepared, done: int) -> None:
    """Learned places that no row of the first `done` stages has reached take over those that rows have: noise would spoil
    longer rows.

    Ours: BERT's authors leave the noise, and have 100,000 steps at full length to learn the rest.
    """
    longest = max(stage.length for stage in list(parts.recipe.stages.values())[:done])
    tables = [part.positions for part in parts.model.modules() if isinstance(part, Embeddings) and parts.born]
    with torch.no_grad():
        for places in (table.weight for table in tables if table is not None):
            places.copy_(as_share(lengthened(whole(places), longest), places))


def rehearse_stages(parts: Prepared) -> None:
    """All shapes of all stages once, as the first steps of a stage and of its stairs show them.

    With `--rehearse` the budget begins after it. Without, it is part of the budget, but not of the schedule: a compiler
    that works in the first step would take the warm-up away, one that works later the best of the rate.
    """
    for name, stage in parts.recipe.stages.items():
        drop(parts, stage)
        if stage.packing == "answers":  # shapes vary, nothing is compiled
            continue
        loader = parts.examples.share(name, stage, parts.run.world)
        stairs = [-(-stair * stage.ramp // STAIRS) for stair in range(1, STAIRS + 1)] if stage.ramp else []
        batches = (batch for step in (*range(REHEARSED), *stairs) for batch in loader.load(step, 0.0))
        shapes, seconds = rehearse(parts.model, parts.call, batches, parts.machine)
        counted = "" if parts.wishes.rehearse else "not "
        many = "1 shape" if shapes == 1 else f"{shapes} shapes"
        say(f"stage {name}: {many} compiled in {seconds:.0f} s, {counted}beside the budget")
