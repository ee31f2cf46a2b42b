"""What is explained: one number of a model's answer to one text, as a function of what the model reads.

    classify  the logit of a label            regress  the value
    tag       the logit of a word's tag       qa       start S h_i, end E h_j, or their sum, of the best span
    masked    the logit of a token at a mask  decoder  the logit of the token that follows
    encoder-decoder  log p(answer | source), summed over the answer

Unusual: logits, where others take probabilities. A sure model's probability hardly changes with anything, and rises when a
rival label falls; a logit is this label's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sesame.backbones import Backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import speaker
from sesame.config import unknown
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.explain.alignment import told_and_read
from sesame.tasks import Item, Task
from sesame.tasks.fill import mark_masks
from sesame.tasks.predict import window_length
from sesame.tasks.qa import LONGEST
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer

SIDES = ("span", "start", "end")


@dataclass(frozen=True)
class Question:
    """`copies(n)` is the input n times, `score` gives a number for each of them; gradients flow."""

    name: str  # what the number is, for people
    backbone: Backbone
    rows: list[list[int]]  # the ids of each window; one row, unless a text is long or read in both orders
    tokens: list[str]  # of all rows, one after another
    free: list[bool]  # likewise: what a baseline replaces; specials stay
    copies: Callable[[int], Batch]
    score: Callable[[Batch], Tensor]  # (n,)

    def now(self) -> float:
        """The score as the model stands."""
        with torch.no_grad():
            return float(self.score(self.copies(1))[0])


@dataclass(frozen=True)
class Wish:
    """What a user may say about the number; empty: the model's own best."""

    label: str = ""  # a label, tag or token; qa: span, start or end; encoder-decoder: the answer
    at: str = ""  # tag: a word or its number; masked: the number of the mask


