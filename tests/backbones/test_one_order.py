"""Gradients add up in one order on a CPU with many threads: a run repeated, or gone on with after a kill, has the same bits.

PyTorch adds the gradients of x[numbers] from all threads at once; where a number comes twice, their order is luck.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sesame.backbones import BiLM, BiLMConfig
from sesame.nn.attention.relative import RelativeAttention

REPEATS = 12


@pytest.fixture(autouse=True)
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(max(4, before))
    yield
    torch.set_num_threads(before)


def the_same_bits(found: list[Tensor]) -> bool:
    return all(torch.equal(found[0], other) for other in found[1:])


def test_distances_of_rows_read_either_way() -> None:
    torch.manual_seed(0)
    attention = RelativeAttention(64, 4, 0.0, 0.0, 0.02)
    content, far, weight = torch.randn(64, 60, 64), torch.randn(2, 120, 64), torch.randn(64, 4, 120, 16)
    which = torch.arange(64) % 2
    found = []
    for _ in range(REPEATS):
        attention.zero_grad()
        (attention.keys(content, far, which).far * weight).sum().backward()  # type: ignore[no-untyped-call]
        assert attention.far.weight.grad is not None
        found.append(attention.far.weight.grad.clone())
    assert the_same_bits(found)


def test_words_that_are_spelled_once() -> None:
    torch.manual_seed(0)
    model = BiLM(BiLMConfig(64, 64, 1, 64, filters=((1, 32), (2, 32))))
    letters = torch.randint(1, 250, (40, 50))[torch.randint(0, 40, (32, 64))]
    weight = torch.randn(32, 64, 32)
    found = []
    for _ in range(REPEATS):
        model.zero_grad()
        (model._words(letters) * weight).sum().backward()  # type: ignore[no-untyped-call]
        found.append(torch.cat([p.grad.flatten() for p in model.letters.parameters()]))  # type: ignore[union-attr]
    assert the_same_bits(found)
