"""How likely the answers wanted are to an encoder-decoder: it is told them, and asked for each token before it comes.

    nats = - sum over pairs and k of log p(y_k | y_1 ... y_{k-1}, x)
    perplexity = exp(nats / pieces)      per word: exp(nats / words)

It asks for what training asks for: the tokens that begin an answer (BART's <s>) and its end are pieces too. Compare models by
word, never by piece. A source that is too long loses its end, as when it is answered; a pair whose answer does not fit is
left out, and counted.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import answer_frame, voice_of
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.evaluate.perplexity import Surprise
from sesame.objectives.seq2seq import shifted
from sesame.progress import say
from sesame.tasks.speak import inputs_of

TOGETHER = 32  # pairs


@torch.inference_mode()
def surprise_of(parts: Parts, sources: Sequence[str], wanted: Sequence[str]) -> Surprise | None:
    """Of all answers together, None if none fits; the model is ready to answer (`spoken.open_answering`)."""
    backbone, head, tokenizer, voice = parts.backbone, parts.heads.get("seq2seq"), parts.tokenizer, voice_of(parts)
    assert tokenizer is not None, "voice_of has complained"
    if head is None:
        raise SesameError("perplexity: this model has no output layer for tokens; take one that was trained to answer")
    longest = None if backbone.reads_on else backbone.longest
    frame, pad = answer_frame(tokenizer, parts.speech), tokenizer.id("pad") if tokenizer.has("pad") else 0
    inputs = inputs_of(tokenizer, sources, voice, longest, quiet=True)
    cut = tokenizer.answers.encode_batch(list(wanted), literal=True)
    answers = [[*frame.begin, *found.ids, *frame.end] for found in cut]
    rows = [row for row, ids in enumerate(answers) if longest is None or len(ids) <= longest]
    if len(rows) < len(answers):
        left = f"{len(answers) - len(rows):,} of {len(answers):,} answers"
        say(f"perplexity: {left} do not fit into the model's {longest} tokens and are left out")
    if not rows:
        return None
    rows.sort(key=lambda row: -len(answers[row]))
    nats, table = 0.0, backbone.token_table()
    for first in range(0, len(rows), TOGETHER):
        some = rows[first : first + TOGETHER]
        labels = _padded([answers[row] for row in some], IGNORE).to(table.device)
        ids = _padded([inputs[row] for row in some], pad).to(table.device)
        lengths = torch.tensor([len(inputs[row]) for row in some], device=table.device)
        read = shifted(labels, voice.start[0], pad)
        states = backbone(Batch(ids, lengths, outputs=read, full=bool((lengths == ids.shape[1]).all()))).last
        logits = head(states[labels != IGNORE], table).to(torch.promote_types(table.dtype, torch.float32))
        nats += float(F.cross_entropy(logits, labels[labels != IGNORE], reduction="sum"))
    said = [wanted[row] for row in rows]
    words, size = sum(len(text.split()) for text in said), sum(len(text.encode("utf-8", "replace")) for text in said)
    return Surprise(nats, sum(len(answers[row]) for row in rows), words, size)


def _padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([ids + [fill] * (width - len(ids)) for ids in rows])
