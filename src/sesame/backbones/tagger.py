"""A tagger of words: vectors and letters of words, bidirectional LSTMs above, and beside them a frozen language model.

Papers: Lample et al. 2016 (https://arxiv.org/abs/1603.01360) and Ma & Hovy 2016 (https://arxiv.org/abs/1603.01354), the
tagger; Peters et al. 2017, TagLM (https://arxiv.org/abs/1705.00108), and Peters et al. 2018, ELMo
(https://arxiv.org/abs/1802.05365), what a language model (`bilm.py`) gives to it:

    x_k  = [table(word k) ; char-CNN(letters of word k)]
    h_k1 = biLSTM_1(x)_k,   h_k2 = biLSTM_2(h_1)_k
    TagLM, lm_at = "second":   h_2 = biLSTM_2([h_1 ; LM])             LM: its top layer, both directions
    ELMo,  lm_at = "first":    h_1 = biLSTM_1([x ; γ Σ_j s_j LM_j])   all layers, mixed with weights of the tagger

A linear layer on the last state tells the tag (`tasks/tag.py`).

Unusual:
- No CRF: tags are told one by one. The papers' taggers have one (Ma & Hovy, table 3: almost two points of F1).
- A word of several tokens is one place, with the table's row of the unknown word and all its letters; its tokens are given
  its state. `reads = "tokens"` takes any tokenizer, has no letters, and every token is a place.
- In training the vectors of some words are those of the unknown word (`unknown`), or that row would never learn.
- The language model is part of the folder, is never trained, and drops nothing.
- Layers are those of the LSTMs; word vectors, which have another width, are not among them.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, check_depth
from sesame.backbones.bilm import BiLM, BiLMConfig
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.char_cnn import CharCNN
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import RecurrentStack
from sesame.nn.scalar_mix import ScalarMix
from sesame.nn.spelled import Speller
from sesame.text import Tokenizer
from sesame.text.characters import LETTERS, spelling_of


@dataclass(frozen=True)
class TaggerConfig:
    vocab: int
    width: int = 400  # of a layer, both directions together (ELMo's first layer)
    depth: int = 2
    cell: Literal["lstm", "gru"] = "lstm"
    table_width: int = 100  # of a word's own vector
    frozen: bool = False  # the words' vectors do not train: those that no row has stay comparable with the others
    reads: Literal["words", "tokens"] = "words"
    letter_width: int = 16  # ELMo, appendix A.6, as the filters
    filters: tuple[tuple[int, int], ...] = ((3, 128),)
    dropout: float = 0.25  # of what each layer reads, one mask a row (TagLM: 0.25)
    unknown: float = 0.02  # ours: the share of words that training reads without their vectors
    lm_at: Literal["first", "second"] = "first"  # the layer that reads the language model
    lm: BiLMConfig | None = None
    init: float = 0.1  # of the table

    def __post_init__(self) -> None:
        if min(self.vocab, self.width, self.depth, self.table_width, self.letter_width) < 1 or self.width % 2:
            raise SesameError("tagger: vocab, depth and widths must be at least 1, and width, of two directions, even")
        check_depth(self.depth)
        if not self.filters or any(
            len(pair) != 2 or not 1 <= pair[0] <= LETTERS or pair[1] < 1 for pair in self.filters
        ):
            raise SesameError("tagger: filters is a list of [width, number], such as [[3, 128]]")
        if not 0 <= self.dropout < 1 or not 0 <= self.unknown < 1 or self.init <= 0:
            raise SesameError("tagger: dropout and unknown lie from 0 to below 1, init above 0")
        if self.lm is not None and self.lm_at == "second" and self.depth < 2:
            raise SesameError('tagger: lm_at = "second" needs depth = 2 or more; or take lm_at = "first"')
        if self.lm is not None and self.lm.vocab != self.vocab:
            raise SesameError("tagger: the language model must know as many tokens as the tagger; build it anew")

    @property
    def letters(self) -> int:
        """Numbers that the letters of a word give."""
        return sum(count for _, count in self.filters) if self.reads == "words" else 0

    @property
    def inputs(self) -> list[int]:
        """What each layer reads."""
        found = [self.table_width + self.letters] + [self.width] * (self.depth - 1)
        if self.lm is not None:
            found[0 if self.lm_at == "first" else 1] += self.lm.width
        return found

    @property
    def products(self) -> float:
        """Multiply-adds of a word, but for the language model's."""
        half, gates = self.width // 2, 4 if self.cell == "lstm" else 3
        windows = LETTERS * self.letter_width * sum(wide * count for wide, count in self.filters)
        cells = sum(2 * gates * half * (read + half) for read in self.inputs)
        return cells + (windows + self.letters**2 if self.letters else 0)

    @property
    def kept(self) -> float:
        """Numbers that a word keeps for the backward pass."""
        gates = 4 if self.cell == "lstm" else 3
        cells = sum(read * (1 + (self.dropout > 0)) + (gates + 2) * self.width for read in self.inputs)
        return cells + (LETTERS * (self.letter_width + self.letters) + 2 * self.letters if self.letters else 0)


