"""Perplexity: how unexpected a text is to a model that reads from left to right, or from its end.

    nats = - sum over pieces i of log p(x_i | what the model still knows of x_1 ... x_{i-1})
    perplexity = exp(nats / pieces)      per word: exp(nats / words)      bits per byte: nats / (bytes ln 2)

A piece's perplexity depends on how the tokenizer cuts; compare models by word or by byte. Words are what white space parts.
Texts that are joined have a separator between them, which the model must tell too: it counts as a piece, a word and a byte
(as <eos> does in WikiText's word counts). No text's end is asked for.

What the model knows:
- with a memory (Transformer-XL, LSTM) a text is read in parts of `length` tokens, and each part knows those before it;
- without, in windows of `length` tokens that begin every `stride` tokens; only what a window adds is counted, so that
  every piece is counted once. A small stride gives pieces more to go by, and costs length / stride times as much;
- one that reads from the end (ULMFiT's backward half) likewise, in windows from the end of the text. One that reads both
  ways has a perplexity for each: `both_ways.py`.

Unusual: each window begins with the token that began each row in training, so a model without memory is asked for what it has
learnt. Pieces that the tokenizer does not know are counted too, and said: they hide what stood there, which flatters.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, TransformerXL
from sesame.backbones.transformer_xl import in_parts
from sesame.checkpoint.folder import Parts
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.progress import Bar, say
from sesame.text import Tokenizer

LENGTH = 512  # of a window, where neither the user nor the model says one
TOKENS = 8192  # that windows hold together


def _exp(nats: float) -> float:
    """A text without spaces is one word, of which no number can hold the perplexity."""
    return math.exp(nats) if nats < 700 else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Surprise:
    nats: float
    pieces: int
    words: int
    bytes: int
    unknown: int = 0  # of the pieces

    @property
    def perplexity(self) -> float:
        return _exp(self.nats / self.pieces)

    @property
    def per_word(self) -> float:
        return _exp(self.nats / self.words)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.bytes

    def figures(self) -> dict[str, float | None]:
        """As JSON can hold them: what no number can hold is null."""
        return {
            "perplexity": _finite(self.perplexity),
            "perplexity_per_word": _finite(self.per_word),
            "bits_per_byte": self.bits_per_byte,
            **{name: getattr(self, name) for name in ("nats", "pieces", "words", "bytes", "unknown")},
        }


@dataclass(frozen=True)
class Reading:
    """How texts are read."""

    length: int = 0  # tokens at a time; 0: what the model remembers, or was built for
    memory: bool | None = None  # None: if the model has one
    remember: int | None = None  # tokens; None: as the model is configured, 0: all
    stride: int = 0  # without memory: a window begins every so many tokens; 0: where the last one ended
    joined: bool = True  # the texts as one, with a separator between them; else each by itself
    rows: int = 1  # with memory: read side by side; a joined text is cut into so many, each of which begins anew

    def __post_init__(self) -> None:
        if self.length < 0 or self.stride < 0 or self.rows < 1 or (self.remember or 0) < 0:
            raise SesameError("perplexity: length, stride and remember are not below 0, rows is at least 1")


@torch.no_grad()
def perplexity(
    parts: Parts, texts: Sequence[str], reading: Reading | None = None, progress: Bar | None = None
) -> Surprise:
    """How unexpected these texts are to a model folder's parts, whose modules are left in evaluation mode."""
    backbone, tokenizer, reading = parts.backbone, parts.tokenizer, reading or Reading()
    if tokenizer is None:
        raise SesameError("perplexity needs a tokenizer; put tokenizer.json beside the weights")
    backward = getattr(backbone.config, "backward", False)
    remembers = backbone.reads_on and not backward and reading.memory is not False
    if not remembers and (reading.memory or reading.remember is not None or reading.rows > 1):
        raise SesameError("perplexity: memory, remember and rows need a model with a memory; set a stride instead")
    if reading.remember is not None and not isinstance(backbone, TransformerXL):
        raise SesameError("perplexity: remember is for a Transformer-XL; a recurrent state has no length, leave it out")
    if remembers and reading.stride:
        raise SesameError("perplexity: a stride is for windows; leave it out, or turn the memory off")
    head = _head(parts)
    rows, between = rows_of(tokenizer, texts, reading, remembers)
    backbone.eval(), head.eval()
    length = reading.length or length_of(backbone, remembers)
    if not remembers and backbone.longest is not None and length > backbone.longest:
        raise SesameError(
            f"perplexity: windows of {length} tokens do not fit a model of {backbone.longest}; shorten them"
        )
    start, pad = _start(tokenizer, backward), tokenizer.ids().get("pad", 0)
    rows = [row[::-1] for row in rows] if backward else rows
    table, nats = backbone.token_table(), 0.0
    walk = _by_memory if remembers else _by_windows
    for states, labels in walk(backbone, rows, start, pad, length, reading):
        nats += float(_nats(head, table, states, labels.to(table.device)))
        if progress is not None:
            progress.advance(int((labels != IGNORE).sum()))
    unknown = 0
    if tokenizer.has("unk"):  # separators are not counted, which are the same token in GPT-2
        unknown = sum(row.count(tokenizer.id("unk")) for row in rows)
        unknown -= between if tokenizer.id("unk") == _separator(tokenizer) else 0
    say_unknown(unknown)
    return Surprise(nats, sum(map(len, rows)), *sizes_of(texts, between), unknown)


