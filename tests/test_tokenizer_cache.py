"""A tokenizer that several runs want at once is trained by one of them, and a killed one leaves nothing behind."""

import threading
import time
from pathlib import Path

import pytest

from sesame.pretraining.tokenizer_cache import kept_tokenizer
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer


def made() -> Tokenizer:
    return train_tokenizer(["one two three four five six seven"] * 3, "wordpiece", 70)


def test_runs_that_begin_together_train_it_once(tmp_path: Path) -> None:
    folder, trained, found = tmp_path / "tokenizer-x", [], []

    def train() -> Tokenizer:
        trained.append(1)
        time.sleep(0.1)  # the others come meanwhile
        return made()

    runs = [threading.Thread(target=lambda: found.append(kept_tokenizer(folder, train))) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert trained == [1]
    assert {tokenizer.fingerprint() for tokenizer in found} == {made().fingerprint()}
    assert len(found) == 3


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".tokenizer-x.12345.part"
    left.mkdir()
    (left / "tokenizer.json").write_text("{")
    kept_tokenizer(tmp_path / "tokenizer-x", made)
    assert not left.exists()


def test_what_went_wrong_while_training_keeps_its_own_words(tmp_path: Path) -> None:
    """An unreadable text is no fault of the cache's place."""

    def train() -> Tokenizer:
        raise PermissionError(13, "Permission denied", "notes.txt")

    with pytest.raises(PermissionError, match=r"notes\.txt"):
        kept_tokenizer(tmp_path / "tokenizer-x", train)
