"""What several commands share: complaints, durations, tables."""

import os
import re
from pathlib import Path

from sesame.errors import SesameError
from sesame.files import disk_errors
from sesame.progress import say


def complain(text: str) -> None:
    say(f"sesame: {text}")


def check_new(out: Path) -> None:
    """Refuse, before any work, an --out that would overwrite something or that cannot be written."""
    with disk_errors(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise SesameError(f"{out}: exists already; choose another --out or remove it")
        out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise SesameError(f"{out}: cannot write here; choose a folder that you may write to")


def seconds(text: str | None, option: str = "--budget") -> float | None:
    """`90s`, `10m`, `1.5h`, `1h30m` as seconds; a bare number is minutes."""
    if text is None:
        return None
    number = r"(\d+(?:\.\d+)?)"
    bare = f"{text}m" if re.fullmatch(number, text.strip(), re.ASCII) else text
    parts = re.fullmatch(f"(?:{number}h)?(?:{number}m)?(?:{number}s)?", bare.strip().lower(), re.ASCII)
    if parts is None or not any(parts.groups()):
        raise SesameError(f"{option} {text}: write a time such as 90s, 10m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in parts.groups())
    total = hours * 3600 + minutes * 60 + rest
    if total <= 0:
        raise SesameError(f"{option} {text}: must be longer than nothing")
    return total
