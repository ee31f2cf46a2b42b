"""ELMo's published weights: `options.json` and one HDF5 file, in and out (allenai/bilm-tf, allennlp).

    char_embed                       (261, E)           the letters; ours have a row more in front, for "no letter"
    CNN/W_cnn_i, b_cnn_i             (1, w, E, n), (n)  filters
    CNN_high_k/W_transform, W_carry  (F, F), biases     highways; "carry" is the gate of what is new
    CNN_proj/W_proj, b_proj          (F, P), (P)
    RNN_d/RNN/MultiRNNCell/Celll/LSTMCell/W_0, B, W_P_0 (2 P, 4 C), (4 C), (C, P): direction d, layer l

What differs from ours: matrices are applied from the other side; those of input and state are one; gates stand in the order
input, new, forget, output (ours: input, forget, new, output); TensorFlow adds 1 to the forget gate's bias, which is not in
the file; it has one bias where PyTorch has two, whose sum is written.

The files hold no vocabulary and no softmax. So a model that comes from them has a tokenizer that spells every word in bytes,
and reads any text, but it tells no words.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor

from sesame.backbones.bilm import BiLM, BiLMConfig
from sesame.checkpoint.folder import Parts
from sesame.errors import SesameError
from sesame.files import read_json, write_whole
from sesame.text import Tokenizer
from sesame.text.characters import CHARACTERS, LETTERS
from sesame.text.template import put_around
from sesame.text.train import SPECIALS
from sesame.text.words import word_tokenizer

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"


def read_elmo(folder: Path) -> Parts:
    """A folder with one options file and one of weights; names may have the model's in front, as published."""
    options, weights = sorted(folder.glob(f"*{OPTIONS}")), sorted(folder.glob("*.hdf5"))
    if len(options) != 1 or len(weights) != 1:
        raise SesameError(f"{folder}: holds {len(options)} {OPTIONS} and {len(weights)} .hdf5 files; leave one of each")
    parts = Parts(read_files(options[0], weights[0]), tokenizer=spelling_tokenizer())
    parts.backbone.spell(spelling_tokenizer())
    return parts


def read_files(options: Path, weights: Path) -> BiLM:
    """The two files as a backbone; `spell` is still to be told, unless letters are handed in."""
    config = read_options(read_json(options), str(options))
    backbone = BiLM(config)
    found, wanted = _read_hdf5(weights), dict(backbone.named_parameters())
    try:
        state = to_ours(found, config)
    except KeyError as error:
        raise SesameError(f"{weights}: lacks {error}, which {options.name} promises; copy both files again") from error
    except (IndexError, RuntimeError) as error:
        raise SesameError(
            f"{weights}: holds arrays that {options.name} does not promise ({str(error).splitlines()[0]}); "
            "copy both files again"
        ) from error
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            sizes = f"{tuple(tensor.shape)} in the file, {tuple(wanted[name].shape)} by {options.name}"
            raise SesameError(f"{weights}: {name} has another shape than it must: {sizes}; copy both files again")
    more = sorted(set(found) - set(to_theirs(state, config)))
    if parts := [name for name in more if name.startswith(("CNN", "RNN_"))]:
        raise SesameError(f"{weights}: has {parts[0]}, of which {options.name} says nothing; copy both files again")
    backbone.load_state_dict(state)
    return backbone


def write_elmo(folder: Path, backbone: Any) -> None:
    """Write both files into a folder that exists."""
    if not isinstance(backbone, BiLM) or backbone.letters is None:
        raise SesameError(
            "ELMo's files are for a model that reads letters, such as recipe elmo makes; convert another way"
        )
    h5py = _h5py()
    write_whole(folder / OPTIONS, json.dumps(write_options(backbone.config), indent=2) + "\n")
    state = {name: tensor.detach().cpu() for name, tensor in backbone.named_parameters()}
    with h5py.File(folder / WEIGHTS, "w") as file:
        for name, tensor in to_theirs(state, backbone.config).items():
            file.create_dataset(name, data=tensor.contiguous().numpy())


def read_options(found: Any, place: str) -> BiLMConfig:
    try:
        return _config(found)
    except SesameError as error:
        raise SesameError(f"{place}: {error}") from None
    except (TypeError, ValueError, KeyError) as error:
        raise SesameError(f"{place}: not the options of an ELMo ({error!r}); copy the file again") from error


def _config(found: Any) -> BiLMConfig:
    lstm, cnn = found["lstm"], found["char_cnn"]
    cells, told = int(lstm["dim"]), int(lstm["projection_dim"])
    if cnn["max_characters_per_token"] != LETTERS or cnn["n_characters"] not in (CHARACTERS, CHARACTERS - 1):
        raise SesameError(f"words of {LETTERS} letters out of {CHARACTERS} are known here, not these")
    if cnn["activation"] not in ("relu", "tanh"):
        raise SesameError(f"the activation {cnn['activation']!r} is not known here; ELMo's are relu and tanh")
    if lstm.get("cell_clip") != lstm.get("proj_clip"):
        raise SesameError("cell_clip and proj_clip differ, and here they are one number; take another ELMo")
    if told >= cells:
        raise SesameError(
            f"projection_dim is {told} and dim {cells}; only LSTMs that give out fewer numbers than they keep are "
            "known here, take another ELMo"
        )
    return BiLMConfig(
        vocab=len(SPECIALS) + 256,
        width=2 * told,
        depth=int(lstm.get("n_layers", 1)),  # what is left out is so in the authors' code
        cell=cells,
        letter_width=int(cnn["embedding"]["dim"]),
        filters=tuple((int(width), int(count)) for width, count in cnn["filters"]),
        highways=int(cnn.get("n_highway") or 0),
        activation=cnn["activation"],
        residual=bool(lstm.get("use_skip_connections")),
        clip=float(lstm.get("cell_clip") or 0.0),
    )


