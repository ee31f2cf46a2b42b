"""Opening a model folder, of ours or of Hugging Face: what kind of model config.json describes, its tokenizer, its speech.

How the weights come into the model: `filling.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from sesame.backbones import Backbone, build_backbone
from sesame.checkpoint.filling import QUANTIZED, fill
from sesame.checkpoint.folder import OWN, Parts
from sesame.checkpoint.heads import speaking
from sesame.checkpoint.hf import FAMILIES, check_whole, native
from sesame.checkpoint.own import read_own
from sesame.checkpoint.speech import FILE as SPEECH
from sesame.checkpoint.speech import read_speech
from sesame.checkpoint.weights import read_weights
from sesame.errors import SesameError
from sesame.files import read_json
from sesame.nn.init import Undrawn
from sesame.text import Tokenizer


def check_there(folder: Path) -> None:
    """At once, where rows are read before the model."""
    if not folder.is_dir():
        raise SesameError(f"{folder}: no such folder; give the folder of a model (config.json, weights, tokenizer)")


def load_parts(folder: str | Path, tokenizer: bool = True, more: Mapping[str, nn.Module] | None = None) -> Parts:
    """Open a folder of ours or of Hugging Face. `more`: modules like the heads, beyond those known here, that it may hold."""
    folder = Path(folder)
    check_there(folder)
    if not (folder / "config.json").is_file() and (folder / "final" / "config.json").is_file():
        folder = folder / "final"  # a run: its result
    if not (folder / "config.json").is_file() and is_elmo(folder):
        from sesame.checkpoint.elmo import read_elmo

        return read_elmo(folder)
    found = _read_settings(folder)
    kind = str(found.get("model_type") or _old_model_type(found, folder))
    place = str(folder / "config.json")
    if found.get("quantization_config"):
        raise SesameError(f"{place}: quantization_config: {QUANTIZED}")
    module = None
    if kind == OWN:
        config = read_own(found, place)
        empty = _empty(config)
    elif kind in FAMILIES:
        module, found = FAMILIES[kind], native(found, kind)
        config, empty = _read_config(module, found, place)
    else:
        known = ", ".join(sorted(FAMILIES))
        raise SesameError(f"{place}: models of type {kind!r} do not open here yet; known are {known}")
    parts = fill(empty, read_weights(folder), module, found, folder, more)
    parts.family = "" if kind == OWN else kind
    if speaking(parts.heads) or (kind == OWN and (folder / SPEECH).is_file()):
        silent = {} if module is None else module.SILENT[kind]
        parts.speech = read_speech(folder, found, parts.backbone.answers, silent)
    said = found.get("pad_token_id")
    parts.pad = said if isinstance(said, int) and 0 <= said < config.vocab else None
    if tokenizer:
        parts.tokenizer = _tokenizer(folder, config.vocab)
        if parts.tokenizer is not None:
            parts.backbone.spell(parts.tokenizer)
    return parts


def _read_settings(folder: Path) -> dict[str, Any]:
    """config.json, as it stands."""
    if (folder / "model.onnx").is_file() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise SesameError(f'{folder}: holds an ONNX graph only; open it with --engine onnx (in Python engine="onnx")')
    if not (folder / "config.json").is_file():
        raise SesameError(
            f"{folder / 'config.json'}: no such file; give the folder of a model (config.json, weights, tokenizer), or a run "
            "that is done"
        )
    found = read_json(folder / "config.json")
    if not isinstance(found, dict):
        raise SesameError(f"{folder / 'config.json'}: holds no table of settings; copy the file again")
    return found


def _read_config(module: ModuleType, found: Mapping[str, Any], place: str) -> tuple[Any, Backbone]:
    """The settings of a family's config.json, and a backbone of that shape without weights."""
    try:
        check_whole(found, place)
        config = module.read_config(found, place)
        return config, _empty(config)
    except SesameError as error:  # a check of our settings knows no file
        raise error if place in str(error) else SesameError(f"{place}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise SesameError(f"{place}: a setting is wrong ({error}); copy the file again") from error


def _empty(config: Any) -> Backbone:
    with Undrawn():
        return build_backbone(config)


def is_elmo(folder: Path) -> bool:
    """ELMo's published layout, `checkpoint/elmo.py`: one file of options, one of weights."""
    return any(folder.glob("*options.json")) and any(folder.glob("*.hdf5"))


def _old_model_type(found: Mapping[str, Any], folder: Path) -> str:
    """Files of 2019 name no type: BERT's are told by their keys. RoBERTa's have the same, and positions of its own."""
    name = str((found.get("architectures") or ["Bert"])[0])
    bert = name.startswith("Bert") and found.get("type_vocab_size") != 1
    if bert and {"hidden_size", "num_hidden_layers", "type_vocab_size"} <= set(found):
        return "bert"
    if (folder / "model.bin").is_file():
        raise SesameError(
            f"{folder}: holds a model for CTranslate2, which Sesame writes but does not read; open it with "
            "ctranslate2.Translator, or name the model that it was made of"
        )
    raise SesameError(f'{folder / "config.json"}: names no model_type; add one, such as "model_type": "bert"')


def _tokenizer(folder: Path, vocab: int) -> Tokenizer | None:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
    if not any((folder / name).is_file() for name in names):
        return None
    tokenizer = Tokenizer.load(folder, vocab)
    check_fit(tokenizer, vocab, str(folder))
    return tokenizer


def check_fit(tokenizer: Tokenizer, vocab: int, place: str) -> None:
    if len(tokenizer) > vocab:
        raise SesameError(
            f"{place}: the tokenizer has {len(tokenizer)} pieces but the model only {vocab}; "
            "take the tokenizer that the model was trained with"
        )
