"""Tasks with one answer for a whole text (or pair): the windows' vectors are averaged, then a linear layer answers.

    v = mean over windows of pool(h);   logits = W dropout(v) + b
    pool: "pooler" f(W_p h_[CLS] + b_p), "cls", "mean" or "max" over the tokens
    "concat" (ULMFiT: Howard & Ruder 2018) [last ; max ; mean], then relu(W_c dropout(norm(v)) + b_c) before the last layer
    "rising" (Dai & Le 2015) the mean with weights that rise linearly to 1 towards the last token that is read
    f: tanh (BERT), gelu (ELECTRA) or relu (DistilBERT)
    with `both` (Radford et al. 2018, section 3.3: similarity has no order) v = v(a, b) + v(b, a)

Unusual: a long document trains and predicts through all of its windows; in training at most `WINDOWS` of them, drawn anew
each time. With one window this is what transformers' `*ForSequenceClassification` computes. ULMFiT's batch norms are layer
norms, because a text's loss must not depend on those beside it. Dai & Le weight the losses at all states by how much is read,
here it is the states themselves, so that a text has one answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, CoVeConfig, Encoded
from sesame.backbones.base import at_end
from sesame.backbones.cove import turned
from sesame.data.batch import Batch, Targets
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.dropout import Dropout
from sesame.nn.init import bert_init
from sesame.nn.steady import row_sums
from sesame.tasks.base import Item, Task, TaskConfig
from sesame.tasks.windows import Inputs, Window

WINDOWS = 8
INNER = 50  # numbers between the two layers of ULMFiT's head
SQUEEZES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": torch.relu}


class Block(nn.Module):
    """relu(W dropout(norm(v)) + b), the inner layer of ULMFiT's head. Shape: (N, D) -> (N, INNER)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout, self.dense = nn.LayerNorm(width), Dropout(dropout), nn.Linear(width, INNER)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.dropout(self.norm(x))).relu()  # type: ignore[no-any-return]