def say_unknown(count: int) -> None:
    if count:
        say(f"perplexity: {count:,} pieces are unknown to the tokenizer; scores by word and by byte are flattered")


def sizes_of(texts: Sequence[str], between: int) -> tuple[int, int]:
    """Words and bytes, a separator being one of either."""
    words, size = sum(len(text.split()) for text in texts), sum(len(text.encode("utf-8", "replace")) for text in texts)
    return words + between, size + between


def rows_of(
    tokenizer: Tokenizer, texts: Sequence[str], reading: Reading, remembers: bool = False
) -> tuple[list[list[int]], int]:
    """What is read by itself, without the token that begins it; and how many separators were put in."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(list(texts), literal=True)]
    filled = [row for row in ids if row]
    if not filled:
        raise SesameError("perplexity: there is no text; give at least one word")
    if not reading.joined:
        return filled, 0
    separator, one = _separator(tokenizer), list[int]()
    for row in filled:
        one += [*([separator] if one else []), *row]
    each = max(1, -(-len(one) // (reading.rows if remembers else 1)))
    return [one[begin : begin + each] for begin in range(0, len(one), each)], len(filled) - 1


def _separator(tokenizer: Tokenizer) -> int:
    return _role(tokenizer, "sep", "eos", "bos")


def _by_memory(
    backbone: Backbone, rows: list[list[int]], start: int, pad: int, length: int, reading: Reading
) -> Iterator[tuple[Tensor, Tensor]]:
    """States and labels, part after part, of rows of similar length."""
    rows = sorted(rows, key=len)
    for begin in range(0, len(rows), reading.rows):
        group = rows[begin : begin + reading.rows]
        ids, labels = padded([[start, *row[:-1]] for row in group], pad), padded(group, IGNORE)
        found = in_parts(backbone, ids.to(backbone.token_table().device), length, reading.remember)
        yield from zip(found, torch.split(labels, length, dim=1), strict=True)


def _by_windows(
    backbone: Backbone, rows: list[list[int]], start: int, pad: int, length: int, reading: Reading
) -> Iterator[tuple[Tensor, Tensor]]:
    """States and labels of windows that know nothing of each other; what an earlier one has counted is not asked for."""
    stride, way = reading.stride or length, -1 if getattr(backbone.config, "backward", False) else 1
    if stride > length:
        raise SesameError(f"perplexity: a stride of {stride} leaves gaps between windows of {length}; make it smaller")
    inputs, wanted = [], []
    for row in rows:
        done = 0
        while done < len(row):
            end = min(len(row), max(length, done + stride))
            first = max(0, end - length)
            inputs.append([start, *row[first : end - 1]])
            wanted.append([*[IGNORE] * (done - first), *row[done:end]])
            done = end
    order = sorted(range(len(inputs)), key=lambda n: len(inputs[n]))
    each = max(1, TOKENS // length)
    for at in range(0, len(order), each):
        group = order[at : at + each]
        ids = padded([inputs[n][::way] for n in group], pad)
        labels = padded([wanted[n][::way] for n in group], IGNORE)
        lengths = torch.tensor([len(inputs[n]) for n in group])
        batch = Batch(ids, lengths, full=bool((lengths == ids.shape[1]).all()))
        yield backbone(batch.to(backbone.token_table().device)).last, labels


def padded(rows: list[list[int]], fill: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def _nats(head: nn.Module, table: Tensor, states: Tensor, labels: Tensor) -> Tensor:
    asked = labels != IGNORE
    logits: Tensor = head(states[asked], table)
    return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), labels[asked], reduction="sum")


def check_reads(parts: Parts, place: str) -> None:
    """Complain about a model that cannot be asked, before any text is read."""
    config = parts.backbone.config
    if not (getattr(config, "causal", False) or getattr(config, "backward", False)):
        raise SesameError(
            f"{place}: perplexity needs a model that reads from left to right, such as a gpt or a transformer-xl"
        )


def _head(parts: Parts) -> nn.Module:
    check_reads(parts, "this model")
    head = next((parts.heads[name] for name in ("lm", "mlm") if name in parts.heads), None)
    if head is None:
        raise SesameError("perplexity: this model has no head that tells tokens; pre-train it with objectives.clm")
    return head


def length_of(backbone: Backbone, remembers: bool) -> int:
    return (getattr(backbone.config, "memory", 0) if remembers else 0) or backbone.longest or LENGTH


def _start(tokenizer: Tokenizer, backward: bool) -> int:
    """What began each row in training: the class token where texts begin with it, else what stands between texts; for who
    reads from the end, what ended it."""
    if backward:
        return _role(tokenizer, "sep", "eos", "bos", "cls")
    framed = tokenizer.has("cls") and tokenizer.encode(tokenizer.sample, special=True).ids[:1] == [tokenizer.id("cls")]
    return tokenizer.id("cls") if framed else _role(tokenizer, "bos", "eos", "sep", "cls")


def _role(tokenizer: Tokenizer, *roles: str) -> int:
    """The first of these that the tokenizer has."""
    found = tokenizer.ids()
    chosen = next((found[role] for role in roles if role in found), None)
    if chosen is None:
        raise SesameError(
            f"perplexity: {tokenizer.name} has none of the tokens {', '.join(roles)}; take another tokenizer"
        )
    return chosen
