"""A tokenizer for a text, trained once: beside the token stores, under a name that says what it was made of.

The key holds each file's path, size and time of change, and the settings; a changed file gives a new key.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from sesame.data.build import alone
from sesame.data.cache import cache_folder
from sesame.data.vocabulary import tokenizer_from
from sesame.files import whole_folder
from sesame.recipe import TokenizerConfig
from sesame.text import Tokenizer


def cached_tokenizer(files: list[Path], field: str, wanted: TokenizerConfig) -> Tokenizer:
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    named = json.dumps([stats, field, asdict(wanted)])
    folder = cache_folder() / f"tokenizer-{hashlib.blake2b(named.encode(), digest_size=12).hexdigest()}"
    return kept_tokenizer(folder, lambda: tokenizer_from(files, field, **asdict(wanted)))


def kept_tokenizer(folder: Path, train: Callable[[], Tokenizer]) -> Tokenizer:
    """The tokenizer of this folder, trained if it is not there; of several runs that begin together one trains it."""
    if not (folder / "tokenizer.json").is_file():
        with alone(folder):
            if not (folder / "tokenizer.json").is_file():
                made = train()
                with whole_folder(folder) as aside:
                    made.save(aside)
    return Tokenizer.load(folder)
