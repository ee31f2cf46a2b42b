"""Files that are either whole or not there.

Everything that Sesame keeps is written aside, flushed to the disk and renamed into place, so that a kill at any moment
leaves the old state or the new one, never half of it.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from sesame.errors import SesameError

_FULL = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "the disk is full; free some space and run the same command again"),
    errno.EFBIG: "a file grows larger than this disk or this shell allows (ulimit -f); choose another place, or allow more",
}
_PLACE = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "cannot write here; choose a folder that you may write to"
    ),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file stands where a folder is needed; choose another place"),
    errno.EISDIR: "a folder stands where a file is needed; choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into one sentence about `path`."""
    with _told(path, _FULL | _PLACE):
        yield


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """As `disk_errors`, for long work that also reads: only a full disk is sure to be about `path`."""
    with _told(path, _FULL):
        yield


@contextmanager
def _told(path: Path, known: dict[int, str]) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _rust_errno(error)
        if number not in known:
            raise
        raise SesameError(f"{_without_asides(path)}: {known[number]}") from error


def _rust_errno(error: SafetensorError) -> int | None:
    """Safetensors tells what the system said only in the text of its error."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


# ---- written aside --------------------------------------------------------------------------------------------------

_ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.(?P<kind>part|old)")


_half_written: set[Path] = set()  # by this process, now
_claimed: list[Path] = []  # the folders of runs that this process works on


@contextmanager
def going_on(run: Path) -> Iterator[None]:
    """Whatever stops the process within, the same command goes on with this run."""
    _claimed.append(run)
    try:
        yield
    finally:
        _claimed.remove(run)


def goes_on() -> bool:
    """Whether the command that is running now can go on where it is stopped; most keep nothing, and begin anew."""
    return bool(_claimed)


def abandon() -> None:
    """Remove what this process has half-written: for an end without unwinding."""
    for aside in _half_written:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


def _aside(target: Path, kind: str = "part") -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.{kind}")


def _without_asides(path: Path) -> Path:
    """The name that the user knows: a folder that is still being written is called by its final name."""
    return Path(*(found["name"] if (found := _ASIDE.fullmatch(part)) else part for part in path.parts))


def is_aside(path: Path) -> bool:
    return _ASIDE.fullmatch(path.name) is not None


def tidy(folder: Path) -> None:
    """Remove what killed processes left half-written in `folder`; only for a folder that nobody else writes to now."""
    for left in folder.glob(".*"):
        found = _ASIDE.fullmatch(left.name)
        if found is None:
            continue
        target = left.with_name(found["name"])
        if found["kind"] == "old" and not target.exists():  # killed between the two renames
            left.rename(target)
        elif left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def sweep(target: Path) -> None:
    """Remove what killed processes left half-written of `target`; those that live are at work on it."""
    for left in target.parent.glob(f".{escape(target.name)}.*.part"):
        found = _ASIDE.fullmatch(left.name)
        if found is None or found["name"] != target.name or _lives(int(found["process"])):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # somebody else's; no number of a process
        return True
    return True


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
    aside = _aside(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        _half_written.add(aside)
        try:
            yield aside
            for file in aside.rglob("*"):
                sync(file)
            sync(aside)
            if target.exists():
                old = _aside(target, "old")
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
        finally:
            _half_written.discard(aside)


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Give a file to write into; on success it becomes `target`, on failure nothing is left."""
    aside = _aside(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _half_written.add(aside)
        try:
            with aside.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            aside.rename(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        finally:
            _half_written.discard(aside)


def write_whole(target: Path, text: str) -> None:
    """Write a text file in one piece."""
    with whole_file(target) as handle:
        handle.write(text.encode())


def write_json(target: Path, value: Any) -> None:
    write_whole(target, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file") from None
    except OSError as error:
        raise SesameError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SesameError(f"{path}: not readable as JSON ({error}); copy the file again") from error
