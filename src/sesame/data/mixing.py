"""How often each of several tasks is drawn, when one model learns them all.

Papers: Raffel et al. 2020, "T5" (https://arxiv.org/abs/1910.10683), section 3.5.2; McCann et al. 2018, "decaNLP"
(https://arxiv.org/abs/1806.08730), where tasks are questions and all are drawn alike.
Idea: every task is text to text and says in its source what it is ("translate English to German: ..."), so that mixing is
all there is to learning several. By size alone large tasks leave nothing to small ones; a cap K on the size, or a
temperature T above 1, evens that out:
    r_m = min(e_m, K)^(1/T) / sum over n of min(e_n, K)^(1/T),   e_m = the number of examples of task m
T = 1 is by size up to the cap, T without end is all alike.
Relations: `languages.shares` is the same law with exponent 1/T and no cap; `languages.Turns` draws by any shares.
"""

import math
from collections.abc import Mapping

from sesame.errors import SesameError


def mixing_rates(sizes: Mapping[str, int], temperature: float = 1.0, cap: float = math.inf) -> dict[str, float]:
    """The share of each task among the examples drawn, by its name."""
    if not sizes:
        raise SesameError("mixing: no task is named; give at least one")
    if not temperature > 0:
        raise SesameError(f"mixing: the temperature is {temperature}; it must be above 0 (1: by size, inf: all alike)")
    if not cap > 0:
        raise SesameError(f"mixing: the cap is {cap}; it is a number of examples, above 0")
    for name, size in sizes.items():
        if size < 1:
            raise SesameError(f"mixing: task {name} has {size} examples; leave it out, or give it some")
    largest = max(min(size, cap) for size in sizes.values())  # shares of it: a low temperature cannot overflow
    weights = {name: (min(size, cap) / largest) ** (1 / temperature) for name, size in sizes.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}
