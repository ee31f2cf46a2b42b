"""The checkpoint: a folder that the whole ecosystem can open.

    config.json  model.safetensors  tokenizer.json  tokenizer_config.json  special_tokens_map.json  README.md  sesame.toml

A family that transformers knows is written under its names, so `AutoModel.from_pretrained(folder)` works as it is; which one,
where several fit, is said in `hf/__init__.py`. A model that it has no class for is written under ours, with
`"model_type": "sesame"` and its settings under the name of its backbone. One that speaks also has generation_config.json.
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoder, build_backbone
from sesame.checkpoint.cards import in_transformers
from sesame.checkpoint.heads import kept, pretrained_heads, read_speaking, speaking
from sesame.checkpoint.hf import FAMILIES, check_whole, find_family, native
from sesame.checkpoint.names import Row, export_state, import_state
from sesame.checkpoint.own import read_own, write_own
from sesame.checkpoint.speech import FILE as SPEECH
from sesame.checkpoint.speech import Speech, describe_speech, read_speech, write_speech
from sesame.checkpoint.tasks import OURS, describe, leading, padding_of, read_tasks
from sesame.checkpoint.weights import read_weights
from sesame.config import dump_toml
from sesame.errors import SesameError
from sesame.files import read_json, write_json, write_whole
from sesame.nn.init import Undrawn
from sesame.objectives import MaskedLMHead
from sesame.progress import say
from sesame.tasks import Task
from sesame.text import Tokenizer
from sesame.text.template import around, before_prompts

OWN = "sesame"
QUANTIZED = "quantized weights do not open here; in transformers, call dequantize() on the model and save it again"
_NUMBER = re.compile(r"\.\d+\.")
FIRST = 16  # specials stand among the first ids, in all tokenizers that were made with padding in mind


@dataclass
class Parts:
    """What a folder holds: a backbone, its heads by name, a tokenizer."""

    backbone: Backbone
    heads: dict[str, nn.Module] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    unused: list[str] = field(default_factory=list)  # tensors of the file that no part of ours took
    tasks: dict[str, Task] = field(default_factory=dict)  # what it was taught to answer; their heads are among `heads`
    family: str = ""  # the model type of the folder that it came from
    speech: Speech | None = None  # of a model that speaks: how an answer begins and ends
    pad: int | None = None  # the padding that config.json of that folder named

    def to(self, device: torch.device) -> None:
        for module in (self.backbone, *self.heads.values(), *self.tasks.values()):
            module.to(device)

    def state(self) -> dict[str, Tensor]:
        """Every parameter under its full name; shared layers appear once."""
        found = {f"backbone.{name}": p.detach() for name, p in self.backbone.named_parameters()}
        for head, module in self.heads.items():
            found.update({f"{head}.{name}": tensor for name, tensor in kept(module).items()})
        return found


def save_parts(folder: Path, parts: Parts, recipe: Mapping[str, Any] | None = None, card: str = "") -> None:
    """Write the folder's files into `folder`, which exists; the caller makes it appear in one piece."""
    named, described, lead = _under_names(parts)
    if parts.tokenizer is not None:
        tokenizer = _for_model(parts.tokenizer, parts.backbone, _padding(parts))
        cut = _continues(parts) and around(tokenizer)[1]
        tokenizer.save(folder, before_prompts(tokenizer) if cut else None)
    if parts.speech is not None:
        described |= describe_speech(parts.speech, described.get("sesame", {}))
        write_speech(folder, parts.speech)
    described["torch_dtype"] = "float32" if all(t.dtype == torch.float32 for t in named.values()) else "float64"
    write_json(folder / "config.json", described)
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    end = in_transformers(described, parts.tasks, lead)
    write_whole(folder / "README.md", (card or "# A model made with Sesame\n") + end)
    if recipe is not None:
        write_whole(folder / "sesame.toml", dump_toml(recipe))


def _under_names(parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any], str | None]:
    """All tensors as they are written, and config.json, under a family's names or ours; the task that its class holds."""
    config, family = parts.backbone.config, written_family(parts)
    owned = {name for task in parts.tasks.values() for name in task.heads()}
    heads, output = set(parts.heads) - owned, next(iter(speaking(parts.heads).values()), None)
    state = {name: tensor.cpu() for name, tensor in parts.state().items()}
    specials = {} if (pad := _padding(parts)) is None else {"pad_token_id": pad}
    specials |= {} if parts.tokenizer is None else special_ids(parts.tokenizer)
    if family is None:
        described = {"model_type": OWN} | write_own(config, parts.heads) | describe(parts.tasks, None) | specials
        return {name: row.contiguous() for name, row in state.items()}, described, None
    _, module = family
    lead = None if output is not None else leading(parts.tasks, module, config)
    table = module.table(config, None if lead is None else (lead.name, lead.config.kind))
    elsewhere = owned - (set() if lead is None else set(lead.heads()))  # heads of the tasks that lost
    placed = {row.ours for row in table if not _belongs(row.ours, elsewhere)}
    beside = {name for name in state if name not in placed and not name.startswith("backbone.")}
    named = export_state(table, {name: tensor for name, tensor in state.items() if name not in beside})
    described = module.write_config(config, heads, None if lead is None else lead.config.kind) | specials
    if output is not None:
        module.write_head(output, described)
    module.finish(named, described)
    named |= {OURS + name: state[name].contiguous() for name in beside}
    return named, described | describe(parts.tasks, lead, described), None if lead is None else lead.name


