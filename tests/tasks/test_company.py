"""An answer does not depend on what else is asked at the same moment: every bit is the same, alone and among others."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sesame.data.examples import Example
from sesame.loaded import Loaded
from sesame.nn.steady import Steady, row_sums
from sesame.opening import load
from tests.serve.models import TASKS, reader


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(reader(tmp_path_factory.mktemp("company") / "toy", max_length=64))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def texts(count: int, seed: int) -> list[str]:
    luck = random.Random(seed)
    words = ["alpha", "beta", "gamma", "w0", "w1", "x", "aa bb"]
    return [" ".join(luck.choices(words, k=luck.randint(1, 40))) for _ in range(count)]


def same(answer: Callable[[Sequence[Any]], Sequence[Any]], asked: Sequence[Any]) -> None:
    together = [repr(each) for each in answer(asked)]
    for size in (1, 3, 7):
        apart = [repr(each) for at in range(0, len(asked), size) for each in answer(asked[at : at + size])]
        assert apart == together, f"{size} at a time"


@pytest.mark.parametrize("task", TASKS)
def test_tasks(model: Loaded, task: str, threads: int) -> None:
    asked: list[Any] = texts(60, 1)
    if TASKS[task]["kind"] == "choice":
        options = zip(texts(60, 2), texts(60, 3), texts(60, 4), strict=True)
        asked = [Example("here", text, options=each) for text, each in zip(asked, options, strict=True)]
    elif TASKS[task].get("pair") or TASKS[task]["kind"] == "qa":
        asked = list(zip(asked, texts(60, 2), strict=True))
    same(lambda some: model.predict(some, task), asked)


def test_vectors(model: Loaded, threads: int) -> None:
    same(lambda some: [vector.tolist() for vector in model.embed(some)], texts(60, 3))


def test_gaps(model: Loaded, threads: int) -> None:
    mask = model.tokenizer.roles["mask"]
    same(lambda some: model.fill(some, 3), [f"{text} {mask} beta" for text in texts(60, 4)])


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17, 40])
def test_few_rows_of_a_product(rows: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(64, 50), torch.randn(20, 50), torch.randn(20)
    with torch.inference_mode(), Steady():
        many = F.linear(x, weight, bias)
        assert torch.equal(F.linear(x[:rows].view(rows, 1, 50), weight, bias)[:, 0], many[:rows])
    torch.testing.assert_close(many, x @ weight.T + bias)


def test_sums_without_padding_are_the_masked_sums() -> None:
    x, lengths = torch.randn(2, 4, 9, 3), torch.tensor([1, 9, 4, 6])
    with torch.no_grad():
        found = row_sums(x, lengths)
    torch.testing.assert_close(found, row_sums(x, lengths))  # with gradients: the masked way
    torch.testing.assert_close(found[1, 2], x[1, 2, :4].sum(0))
