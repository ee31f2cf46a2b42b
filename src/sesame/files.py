"""Files that are either whole or not there.

Everything that Sesame keeps is written aside, flushed to the disk and renamed into place, so that a kill at any moment
leaves the old state or the new one, never half of it.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sesame.errors import SesameError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into one sentence about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SesameError(f"{path}: the disk is full; free some space and run the same command again") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise SesameError(f"{path}: cannot write here; choose a folder that you may write to") from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            raise SesameError(f"{path}: a file stands where a folder is needed; choose another place") from error
        raise


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder to write into; on success it becomes `target`, on failure nothing is left."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
            for file in aside.rglob("*"):
                sync(file)
            sync(aside)
            if target.exists():
                old = target.with_name(f".{target.name}.{os.getpid()}.old")
                shutil.rmtree(old, ignore_errors=True)
                target.rename(old)
                aside.rename(target)
                shutil.rmtree(old, ignore_errors=True)
            else:
                aside.rename(target)
            sync(target.parent)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def write_whole(target: Path, text: str) -> None:
    """Write a text file in one piece."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        aside.rename(target)


def write_json(target: Path, value: Any) -> None:
    write_whole(target, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SesameError(f"{path}: not readable as JSON ({error}); copy the file again") from error
