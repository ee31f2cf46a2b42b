"""Text in several languages, and translations between them, for `sesame pretrain`: files, one vocabulary, token stores.

    --text en=en.txt --text ru=ru.txt --pairs en-ru=pairs.tsv

One tokenizer serves all languages. Its text is drawn from them as Conneau & Lample 2019 (section 3.1) draw it, q_i ~ p_i^0.5:
a small language then is not cut into letters. Here p_i are characters, not sentences: a sentence is no measure that
languages share.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sesame.config import read_toml
from sesame.data.build import build_pairs, build_store
from sesame.data.cache import cache_folder
from sesame.data.corpus_files import corpus_files
from sesame.data.languages import PAIRED, Pair, Source, pairs_by_languages, shares, texts_by_language
from sesame.data.parallel import read_pairs
from sesame.data.parallel_columns import check_languages, named_fields
from sesame.data.parts import Part, hold_out
from sesame.data.readers import read_documents
from sesame.errors import SesameError
from sesame.pretraining.tokenizer_cache import kept_tokenizer
from sesame.pretraining.wishes import Wishes, languages_of
from sesame.progress import say
from sesame.recipe import Languages, Recipe
from sesame.text import Tokenizer, sample_texts, train_tokenizer
from sesame.text.train import SAMPLE

FEWEST = 20  # pairs: some of them are held out


@dataclass(frozen=True)
class Mixture:
    """Several sources where else there is one part of a store."""

    sources: tuple[Source, ...]

    def tokens(self) -> int:
        return sum(source.part.tokens() for source in self.sources)

    def stores(self) -> list[str]:
        return [source.part.store.path.name for source in self.sources]


def parts_of(part: "Part | Mixture") -> list[Part]:
    """Those of all sources."""
    return [source.part for source in part.sources] if isinstance(part, Mixture) else [part]


def text_files(texts: Sequence[str]) -> list[Path]:
    """All files of these texts, whatever their languages."""
    return [file for paths in texts_by_language(texts).values() for file in corpus_files(paths)]


def texts_of_finished(wishes: Wishes) -> list[Path]:
    """The texts that a finished run was made of, as it names them, if they are those that are asked for; they may be gone."""
    final, kept = wishes.out / "final" / "config.json", wishes.out / "recipe.toml"
    if not (final.is_file() and kept.is_file()):
        return []
    texts = [Path(file) for file in read_toml(kept).get("run", {}).get("text", [])]
    named = [Path(path).resolve() for paths in texts_by_language(wishes.text).values() for path in paths]
    found = [[file for file in texts if name in (file, *file.parents)] for name in named]
    return texts if all(found) and sum(map(len, found)) == len(texts) else []


def check_mixture(wishes: Wishes, recipe: Recipe) -> None:
    """Complain about what cannot go together, before any text is read."""
    answers = any(stage.packing == "answers" for stage in recipe.stages.values())
    if answers and (wishes.text or not wishes.pairs):
        raise SesameError(
            f"recipe {recipe.name} learns from pairs of texts alone; name them with --pairs, such as --pairs en-de=train.tsv"
        )
    if not wishes.pairs and recipe.languages != Languages() and recipe.languages.translated:
        for name in {"mlm", "rtd"} & set(recipe.objectives):
            say(
                f"recipe {recipe.name}: no translations were given (--pairs), so objectives.{name} learns from each text "
                "by itself"
            )
    spoken = languages_of(wishes)
    if not spoken:
        return
    _check_names(spoken, wishes)
    others = [name for name in recipe.objectives if name not in ("mlm", "rtd", "seq2seq")]
    if wishes.pairs and others:
        answering = {"span", "denoise", "mass"} & set(others)  # these make pairs of texts themselves
        remedy = "teach them when it is done: sesame finetune RUN --task seq2seq" if answering else "take recipe xlm"
        raise SesameError(
            f"--pairs: translations are for mlm and rtd, not for {others[0]}; leave them out, or {remedy}"
        )
    if any(stage.packing == "dialogues" for stage in recipe.stages.values()):
        raise SesameError("dialogues are read in one language only; leave LANGUAGE= out of --text")
    if any(stage.ramp for stage in recipe.stages.values()):
        raise SesameError("a batch that grows (ramp) is for one language; set stages.NAME.ramp=0")
    if wishes.extend:
        raise SesameError("--extend adds the words of one text; leave the languages out, or --extend")
    for pair, paths in pairs_by_languages(wishes.pairs).items():
        for path in paths:
            if Path(path).is_file():
                check_languages(path, pair)
            else:
                name, sides = "-".join(pair), path.split(",")
                two = all(Path(side).is_file() for side in sides)  # as `sesame evaluate --data` takes them
                remedy = f"write {' '.join(f'--pairs {name}={side}' for side in sides)}" if two else "check the name"
                raise SesameError(f"--pairs {name}={path}: no such file; {remedy}")
    for pair, paths in pairs_by_languages([name for name in wishes.valid if PAIRED.fullmatch(name)]).items():
        for path in filter(lambda path: Path(path).is_file(), paths):
            check_languages(path, pair)


def _check_names(spoken: Sequence[str], wishes: Wishes) -> None:
    """One language under two names would be two: each with an embedding of its own, and translations into neither."""
    known = {name.lower(): name for name in reversed(spoken)}
    for name in spoken:
        if known[name.lower()] != name:
            raise SesameError(
                f"the languages {known[name.lower()]} and {name} differ in capitals only; write them alike"
            )
    texts = [name for name in texts_by_language(wishes.text) if name]
    for pair in pairs_by_languages(wishes.pairs) if texts else ():
        if not set(pair) & set(texts):
            say(
                f"warning: --pairs {'-'.join(pair)}: neither side is a language of --text ({', '.join(texts)}); if it should "
                "be, write the two alike"
            )


def gather_mixture(
    wishes: Wishes, recipe: Recipe, tokenizer: Tokenizer, languages: tuple[str, ...]
) -> tuple[Mixture, Mixture]:
    """The sources to train on and those held out; `languages` gives each its number."""
    cache = cache_folder()
    number = {language: place for place, language in enumerate(languages)}
    held = texts_by_language([name for name in wishes.valid if not PAIRED.fullmatch(name)])
    held_pairs = pairs_by_languages([name for name in wishes.valid if PAIRED.fullmatch(name)])
    train: list[Source] = []
    valid: list[Source] = []

    def add(name: str, langs: tuple[int, ...], parts: tuple[Part, Part]) -> None:
        train.append(Source(name, langs, parts[0]))
        if parts[1].tokens():
            valid.append(Source(name, langs, parts[1]))

    for pair in held_pairs.keys() - pairs_by_languages(wishes.pairs).keys():
        raise SesameError(f"--valid {'-'.join(pair)}: there are no such --pairs to train on; check the languages")
    for language in held.keys() - set(languages):
        raise SesameError(f"--valid {held[language][0]}: write the language before it, one of {', '.join(languages)}")
    for language, paths in texts_by_language(wishes.text).items():
        store = build_store(paths, tokenizer, cache, field=wishes.field, verbatim=recipe.verbatim)
        parts = hold_out(store, wishes.seed, 0.0 if held else None)
        if language in held:
            beside = build_store(held[language], tokenizer, cache, field=wishes.field, verbatim=recipe.verbatim)
            parts = parts[0], hold_out(beside, 0, 0.0)[0]
        add(language, (number[language],), parts)
    for pair, paths in pairs_by_languages(wishes.pairs).items():
        store = build_pairs(paths, pair, tokenizer, cache)
        if len(store.documents) <= FEWEST:
            raise SesameError(f"{paths[0]}: has {len(store.documents) - 1} pairs; {FEWEST} are the fewest")
        parts = hold_out(store, wishes.seed, 0.0 if held_pairs else None)
        if pair in held_pairs:
            parts = parts[0], hold_out(build_pairs(held_pairs[pair], pair, tokenizer, cache), 0, 0.0)[0]
        add("-".join(pair), (number[pair[0]], number[pair[1]]), parts)
    return Mixture(tuple(train)), Mixture(tuple(valid))


def mixed_tokenizer(wishes: Wishes, recipe: Recipe) -> Tokenizer:
    """A tokenizer for all languages, trained once for these files and settings."""
    wanted, exponent = recipe.tokenizer, recipe.languages.vocabulary
    texts, pairs = texts_by_language(wishes.text), pairs_by_languages(wishes.pairs)
    files = {name: corpus_files(paths) for name, paths in texts.items()}
    files |= {"-".join(pair): [Path(path) for path in paths] for pair, paths in pairs.items()}
    stats = [
        [name, str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for name, all in files.items() for f in all
    ]
    named = json.dumps([stats, wishes.field, asdict(wanted), exponent])
    folder = cache_folder() / f"tokenizer-{hashlib.blake2b(named.encode(), digest_size=12).hexdigest()}"

    def train() -> Tokenizer:
        chosen = _balanced(texts, pairs, wishes.field, SAMPLE[wanted.kind], exponent)
        return train_tokenizer(
            chosen, wanted.kind, wanted.size, lowercase=wanted.lowercase, strip_accents=wanted.strip_accents
        )

    return kept_tokenizer(folder, train)


def _balanced(
    texts: dict[str, list[str]], pairs: dict[Pair, list[str]], field: str, cap: int, exponent: float
) -> list[str]:
    """A sample of all languages in which language i has p_i^exponent of the text, up to a common factor."""
    languages = list(dict.fromkeys([*texts, *(side for pair in pairs for side in pair)]))
    kept: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for language in languages:
        counted = _Counted(_texts(language, texts, pairs, field))
        kept[language] = sample_texts(counted, cap=cap // len(languages))
        sizes[language] = counted.characters
    wanted = shares(list(sizes.values()), exponent)
    have = [sum(map(len, sample)) for sample in kept.values()]
    whole = min(size / share for size, share in zip(have, wanted, strict=True))
    found: list[str] = []
    for sample, share in zip(kept.values(), wanted, strict=True):
        found += _first(sample, whole * share)
    parts = ", ".join(f"{language} {share:.0%}" for language, share in zip(languages, wanted, strict=True))
    say(f"the vocabulary comes from {whole / 1e6:.1f} M characters: {parts}")
    return found


def _first(texts: list[str], characters: float) -> Iterator[str]:
    """So many characters, from texts all over the sample."""
    total, taken, passed = sum(map(len, texts)), 0, 0
    for text in texts:
        passed += len(text)
        if taken + len(text) / 2 <= characters * passed / total:
            taken += len(text)
            yield text


class _Counted:
    """Texts that are counted while they are read."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts, self.characters = texts, 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.characters += len(text)
            yield text


def _texts(language: str, texts: dict[str, list[str]], pairs: dict[Pair, list[str]], field: str) -> Iterator[str]:
    if language in texts:
        yield from (document.text for document in read_documents(texts[language], field))
    for pair, paths in pairs.items():
        if language in pair:
            for found in read_pairs(paths, named_fields(paths, pair)):
                yield found.source if language == pair[0] else found.target
