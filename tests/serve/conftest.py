"""Models that are opened once for all tests of the server."""

from collections.abc import Iterator

import pytest
import torch

from sesame.serve.models import Served, open_models
from tests.cli.conftest import cli
from tests.serve.models import decoder, reader, translator

__all__ = ["cli"]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    folder = tmp_path_factory.mktemp("served")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of two threads are other sums
    yield open_models(
        [str(reader(folder / "reader")), f"speaks={decoder(folder / 'decoder')}", str(translator(folder / "answers"))]
    )
    torch.set_num_threads(before)
