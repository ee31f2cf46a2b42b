"""Encoding on all cores.

What is unusual: the workers are plain subprocesses that talk over pipes, not a `multiprocessing` pool. They start from
nothing, so they neither copy a process that has threads and torch in it nor run the user's script again (which spawn
does), and a killed one is noticed at once because its pipe closes.
"""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, cast

from sesame.data.encode import DocumentEncoder, EncodedDocuments
from sesame.errors import SesameError
from sesame.text import Tokenizer


class Workers:
    """`count` processes that encode documents; `map` keeps the order. Use it in a `with`, which ends them."""

    def __init__(self, tokenizer: Tokenizer, count: int, lines: bool = False, verbatim: bool = False) -> None:
        """`lines`, `verbatim`: see `DocumentEncoder`."""
        self._folder = tempfile.TemporaryDirectory(prefix="sesame-")
        self._closing = False
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._all: list[_Worker] = []
        self._count, self._how = count, (lines, verbatim)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="encode")
        tokenizer.save(Path(self._folder.name))

    def __enter__(self) -> "Workers":
        for _ in range(self._count):
            self._idle.put(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing = True
        for worker in self._all:
            worker.end()
        self._threads.shutdown(cancel_futures=True)
        self._folder.cleanup()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._all if worker.process.poll() is None]

    def map(self, chunks: Iterable[list[str]]) -> Iterator[EncodedDocuments]:
        """Encode each list of documents, in order, with no more than two lists per worker on their way."""
        waiting: deque[Future[EncodedDocuments]] = deque()
        for chunk in chunks:
            if len(waiting) >= 2 * self._count:
                yield waiting.popleft().result()
            waiting.append(self._threads.submit(self._encode, chunk))
        while waiting:
            yield waiting.popleft().result()

    def _start(self) -> "_Worker":
        worker = _Worker(self._folder.name, *self._how)
        self._all.append(worker)
        return worker

    def _encode(self, texts: list[str]) -> EncodedDocuments:
        """In a thread: one chunk to one worker and back. A chunk whose worker dies gets one more."""
        worker = self._idle.get()
        try:
            for last_try in (False, True):
                try:
                    return worker.ask(texts)
                except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                    worker.end()
                    if last_try or self._closing:
                        break
                    worker = self._start()
        finally:
            self._idle.put(worker)
        raise SesameError(
            "a process that encodes text was killed twice, most likely for lack of memory; free some memory or use "
            "fewer workers, and run the same command again"
        )


class _Worker:
    def __init__(self, tokenizer: str, lines: bool, verbatim: bool) -> None:
        # The same search path as ours, without the current folder (-P), where any file could take a module's name.
        path = os.pathsep.join(place or os.getcwd() for place in sys.path)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                f"from sesame.data.workers import serve; serve({lines}, {verbatim})",
                tokenizer,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C is for the parent alone
        )
        self.stdin = cast(IO[bytes], self.process.stdin)
        self.stdout = cast(IO[bytes], self.process.stdout)

    def ask(self, texts: list[str]) -> EncodedDocuments:
        pickle.dump(texts, self.stdin, pickle.HIGHEST_PROTOCOL)
        self.stdin.flush()
        good, answer = pickle.load(self.stdout)
        if not good:
            raise RuntimeError(f"encoding failed in a worker:\n{answer}")
        return cast(EncodedDocuments, answer)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        with suppress(BrokenPipeError):  # what was still buffered for the dead process
            self.stdin.close()


def serve(lines: bool, verbatim: bool) -> None:
    """The life of a worker: read lists of documents from stdin and answer on stdout until the parent is gone."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between the answers
    gc.disable()  # millions of small objects and no cycle among them: looking for one costs a third of the time
    encoder = DocumentEncoder(Tokenizer.load(sys.argv[1]), lines, verbatim)
    while True:
        try:
            texts = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = (True, encoder.encode(texts))
        except Exception:
            answer = (False, traceback.format_exc())
        try:
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            os._exit(0)
