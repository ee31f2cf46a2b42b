"""What is done with a row of tokens, and what that costs: the two sides of every formula in `flops_*.py`."""

from dataclasses import dataclass

PASSES = 3  # forward once, backward twice as much


@dataclass(frozen=True)
class Generator:
    """The smaller encoder of replaced-token detection, as shares of the backbone's `width` and `depth` (`smaller.py`)."""

    width: float
    depth: float
    masked: float  # share of the places that it restores


@dataclass(frozen=True)
class Work:
    """What is done with a row of `length` tokens."""

    length: int
    masked: float | None = (
        None  # share of the places whose token is restored; None: no such head, and all states are read
    )
    pair: bool = False  # the head on [CLS] of next-sentence prediction
    generator: Generator | None = None  # runs before; then a head tells at every place whether the token was replaced
    part: int = 0  # XLNet, Transformer-XL: the row is passed in parts of so many tokens; 0: whole
    both: bool = False  # XLNet: some rows are read from their end
    answer: float = 1.0  # an encoder-decoder: places of the decoder for each of the source
    rows: int = 0  # that are passed together; 0: so many that what is done once for all of them does not count
    times: int = 1  # that each row is passed

    @property
    def restored(self) -> int:
        """Places at which the head restores a token."""
        return max(1, round(self.masked * self.length)) if self.masked else 0

    @property
    def read(self) -> int:
        """Places at which the last layer is computed."""
        return self.length if self.masked is None else self.restored + self.pair


@dataclass(frozen=True)
class Cost:
    """One row: multiply-adds of its forward pass, and numbers that it keeps for the backward pass."""

    products: float
    kept: float
