"""The checkpoint: a folder that the whole ecosystem can open.

    config.json  model.safetensors  tokenizer.json  tokenizer_config.json  special_tokens_map.json  README.md  sesame.toml

A family that transformers knows is written under its names, so `AutoModel.from_pretrained(folder)` works as it is; an encoder
that it has no class for is written under ours, with `"model_type": "sesame"`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.hf import FAMILIES, find_family
from sesame.checkpoint.names import Row, export_state, import_state
from sesame.checkpoint.tasks import OURS, describe, leading, read_tasks
from sesame.checkpoint.weights import read_weights
from sesame.config import build, dump_toml
from sesame.errors import SesameError
from sesame.files import read_json, write_json, write_whole
from sesame.objectives import MaskedLMHead, PairHead
from sesame.tasks import Task
from sesame.text import Tokenizer

OWN = "sesame"


@dataclass
class Parts:
    """What a folder holds: an encoder, its heads by name, a tokenizer."""

    backbone: Encoder
    heads: dict[str, nn.Module] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    unused: list[str] = field(default_factory=list)  # tensors of the file that no part of ours took
    tasks: dict[str, Task] = field(default_factory=dict)  # what it was taught to answer; their heads are among `heads`

    def to(self, device: torch.device) -> None:
        for module in (self.backbone, *self.heads.values(), *self.tasks.values()):
            module.to(device)

    def state(self) -> dict[str, Tensor]:
        """Every parameter under its full name; shared layers appear once."""
        found = {f"backbone.{name}": p.detach() for name, p in self.backbone.named_parameters()}
        for head, module in self.heads.items():
            found.update({f"{head}.{name}": p.detach() for name, p in module.named_parameters()})
        return found


def save_parts(folder: Path, parts: Parts, recipe: Mapping[str, Any] | None = None, card: str = "") -> None:
    """Write the folder's files into `folder`, which exists; the caller makes it appear in one piece."""
    config = parts.backbone.config
    owned = {name for task in parts.tasks.values() for name in task.heads()}
    family = find_family(config, set(parts.heads) - owned)
    state = {name: tensor.cpu() for name, tensor in parts.state().items()}
    if family is None:
        named = {name: row.contiguous() for name, row in state.items()}
        described: dict[str, Any] = {"model_type": OWN, "architectures": ["SesameEncoder"], "encoder": asdict(config)}
        described |= describe(parts.tasks, None)
    else:
        _, module = family
        lead = leading(parts.tasks, module.TASKS)
        table = module.table(config, None if lead is None else (lead.name, lead.config.kind))
        beside = owned - (set() if lead is None else set(lead.heads()))
        ours = {f"{head}.{name}" for head in beside for name, _ in parts.heads[head].named_parameters()}
        named = export_state(table, {name: tensor for name, tensor in state.items() if name not in ours})
        described = module.write_config(config, set(parts.heads) - owned, None if lead is None else lead.config.kind)
        module.finish(named, described)
        named |= {OURS + name: state[name].contiguous() for name in ours}
        described |= describe(parts.tasks, lead)
    if parts.tokenizer is not None:
        described |= {
            f"{role}_token_id": id
            for role, id in parts.tokenizer.ids().items()
            if role in ("pad", "bos", "eos", "mask")
        }
        parts.tokenizer.save(folder)
    described["torch_dtype"] = "float32" if all(t.dtype == torch.float32 for t in named.values()) else "float64"
    write_json(folder / "config.json", described)
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    write_whole(folder / "README.md", card or "# A model made with Sesame\n")
    if recipe is not None:
        write_whole(folder / "sesame.toml", dump_toml(recipe))


