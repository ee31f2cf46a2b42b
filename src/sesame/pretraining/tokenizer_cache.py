"""A tokenizer for a text, trained once: beside the token stores, under a name that says what it was made of.

The key holds each file's path, size and time of change, and the settings; a changed file gives a new key. When two processes
want the same tokenizer at once, one makes it and the other waits, as for stores.
"""

import hashlib
import json
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
    made = folder / "tokenizer.json"
    if not made.is_file():
        with alone(folder):
            if not made.is_file():
                tokenizer = tokenizer_from(files, field, **asdict(wanted))
                with whole_folder(folder) as aside:
                    tokenizer.save(aside)
    return Tokenizer.load(folder)