class Tagger(Backbone):
    config: TaggerConfig
    compiles = False

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        c, self.config, self.width, self.vocab = config, config, config.width, config.vocab
        self.depth = c.depth - 1  # the first LSTM stands where others have their embeddings
        self.tokens = nn.Embedding(padded_vocab(c.vocab), c.table_width)
        nn.init.uniform_(self.tokens.weight, -c.init, c.init)
        self.tokens.requires_grad_(not c.frozen)
        self.spelled = Speller(c.vocab) if c.reads == "words" else None
        self.letters = CharCNN(c.letters, c.letter_width, c.filters, 0) if self.spelled else None
        self.blocks = nn.ModuleList(
            RecurrentStack(c.cell, read, [c.width // 2], bidirectional=True, dropouts=(c.dropout, 0.0, 0.0))
            for read in c.inputs
        )
        for block in self.blocks:
            assert isinstance(block, RecurrentStack)
            _start(block)
        self.lm = None if c.lm is None else BiLM(c.lm).requires_grad_(False).eval()
        self.mix = ScalarMix(c.lm.depth + 1) if c.lm is not None and c.lm_at == "first" else None
        self.unknown = 0

    @property
    def longest(self) -> int | None:
        return None if self.lm is None else self.lm.longest

    def train(self, mode: bool = True) -> "Tagger":
        super().train(mode)
        if self.lm is not None:
            self.lm.eval()
        return self

    def groups(self) -> list[nn.Module]:
        """Without the language model and frozen vectors: whoever opens groups one by one must not open those."""
        tokens = None if self.config.frozen else self.tokens
        first = [module for module in (tokens, self.letters, self.mix) if module is not None]
        return [nn.ModuleList(first), *self.blocks]

    def drop(self, rate: float | None) -> None:
        rate = self.config.dropout if rate is None else rate
        for block in self.blocks:
            assert isinstance(block, RecurrentStack)
            block.dropouts = (rate, 0.0, 0.0)

    def token_table(self) -> Tensor:
        return self.tokens.weight

    def spell(self, tokenizer: Tokenizer) -> None:
        self.unknown = tokenizer.id("unk") if tokenizer.has("unk") else 0
        if self.spelled is not None:
            self.spelled.learn(spelling_of(tokenizer))
        if self.lm is not None:
            self.lm.spell(tokenizer)

    def forward(self, batch: Batch, only: Tensor | None = None, maps: bool = False) -> Encoded:
        told = self._language_model(batch)
        if self.spelled is None:
            return self._encoded(batch, self._read(self._table(batch.ids), told, batch.lengths), only)
        words = self.spelled.words(batch.ids, batch.lengths)
        first = self.spelled.first(words)
        counts = torch.zeros_like(first).scatter_add(1, words.number, self._real(batch))
        ids = torch.where(counts == 1, batch.ids.gather(1, first), self.unknown)
        letters = self.spelled.spell(batch.ids, batch.lengths, words)
        assert self.letters is not None
        spelled = self.letters(letters.flatten(0, 1)).view(*first.shape, -1)
        layers = self._read(
            torch.cat([self._table(ids), spelled], -1), [take(layer, first) for layer in told], words.lengths
        )
        return self._encoded(batch, [take(layer, words.number) for layer in layers], only)

    @staticmethod
    def _encoded(batch: Batch, layers: list[Tensor], only: Tensor | None) -> Encoded:
        return Encoded(batch, layers if only is None else [*layers[:-1], take(layers[-1], only)], only)

    @staticmethod
    def _real(batch: Batch) -> Tensor:
        """1 at tokens, 0 at padding. Shape: (B, L)."""
        return (torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :] < batch.lengths[:, None]).long()

    def _table(self, ids: Tensor) -> Tensor:
        if self.training and self.config.unknown:
            ids = torch.where(torch.rand(ids.shape, device=ids.device) < self.config.unknown, self.unknown, ids)
        return self.tokens(ids)  # type: ignore[no-any-return]

    def _language_model(self, batch: Batch) -> list[Tensor]:
        """Those of its layers that are read, at all tokens. Shape: (B, L, D) each."""
        if self.lm is None:
            return []
        with torch.no_grad():
            layers = self.lm(batch).layers
        return list(layers) if self.mix is not None else [layers[-1]]

    def _read(self, x: Tensor, told: list[Tensor], lengths: Tensor) -> list[Tensor]:
        """All LSTMs. Shape: (B, W, inputs) -> (B, W, D) each."""
        if self.mix is not None:
            x = torch.cat([x, self.mix(torch.stack(told))], -1)
        layers: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            if number == 1 and told and self.mix is None:
                x = torch.cat([x, *told], -1)
            x = block(x, lengths).top
            layers.append(x)
        return layers


@torch.no_grad()
def _start(stack: RecurrentStack) -> None:
    """Orthogonal from state to state, Glorot's from below, an LSTM's forget gate open: half the steps to the same loss."""
    for name, weight in stack.named_parameters():
        if "weight_hh" in name:
            for part in weight.chunk(weight.shape[0] // weight.shape[1]):
                nn.init.orthogonal_(part)
        elif weight.ndim > 1:
            nn.init.xavier_uniform_(weight)
        else:
            nn.init.zeros_(weight)
            if "bias_ih" in name and isinstance(stack.layers[0].cell, nn.LSTM):
                nn.init.ones_(weight[len(weight) // 4 : len(weight) // 2])
