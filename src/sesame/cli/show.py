"""What several commands share: complaints, durations, tables."""

import re
import sys

from sesame.errors import SesameError


def complain(text: str) -> None:
    print(f"sesame: {text}", file=sys.stderr, flush=True)


def seconds(text: str | None) -> float | None:
    """`90s`, `10m`, `1.5h`, `1h30m` as seconds; a bare number is minutes."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text) * 60
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if parts is None or not any(parts.groups()):
        raise SesameError(f"--budget {text}: write a time such as 90s, 10m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in parts.groups())
    total = hours * 3600 + minutes * 60 + rest
    if total <= 0:
        raise SesameError(f"--budget {text}: must be longer than nothing")
    return total
