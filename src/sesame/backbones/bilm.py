"""ELMo's bidirectional language model (Peters et al. 2018, https://arxiv.org/abs/1802.05365; code: allenai/bilm-tf).

Two stacks of LSTMs read the words of a row, one from the left and one from the right; neither ever sees what the other has
read. So the state of a word tells the next one or the one before it (`objectives/bilm.py`), and both beside each other stand
for the word in its context:

    x_k = char-CNN(letters of word k)                      one for both directions (`nn/char_cnn.py`)
    layer 0 = [x_k ; x_k]
    layer j = [→h_kj ; ←h_kj],  h_j = LSTM(h_{j-1}) (+ h_{j-1} from the second layer on)

An LSTM has a cell of 4,096 numbers and gives out 512 of them (projection); cells and states are clipped to ±3. A task mixes
the layers with weights of its own (`tasks/layers.py`: `mix`).

Unusual:
- A batch holds tokens, the network reads words. What a tokenizer gives in several tokens is one word with all its letters
  (`nn/spelled.py`), and each of its tokens is given the word's state. `[CLS]` and `[SEP]` are ELMo's marks of a sentence.
- `reads = "tokens"` has a plain token table instead of letters, and takes any tokenizer.
- On a CPU a word that occurs several times in a batch goes through the char-CNN once.
- The published models carry their state on from batch to batch. Here it is handed in and out (`State`), and training starts
  every row afresh, so that a step is a function of its number.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones.base import Backbone, Encoded, State, check_depth
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.char_cnn import FILTERS, CharCNN
from sesame.nn.dropout import Dropout
from sesame.nn.embeddings import padded_vocab
from sesame.nn.recurrent import Memory, RecurrentStack, reverse
from sesame.nn.spelled import Speller
from sesame.text import Tokenizer
from sesame.text.characters import LETTERS, spelling_of


@dataclass(frozen=True)
class BiLMConfig:
    vocab: int
    width: int = 1024  # of a layer, both directions together
    depth: int = 2
    cell: int = 4096  # numbers that an LSTM remembers
    reads: Literal["characters", "tokens"] = "characters"
    letter_width: int = 16
    filters: tuple[tuple[int, int], ...] = FILTERS  # width and number of each kind
    highways: int = 2
    activation: Literal["relu", "tanh"] = "relu"  # of the filters
    residual: bool = True
    clip: float = 3.0  # of cells and states; 0: none, which lets a GPU run its own LSTM
    dropout: float = 0.1
    max_length: int = 512  # tokens that are read at once; nothing in the model ends there
    init: float = 0.1  # of a token table

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "depth", "cell", "letter_width", "max_length"):
            if getattr(self, name) < 1:
                raise SesameError(f"backbone.{name} is {getattr(self, name)}; it must be at least 1")
        check_depth(self.depth)
        if self.width % 2:
            raise SesameError(f"backbone.width is {self.width}; half of it is for each direction, so it must be even")
        if self.cell <= self.width // 2:
            raise SesameError(
                f"backbone.cell is {self.cell}; an LSTM gives out {self.width // 2} of its numbers, half of backbone.width, "
                "so it must be more"
            )
        if not self.filters or any(
            len(pair) != 2 or not 1 <= pair[0] <= LETTERS or pair[1] < 1 for pair in self.filters
        ):
            raise SesameError("backbone.filters is a list of [width, number], such as [[1, 32], [2, 32]]")
        if not 0 <= self.dropout < 1 or min(self.highways, self.clip) < 0 or self.init <= 0:
            raise SesameError("backbone: dropout lies from 0 to below 1, highways and clip not below 0, init above 0")


class TwoWays(nn.Module):
    """One layer of both stacks."""

    def __init__(self, c: BiLMConfig) -> None:
        super().__init__()
        self.ahead, self.back = (_lstm(c) for _ in range(2))


class BiLM(Backbone):
    config: BiLMConfig
    compiles = False

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config, self.width, self.vocab, self.depth = config, config.width, config.vocab, config.depth
        c, half = config, config.width // 2
        self.spelled = Speller(c.vocab) if c.reads == "characters" else None
        self.letters = CharCNN(half, c.letter_width, c.filters, c.highways, c.activation) if self.spelled else None
        self.tokens = None if self.spelled else nn.Embedding(padded_vocab(c.vocab), half)
        if self.tokens is not None:
            nn.init.uniform_(self.tokens.weight, -c.init, c.init)
        self.blocks = nn.ModuleList(TwoWays(c) for _ in range(c.depth))
        self.dropout = Dropout(c.dropout)

    @property
    def longest(self) -> int | None:
        return self.config.max_length

    def groups(self) -> list[nn.Module]:
        first = self.tokens if self.letters is None else self.letters
        assert first is not None
        return [first, *self.blocks]

    def drop(self, rate: float | None) -> None:
        self.dropout.rate = self.config.dropout if rate is None else rate

    def token_table(self) -> Tensor:
        if self.tokens is None:
            raise SesameError(
                "this model reads letters and has no token table; take a model that reads tokens, such as one that was "
                'pre-trained with backbone.reads = "tokens"'
            )
        return self.tokens.weight

    def spell(self, tokenizer: Tokenizer) -> None:
        if self.spelled is not None:
            self.spelled.learn(spelling_of(tokenizer))

    def forward(
        self, batch: Batch, only: Tensor | None = None, maps: bool = False, state: State | None = None
    ) -> Encoded:
        """With a `state`, `State()` at the beginning, the state to go on from is in the answer."""
        begins = None
        if self.spelled is None:
            assert self.tokens is not None
            layers, after = self.read(self.tokens(batch.ids), None if batch.full else batch.lengths, state)
        else:
            words = self.spelled.words(batch.ids, batch.lengths)
            vectors = self._words(self.spelled.spell(batch.ids, batch.lengths, words))
            layers, after = self.read(vectors, words.lengths, state)
            layers = [take(layer, words.number) for layer in layers]
            begins = words.begins
        last = layers[-1] if only is None else take(layers[-1], only)
        return Encoded(batch, [*layers[:-1], self.dropout(last)], only, state=after, begins=begins)

    def go_on(self, batch: Batch, state: State, maps: bool = False) -> Encoded:
        return self(batch, state=state)  # type: ignore[no-any-return]

    def from_letters(self, letters: Tensor, lengths: Tensor, state: State | None = None) -> Encoded:
        """The same for words that are spelled already (`text.characters.spell`). Shape: (B, W, 50), (B,)."""
        layers, after = self.read(self._words(letters), lengths, state)
        return Encoded(Batch(letters[..., 0], lengths), layers, state=after)

    def _words(self, letters: Tensor) -> Tensor:
        """Shape: (B, W, 50) -> (B, W, D / 2)."""
        assert self.letters is not None
        flat = letters.flatten(0, 1)
        if flat.device.type == "cpu":
            flat, which = torch.unique(flat, dim=0, return_inverse=True)
            vectors = F.embedding(which, self.letters(flat))  # gradients add up in one order, also on many threads
        else:
            vectors = self.letters(flat)
        return vectors.view(*letters.shape[:2], -1)

    def read(self, x: Tensor, lengths: Tensor | None, state: State | None) -> tuple[list[Tensor], State | None]:
        """All layers of word vectors. Shape: (B, W, D / 2) -> depth + 1 times (B, W, D)."""
        # Each stack meets the padding last, so what is real never depends on it: only states to go on from do.
        ends = lengths if state is not None else None
        given = state.layers if state is not None and state.layers else ()
        layers, after = [torch.cat([x, x], -1)], list[Tensor]()
        ahead, back = self.dropout(x), self.dropout(reverse(x, lengths))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, TwoWays)
            pair = []
            for side, (stack, read) in enumerate(((block.ahead, ahead), (block.back, back))):
                at = 4 * number + 2 * side
                memory: Memory | None = ((given[at], given[at + 1]),) if given else None
                walked = stack(read, ends, memory)
                states = walked.top + read if number and self.config.residual else walked.top
                after += [part.detach() for part in walked.memory[0]]
                pair.append(states)
            layers.append(torch.cat([pair[0], reverse(pair[1], lengths)], -1))
            ahead, back = (self.dropout(states) for states in pair)
        return layers, None if state is None else State(tuple(after))


def _lstm(c: BiLMConfig) -> RecurrentStack:
    """As the authors' TensorFlow starts it: Glorot's matrices, and a forget gate that begins open."""
    half, clips = c.width // 2, (c.clip, c.clip) if c.clip else None
    stack = RecurrentStack("lstm", half, [c.cell], projection=half, clips=clips)
    for name, parameter in stack.named_parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
            if "bias_ih" in name:
                nn.init.ones_(parameter[c.cell : 2 * c.cell])
    return stack
