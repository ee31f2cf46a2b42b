"""Several checkpoints become one model: the mean of their weights.

Paper: Vaswani et al. 2017, "Attention is all you need" (https://arxiv.org/abs/1706.03762), section 6.1: base models are the
mean of the last 5 checkpoints, big ones of the last 20. Izmailov et al. 2018 (https://arxiv.org/abs/1803.05407) say why it
helps: late in training the weights wander around a minimum, and their mean lies nearer to its middle than any of them.
    w = 1/N sum over n of w_n
Relations: `optimizer.ema` keeps a running mean while it trains, which costs memory but no disk.
Unusual: sums are taken in 64 bits. Models that were trained apart are averaged as asked, though that helps only where they
started alike: weights do not tell.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import in_shares
from sesame.checkpoint.saving import save_parts
from sesame.config import read_toml
from sesame.errors import SesameError
from sesame.files import whole_folder
from sesame.progress import bar, say

TASK = ("kind", "labels", "multi", "both", "layers", "pooling", "transform", "squeeze", "null")  # settings of a task
TRAINS = ("init", "glorot", "orthogonal", "max_length", "memory")
SHAPES = ("inner", "decoder_inner", "decoder_depth", "head_size")  # 0 stands for what follows from others


def last_checkpoints(run: str | Path, last: int) -> list[Path]:
    """The newest checkpoints of a run, oldest first."""
    folder = Path(run)
    if not (folder / "recipe.toml").is_file():
        raise SesameError(f"{folder}: holds no run; name a run, or two or more model folders without --last")
    found = [f for f in (folder / "checkpoints").glob("step-*") if f.name[5:].isdigit()]
    found.sort(key=lambda f: int(f.name[5:]))
    if len(found) < last:
        raise SesameError(
            f"{folder}: has {len(found)} of the {last} checkpoints asked for; give a smaller --last, or pre-train with "
            f"--keep {last} and a shorter --save-minutes than 5, its default"
        )
    for checkpoint in found[-last:]:
        if in_shares(checkpoint):
            raise SesameError(
                f"{checkpoint}: holds shares of weights; average model folders, or runs of --parallel ddp"
            )
    return found[-last:]


def average(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Write the mean of these models, which are alike in all but their weights, into a new folder."""
    if len(folders) < 2:
        raise SesameError("an average needs two models or more; name more folders, or a run with --last N")
    place = Path(out)
    if place.exists():
        raise SesameError(f"--out {place}: is there already; choose another name")
    first = load_parts(folders[0])
    sums = {name: tensor.double() for name, tensor in first.state().items()}
    with bar("average", len(folders), "models") as shown:
        shown.advance(1)
        for folder in folders[1:]:
            _add(sums, first, load_parts(folder), folders[0], folder)
            shown.advance(1)
    with torch.no_grad():
        for name, tensor in first.state().items():
            tensor.copy_(sums[name] / len(folders))
    if first.unused:
        say(f"left behind, because no part of Sesame uses them: {', '.join(first.unused[:8])}")
    with whole_folder(place) as folder:
        save_parts(folder, first, _recipe(Path(folders[0])), _card(folders))
    say(f"{place}: the mean of {len(folders)} models")
    return place


def _add(sums: Mapping[str, Tensor], one: Parts, other: Parts, place: str | Path, folder: str | Path) -> None:
    found = other.state()
    if type(one.backbone) is not type(other.backbone):
        raise SesameError(f"{folder}: is another kind of model than {place}; average models that are alike")
    for name in [*sums, *(name for name in found if name not in sums)]:
        sizes = [tuple(tensors[name].shape) if name in tensors else "none" for tensors in (sums, found)]
        if sizes[0] != sizes[1]:
            raise SesameError(
                f"{folder}: {name} has the shape {sizes[1]}, but {sizes[0]} in {place}; average models that are alike"
            )
    meant, other_meant = _meanings(one), _meanings(other)
    for name, value in meant.items():
        if other_meant.get(name) != value:
            raise SesameError(
                f"{folder}: {name}: {_shown(other_meant.get(name))} here, {_shown(value)} in {place}; average models that "
                "are alike"
            )
    prints = [None if parts.tokenizer is None else parts.tokenizer.fingerprint() for parts in (one, other)]
    if prints[0] != prints[1]:
        raise SesameError(f"{folder}: has another tokenizer than {place}; average models that share one")
    for name, total in sums.items():
        total += found[name].double()


def _meanings(parts: Parts) -> dict[str, Any]:
    """What the same weights mean: settings that change what is computed or said, but no shape."""
    found = {f"backbone.{name}": value for name, value in vars(parts.backbone.config).items() if _computes(name)}
    found["sources are read from their end"] = parts.speech is not None and parts.speech.reverse
    for task in parts.tasks.values():
        found |= {f"{name} of the task {task.name}": getattr(task.config, name) for name in TASK}
    return found


def _computes(name: str) -> bool:
    """Whether a setting of a backbone is more than how it trains, how much it can take, or what shapes tell."""
    return "dropout" not in name and name not in TRAINS and name not in SHAPES


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _recipe(folder: Path) -> Mapping[str, object] | None:
    file = next((f for f in (folder / "sesame.toml", folder / "final" / "sesame.toml") if f.is_file()), None)
    return None if file is None else read_toml(file)


def _card(folders: Sequence[str | Path]) -> str:
    names = "\n".join(f"- `{Path(folder).name}`" for folder in folders)
    return f"# The mean of {len(folders)} models, by Sesame\n\n{names}\n"
