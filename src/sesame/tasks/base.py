"""What every task is: an objective with labels that can also answer.

    examples --items--> windows of ids --collate--> Batch --backbone, logits--> numbers --read--> answers

Training and prediction walk the same way; only the labels differ. A head belongs to its task, never to a model family.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.data.batch import Batch, Targets
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.nn.dropout import Dropout
from sesame.nn.init import bert_init
from sesame.objectives.base import Objective, Term
from sesame.tasks.layers import LayerChoice
from sesame.tasks.windows import Inputs, Window

Squeeze = Literal["tanh", "gelu", "relu"]
Pooling = Literal["pooler", "cls", "mean", "max", "concat", "rising"]
Reply = dict[str, Any]
"""An answer as JSON takes it."""


@dataclass(frozen=True)
class TaskConfig:
    """All that a checkpoint must remember of a task."""

    kind: Literal["classify", "regress", "tag", "qa", "choice"]
    labels: tuple[str, ...] = ()  # regress: what a folder from elsewhere calls the number, if it comes from there
    multi: bool = False  # classify: several labels at once
    pair: bool = False  # it was trained on pairs of texts
    both: bool = False  # pairs are read in both orders, and what is read is added (GPT, for similarity)
    layers: str = "last"  # which hidden states the head reads: see `LAYERS`
    pooling: Pooling = "pooler"  # how a text's states become one vector
    transform: bool = False  # states pass norm(gelu(W h)) before the last layer, as ModernBERT's classes have it
    squeeze: Squeeze = "tanh"  # what the pooler ends in: BERT's tanh, ELECTRA's gelu, DistilBERT's relu
    bias: bool = True  # of the last layer; GPT's classes for whole texts have none
    length: int = 0  # tokens in a window; 0: as many as the model takes
    overlap: float = 0.25  # share of a window that the next one repeats
    temperature: float = 1.0  # logits are divided by it: calibrated probabilities
    null: bool = False  # qa: a question may have no answer
    threshold: float = 0.0  # qa: "no answer" when its score exceeds the best span's by more than this
    told: bool = (
        True  # regress: config.json says so; where it does not, transformers' pipeline shows the number's sigmoid
    )
    scale: tuple[float, float] = (0.0, 1.0)  # regress, while it trains: mean and spread of the training scores

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < 1 or self.temperature <= 0 or self.length < 0:
            raise SesameError("task: overlap lies from 0 to below 1, temperature above 0, length not below 0")


@dataclass(frozen=True)
class Item:
    """An example as numbers: its windows, and for choice the option that each belongs to."""

    windows: tuple[Window, ...]
    slots: tuple[int, ...] = ()
    label: Any = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(len(window.ids) for window in self.windows)


class Transform(nn.Module):
    """norm(gelu(W h)), in the fashion of the backbone: without biases where that has none. Shape: (..., D) -> (..., D)."""

    def __init__(self, width: int, backbone: Backbone) -> None:
        super().__init__()
        config = getattr(backbone, "config", None)
        bias, eps = bool(getattr(config, "bias", True)), float(getattr(config, "eps", 1e-5))
        self.dense = nn.Linear(width, width, bias=bias)
        self.norm = nn.LayerNorm(width, eps=eps, bias=bias)
        self.apply(bert_init())

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(x)))  # type: ignore[no-any-return]


class Task(Objective):
    """One file, one task."""

    kind: ClassVar[str]

    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, outputs: int, dropout: float) -> None:
        super().__init__()
        self.name, self.config = name, config
        self.choice = LayerChoice(config.layers, backbone)
        self.dropout = Dropout(dropout)
        self.transform = Transform(self.choice.width, backbone) if config.transform else None
        self.out = nn.Linear(self.choice.width, outputs, bias=config.bias)
        self.out.apply(bert_init())
        self.center: tuple[Tensor, Tensor] | None = None  # mean and spread of frozen features, in training only

    # ---- examples to batches -------------------------------------------------------------------------------------

    def items(self, examples: Sequence[Example], inputs: Inputs) -> list[Item]:
        """Encode examples; labels, where there are any, become numbers."""
        raise NotImplementedError

    def training_items(self, items: Sequence[Item]) -> list[Item]:
        """What one draw of the loader is: here the whole example."""
        return list(items)

    def collate(self, items: Sequence[Item], pad: int, multiple: int = 1) -> Batch:
        """Windows as rows of one padded batch, with the labels of their items; `multiple` rounds its width up."""
        windows = [window for item in items for window in item.windows]
        lengths = torch.tensor([len(window.ids) for window in windows])
        width = -(-int(lengths.max()) // multiple) * multiple
        ids = torch.full((len(windows), width), pad)
        segments = torch.zeros(len(windows), width, dtype=torch.long)
        for row, window in enumerate(windows):
            ids[row, : len(window.ids)] = torch.tensor(window.ids)
            segments[row, : len(window.ids)] = torch.tensor(window.segments)
        batch = Batch(ids, lengths, segments=segments, full=bool((lengths == width).all()))
        return batch.with_targets(**{self.name: self.targets(items, width)})

    def targets(self, items: Sequence[Item], width: int) -> Targets:
        raise NotImplementedError

    # ---- the head ------------------------------------------------------------------------------------------------

    def heads(self) -> dict[str, nn.Module]:
        mix = self.choice.mix
        found: dict[str, nn.Module] = {self.name: self.out}
        if self.transform is not None:
            found[f"{self.name}.transform"] = self.transform
        return found if mix is None else found | {f"{self.name}.mix": mix}

    def standard(self, features: Tensor) -> Tensor:
        """Frozen features as numbers of mean 0 and spread 1: a head learns them alike, whatever layer they come from.

        A transform has a norm of its own and takes them as they are.
        """
        if self.transform is not None:
            return self.transform(features)  # type: ignore[no-any-return]
        if self.center is None:
            return features
        mean, spread = self.center
        return (features - mean) / spread

    @torch.no_grad()
    def settle(self) -> None:
        """At the end of training: fold what only training needed into the weights."""
        if self.center is not None and self.transform is None:
            mean, spread = self.center
            self.out.weight.div_(spread)
            self.out.bias.sub_(self.out.weight @ mean)
        self.center = None

    def features(self, encoded: Encoded) -> Tensor:
        """What the head reads: everything up to here has no weights of this task, so frozen features can be kept."""
        return self.choice.stack(encoded.layers)

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Targets) -> Tensor:
        """The summed loss."""
        raise NotImplementedError

    def answer(self, encoded: Encoded) -> Tensor:
        """Hidden states to logits, in 32 bits at least."""
        features = self.features(encoded) if encoded.kept is None else encoded.kept
        logits = self.logits(features, encoded.batch)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        targets = encoded.batch.targets[self.name]
        return [Term(self.name, self.loss(self.answer(encoded), targets), targets.count())]

    # ---- answers -------------------------------------------------------------------------------------------------

    def split(self, logits: Tensor, items: Sequence[Item]) -> list[Tensor]:
        """The logits of each item: here those of its windows."""
        return list(torch.split(logits, [len(item.windows) for item in items]))

    def read(self, logits: Tensor, item: Item, example: Example) -> Reply:
        """One item's logits as an answer."""
        raise NotImplementedError