class PooledTask(Task):
    def __init__(self, name: str, config: TaskConfig, backbone: Backbone, outputs: int, dropout: float) -> None:
        super().__init__(name, config, backbone, outputs, dropout)
        self.at_end = at_end(backbone)
        c = backbone.config
        self.turned = (c.front, c.back) if isinstance(c, CoVeConfig) and c.reverse else None
        self.block = None
        if config.pooling == "concat":
            self.block = Block(3 * self.choice.width, dropout)
            self.out = nn.Linear(INNER, outputs, bias=config.bias)
        self.pooler = None
        if config.pooling == "pooler":
            self.pooler = nn.Linear(self.choice.width, self.choice.width)
            self.pooler.apply(bert_init())

    def heads(self) -> dict[str, nn.Module]:
        """A pooler with BERT's tanh is the model's own, which pre-training may have left behind; others are the task's."""
        name = "pooler" if self.config.squeeze == "tanh" else f"{self.name}.pooler"
        block = {} if self.block is None else {f"{self.name}.block": self.block}
        return super().heads() | ({} if self.pooler is None else {name: self.pooler}) | block

    def standard(self, features: Tensor) -> Tensor:
        return features if self.block is not None else super().standard(features)  # it has a norm of its own

    def settle(self) -> None:
        if self.block is not None:
            self.center = None
        super().settle()

    # ---- examples to batches -------------------------------------------------------------------------------------

    def items(self, examples: Sequence[Example], inputs: Inputs) -> list[Item]:
        a = inputs.encode([example.text for example in examples])
        b = inputs.encode([example.pair or "" for example in examples])
        found = []
        for number, example in enumerate(examples):
            if self.config.both and example.pair is None:
                raise SesameError(
                    f"{example.place}: task.both reads pairs in both orders, and here is one text; give two"
                )
            windows = inputs.single(a[number]) if example.pair is None else inputs.pair(a[number], b[number])
            turned = inputs.pair(b[number], a[number]) if self.config.both else []
            slots = (0,) * len(windows) + (1,) * len(turned)
            found.append(Item((*windows, *turned), slots, self.number(example)))
        return found

    def number(self, example: Example) -> object:
        """The label as a number; None where there is none."""
        raise NotImplementedError

    def slots(self, items: Sequence[Item]) -> int:
        """Vectors for each item: 1, one for each order, or the number of options."""
        return 2 if self.config.both else 1

    def rows(self, items: Sequence[Item]) -> Tensor:
        """The slot of each window, counted over the batch."""
        each = self.slots(items)
        return torch.tensor([number * each + slot for number, item in enumerate(items) for slot in item.slots])

    def targets(self, items: Sequence[Item], width: int) -> Targets:
        return Targets(self.labels(items), rows=self.rows(items))

    def labels(self, items: Sequence[Item]) -> Tensor:
        raise NotImplementedError

    # ---- the head ------------------------------------------------------------------------------------------------

    def looks_at(self, batch: Batch) -> Tensor | None:
        """[CLS] alone, where the head reads nothing else."""
        alone = self.config.layers == "last" and self.config.pooling in ("pooler", "cls")
        return self._place(batch) if alone else None

    def _place(self, batch: Batch) -> Tensor:
        return batch.lengths[:, None] - 1 if self.at_end else batch.lengths.new_zeros(batch.size, 1)

    def _read(self, batch: Batch, places: Tensor) -> Tensor:
        """How many tokens have been read at each place, itself included. Shape: (B, L) or (L,)."""
        if self.turned is not None:
            return turned(batch, *self.turned) + 1
        return places + 1 if self.at_end else batch.lengths[:, None] - places

    def features(self, encoded: Encoded) -> Tensor:
        """Shape: (J, B, D) for a batch of B windows."""
        if self.config.pooling in ("pooler", "cls"):
            at = self._place(encoded.batch)
            if encoded.only is not None:
                return encoded.take(at)[None, :, 0]
            return self.choice.stack([take(layer, at)[:, 0] for layer in encoded.layers])
        stack = self.choice.stack(encoded.layers)
        places = torch.arange(stack.shape[2], device=stack.device)
        real = (places[None] < encoded.batch.lengths[:, None])[None, :, :, None]
        lengths = encoded.batch.lengths[:, None]
        if self.config.pooling == "rising":
            read = self._read(encoded.batch, places)
            shares = (read / (lengths * (lengths + 1) / 2)).to(stack.dtype)
            return row_sums(stack * shares[None, ..., None], encoded.batch.lengths)
        most = stack.masked_fill(~real, -torch.inf).amax(2) if self.config.pooling != "mean" else None
        if self.config.pooling == "max":
            assert most is not None
            return most
        mean = encoded.mean(stack)
        if most is None:
            return mean
        at = self._place(encoded.batch)
        return torch.cat([torch.stack([take(layer, at)[:, 0] for layer in stack]), most, mean], -1)

    def vectors(self, features: Tensor, batch: Batch, slots: int) -> Tensor:
        """One vector for each slot, averaged over its windows. Shape: (J, B, D) -> (S, D)."""
        x = self.choice(features)
        x = self.standard(x) if self.pooler is None else SQUEEZES[self.config.squeeze](self.pooler(x))
        rows = batch.targets[self.name].rows
        assert rows is not None
        count = torch.zeros(slots, device=x.device, dtype=x.dtype).index_add(0, rows, torch.ones_like(x[:, 0]))
        total = torch.zeros(slots, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, rows, x)
        mean = total / count.clamp(min=1)[:, None]
        return self.dropout(mean if self.block is None else self.block(mean))  # type: ignore[no-any-return]

    def logits(self, features: Tensor, batch: Batch) -> Tensor:
        """Shape: (items, outputs)."""
        items = len(batch.targets[self.name].labels)
        if not self.config.both:
            return self.out(self.vectors(features, batch, items))  # type: ignore[no-any-return]
        return self.out(self.vectors(features, batch, 2 * items).view(items, 2, -1).sum(1))  # type: ignore[no-any-return]

    def split(self, logits: Tensor, items: Sequence[Item]) -> list[Tensor]:
        return list(logits)


def thin(item: Item, luck: float, most: int = WINDOWS) -> Item:
    """At most `most` windows of each slot, evenly spread from a random start: a long text must not fill the memory."""
    if len(item.windows) <= most:
        return item
    kept: list[tuple[Window, int]] = []
    for slot in sorted(set(item.slots)):
        here = [w for w, s in zip(item.windows, item.slots, strict=True) if s == slot]
        step = max(1.0, len(here) / most)
        kept += [(here[int((luck + i) * step) % len(here)], slot) for i in range(min(most, len(here)))]
    return replace(item, windows=tuple(w for w, _ in kept), slots=tuple(s for _, s in kept))
