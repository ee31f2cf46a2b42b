"""Ctrl-C is heard while a vocabulary is learnt."""

import signal
import threading
from typing import Any

import pytest
from tokenizers import Tokenizer, models, trainers

from sesame.text.learning import learn


class Slow:
    """Learns until it is let go."""

    def __init__(self) -> None:
        self.began, self.let_go = threading.Event(), threading.Event()

    def train_from_iterator(self, texts: Any, trainer: Any) -> None:
        self.began.set()
        self.let_go.wait(30)


def test_ctrl_c_is_heard_before_the_vocabulary_is_learnt() -> None:
    slow = Slow()

    def press() -> None:
        slow.began.wait(30)
        signal.raise_signal(signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        learn(slow, [], None)  # type: ignore[arg-type]
    assert not slow.let_go.is_set()
    slow.let_go.set()
    finger.join()


def test_what_goes_wrong_inside_is_told_outside() -> None:
    with pytest.raises(TypeError):
        learn(Tokenizer(models.BPE()), [1, 2], trainers.BpeTrainer())  # type: ignore[list-item]