def write_options(c: BiLMConfig) -> dict[str, Any]:
    lstm = {
        "use_skip_connections": c.residual,
        "projection_dim": c.width // 2,
        "cell_clip": c.clip or None,
        "proj_clip": c.clip or None,
        "dim": c.cell,
        "n_layers": c.depth,
    }
    cnn = {
        "activation": c.activation,
        "filters": [list(pair) for pair in c.filters],
        "n_highway": c.highways,
        "embedding": {"dim": c.letter_width},
        "n_characters": CHARACTERS,
        "max_characters_per_token": LETTERS,
    }
    return {"lstm": lstm, "char_cnn": cnn}


def to_ours(found: Mapping[str, Tensor], c: BiLMConfig) -> dict[str, Tensor]:
    """Their tensors under our names."""
    letters = found["char_embed"]
    state = {"letters.letters.weight": torch.cat([torch.zeros_like(letters[:1]), letters])}
    for number in range(len(c.filters)):
        ours = f"letters.filters.{number}"
        state[f"{ours}.weight"] = found[f"CNN/W_cnn_{number}"][0].permute(2, 1, 0)
        state[f"{ours}.bias"] = found[f"CNN/b_cnn_{number}"]
    for ours, theirs, name in _linear(c):
        if name == "proj" and f"{theirs}/W_proj" not in found and sum(count for _, count in c.filters) == c.width // 2:
            weight, bias = torch.eye(c.width // 2), torch.zeros(c.width // 2)  # their network has none then
        else:
            weight, bias = found[f"{theirs}/W_{name}"].t(), found[f"{theirs}/b_{name}"]
        state[f"{ours}.weight"], state[f"{ours}.bias"] = weight, bias
    for ours, theirs in _cells(c):
        both = _regated(found[f"{theirs}/W_0"]).t()
        bias = _regated(found[f"{theirs}/B"]).clone()
        bias[c.cell : 2 * c.cell] += 1.0
        state[f"{ours}.weight_ih_l0"], state[f"{ours}.weight_hh_l0"] = torch.split(both, c.width // 2, 1)
        state[f"{ours}.bias_ih_l0"], state[f"{ours}.bias_hh_l0"] = bias, torch.zeros_like(bias)
        state[f"{ours}.weight_hr_l0"] = found[f"{theirs}/W_P_0"].t()
    return state


def to_theirs(state: Mapping[str, Tensor], c: BiLMConfig) -> dict[str, Tensor]:
    """The way back."""
    found = {"char_embed": state["letters.letters.weight"][1:]}
    for number in range(len(c.filters)):
        ours = f"letters.filters.{number}"
        found[f"CNN/W_cnn_{number}"] = state[f"{ours}.weight"].permute(2, 1, 0)[None]
        found[f"CNN/b_cnn_{number}"] = state[f"{ours}.bias"]
    for ours, theirs, name in _linear(c):
        found[f"{theirs}/W_{name}"] = state[f"{ours}.weight"].t()
        found[f"{theirs}/b_{name}"] = state[f"{ours}.bias"]
    for ours, theirs in _cells(c):
        bias = state[f"{ours}.bias_ih_l0"] + state[f"{ours}.bias_hh_l0"]
        bias[c.cell : 2 * c.cell] -= 1.0
        both = torch.cat([state[f"{ours}.weight_ih_l0"], state[f"{ours}.weight_hh_l0"]], 1)
        found[f"{theirs}/W_0"], found[f"{theirs}/B"] = _regated(both.t()), _regated(bias)
        found[f"{theirs}/W_P_0"] = state[f"{ours}.weight_hr_l0"].t()
    return found


def _linear(c: BiLMConfig) -> list[tuple[str, str, str]]:
    """Our layer, their group, and what its matrix is called there."""
    rows = [("letters.project", "CNN_proj", "proj")]
    for number in range(c.highways):
        rows.append((f"letters.highways.{number}.transform", f"CNN_high_{number}", "transform"))
        rows.append((f"letters.highways.{number}.gate", f"CNN_high_{number}", "carry"))
    return rows


def _cells(c: BiLMConfig) -> list[tuple[str, str]]:
    return [
        (f"blocks.{layer}.{side}.layers.0.cell", f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell")
        for layer in range(c.depth)
        for number, side in enumerate(("ahead", "back"))
    ]


def _regated(tensor: Tensor) -> Tensor:
    """The second and the third quarter of the last axis change places: either way the same."""
    first, second, third, fourth = tensor.chunk(4, -1)
    return torch.cat([first, third, second, fourth], -1)


def _read_hdf5(path: Path) -> dict[str, Tensor]:
    h5py, found = _h5py(), dict[str, Tensor]()

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = torch.from_numpy(item[...])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except (OSError, TypeError) as error:
        raise SesameError(f"{path}: damaged, or not an HDF5 file of numbers ({error}); copy it again") from error
    for name, tensor in found.items():
        if not bool(tensor.isfinite().all()):
            raise SesameError(f"{path}: {name} holds values that are no numbers (NaN or infinite); copy it again")
    return found


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise SesameError(
            'ELMo files are HDF5, and h5py is not installed; run pip install "sesame-nlp[elmo]"'
        ) from None
    return h5py


def spelling_tokenizer() -> Tokenizer:
    """Every word as its bytes, between the marks of a sentence."""
    backend = word_tokenizer([], SPECIALS)
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS.values()])
    put_around(backend, "bert", SPECIALS["cls"], SPECIALS["sep"])
    return Tokenizer(backend, SPECIALS)
