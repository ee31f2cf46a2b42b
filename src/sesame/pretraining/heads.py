"""The objectives of a run: what they must know of its tokenizer, and the heads of the model that it goes on from."""

from dataclasses import replace
from itertools import count, takewhile

from torch import nn

from sesame.backbones import Backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import Speech
from sesame.objectives import MaskedLMHead, Vocab
from sesame.objectives import build as build_objectives
from sesame.objectives.base import Together
from sesame.objectives.clm import CausalLM
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.denoise import stop_ids
from sesame.objectives.mlm import MaskedLM
from sesame.objectives.plm import PermutationLM, TableHead
from sesame.objectives.seq2seq import Seq2Seq
from sesame.recipe import Recipe
from sesame.text import Tokenizer
from sesame.text.template import SENTINEL


def objectives_of(recipe: Recipe, backbone: Backbone, tokenizer: Tokenizer, speech: Speech | None) -> Together:
    vocab = vocab_of(tokenizer)
    if speech is not None and speech.start:
        vocab = replace(vocab, start=speech.start[0])
    return build_objectives(recipe.objectives, backbone, vocab)


def vocab_of(tokenizer: Tokenizer) -> Vocab:
    """What corruption must know of a tokenizer."""
    pieces = tokenizer.tokens()
    number = {piece: id for id, piece in enumerate(pieces)}
    named = takewhile(number.__contains__, map(SENTINEL.format, count()))
    front = int(tokenizer.has("cls") and tokenizer.encode(tokenizer.sample, special=True).ids[0] == tokenizer.id("cls"))
    sentinels = tuple(number[piece] for piece in named)
    shown = [tokenizer.shown(id) if piece else "" for id, piece in enumerate(pieces)]
    return Vocab(len(tokenizer), tokenizer.ids(), front, sentinels, tuple(stop_ids(shown)))


def take_heads(objective: Together, started: Parts) -> dict[str, nn.Module]:
    """Put the start model's heads into the objectives; gives those that no objective trains: a pooler.

    Of the two that read every token, "mlm" and "rtd", one does not outlive the training of the other: each needs states of
    its own, and would answer from those of a stranger.
    """
    for part in objective.all():
        head = next((started.heads[name] for name in part.heads() if name in started.heads), None)
        if isinstance(part, MaskedLM) and isinstance(head, MaskedLMHead):
            part.head = head  # as it is: its table may be its own
        if isinstance(part, PermutationLM) and isinstance(head, TableHead):
            part.head = head
        if isinstance(part, CausalLM):  # either kind tells the next token: it goes on with the one that has learnt to
            part.head = next(
                (_telling(started.heads[name]) for name in ("lm", "mlm") if name in started.heads), part.head
            )
        if isinstance(part, Seq2Seq) and isinstance(head, DecoderHead):
            part.head = head  # its scale and bias are the model's
    trained = objective.heads()
    for name, head in trained.items():
        if name in started.heads:
            head.load_state_dict(started.heads[name].state_dict())
    owned = {name for task in started.tasks.values() for name in task.heads()}
    outlived = {"mlm", "rtd"} if trained.keys() & {"mlm", "rtd"} else set()
    return {name: head for name, head in started.heads.items() if name not in {*trained, *owned, *outlived}}


def _telling(head: nn.Module) -> MaskedLMHead | DecoderHead:
    assert isinstance(head, MaskedLMHead | DecoderHead)
    return head
