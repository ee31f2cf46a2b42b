"""A tokenizer for a text is made once, also where two runs want it at the same moment."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from sesame.data.vocabulary import tokenizer_from
from sesame.pretraining import tokenizer_cache
from sesame.recipe import TokenizerConfig


def test_two_at_once_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, made, both = tmp_path / "text.txt", [], Barrier(2)
    text.write_text("the dog sees the cat\n" * 20)
    monkeypatch.setenv("SESAME_CACHE", str(tmp_path / "cache"))

    def slowly(*given: Any, **wanted: Any) -> Any:
        made.append(given)
        time.sleep(0.3)
        return tokenizer_from(*given, **wanted)

    def ask(_: int) -> str:
        both.wait()
        return tokenizer_cache.cached_tokenizer([text], "text", TokenizerConfig(kind="bpe", size=300)).fingerprint()

    monkeypatch.setattr(tokenizer_cache, "tokenizer_from", slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first == second
    assert len(made) == 1
