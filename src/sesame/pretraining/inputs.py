"""The files that a run is made from, and sums of what they hold: a run never passes for one of other text.

Sums are remembered by size and time of change, so that gigabytes are read once; files that are gone have none.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sesame.data.cache import cache_folder
from sesame.data.corpus_files import corpus_files
from sesame.data.languages import PAIRED, pairs_by_languages, texts_by_language
from sesame.data.sums import content_sums
from sesame.pretraining.wishes import Wishes, languages_of

OF_MODELS = ("config.json", "*.safetensors", "*.bin", "*.hdf5", "tokenizer*.json", "vocab.*", "merges.txt", "*.model")


def sums_of(files: Iterable[Path]) -> dict[str, str]:
    """The sum of each file that is there, by its name."""
    there = [file for file in files if file.is_file()]
    sums = content_sums(there, cache_folder() / "hashes.json")
    return {str(file.resolve()): found for file, found in zip(there, sums, strict=True)}


def files_of(wishes: Wishes, text: Sequence[Path]) -> list[Path]:
    """All that a pre-training reads: `text`, what is held out, translations, vectors, model and tokenizer."""
    found = [*text, *_held_out(wishes), *_pairs(wishes.pairs)]
    if wishes.vectors is not None:
        found.append(Path(wishes.vectors))
    for folder in (wishes.start, wishes.tokenizer):
        found += files_of_model(folder) if folder else []
    return found


def files_of_model(name: str) -> list[Path]:
    """Weights, settings and tokenizer of a folder, or of a run; of a file itself."""
    folder = Path(name)
    if not folder.is_dir():
        return [folder]
    if not (folder / "config.json").is_file():
        folder = next((part for part in (folder / "final", folder / "tokenizer") if part.is_dir()), folder)
    return sorted({file for pattern in OF_MODELS for file in folder.glob(pattern)})


def _held_out(wishes: Wishes) -> list[Path]:
    several = bool(languages_of(wishes))
    pairs = [name for name in wishes.valid if several and PAIRED.fullmatch(name)]
    texts = texts_by_language([name for name in wishes.valid if name not in pairs])
    there = [path for paths in texts.values() for path in paths if Path(path).exists()]
    return _pairs(pairs) + (corpus_files(there) if there else [])


def _pairs(names: Sequence[str]) -> list[Path]:
    return [Path(path) for paths in pairs_by_languages(names).values() for path in paths]
