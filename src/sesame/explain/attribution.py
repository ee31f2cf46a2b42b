"""Integrated gradients: how much each token adds to a score (Sundararajan, Taly & Yan 2017, https://arxiv.org/abs/1703.01365).

    a_i = (x_i - b_i) · ∫₀¹ ∂f(b + t (x - b)) / ∂x_i dt        Σ_i a_i = f(x) - f(b)

x are the vectors of the tokens, b those of a baseline: the mask token (or padding) at every place that holds text; specials,
places and segments stay. The sum is what makes it an account of the score: nothing is left over or counted twice.

Unusual: the integral is computed by Gauss's rule on pieces of the way. The sum rule holds on each piece, so each tells by how
much it is wrong; those that are most wrong are halved until the sum is right within 1 %, and not by errors that cancel.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, Decoded
from sesame.errors import SesameError
from sesame.explain.asked import Question
from sesame.progress import say
from sesame.text import Tokenizer

NODES = 16  # of Gauss's rule on a piece
MOST = 4096  # steps
CANCEL = 4.0  # times as large as their sum may errors be that cancel
PLACES = 4096  # of a batch: steps are computed side by side
NOISE = 1e-5  # of the contributions' size: rounding in 32 bits, which no number of steps takes away


@dataclass(frozen=True)
class Attribution:
    name: str  # of the score
    tokens: list[str]
    values: list[float]  # what each token adds; 0 for those that the baseline keeps
    score: float
    base: float  # the score of the baseline
    baseline: str  # its token
    steps: int

    @property
    def gap(self) -> float:
        """What the sum lacks, as a share of the difference it should be."""
        difference = self.score - self.base
        return abs(sum(self.values) - difference) / max(abs(difference), 1e-12)


def baseline_of(tokenizer: Tokenizer, wanted: str = "") -> int:
    """The mask token, or padding where there is none."""
    for role in [wanted] if wanted else ["mask", "pad", "unk"]:
        if tokenizer.has(role):
            return tokenizer.id(role)
    has = ", ".join(tokenizer.roles) or "none"
    raise SesameError(f"--baseline {wanted or 'mask'}: the tokenizer has no such token (it has: {has}); choose another")


def attribute(question: Question, baseline: int, name: str = "", tolerance: float = 0.01) -> Attribution:
    """What each token adds to the score; `name` is that of the baseline's token."""
    table = _table(question.backbone)
    start = question.copies(1)
    with torch.no_grad():
        x: Tensor = table(start.ids)
        real, free = _places(question, start.ids)
        b = torch.where(free[..., None], table.weight[baseline], x)
        score, base = (float(_score(question, table, at[None])[0]) for at in (x, b))
        scores: dict[float, float] = {0.0: base, 1.0: score}
    pieces = {(0.0, 1.0): _piece(question, table, x, b, (0.0, 1.0), scores)}
    steps = NODES
    while True:
        worst, size = max(piece.error for piece in pieces.values()), sum(p.values.abs().sum() for p in pieces.values())
        enough = max(tolerance * abs(score - base), NOISE * float(size))
        missed = [piece.miss for piece in pieces.values()]
        if (abs(sum(missed)) <= enough and sum(map(abs, missed)) <= CANCEL * enough) or steps >= MOST:
            break
        for way in [way for way, piece in pieces.items() if piece.error >= worst / 8]:
            del pieces[way]
            middle = (way[0] + way[1]) / 2
            for half in ((way[0], middle), (middle, way[1])):
                pieces[half] = _piece(question, table, x, b, half, scores)
                steps += NODES
    values = torch.stack([piece.values for piece in pieces.values()]).sum(0)[real]
    found = Attribution(question.name, question.tokens, values.tolist(), score, base, name, steps)
    if steps >= MOST and found.gap > tolerance:
        say(f"after {steps} steps the contributions still miss the score's difference by {found.gap:.1%}")
    return found


@dataclass(frozen=True)
class _Piece:
    values: Tensor  # (W, L) what each place adds on this piece of the way
    miss: float  # their sum less the change of the score

    @property
    def error(self) -> float:
        return abs(self.miss)


def _piece(
    question: Question, table: nn.Embedding, x: Tensor, b: Tensor, way: tuple[float, float], scores: dict[float, float]
) -> _Piece:
    """Contributions from b + way[0] (x - b) to b + way[1] (x - b), in 64 bits; `scores` keeps those of its ends."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    first, last = way
    for end in way:
        if end not in scores:
            with torch.no_grad():
                scores[end] = float(_score(question, table, (b + end * (x - b))[None])[0])
    times, shares = first + (nodes + 1) / 2 * (last - first), weights / 2 * (last - first)
    total = torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device)
    size = max(1, PLACES // (x.shape[0] * x.shape[1]))
    for at in range(0, NODES, size):
        t = torch.tensor(times[at : at + size], dtype=x.dtype, device=x.device)[:, None, None, None]
        between = (b[None] + t * (x - b)[None]).requires_grad_()
        (gradient,) = torch.autograd.grad(_score(question, table, between).sum(), between)
        share = torch.tensor(shares[at : at + size], device=x.device)[:, None, None]
        total += (share * (gradient.double() * (x - b).double()).sum(-1)).sum(0)
    return _Piece(total, float(total.sum()) - (scores[last] - scores[first]))


def _places(question: Question, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Which places of the padded rows are real, and which of these a baseline replaces."""
    lengths = torch.tensor([len(row) for row in question.rows], device=ids.device)
    real = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
    free = torch.zeros_like(real)
    free[real] = torch.tensor(question.free, device=ids.device)
    return real, free


def _score(question: Question, table: nn.Embedding, vectors: Tensor) -> Tensor:
    """The score of n inputs given as vectors. Shape: (n, W, L, E) -> (n,)."""
    batch = question.copies(len(vectors))
    with _reading(table, vectors.flatten(0, 1), batch.outputs, isinstance(question.backbone, Decoded)) as used:
        found = question.score(batch)
    if not used:
        raise SesameError("this model does not read its tokens from its table, so they have no vectors to follow")
    return found


@contextmanager
def _reading(
    table: nn.Embedding, vectors: Tensor, outputs: Tensor | None = None, again: bool = False
) -> Iterator[list[bool]]:
    """The table's answer to the source is `vectors`; a decoder's tokens keep their own, unless it reads the same text
    `again`, one place behind. The source comes first, but for recurrent models, which look up `outputs` before it."""
    used: list[bool] = []

    def instead(module: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> Tensor | None:
        if given[0] is outputs:
            return None
        if used:
            return torch.cat([found[:, :1], vectors[:, :-1]], 1) if again else None
        used.append(True)
        return vectors

    hook = table.register_forward_hook(instead)
    try:
        yield used
    finally:
        hook.remove()


def _table(backbone: Backbone) -> nn.Embedding:
    weight = backbone.token_table()
    for module in backbone.modules():
        if isinstance(module, nn.Embedding) and module.weight is weight:
            return module
    raise SesameError("this model does not read its tokens from its table, so they have no vectors to follow")
