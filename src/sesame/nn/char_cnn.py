"""The letters of a word to one vector: convolutions of several widths, their maxima, highways.

Papers: Kim, Jernite, Sontag & Rush 2016 (https://arxiv.org/abs/1508.06615), Jozefowicz et al. 2016
(https://arxiv.org/abs/1602.02410), and Peters et al. 2018, ELMo, whose numbers are the defaults: 2,048 filters.

    c_w = f(max over places of (W_w * letters + b_w))       for each width w; all of them beside each other are x
    x <- g relu(A x + a) + (1 - g) x,  g = σ(G x + b)       a highway (Srivastava, Greff & Schmidhuber 2015), twice
    vector = P x + p

Unusual: the published network lets its filters run over the padding behind a word too, so padding has a vector that counts,
and a word cannot simply be cut at its end. But windows that lie in the padding are all alike: on a CPU, where shapes may
vary, as many letters are kept as the longest word has, and one window more. What the filters find is some hundred times what
is kept of it, so there are only so many words at a time.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.text.characters import CHARACTERS, PADDING

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # width, how many
AT_ONCE = 1 << 14  # words; the numbers behind 1,024 filters in four times as many cannot be counted in 32 bits
CARRY = -2.0  # where the gates of a highway start: mostly closed, the input passes (the authors' code, bilm-tf)


class Highway(nn.Module):
    """Shape: (N, D) -> (N, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        for layer in (self.transform, self.gate):
            nn.init.normal_(layer.weight, std=width**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, CARRY)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, self.transform(x).relu(), self.gate(x).sigmoid())


class CharCNN(nn.Module):
    """Shape: (N, 50) letters of words -> (N, width)."""

    def __init__(
        self,
        width: int,
        letter_width: int = 16,
        filters: Sequence[tuple[int, int]] = FILTERS,
        highways: int = 2,
        activation: Literal["relu", "tanh"] = "relu",
    ) -> None:
        super().__init__()
        self.activation = activation
        self.letters = nn.Embedding(CHARACTERS, letter_width)
        self.filters = nn.ModuleList(nn.Conv1d(letter_width, count, wide) for wide, count in filters)
        found = sum(count for _, count in filters)
        self.highways = nn.ModuleList(Highway(found) for _ in range(highways))
        self.project = nn.Linear(found, width)
        self._start(found)

    def _start(self, found: int) -> None:
        """As the authors' code has it, but for the filters of relu, which start as He et al. 2015 say: with the authors'
        ±0.05 the vectors of all words are nearly one, and a short training stays there."""
        nn.init.uniform_(self.letters.weight, -1.0, 1.0)
        with torch.no_grad():
            self.letters.weight[0] = 0.0  # no letter
        for layer in self.filters:
            assert isinstance(layer, nn.Conv1d)
            assert layer.bias is not None
            gain = 2.0 if self.activation == "relu" else 1.0
            nn.init.normal_(layer.weight, std=(gain / (layer.kernel_size[0] * layer.in_channels)) ** 0.5)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.project.weight, std=found**-0.5)
        nn.init.zeros_(self.project.bias)

    @property
    def widest(self) -> int:
        return max(layer.kernel_size[0] for layer in self.filters if isinstance(layer, nn.Conv1d))

    def forward(self, letters: Tensor) -> Tensor:
        return torch.cat([self._vectors(part) for part in torch.split(letters, AT_ONCE)])

    def _vectors(self, letters: Tensor) -> Tensor:
        x = self.letters(self._short(letters)).transpose(1, 2)
        best = torch.cat([layer(x).amax(-1) for layer in self.filters], -1)  # before f, which rises: the same, and less
        x = best.relu() if self.activation == "relu" else best.tanh()
        for highway in self.highways:
            x = highway(x)
        return self.project(x)  # type: ignore[no-any-return]

    def _short(self, letters: Tensor) -> Tensor:
        if letters.device.type != "cpu" or not letters.numel():
            return letters
        longest = int((letters != PADDING).sum(1).max())
        return letters[:, : longest + self.widest]
