"""Where token stores are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$SESAME_CACHE`, or `sesame` in the user's cache folder."""
    named = os.environ.get("SESAME_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sesame"
