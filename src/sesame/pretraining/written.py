"""What of a run becomes model folders: the backbone with its heads, how it speaks, and encoders trained along.

Weights may lie in shares on many processes (`train/shares.py`). Then rank 0 has twins, the same parts without numbers, which
are filled with the whole weights at the end.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import written_family
from sesame.checkpoint.speech import Speech
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2Seq
from sesame.recipe import Recipe
from sesame.text import Tokenizer
from sesame.train.parallel import World
from sesame.train.shares import collect, is_sharded


@dataclass
class Written:
    """The parts of a run's model, by the folder within the model's: itself in "", others under their names."""

    model: Model
    tokenizer: Tokenizer
    recipe: Recipe
    world: World
    family: str = ""  # the model type to write, if it fits
    spoke: Speech | None = None  # how answers of the start model begin and end
    untouched: dict[str, nn.Module] = field(default_factory=dict)  # heads of the start model that no objective trains
    twins: dict[str, Parts] | None = None

    def parts(self) -> dict[str, Parts]:
        """As they are trained, which may be in shares."""
        heads = {**self.untouched, **self.model.objective.heads()}
        first = Parts(self.model.backbone, heads, self.tokenizer, family=self.family, speech=self._speech())
        beside = self.model.objective.beside().items()
        return {"": first} | {name: Parts(encoder, more, self.tokenizer) for name, (encoder, more) in beside}

    def other_family(self) -> str:
        """What to say of a recipe whose family this model cannot be. Empty: nothing."""
        found = written_family(self.parts()[""])
        kind, wanted = "" if found is None else found[0], self.recipe.family
        if wanted in ("", kind):
            return ""
        instead = f"it is written as {kind!r}" if kind else "it is written for Sesame alone"
        return f"family = {wanted!r} of recipe {self.recipe.name}: this model is none, so {instead}"

    def take(self, checkpoint: Path) -> None:
        """Weights from a checkpoint that holds the parts whole."""
        for folder, parts in self.parts().items():
            ours = parts.state()
            with torch.no_grad():
                for name, tensor in load_parts(checkpoint / folder, tokenizer=False, more=parts.heads).state().items():
                    ours[name].copy_(tensor)

    def before_sharding(self) -> None:
        """On rank 0, as long as the parts are whole."""
        self.twins = _without_numbers(self.parts())

    def whole(self) -> dict[str, Parts]:
        """The parts with whole weights; shares are brought together on rank 0, elsewhere the parts stay as they are."""
        parts = self.parts()
        if not is_sharded(self.model):
            return parts
        found = {folder: collect(part.state(), self.world) for folder, part in parts.items()}
        if self.twins is None:
            return parts
        for twin in self.twins.values():
            for module in (twin.backbone, *twin.heads.values()):
                module.to_empty(device="cpu")
        with torch.no_grad():
            for folder, twin in self.twins.items():
                for name, tensor in twin.state().items():
                    tensor.copy_(found[folder][name])
        return self.twins

    def _speech(self) -> Speech | None:
        """With which tokens answers begin and end, if the model speaks."""
        starts = [(part.start,) for part in self.model.objective.all() if isinstance(part, Seq2Seq)]
        if not starts and not getattr(self.model.backbone.config, "causal", False):
            return None
        reverse, pairs = (
            any(stage.reverse for stage in self.recipe.stages.values()),
            "seq2seq" in self.recipe.objectives,
        )
        if self.spoke is not None and pairs:
            return replace(self.spoke, start=self.spoke.start or starts[0], reverse=reverse, plain=True)
        ids = self.tokenizer.ids()
        return Speech(starts[0] if starts else (), (ids["sep"],), ids["pad"], reverse=reverse, plain=pairs)


def _without_numbers(parts: dict[str, Parts]) -> dict[str, Parts]:
    """Copied together: what is one tensor stays one."""
    copies = deepcopy({folder: (part.backbone, part.heads) for folder, part in parts.items()})
    for backbone, heads in copies.values():
        for module in (backbone, *heads.values()):
            module.to("meta")
    return {folder: replace(parts[folder], backbone=copy[0], heads=copy[1]) for folder, copy in copies.items()}
