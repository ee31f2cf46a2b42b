"""What is computed for each thing that can be asked: the library's own calls, their replies as the contract names them.

Every function takes a model, the inputs of one or several requests with the same options, and these options; it gives one
answer for each input. Numbers are passed on as they are, to the last digit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.loaded import Loaded
from sesame.nn.steady import Steady
from sesame.serve.attention import head_steps, maps
from sesame.serve.inside import layers, neighbours
from sesame.serve.spoken import spoken
from sesame.tasks import Reply
from sesame.tasks.fill import Filled, mark_masks

Answer = Any
Compute = Callable[..., list[Answer]]


def classify(loaded: Loaded, inputs: Sequence[tuple[str, str | None]], task: str) -> list[Answer]:
    return [_label(reply) for reply in loaded.predict(_pairs(inputs), task)]


def _pairs(inputs: Sequence[tuple[str, str | None]]) -> list[str | tuple[str, str]]:
    return [text if pair is None else (text, pair) for text, pair in inputs]


def _label(reply: Reply) -> Answer:
    scores = reply["probabilities"]
    if "labels" not in reply:
        return {"label": reply["label"], "score": reply["probability"], "scores": scores}
    best = max(scores, key=scores.__getitem__)  # several may hold at once: the likeliest, and all that do
    return {"label": best, "score": scores[best], "scores": scores, "labels": reply["labels"]}


def regress(loaded: Loaded, inputs: Sequence[tuple[str, str | None]], task: str) -> list[Answer]:
    return [{"score": reply["value"]} for reply in loaded.predict(_pairs(inputs), task)]


def tag(loaded: Loaded, inputs: Sequence[str], task: str) -> list[Answer]:
    keys = {"label": "label", "start": "start", "end": "end", "text": "text", "score": "probability"}
    return [
        {"entities": [{ours: entity[key] for ours, key in keys.items()} for entity in reply["entities"]]}
        for reply in loaded.predict(inputs, task)
    ]


def qa(loaded: Loaded, inputs: Sequence[tuple[str, str]], task: str, best: int) -> list[Answer]:
    """`answer` is what `sesame predict` says: empty if the model holds that there is none."""
    return [
        {
            "answers": [
                {"text": one["answer"], "start": one["start"], "end": one["end"], "score": one["probability"]}
                for one in reply["best"]
            ],
            "none": reply.get("no_answer"),
            "answer": reply["answer"],
        }
        for reply in loaded.predict(inputs, task, best=best)
    ]


def choice(loaded: Loaded, inputs: Sequence[tuple[str, ...]], task: str) -> list[Answer]:
    """Each input is a text and its choices."""
    examples = [Example(f"text {n}", text, options=tuple(rest)) for n, (text, *rest) in enumerate(inputs, 1)]
    return [
        {
            "choice": reply["choice"],
            "text": reply["option"],
            "score": reply["probabilities"][reply["choice"]],
            "scores": reply["probabilities"],
        }
        for reply in loaded.predict(examples, task)
    ]


def fill(loaded: Loaded, inputs: Sequence[str], top: int) -> list[Answer]:
    found = loaded.fill(inputs, top)
    return [
        {
            "gaps": [
                [{"token": t, "score": p} for t, p in zip(gap.tokens, gap.probabilities, strict=True)] for gap in gaps
            ],
            "text": filled(mark_masks(text, loaded.tokenizer), gaps),
        }
        for text, gaps in zip(inputs, found, strict=True)
    ]


def filled(text: str, gaps: Sequence[Filled]) -> str:
    """The text with the best token in every gap; a piece of a word joins what stands before it."""
    done, at = "", 0
    for gap in gaps:
        done += text[at : gap.start]
        at, token = gap.end, gap.tokens[0].replace("▁", " ").removesuffix("</w>")
        if token.startswith("##"):
            done, token = done.rstrip(), token[2:]
        elif not done or done[-1].isspace():
            token = token.lstrip()
        done += token
    return done + text[at:]


def embed(loaded: Loaded, inputs: Sequence[str]) -> list[Answer]:
    return [{"vector": vector.tolist()} for vector in loaded.embed(inputs)]


def tokenize(loaded: Loaded, inputs: Sequence[str]) -> list[Answer]:
    tokenizer = loaded.tokenizer
    unknown = tokenizer.id("unk") if tokenizer.has("unk") else None
    normalizer = tokenizer.backend.normalizer
    return [
        {
            "tokens": [
                {"token": tokenizer.shown(id), "id": id, "start": start, "end": end}
                for id, (start, end) in zip(found.ids, found.offsets, strict=True)
            ],
            "normalized": text if normalizer is None else normalizer.normalize_str(text),
            "unknown": sum(id == unknown for id in found.ids),
        }
        for text, found in zip(inputs, tokenizer.encode_batch(list(inputs), special=True), strict=True)
    ]


def attention(
    loaded: Loaded, inputs: Sequence[tuple[str, str | None]], layer: int | None, head: int | None, numbers: int
) -> list[Answer]:
    if layer is None or head is None:
        return [maps(loaded, *each, numbers) for each in inputs]
    return [head_steps(loaded, *each, layer, head) for each in inputs]


def nsp(loaded: Loaded, inputs: Sequence[tuple[str, str]]) -> list[Answer]:
    """Does the second text follow the first? BERT's own head (`objectives/pair.py`), asked as classify is."""
    found = []
    for text, pair in inputs:
        encoding = loaded.tokenizer.encode_pair(text, pair)
        if len(encoding.ids) > loaded.limit:
            raise SesameError(f"the pair has {len(encoding.ids)} tokens, the model takes {loaded.limit}; shorten it")
        device = loaded.parts.backbone.token_table().device
        lengths = torch.tensor([len(encoding.ids)])
        batch = Batch(torch.tensor([encoding.ids]), lengths, segments=torch.tensor([encoding.segments]), full=True)
        with torch.inference_mode(), Steady():
            first = loaded.parts.backbone(batch.to(device)).last[:, 0]
            logits = loaded.parts.heads["nsp"](loaded.parts.heads["pooler"](first).tanh())
        follows, elsewhere = logits[0].float().softmax(-1).tolist()
        label, score = ("follows", follows) if follows >= elsewhere else ("elsewhere", elsewhere)
        found.append({"label": label, "score": score, "scores": {"follows": follows, "elsewhere": elsewhere}})
    return found


COMPUTE: dict[str, Compute] = {
    "classify": classify,
    "regress": regress,
    "tag": tag,
    "qa": qa,
    "fill": fill,
    "embed": embed,
    "generate": spoken,
    "translate": spoken,
    "tokenize": tokenize,
    "attention": attention,
    "nsp": nsp,
    "choice": choice,
    "neighbours": neighbours,
    "layers": layers,
}
