"""Reading weights that others wrote: safetensors (whole or sharded) and old `.bin` files, never by unpickling code."""

import pickle
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from sesame.errors import SesameError
from sesame.files import read_json

SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model folder, under the names in the file: safetensors before .bin, one file before several."""
    for single in SINGLE:
        if (folder / single).is_file():
            return _numbers(_read(folder / single), folder)
        if (folder / (single + INDEX)).is_file():
            return _numbers(_shards(folder, folder / (single + INDEX)), folder)
    raise SesameError(f"{folder}: no weights here; a model folder holds {' or '.join(SINGLE)}")


def _shards(folder: Path, index: Path) -> dict[str, Tensor]:
    listed = read_json(index)
    if not isinstance(listed, dict) or not isinstance(listed.get("weight_map"), dict):
        raise SesameError(f"{index}: lists no weights; copy it again")
    found: dict[str, Tensor] = {}
    for shard in sorted(set(map(str, listed["weight_map"].values()))):
        if Path(shard).name != shard:
            raise SesameError(f"{index}: the shard {shard!r} lies outside the folder; copy it beside")
        found.update(_read(folder / shard))
    return found


def _numbers(found: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Refuse what would answer everything with "not a number"."""
    broken = [name for name, tensor in found.items() if tensor.is_floating_point() and bool(tensor.isnan().any())]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise SesameError(
            f"{folder}: weights are not numbers (NaN in {broken[0]}{more}); take an earlier checkpoint, or copy it again"
        )
    return found


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise SesameError(f"{file}: this part of the weights is missing; copy the whole folder again")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyTorch says of old pickles; the error below says what to do
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise SesameError(f"{file}: damaged or cut off ({error}); copy it again") from error
    except OSError as error:  # safetensors says "no such file" of one without permission, and names none
        raise SesameError(f"{file}: cannot be read; check its permissions") from error
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise SesameError(
            f"{file}: damaged, or holds more than weights; copy it again or convert it to safetensors"
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise SesameError(f"{file}: does not hold plain weights (a table of tensors); convert it to safetensors")
    return loaded
