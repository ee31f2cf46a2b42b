"""Writing a model folder: under the names of a family that transformers knows, or under ours (`folder.py`)."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sesame.backbones import Backbone, Encoder
from sesame.checkpoint.cards import in_transformers
from sesame.checkpoint.folder import OWN, Parts
from sesame.checkpoint.heads import belongs, speaking
from sesame.checkpoint.hf import find_family
from sesame.checkpoint.names import export_state
from sesame.checkpoint.own import write_own
from sesame.checkpoint.speech import describe_speech, write_speech
from sesame.checkpoint.tasks import OURS, describe, leading, padding_of
from sesame.config import dump_toml
from sesame.files import write_json, write_whole
from sesame.objectives import MaskedLMHead
from sesame.text import Tokenizer
from sesame.text.template import around, before_prompts

FIRST = 16  # specials stand among the first ids, in all tokenizers that were made with padding in mind


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
    placed = {row.ours for row in table if not belongs(row.ours, elsewhere)}
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