def load_parts(folder: str | Path, tokenizer: bool = True) -> Parts:
    """Open a folder of ours or of Hugging Face."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SesameError(f"{folder}: no such folder; give the folder of a model (config.json, weights, tokenizer)")
    if not (folder / "config.json").is_file() and (folder / "final" / "config.json").is_file():
        folder = folder / "final"  # a run: its result
    if (folder / "model.onnx").is_file() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise SesameError(f'{folder}: holds an ONNX graph only; open it with --engine onnx (in Python engine="onnx")')
    found = read_json(folder / "config.json")
    if not isinstance(found, dict):
        raise SesameError(f"{folder / 'config.json'}: holds no table of settings; copy the file again")
    kind = found.get("model_type") or _old_model_type(found, folder)
    if kind == OWN:
        config = build(EncoderConfig, found.get("encoder", {}), str(folder / "config.json"))
        parts = _fill(Encoder(config), read_weights(folder), None, found, folder)
    elif kind in FAMILIES:
        module = FAMILIES[kind]
        try:
            config = module.read_config(found, str(folder / "config.json"))
        except (TypeError, ValueError, KeyError) as error:
            raise SesameError(f"{folder / 'config.json'}: a setting is wrong ({error}); copy the file again") from error
        parts = _fill(Encoder(config), read_weights(folder), module, found, folder)
    else:
        known = ", ".join(sorted(FAMILIES))
        raise SesameError(f"{folder / 'config.json'}: models of type {kind!r} do not open here yet; known are {known}")
    if tokenizer:
        parts.tokenizer = _tokenizer(folder, config.vocab)
    return parts


def _old_model_type(found: Mapping[str, Any], folder: Path) -> str:
    """Files of 2019 name no type: BERT's are told by their keys."""
    if {"hidden_size", "num_hidden_layers", "type_vocab_size"} <= set(found):
        return "bert"
    raise SesameError(f'{folder / "config.json"}: names no model_type; add one, such as "model_type": "bert"')


def _tokenizer(folder: Path, vocab: int) -> Tokenizer | None:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
    if not any((folder / name).is_file() for name in names):
        return None
    tokenizer = Tokenizer.load(folder)
    check_fit(tokenizer, vocab, str(folder))
    return tokenizer


def check_fit(tokenizer: Tokenizer, vocab: int, place: str) -> None:
    if len(tokenizer) > vocab:
        raise SesameError(
            f"{place}: the tokenizer has {len(tokenizer)} pieces but the model only {vocab}; "
            "take the tokenizer that the model was trained with"
        )


def _fill(
    backbone: Encoder, weights: dict[str, Tensor], family: ModuleType | None, config: Mapping[str, Any], folder: Path
) -> Parts:
    """Put weights into a backbone and those heads that the file holds whole."""
    tasks = read_tasks(config, backbone, str(folder / "config.json"))
    if family is None:
        found = weights
        table = [Row(name, (name,)) for name in found]
    else:
        kept = {name: tensor for name, tensor in weights.items() if name.startswith(OURS)}
        found = family.clean({name: t for name, t in weights.items() if name not in kept}, config) | kept
        lead = leading(tasks, family.TASKS)
        table = family.table(backbone.config, None if lead is None else (lead.name, lead.config.kind))
        table = [row for row in table if OURS + row.ours not in kept]
        table += [Row(name.removeprefix(OURS), (name,)) for name in kept]
    pair = PairHead(backbone.width)
    heads = {"mlm": _mlm_head(backbone.config, found), "pooler": pair.pooler, "nsp": pair.out}
    for task in tasks.values():
        heads |= task.heads()
    parts = Parts(backbone, dict(heads), tasks=tasks)
    wanted = parts.state()
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
    dtype = next(iter(found.values())).dtype
    if dtype == torch.float64:
        backbone.double()
        for head in parts.heads.values():
            head.double()
    _assign(parts, state)
    parts.unused = unused
    return parts


def _mlm_head(config: EncoderConfig, found: Mapping[str, Tensor]) -> MaskedLMHead:
    activation = "gelu" if config.activation == "geglu" else config.activation
    tied = not {"mlm.table", "cls.predictions.decoder.weight"} & set(found)
    return MaskedLMHead(
        config.width, config.embedding_width or config.width, config.vocab, activation, config.eps, tied
    )


@torch.no_grad()
def _assign(parts: Parts, state: Mapping[str, Tensor]) -> None:
    targets = parts.state()
    for name, tensor in state.items():
        if name in targets:
            targets[name].copy_(tensor)
