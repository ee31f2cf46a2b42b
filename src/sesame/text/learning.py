"""The trainers of the `tokenizers` library, with an ear for Ctrl-C."""

import threading
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer as Backend

LOOK = 0.2  # seconds; a signal may reach another thread than the one that waits


def learn(backend: Backend, texts: Iterable[str], trainer: Any) -> None:
    """`backend.train_from_iterator`, in a thread of its own: the library hears of a signal only when it is done, which may
    take a minute. Whoever is interrupted leaves the thread behind; it ends with the process."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            backend.train_from_iterator(texts, trainer)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="tokenizer", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK)
    if errors:
        raise errors[0]
