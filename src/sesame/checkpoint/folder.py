"""The checkpoint: a folder that the whole ecosystem can open. What it holds, as `loading` opens it and `saving` writes it.

    config.json  model.safetensors  tokenizer.json  tokenizer_config.json  special_tokens_map.json  README.md  sesame.toml

A family that transformers knows is written under its names, so `AutoModel.from_pretrained(folder)` works as it is; which one,
where several fit, is said in `hf/__init__.py`. A model that it has no class for is written under ours, with
`"model_type": "sesame"` and its settings under the name of its backbone. One that speaks also has generation_config.json.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone
from sesame.checkpoint.heads import kept
from sesame.checkpoint.speech import Speech
from sesame.tasks import Task
from sesame.text import Tokenizer

OWN = "sesame"  # the model type of what transformers has no class for


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
