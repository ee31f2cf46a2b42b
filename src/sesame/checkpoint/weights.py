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

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model folder, under the names in the file."""
    for index in INDEXES:
        if (folder / index).is_file():
            listed = read_json(folder / index)
            if not isinstance(listed, dict) or not isinstance(listed.get("weight_map"), dict):
                raise SesameError(f"{folder / index}: lists no weights; copy it again")
            shards = sorted(set(map(str, listed["weight_map"].values())))
            found: dict[str, Tensor] = {}
            for shard in shards:
                if Path(shard).name != shard:
                    raise SesameError(f"{folder / index}: the shard {shard!r} lies outside the folder; copy it beside")
                found.update(_read(folder / shard))
            return found
    for single in SINGLE:
        if (folder / single).is_file():
            return _read(folder / single)
    raise SesameError(f"{folder}: no weights here; a model folder holds {' or '.join(SINGLE)}")


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
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise SesameError(
            f"{file}: damaged, or holds more than weights; copy it again or convert it to safetensors"
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise SesameError(f"{file}: does not hold plain weights (a table of tensors); convert it to safetensors")
    return loaded
