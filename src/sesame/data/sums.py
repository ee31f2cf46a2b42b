"""Sums of what files hold, remembered by their size and the time of their change."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sesame.errors import SesameError
from sesame.files import read_json, write_json
from sesame.progress import bar


def content_sums(files: Sequence[Path], memo: Path) -> list[str]:
    """The content hash of each file. `memo` remembers them, so that gigabytes are not read again at every start."""
    known = _remembered(memo)
    fresh = {}
    unknown = [file for file in files if known.get(str(file.resolve()), [])[:3] != stamp(file)]
    with bar("checking files", sum(file.stat().st_size for file in unknown), "B") as shown:
        for file in unknown:
            # A file changed within the last moments may change again without a new time stamp: do not remember it.
            settled = time.time() - file.stat().st_mtime > 2
            entry = [*stamp(file), _hash(file, shown.advance)]
            known[str(file.resolve())] = entry
            if settled:
                fresh[str(file.resolve())] = entry
    result = [known[str(file.resolve())][3] for file in files]
    if fresh:
        with suppress(SesameError):  # it only saves time
            write_json(memo, {**_remembered(memo), **fresh})  # read again: another process may have added some
    return result


def _remembered(memo: Path) -> dict[str, list[Any]]:
    try:
        found = read_json(memo)
    except SesameError:  # missing or broken: it only saves time, so begin a new one
        return {}
    return found if isinstance(found, dict) else {}


def stamp(file: Path) -> list[int]:
    """What differs when a file has changed."""
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _hash(file: Path, progress: Callable[[int], None]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    try:
        with file.open("rb") as handle:
            while block := handle.read(1 << 22):
                digest.update(block)
                progress(len(block))
    except OSError as error:
        raise SesameError(f"{file}: cannot be read ({error.strerror}); check the file and its permissions") from error
    return digest.hexdigest()
