"""Going on from a model that was trained along with another: `--start FOLDER` finds ELECTRA's generator in FOLDER/generator.

Only what is the encoder's own is taken. Tables are the backbone's, which has them already, perhaps with new words; the bias
of such a word in the generator's output starts at 0.
"""

from pathlib import Path

import torch

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.errors import SesameError
from sesame.objectives.base import Objective
from sesame.progress import say

SHARED = tuple(f"backbone.embeddings.{table}." for table in ("tokens", "positions", "segments", "norm"))


@torch.no_grad()
def load_beside(objective: Objective, start: str) -> None:
    """Put the encoders that stand beside a start model into those that are trained along."""
    for name, (encoder, heads) in objective.beside().items():
        folder = _inside(Path(start)) / name
        if not (folder / "config.json").is_file():
            say(f"{start}: has no {name} beside it; that starts anew")
            continue
        found = load_parts(folder, tokenizer=False).state()
        for key, tensor in Parts(encoder, heads).state().items():
            if key.startswith(SHARED):
                continue
            given = found.get(key)
            if given is None or given.shape[1:] != tensor.shape[1:] or len(given) > len(tensor):
                raise SesameError(
                    f"{folder}: {key} does not fit the {name} of this recipe; give it the size that it was trained with "
                    f"(objectives.rtd.generator_width and generator_depth), or take the folder {name} away"
                )
            if len(given) < len(tensor) and key != "mlm.bias":
                raise SesameError(
                    f"{folder}: {key} is smaller than the {name} of this recipe; set objectives.rtd alike"
                )
            tensor[: len(given)].copy_(given)


def _inside(folder: Path) -> Path:
    """A run's result, if it is a run."""
    final = folder / "final"
    return final if not (folder / "config.json").is_file() and (final / "config.json").is_file() else folder
