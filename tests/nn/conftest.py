"""Where our kernels run in tests: on a GPU, or number by number on a CPU, by the interpreter that Triton brings.

The interpreter is asked for (TRITON_INTERPRET=1, before Triton is imported; `make kernels`): it knows neither threads nor
a compiler, so what it cannot see is in `test_compiled_kernels.py`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch


class SaysCuda(torch.Tensor):
    """Lies on a CPU and says otherwise, to see which way is taken."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")


USERS = ("add_norm", "cross_entropy", "geglu", "gelu", "turn")


@dataclass
class Kernels:
    device: str
    on: bool = True

    @contextmanager
    def off(self) -> Iterator[None]:
        """The definitions compute in here, on a CPU."""
        self.on = False
        yield
        self.on = True


@pytest.fixture(scope="session")
def triton() -> None:
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("our kernels run on a GPU, or by Triton's interpreter: make kernels")
    pytest.importorskip("triton", reason="no Triton: make kernels")


@pytest.fixture
def kernels(triton: None, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    if torch.cuda.is_available():
        return Kernels("cuda")
    here = Kernels("cpu")
    for name in USERS:
        monkeypatch.setattr(f"sesame.nn.{name}.has_triton", lambda device: here.on)
    return here
