"""What a call of the command line gave, and what tests ask of it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def refused(self, *parts: object) -> None:
        """One sentence on stderr that holds all `parts`, and code 2."""
        said = [line for line in self.err.splitlines() if line.startswith("sesame:")]
        assert len(said) == 1, self
        assert self.code == 2, self
        assert self.err.splitlines()[-1] == said[0], "a sentence of two lines"
        assert "Traceback" not in self.err
        for part in parts:
            assert str(part) in said[0], said[0]

    def fine(self) -> "Result":
        assert self.code == 0, self
        return self


Cli = Callable[..., Result]