def written_family(parts: Parts) -> tuple[str, ModuleType] | None:
    """The model type under which a folder is written, if transformers has one for it."""
    owned = {name for task in parts.tasks.values() for name in task.heads()}
    heads, output = set(parts.heads) - owned, next(iter(speaking(parts.heads).values()), None)
    return find_family(parts.backbone.config, heads, wanted_family(parts), has_plain_head(parts), output)


def wanted_family(parts: Parts) -> str:
    """The family to write where several fit: that of the folder it came from; else RoBERTa for a tokenizer that is not
    WordPiece and pads with one of its first tokens (each id before it costs RoBERTa a row of zeros)."""
    tokenizer = parts.tokenizer
    if parts.family or tokenizer is None or not tokenizer.has("pad"):
        return parts.family
    pieces = type(tokenizer.backend.model).__name__
    return "roberta" if pieces in ("BPE", "Unigram") and tokenizer.id("pad") < FIRST else ""


def has_plain_head(parts: Parts) -> bool:
    """Whether tokens come straight from the states, as in XLM."""
    head = parts.heads.get("mlm")
    return isinstance(head, MaskedLMHead) and head.dense is None


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """What config.json says of the tokens with a role."""
    return {f"{role}_token_id": id for role, id in tokenizer.ids().items() if role in ("pad", "bos", "eos", "mask")}


def _continues(parts: Parts) -> bool:
    """Whether transformers will let it continue prompts: a decoder without tasks."""
    return parts.speech is not None and isinstance(parts.backbone, Encoder) and not parts.tasks


def _padding(parts: Parts) -> int | None:
    """The padding of a model with tasks; one that speaks says its own."""
    return padding_of(parts.tokenizer, parts.pad) if parts.tasks and parts.speech is None else None


def _for_model(tokenizer: Tokenizer, backbone: Backbone, pad: int | None) -> Tokenizer:
    """The tokenizer as it is written beside a model: one that tells no segments apart must not be given any, and one with
    tasks fills up rows with what config.json says."""
    names, roles = tokenizer.input_names(), tokenizer.roles
    if backbone.segment_kinds < 2 and "token_type_ids" in names:
        names.remove("token_type_ids")
    if pad is not None and not tokenizer.has("pad") and pad < len(tokenizer):
        roles = {**roles, "pad": tokenizer.token(pad)}
    if (names, roles) == (tokenizer.input_names(), tokenizer.roles):
        return tokenizer
    return tokenizer.changed(roles=roles, inputs=names)


def _belongs(name: str, heads: set[str]) -> bool:
    """Whether a parameter is one of these heads."""
    return any(name.startswith(f"{head}.") for head in heads)


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
    kind = str(found.get("model_type") or _old_model_type(found, folder))
    if found.get("quantization_config"):
        raise SesameError(f"{folder / 'config.json'}: quantization_config: {QUANTIZED}")
    if kind == OWN:
        config = read_own(found, str(folder / "config.json"))
        parts = _fill(_empty(config), read_weights(folder), None, found, folder, more)
    elif kind in FAMILIES:
        module, found = FAMILIES[kind], native(found, kind)
        config, empty = _read_config(module, found, str(folder / "config.json"))
        parts = _fill(empty, read_weights(folder), module, found, folder, more)
        parts.family = kind
    else:
        known = ", ".join(sorted(FAMILIES))
        raise SesameError(f"{folder / 'config.json'}: models of type {kind!r} do not open here yet; known are {known}")
    if speaking(parts.heads) or (kind == OWN and (folder / SPEECH).is_file()):
        silent = {} if kind == OWN else FAMILIES[kind].SILENT[kind]
        parts.speech = read_speech(folder, found, parts.backbone.answers, silent)
    said = found.get("pad_token_id")
    parts.pad = said if isinstance(said, int) and 0 <= said < config.vocab else None
    if tokenizer:
        parts.tokenizer = _tokenizer(folder, config.vocab)
        if parts.tokenizer is not None:
            parts.backbone.spell(parts.tokenizer)
    return parts


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


def _fill(
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
    own_table = any(row.ours in ("mlm.table", "plm.table") and row.theirs[0] in found for row in table)
    plain = not any(row.ours == "mlm.dense.weight" for row in table)
    heads = pretrained_heads(backbone.config, own_table, plain) | outputs
    for task in tasks.values():
        heads |= task.heads()
    heads |= {name: deepcopy(head) for name, head in (more or {}).items() if name not in heads}
    parts = Parts(backbone, dict(heads), tasks=tasks)
    wanted = parts.state()
    _refuse_whole_numbers(table, found, wanted, folder)
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
    for name in heads:
        if any(gap.startswith(f"{name}.") for gap in missing):
            del parts.heads[name]
    parts.tasks = {name: task for name, task in tasks.items() if set(task.heads()) <= set(parts.heads)}
    for name, task in tasks.items():
        gap = next((gap for gap in missing if _belongs(gap, set(task.heads()))), "")
        if gap:
            say(f"{folder}: the weights lack {gap}: the head {name!r} is left out (`sesame finetune` teaches another)")
    dtype = next(iter(found.values())).dtype
    if dtype == torch.float64:
        backbone.double()
        for head in parts.heads.values():
            head.double()
    _assign(parts, state)
    parts.unused = unused
    if deeper := _deeper(table, unused, wanted):
        _tell_deeper(folder, deeper[0], len(deeper))
    return parts


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
