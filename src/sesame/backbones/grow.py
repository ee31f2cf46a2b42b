"""Rows for new words in a trained model.

A new word starts as the mean of the pieces it was split into (its embedding, its row of an untied output table, its
output bias), so the model reads it much as before and training only has to refine it:
    row[new] = 1/n * sum of row[piece] over its n pieces
Everything else is a copy: hidden states and logits of old ids do not change.

What is unusual here: a model often has more rows than its tokenizer has tokens (30528 for 30522). The new ids begin
behind the tokenizer's last one, so `first` says which they are; spare rows are used up before the table grows.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone
from sesame.backbones.encoder import Encoder
from sesame.backbones.lstm import LSTM
from sesame.backbones.transformer_xl import TransformerXL
from sesame.backbones.xlnet import XLNet
from sesame.errors import SesameError
from sesame.nn.embeddings import padded_vocab

KINDS = (Encoder, XLNet, TransformerXL, LSTM)  # what grows


class TokenHead(Protocol):
    """A head with one output for each token: a bias, and a table unless it is tied to the embeddings."""

    vocab: int
    bias: Any  # a parameter, or a buffer that is never trained
    table: nn.Parameter | None


Head = TypeVar("Head", bound=TokenHead)
Grown = TypeVar("Grown", bound=Backbone)


def grow(backbone: Grown, pieces: Sequence[Sequence[int]], *, first: int | None = None) -> Grown:
    """A copy with a row for each entry of `pieces`, the old ids that a new word stood for.

    `first` is the id of the first new word, the length of the tokenizer before it was extended; the number of rows of
    the model if not given.
    """
    size = _new_size(backbone.vocab, pieces, first)
    grown = deepcopy(backbone)
    assert isinstance(grown, KINDS)
    tokens = grown.embeddings.tokens if isinstance(grown, Encoder) else grown.tokens
    tokens.weight = _grow_parameter(tokens.weight, backbone.vocab, pieces, first, padded_vocab(size))
    tokens.num_embeddings = padded_vocab(size)
    grown.config, grown.vocab = replace(backbone.config, vocab=size), size
    return grown


def grow_head(head: Head, pieces: Sequence[Sequence[int]], *, first: int | None = None) -> Head:
    """The head of masked language modelling for a backbone that has grown; call it with the same arguments."""
    size = _new_size(head.vocab, pieces, first)
    grown = deepcopy(head)
    bias = _grow_parameter(head.bias, head.vocab, pieces, first, size)
    grown.bias = bias if isinstance(head.bias, nn.Parameter) else bias.data
    if head.table is not None:
        grown.table = _grow_parameter(head.table, head.vocab, pieces, first, padded_vocab(size))
    grown.vocab = size
    return grown


def _new_size(vocab: int, pieces: Sequence[Sequence[int]], first: int | None) -> int:
    first = vocab if first is None else first
    highest = max((id for ids in pieces for id in ids), default=-1)
    if first > vocab or highest >= first or not all(pieces) or min((min(ids) for ids in pieces), default=0) < 0:
        raise SesameError(
            f"new words: their old pieces (up to id {highest}) and their first id {first} do not fit a model of "
            f"{vocab} tokens; take the tokenizer that the model was trained with"
        )
    return max(vocab, first + len(pieces))


@torch.no_grad()
def _grow_parameter(
    old: Tensor, vocab: int, pieces: Sequence[Sequence[int]], first: int | None, rows: int
) -> nn.Parameter:
    """`old` with `rows` rows (or entries): those of the vocabulary, then the means; zeros where no id points."""
    first = vocab if first is None else first
    new = old.new_zeros(rows, *old.shape[1:])
    new[:vocab] = old[:vocab]
    for id, ids in enumerate(pieces, first):
        new[id] = old[list(ids)].mean(0)
    return nn.Parameter(new, requires_grad=old.requires_grad)