def ask(
    parts: Parts, text: str, pair: str | None = None, task: Task | None = None, wish: Wish | None = None
) -> Question:
    """With a task about its answer; without, about a mask or what follows. `pair`: a second text; qa: the context."""
    wish = wish or Wish()
    parts.backbone.eval()
    if parts.tokenizer is None:
        raise SesameError("this model has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
    if task is not None:
        return _about_task(parts, parts.tokenizer, task, text, pair, wish)
    if pair is not None and (parts.backbone.answers or getattr(parts.backbone.config, "causal", False)):
        raise SesameError("this model reads one text; leave out --pair")
    if parts.backbone.answers:
        return _about_answer(parts, parts.tokenizer, text, wish)
    if getattr(parts.backbone.config, "causal", False):
        return _about_next(parts, parts.tokenizer, text, wish)
    return _about_mask(parts, parts.tokenizer, text, pair, wish)


def specials(tokenizer: Tokenizer) -> set[int]:
    """Tokens that stand for no text: those with a role but for the unknown one, and the template's."""
    template = tokenizer.encode_pair(tokenizer.sample, tokenizer.sample)
    around = {id for id, word in zip(template.ids, template.words, strict=True) if word is None}
    return around | {id for role, id in tokenizer.ids().items() if role != "unk"}


def shown(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [tokenizer.shown(id).strip() or "␣" for id in ids]


def _question(
    parts: Parts, name: str, rows: list[list[int]], copies: Callable[[int], Batch], score: Callable[[Batch], Tensor]
) -> Question:
    assert parts.tokenizer is not None
    fixed, flat = specials(parts.tokenizer), [id for row in rows for id in row]
    return Question(
        name, parts.backbone, rows, shown(parts.tokenizer, flat), [id not in fixed for id in flat], copies, score
    )


# ---- tasks ------------------------------------------------------------------------------------------------------------


def _about_task(parts: Parts, tokenizer: Tokenizer, task: Task, text: str, pair: str | None, wish: Wish) -> Question:
    kind, backbone, device = task.config.kind, parts.backbone, parts.backbone.token_table().device
    if kind == "choice":
        raise SesameError("a choice among texts has no one text to explain; ask a model that classifies or tags")
    if kind == "qa" and pair is None:
        raise SesameError('a question needs its context: give --pair "the text that holds the answer"')
    if task.config.pair and pair is None:
        raise SesameError("this model was trained on pairs of texts; give the second one with --pair")
    example = Example("the text", pair, text) if kind == "qa" and pair is not None else Example("the text", text, pair)
    inputs = Inputs(tokenizer, window_length(task, backbone), task.config.overlap, backbone.segment_kinds)
    (item,) = task.items([example], inputs)
    task.eval()

    def copies(count: int) -> Batch:
        return task.collate([item] * count, inputs.pad).to(device)

    def logits(batch: Batch) -> Tensor:
        found = task.logits(task.features(backbone(batch, task.looks_at(batch))), batch)
        return (
            found if found.ndim == 2 else found.view(-1, len(item.windows), *found.shape[1:])
        )  # (n, C) or (n, W, L, C)

    with torch.no_grad():
        now = logits(copies(1))[0]
    choose = {"tag": _tag, "qa": _span}.get(kind, _label)
    name, pick = choose(task, item, example, now, wish)
    return _question(parts, name, [window.ids for window in item.windows], copies, lambda batch: pick(logits(batch)))


Pick = Callable[[Tensor], Tensor]


def _number(task: Task, wanted: str, scores: Tensor) -> int:
    """The label that is asked for, or the best one."""
    if not wanted:
        return int(scores.argmax())
    if wanted not in task.config.labels:
        raise SesameError(unknown(wanted, dict.fromkeys(task.config.labels), "--label", "label"))
    return task.config.labels.index(wanted)


def _label(task: Task, item: Item, example: Example, now: Tensor, wish: Wish) -> tuple[str, Pick]:
    if task.config.kind == "regress":
        return "the value", lambda logits: logits[:, 0]
    number = _number(task, wish.label, now)
    return f"the logit of the label “{task.config.labels[number]}”", lambda logits: logits[:, number]


def _tag(task: Task, item: Item, example: Example, now: Tensor, wish: Wish) -> tuple[str, Pick]:
    words: list[tuple[int, int]] = item.extra["words"]
    spots = {word: (row, at) for row, some in enumerate(item.extra["spots"]) for at, word in some}
    if not spots:
        raise SesameError("the text holds no word that the model reads; give another text")
    names = [example.text[start:end] for start, end in words]
    if wish.at:
        chosen = [word for word in spots if wish.at in (names[word], str(word + 1))]
        if not chosen:
            raise SesameError(f"--at {wish.at}: is no word of the text; give one, or its number from 1 to {len(words)}")
        word = chosen[0]
    else:  # the first word that is something
        said = {word: task.config.labels[int(now[row, at].argmax())] for word, (row, at) in sorted(spots.items())}
        word = next((word for word, tag in said.items() if tag != "O"), min(spots))
    row, at = spots[word]
    number = _number(task, wish.label, now[row, at])
    name = f"the logit of the tag “{task.config.labels[number]}” at “{names[word]}”"
    return name, lambda logits: logits[:, row, at, number]


def _span(task: Task, item: Item, example: Example, now: Tensor, wish: Wish) -> tuple[str, Pick]:
    side = wish.label or "span"
    if side not in SIDES:
        raise SesameError(unknown(side, dict.fromkeys(SIDES), "--label", "choice"))
    best: tuple[float, int, int, int] | None = None
    for row, window in enumerate(item.windows):
        body = now[row, window.body.start : window.body.stop]
        near = torch.ones(len(body), len(body), device=now.device).triu().tril(LONGEST - 1).bool()
        both = (body[:, None, 0] + body[None, :, 1]).masked_fill(~near, -torch.inf)
        if both.numel() and (best is None or float(both.max()) > best[0]):
            start, end = divmod(int(both.argmax()), len(body))
            best = float(both.max()), row, window.body.start + start, window.body.start + end
    if best is None:
        raise SesameError("the context holds no word that the model reads; give another one")
    _, row, start, end = best
    offsets = item.windows[row].offsets
    said = example.text[offsets[start][0] : offsets[end][1]]
    what = {"span": "start and end", "start": "the start", "end": "the end"}[side]

    def pick(logits: Tensor) -> Tensor:
        first, last = logits[:, row, start, 0], logits[:, row, end, 1]
        return first + last if side == "span" else first if side == "start" else last

    return f"the score of {what} of the answer “{said}”", pick


# ---- without a task ---------------------------------------------------------------------------------------------------


def _check_length(backbone: Backbone, size: int) -> None:
    if backbone.longest is not None and size > backbone.longest:
        raise SesameError(f"the text has {size} tokens, the model takes {backbone.longest}; shorten it")


def _token(tokenizer: Tokenizer, wanted: str, scores: Tensor) -> int:
    if not wanted:
        return int(scores[: len(tokenizer)].argmax())
    for written in (wanted, f" {wanted}"):  # some tokenizers keep the space before a word
        ids = tokenizer.encode(written, literal=True).ids
        if len(ids) == 1 and not (tokenizer.has("unk") and ids[0] == tokenizer.id("unk")):
            return ids[0]
    raise SesameError(f"--label {wanted}: is not one token of this model; give a shorter word")


def _about_mask(parts: Parts, tokenizer: Tokenizer, text: str, pair: str | None, wish: Wish) -> Question:
    if "mlm" not in parts.heads or not tokenizer.has("mask"):
        raise SesameError(
            "this model was taught no task and fills no masks, so it has no answer to explain; teach it one"
        )
    backbone, head, mask = parts.backbone, parts.heads["mlm"].eval(), tokenizer.id("mask")
    marked = [mark_masks(one, tokenizer) for one in (text, pair) if one is not None]
    (encoding,) = tokenizer.encode_batch(marked, special=True) if pair is None else [tokenizer.encode_pair(*marked)]
    _check_length(backbone, len(encoding.ids))
    masks = [at for at, id in enumerate(encoding.ids) if id == mask]
    if not masks:
        raise SesameError(f"no mask in {text[:60]!r}; write [MASK] where a word is wanted, or name a model with a task")
    number = wish.at or "1"
    if not number.isdecimal() or not 1 <= int(number) <= len(masks):
        raise SesameError(f"--at {number}: the text has masks 1 to {len(masks)}; give the number of one")
    place, table = masks[int(number) - 1], backbone.token_table()
    ids, segments = (torch.tensor([row], device=table.device) for row in (encoding.ids, encoding.segments))
    lengths = torch.tensor([len(encoding.ids)], device=table.device)

    def copies(count: int) -> Batch:
        more = segments.expand(count, -1) if backbone.segment_kinds else None
        return Batch(ids.expand(count, -1), lengths.expand(count), segments=more, full=True)

    def logits(batch: Batch) -> Tensor:
        at = torch.full((batch.size, 1), place, device=table.device)
        return head(backbone(batch, at).take(at)[:, 0], table)  # type: ignore[no-any-return]

    with torch.no_grad():
        id = _token(tokenizer, wish.label, logits(copies(1))[0])
    name = f"the logit of “{tokenizer.shown(id).strip()}” at mask {number}"
    return _question(parts, name, [encoding.ids], copies, lambda batch: logits(batch)[:, id])


def _about_next(parts: Parts, tokenizer: Tokenizer, text: str, wish: Wish) -> Question:
    head, backbone = speaker(parts).head, parts.backbone
    encoding = tokenizer.encode(text, literal=True)
    front = (
        [tokenizer.id("cls")]
        if tokenizer.has("cls") and tokenizer.encode(tokenizer.sample, True).ids[0] == tokenizer.id("cls")
        else []
    )
    row = [*front, *encoding.ids]
    _check_length(backbone, len(row))
    ids = torch.tensor([row], device=backbone.token_table().device)

    def copies(count: int) -> Batch:
        return Batch(ids.expand(count, -1), ids.new_full((count,), len(row)), full=True)

    def logits(batch: Batch) -> Tensor:
        return head(backbone(batch).last[:, -1])

    with torch.no_grad():
        id = _token(tokenizer, wish.label, logits(copies(1))[0])
    name = f"the logit of “{tokenizer.shown(id).strip()}” as the next token"
    return _question(parts, name, [row], copies, lambda batch: logits(batch)[:, id])


def _about_answer(parts: Parts, tokenizer: Tokenizer, text: str, wish: Wish) -> Question:
    head, backbone = speaker(parts).head, parts.backbone
    said = told_and_read(parts, text, wish.label or None)
    device = backbone.token_table().device
    ids, outputs = (torch.tensor([row], device=device) for row in ([said.read[at] for at in said.order], said.outputs))
    wanted = torch.tensor(said.told, device=device)

    def copies(count: int) -> Batch:
        lengths = ids.new_full((count,), ids.shape[1])
        return Batch(ids.expand(count, -1), lengths, outputs=outputs.expand(count, -1), full=True)

    def score(batch: Batch) -> Tensor:
        states = backbone(batch).last[:, -len(said.told) :]
        logs = head(states.flatten(0, 1))[:, : backbone.vocab].log_softmax(-1).view(batch.size, len(wanted), -1)
        return logs[:, torch.arange(len(wanted), device=device), wanted].sum(1)

    name = f"log p(“{tokenizer.decode(said.told)}” | source)"
    return _question(parts, name, ids.tolist(), copies, score)  # a source that is read from its end is shown so
