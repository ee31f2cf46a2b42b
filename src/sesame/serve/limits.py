"""How much a server takes on: whatever a client sends, no number here is exceeded.

A question about layers is the longest of all, and others wait for it. On two cores MiniLM (6 layers, 10.9 M multiply-adds a
token) reads about 3,600 tokens a second layer by layer, so 2.2e11 of them, 20,000 places (rows x longest row), are 6 s; the
probes behind it, 8 vectors x 5 folds of 25 ms each, 1 s more. A larger model gets fewer places in the same time.
"""

from dataclasses import dataclass

from sesame.errors import SesameError


@dataclass(frozen=True)
class Limits:
    body: int = 2_000_000  # bytes of a request
    characters: int = 100_000  # of one text
    texts: int = 256  # of one request
    tokens: int = 65_536  # of one request
    long: int = 8192  # tokens of one text, for a model that reads without an end
    maps: int = 256  # tokens of a text whose attention is shown
    numbers: int = 8_000_000  # weights in one answer about attention
    work: float = 2.2e11  # multiply-adds of the states in one question about layers, see below
    new: int = 512  # tokens that one answer may have
    queue: int = 256  # requests that wait, for each model
    batch: int = 4096  # tokens that are computed together
    deadline: float = 0.004  # seconds that a request waits for others to share its batch
    timeout: float = 30.0  # seconds until a request is given up

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not value > 0 and not (name == "deadline" and value == 0):
                raise SesameError(f"serve: the limit {name!r} is {value}; it must be above 0")
