"""The weights of a file into a backbone and its heads, by the table of names of its family (`names.py`)."""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.heads import belongs, pretrained_heads, read_speaking
from sesame.checkpoint.names import Row, import_state
from sesame.checkpoint.tasks import OURS, leading, read_tasks
from sesame.errors import SesameError
from sesame.progress import say
from sesame.tasks import Task

QUANTIZED = "quantized weights do not open here; in transformers, call dequantize() on the model and save it again"
_NUMBER = re.compile(r"\.\d+\.")


def fill(
    backbone: Backbone,
    weights: dict[str, Tensor],
    family: ModuleType | None,
    config: Mapping[str, Any],
    folder: Path,
    more: Mapping[str, nn.Module] | None,
) -> Parts:
    """Put weights into a backbone and those heads that the file holds whole."""
    tasks = read_tasks(config, backbone, str(folder / "config.json"), family)
    try:
        found, table = _names(backbone.config, weights, family, config, tasks)
        outputs = _outputs(family, config, backbone.config, found, folder)
    except ValueError as error:
        raise SesameError(f"{folder}: {error}; copy or save the folder again") from error
    heads = _wanted_heads(backbone.config, table, found) | outputs
    for task in tasks.values():
        heads |= task.heads()
    heads |= {name: deepcopy(head) for name, head in (more or {}).items() if name not in heads}
    parts = Parts(backbone, dict(heads), tasks=tasks)
    wanted = parts.state()
    _refuse_whole_numbers(table, found, wanted, folder)
    state, missing, parts.unused = _fitting(table, found, wanted, folder)
    _leave_out(parts, missing, folder)
    if next(iter(found.values())).dtype == torch.float64:
        for module in (backbone, *parts.heads.values()):
            module.double()
    _assign(parts, state)
    if deeper := _deeper(table, parts.unused, wanted):
        _tell_deeper(folder, deeper[0], len(deeper))
    return parts


def _wanted_heads(settings: Any, table: Iterable[Row], found: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """The heads of pre-training that the file may hold."""
    own_table = any(row.ours in ("mlm.table", "plm.table") and row.theirs[0] in found for row in table)
    plain = not any(row.ours == "mlm.dense.weight" for row in table)
    return pretrained_heads(settings, own_table, plain)


def _fitting(
    table: Iterable[Row], found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], folder: Path
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The tensors of the file under our names, those that it lacks, all of heads, and those that no part of ours takes."""
    try:
        state, missing, unused = import_state(table, found, wanted)
    except (RuntimeError, IndexError) as error:
        raise SesameError(f"{folder}: the weights do not fit config.json ({error}); copy the folder again") from error
    lacking = [name for name in missing if name.startswith("backbone.")]
    if lacking:
        raise SesameError(
            f"{folder}: the weights lack {lacking[0]} ({len(lacking)} tensors missing); copy the folder again"
        )
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            sizes = f"{tuple(tensor.shape)} in the file, {tuple(wanted[name].shape)} by config.json"
            raise SesameError(f"{folder}: {name} does not fit its config.json: {sizes}")
    return state, missing, unused


def _leave_out(parts: Parts, missing: Iterable[str], folder: Path) -> None:
    """Heads that the file does not hold whole, and the tasks that need them."""
    for name in list(parts.heads):
        if any(gap.startswith(f"{name}.") for gap in missing):
            del parts.heads[name]
    for name, task in list(parts.tasks.items()):
        if not set(task.heads()) <= set(parts.heads):
            del parts.tasks[name]
        gap = next((gap for gap in missing if belongs(gap, set(task.heads()))), "")
        if gap:
            say(f"{folder}: the weights lack {gap}: the head {name!r} is left out (`sesame finetune` teaches another)")


def _deeper(table: Iterable[Row], unused: Iterable[str], wanted: Mapping[str, Tensor]) -> list[str]:
    """Tensors of layers above those that config.json names: they are called as those of the backbone but for a number."""
    rows = [row for row in table if row.ours in wanted and row.ours.startswith("backbone.")]
    read = {_NUMBER.sub(".", name) for row in rows for name in row.theirs}
    return [name for name in unused if _NUMBER.sub(".", name) in read]


@cache  # told once, though every seed of a fine-tuning opens the folder
def _tell_deeper(folder: Path, first: str, count: int) -> None:
    say(
        f"{folder}: the weights hold more layers than config.json names, and {count:,} tensors are not read, first {first}; "
        "mend the number of layers there if they belong to the model"
    )


def _refuse_whole_numbers(
    table: Iterable[Row], found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], folder: Path
) -> None:
    """A matrix of whole numbers has its scale elsewhere: read as it stands it would be another matrix."""
    read = [name for row in table if row.ours in wanted and wanted[row.ours].is_floating_point() for name in row.theirs]
    for name in read:
        if name in found and not found[name].is_floating_point():
            raise SesameError(f"{folder}: {name} is kept as {found[name].dtype}: {QUANTIZED}")


def _names(
    settings: Any,
    weights: dict[str, Tensor],
    family: ModuleType | None,
    config: Mapping[str, Any],
    tasks: Mapping[str, Task],
) -> tuple[dict[str, Tensor], list[Row]]:
    """A file's tensors under tidy names, and the table that leads from them to ours."""
    if family is None:
        return weights, [Row(name, (name,)) for name in weights]
    kept = {name: tensor for name, tensor in weights.items() if name.startswith(OURS)}
    found = family.clean({name: t for name, t in weights.items() if name not in kept}, config) | kept
    lead = leading(tasks, family, settings)
    table = family.table(settings, None if lead is None else (lead.name, lead.config.kind))
    table = [row for row in table if OURS + row.ours not in kept]
    return found, table + [Row(name.removeprefix(OURS), (name,)) for name in kept]


def _outputs(
    family: ModuleType | None, config: Mapping[str, Any], settings: Any, found: Mapping[str, Tensor], folder: Path
) -> dict[str, nn.Module]:
    """The output layer of a decoder, if the folder has one; it may have no weights of its own."""
    if family is None:
        return read_speaking(config.get("heads"), settings, str(folder / "config.json"))
    head = family.read_head(config, settings, found) if hasattr(family, "read_head") else None
    return {} if head is None else {family.HEAD: head}


@torch.no_grad()
def _assign(parts: Parts, state: Mapping[str, Tensor]) -> None:
    targets = parts.state()
    for name, tensor in state.items():
        if name in targets:
            targets[name].copy_(tensor)
