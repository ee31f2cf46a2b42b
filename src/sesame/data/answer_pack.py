"""Sources and their answers, drawn from a store of pairs, in batches of about as many tokens and of similar length.

A pair is one example: the source is what an encoder reads, the answer what a decoder must tell (the target "seq2seq"), each
in the tokens that its model has around it (`Frame`); a model that was given none of its own closes both by a separator.

Batches by tokens (Vaswani et al. 2017, section 5.1: pairs are "batched together by approximate sequence length"): all pairs
are sorted by length once, cut into batches of at most so many places, padding and all, and the batches come in a new random
order in every epoch. Pairs of one length lie side by side in an order drawn by the seed. So batch number n is still a pure
function of (seed, n).
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import torch

from sesame import chance
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.loader import Loader
from sesame.data.order import locate
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part
from sesame.data.plan import Ints
from sesame.errors import SesameError
from sesame.progress import say

NAME = "seq2seq"
ROUND = 8  # places on a GPU: widths are rounded up, so that few shapes occur


@dataclass(frozen=True)
class Frame:
    """The tokens around a source and around an answer: BART reads <s> a </s> and tells <s> b </s>, T5 a </s> and b </s>."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    begin: tuple[int, ...]  # of the answer
    end: tuple[int, ...]


class AnswerPacker(Packer):
    """Draws pairs; those with a side of more than `length` tokens are left out, and counted.

    With `cut` a source that is too long loses its end instead, as at the time of answering (`tasks/speak.py`).
    """

    def __init__(
        self,
        part: Part,
        length: int,
        specials: Specials,
        *,
        fixed: bool = False,
        reverse: bool = False,
        quiet: bool = False,
        cut: bool = False,
        frame: Frame | None = None,
    ) -> None:
        """`fixed`: widths are rounded up; `reverse`: sources are read from their end (Sutskever et al. 2014)."""
        super().__init__(part, "translations", max(length, 8), specials)
        self.length, self.fixed, self.reverse = length, fixed, reverse
        self.frame = frame or Frame((), (specials.sep,), (), (specials.sep,))
        f, first = self.frame, self.rows[:, 0]
        more = np.array([len(f.before) + len(f.after), len(f.begin) + len(f.end)])
        sizes = np.diff(self.offsets[first[:, None] + np.arange(3)], axis=1) + more  # (N, 2), with their frames
        long = sizes[:, 0] > length
        if cut and length > more[0]:
            sizes[:, 0] = np.minimum(sizes[:, 0], length)
            if long.any() and not quiet:
                say(
                    f"{int(long.sum()):,} of {len(long):,} sources have more than {length} tokens; their ends are not read"
                )
        fits = sizes.max(axis=1) <= length
        if not fits.all() and not quiet:
            what, most = ("the answer", length - more[1]) if cut else ("a side", length - more.max())
            say(f"{int((~fits).sum()):,} of {len(fits):,} pairs are left out: {what} has more than {most} tokens")
        self.rows, self.sizes, self.more = self.rows[fits], sizes[fits], more
        if len(self.rows) == 0:
            raise SesameError(
                f"{part.store.files[0]}: all pairs are longer than {length} tokens; raise the stage's length"
            )

    def draw(self, rows: Ints, keys: chance.Words) -> Batch:
        first, sizes, f = self.rows[rows, 0], self.sizes[rows], self.frame
        bare, widths = sizes - self.more, sizes.max(axis=0)
        if self.fixed:
            widths = np.full(2, -(-widths.max() // ROUND) * ROUND)
        sources, lengths = self._side(
            first, bare[:, 0], int(widths[0]), self.specials.pad, f.before, f.after, self.reverse
        )
        answers, _ = self._side(first + 1, bare[:, 1], int(widths[1]), IGNORE, f.begin, f.end)
        return Batch(
            ids=torch.from_numpy(sources),
            lengths=torch.from_numpy(lengths),
            keys=torch.from_numpy(keys.view(np.int64)),
            full=bool((lengths == sources.shape[1]).all()),
            targets={NAME: Targets(torch.from_numpy(answers))},
        )

    def _side(
        self,
        sentence: Ints,
        sizes: Ints,
        width: int,
        fill: int,
        before: tuple[int, ...],
        after: tuple[int, ...],
        reverse: bool = False,
    ) -> tuple[Ints, Ints]:
        """The first `sizes` tokens of these sentences in their frame, as padded rows; and their lengths."""
        lengths = (sizes + len(before) + len(after)).astype(np.int64)
        places = np.arange(width)[None, :] - len(before)
        order = sizes[:, None] - 1 - places if reverse else places
        inside = (places >= 0) & (places < sizes[:, None])
        at = np.where(inside, self.offsets[sentence][:, None] + order, 0)
        ids = np.where(inside, self.tokens[at].astype(np.int64), fill)
        ids[:, : len(before)] = before
        for number, token in enumerate(after):
            ids[np.arange(len(sizes)), lengths - len(after) + number] = token
        return ids, lengths


def plan_batches(sizes: Ints, most: int, seed: int, fixed: bool = False) -> tuple[Ints, Ints]:
    """Rows by length, and where each batch begins among them: at most `most` places on the wider side, at least one row.

    `fixed`: widths are rounded up and a batch has one of them, so that few shapes occur.
    """
    luck = chance.keys(chance.key(seed, 0x425543), np.arange(len(sizes)))
    widths = sizes.max(axis=1)
    if fixed:
        widths = -(-widths // ROUND) * ROUND
    order = np.lexsort((luck, widths)) if fixed else np.lexsort((luck, sizes[:, 1], sizes[:, 0], widths))
    starts, before = [0], -1
    for number, width in enumerate(widths[order].tolist()):  # rising, so a batch is as wide as its last row
        full = (number + 1 - starts[-1]) * width > most or (fixed and width != before)
        if full and number > starts[-1]:
            starts.append(number)
        before = width
    return order.astype(np.int64), np.array([*starts, len(order)], dtype=np.int64)


@dataclass(frozen=True)
class BucketLoader(Loader):
    """A step is one batch of similar lengths; `batch` and `micro` count places, not examples."""

    order: npt.NDArray[np.int64] = None  # type: ignore[assignment]
    starts: npt.NDArray[np.int64] = None  # type: ignore[assignment]

    def rows(self, step: int) -> tuple[Ints, Ints]:
        epoch, number = locate(step, 1, len(self.starts) - 1, self.seed)
        rows = self.order[self.starts[number[0]] : self.starts[number[0] + 1]][self.rank :: self.ranks]
        return np.full(len(rows), epoch[0]), rows

    def load(self, step: int, progress: float) -> list[Batch]:
        """The last batch of a width may have fewer pairs than there are ranks. One that is left without a pair walks through
        the first rank's all the same, as all ranks must take every step (its tokens count), but nothing is asked of it."""
        if len(self.rows(step)[1]):
            return super().load(step, progress)
        [batch] = replace(self, rank=0).load(step, progress)
        wanted = batch.targets[NAME]
        return [batch.with_targets(**{NAME: replace(wanted, labels=torch.full_like(wanted.labels, IGNORE))})]

    @property
    def usual(self) -> int:
        """Pairs in a step, on average."""
        return max(1, round(len(self.order) / (len(self.starts) - 1)))

    def before(self, step: int) -> int:
        """Pairs in all steps before this one: about so many, exact after whole epochs."""
        return step * len(self.order) // (len(self.starts) - 1)

    def at_once(self, rows: Ints) -> int:
        assert isinstance(self.packer, AnswerPacker)
        return max(1, self.micro // int(self.packer.sizes[rows].max()))


def bucketed(basic: Loader, places: int, micro: int) -> BucketLoader:
    """A loader like `basic`, whose steps are batches of so many places, `micro` of them at a time."""
    assert isinstance(basic.packer, AnswerPacker)
    order, starts = plan_batches(basic.packer.sizes, places, basic.seed, basic.packer.fixed)
    given = {item.name: getattr(basic, item.name) for item in fields(basic)}
    return BucketLoader(**(given | {"batch": places, "micro": micro, "order": order, "starts": starts}))
