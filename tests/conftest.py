"""All tests keep their token stores in a folder of their own; two test processes compute with one thread each."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before PyTorch is loaded

import pytest
import torch

torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


def pytest_configure(config: pytest.Config) -> None:
    """Fast tests try a quarter of the cases that all tests try; how long a case takes is nobody's failure."""
    try:
        import hypothesis
    except ImportError:  # a bare machine with a GPU runs the tests of kernels, which do without
        return
    cases = 25 if config.option.markexpr == "not slow" else 100
    hypothesis.settings.register_profile("sesame", max_examples=cases, deadline=None)
    hypothesis.settings.load_profile("sesame")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    os.environ["SESAME_CACHE"] = str(folder)
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For models so small that a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def one_thread_for_all() -> Iterator[None]:
    """Also for the fixtures of a file: sums of two threads are other sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
