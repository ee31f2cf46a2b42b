"""What a server counts of itself, in Prometheus' text format (version 0.0.4), written by hand.

Labels take few values by construction: a path is one of the routes or "other", a model one of those served. Nothing that a
client sends becomes a label.
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (16, 64, 256, 1024, 4096, 16_384, 65_536)

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts of values up to each bound; the last one takes the rest."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f"{name}_bucket{_labels((*labels, ('le', bound)))} {below}"
        yield f"{name}_sum{_labels(labels)} {self.total:.6f}"
        yield f"{name}_count{_labels(labels)} {below}"


class Figures:
    """Safe to call from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: dict[Labels, int] = defaultdict(int)
        self.latency: dict[Labels, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.sizes: dict[Labels, Histogram] = defaultdict(lambda: Histogram(SIZES))
        self.tokens: dict[Labels, Histogram] = defaultdict(lambda: Histogram(TOKENS))
        self.skipped: dict[Labels, int] = defaultdict(int)
        self.queues: dict[str, Callable[[], int]] = {}  # by model

    def request(self, path: str, status: int, seconds: float) -> None:
        with self.lock:
            self.requests[(("path", path), ("status", str(status)))] += 1
            self.latency[(("path", path),)].add(seconds)

    def batch(self, model: str, requests: int, tokens: int) -> None:
        with self.lock:
            self.sizes[(("model", model),)].add(requests)
            self.tokens[(("model", model),)].add(tokens)

    def left(self, model: str) -> None:
        """A request was skipped, because nobody waits for it any more."""
        with self.lock:
            self.skipped[(("model", model),)] += 1

    def text(self) -> str:
        with self.lock:
            lines = [
                *_counter("sesame_requests_total", "Requests by path and status.", self.requests),
                *_histogram("sesame_request_seconds", "Time to the end of the answer.", self.latency),
                *_gauge("sesame_queue_requests", "Requests that wait.", self.queues),
                *_histogram("sesame_batch_requests", "Requests computed together.", self.sizes),
                *_histogram("sesame_batch_tokens", "Tokens computed together.", self.tokens),
                *_counter("sesame_skipped_total", "Requests whose client left before their turn.", self.skipped),
            ]
        return "\n".join(lines) + "\n"


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _counter(name: str, about: str, found: Mapping[Labels, int]) -> Iterator[str]:
    yield from _head(name, about, "counter")
    for labels, count in sorted(found.items()):
        yield f"{name}{_labels(labels)} {count}"


def _gauge(name: str, about: str, found: Mapping[str, Callable[[], int]]) -> Iterator[str]:
    yield from _head(name, about, "gauge")
    for model, length in sorted(found.items()):
        yield f"{name}{_labels((('model', model),))} {length()}"


def _histogram(name: str, about: str, found: Mapping[Labels, Histogram]) -> Iterator[str]:
    yield from _head(name, about, "histogram")
    for labels, histogram in sorted(found.items()):
        yield from histogram.lines(name, labels)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
