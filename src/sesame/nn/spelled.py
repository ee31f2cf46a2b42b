"""From token ids to words and their letters, on tensors: which tokens make a word, and how it is written.

A token either begins a word or goes on with the one before it (`text/characters.py`). The letters of a word are those of its
tokens, end to end, between the marks of a word; those beyond the 48th are left out, as ELMo has it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.errors import SesameError
from sesame.text.characters import ALONE, GOES_ON, LETTERS, MOST, PADDING, WORD_BEGIN, WORD_END, Spelling


@dataclass(frozen=True)
class Words:
    """The words of rows of tokens."""

    number: Tensor  # (B, L): to which word of its row a token belongs; padding belongs to the last one
    lengths: Tensor  # (B,): how many words a row has
    begins: Tensor  # (B, L): True where a word begins
    most: int  # words of a row; where shapes must not depend on numbers, as many as there are places


def word_begins(starts: Tensor, lengths: Tensor) -> Tensor:
    """Whether a token begins a word; a row may be cut within one, and then begins with the rest. Shape: (B, L) -> (B, L)."""
    places = torch.arange(starts.shape[1], device=starts.device)[None, :]
    behind = (starts.roll(1, 1) == ALONE) | (places == 0)
    return ((starts != GOES_ON) | behind) & (places < lengths[:, None])


class Speller(nn.Module):
    """What is known of the tokens; a table of zeros until `learn` was told."""

    letters: Tensor
    starts: Tensor

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.register_buffer("letters", torch.zeros(vocab, MOST, dtype=torch.int16), persistent=False)
        self.register_buffer("starts", torch.ones(vocab, dtype=torch.int8), persistent=False)
        self.known = False

    def learn(self, spelling: Spelling) -> None:
        size = len(spelling.starts)
        self.letters[:size] = torch.from_numpy(spelling.letters)
        self.starts[:size] = torch.from_numpy(spelling.starts)
        self.known = True

    def words(self, ids: Tensor, lengths: Tensor) -> Words:
        """Shape: (B, L), (B,)."""
        if not self.known:
            raise SesameError(
                "this model reads letters, and without a tokenizer it knows none; give one by --tokenizer"
            )
        begins = word_begins(self.starts[ids], lengths)
        number = begins.cumsum(1) - 1
        counts = begins.sum(1)
        return Words(number, counts, begins, int(counts.max()) if ids.device.type == "cpu" else ids.shape[1])

    def first(self, words: Words) -> Tensor:
        """At which token a word begins; for words that are not there, any. Shape: (B, W)."""
        places = torch.arange(words.number.shape[1], device=words.number.device).expand_as(words.number)
        found = places.new_full((places.shape[0], words.most), places.shape[1] - 1)
        return found.scatter_reduce(1, words.number, places, "amin")

    def spell(self, ids: Tensor, lengths: Tensor, words: Words) -> Tensor:
        """The letters of every word; rows of words that are not there are empty words. Shape: (B, L) -> (B, W, 50)."""
        rows, length = ids.shape
        table = self.letters[ids].long()  # (B, L, 48)
        real = torch.arange(length, device=ids.device)[None, :] < lengths[:, None]
        table = table * real[..., None]
        counts = (table > 0).sum(-1)
        before = counts.cumsum(1) - counts  # letters of the row in front of a token ...
        first = torch.full((rows, words.most), torch.iinfo(torch.long).max, device=ids.device)
        first = first.scatter_reduce(1, words.number, before, "amin")  # ... of them those in front of its word
        offset = before - first.gather(1, words.number)
        places = offset[..., None] + torch.arange(1, MOST + 1, device=ids.device)
        places = torch.where((table > 0) & (places <= MOST), places, LETTERS)  # one place more, for what is left out
        at = (words.number * (LETTERS + 1))[..., None] + places
        spelled = torch.full((rows, words.most * (LETTERS + 1)), PADDING, device=ids.device)
        spelled = spelled.scatter(1, at.flatten(1), table.flatten(1)).view(rows, words.most, LETTERS + 1)[..., :LETTERS]
        written = torch.zeros(rows, words.most, dtype=torch.long, device=ids.device)
        written = written.scatter_add(1, words.number, counts).clamp(max=MOST)
        spelled[..., 0] = WORD_BEGIN
        return spelled.scatter(2, written[..., None] + 1, WORD_END)
