"""Units of a store: what masks hide is whole, lists of entities are honoured in any tokenizer, files are kept and whole."""

import itertools
import lzma
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame import chance
from sesame.data.batch import IGNORE
from sesame.data.build import build_store
from sesame.data.docstrings import documents
from sesame.data.entity_files import read_entities
from sesame.data.pack import Specials
from sesame.data.packers import packer_of
from sesame.data.parts import hold_out
from sesame.data.store import Store
from sesame.data.unit_files import Units, named_units, wanted_entities
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead, Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig
from sesame.recipe import Stage, resolve
from sesame.text import Tokenizer
from sesame.text.train import Kind, train_tokenizer


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Docstrings: real prose that every machine has."""
    file = tmp_path_factory.mktemp("docstrings") / "text.txt"
    file.write_text("\n\n".join(text for _, text in documents(1_500_000)) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tokenizer(text: Path) -> Tokenizer:
    return train_tokenizer(text.read_text(encoding="utf-8").split("\n\n"), "wordpiece", 3000)


@pytest.fixture(scope="module")
def store(text: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_store([text], tokenizer, tmp_path_factory.mktemp("stores"), workers=1)


def sample(tokenizer: Tokenizer, words: list[str], folder: Path, kind: str) -> tuple[Store, list[str]]:
    """A store of these lines, and its units as text, once for each place."""
    (folder / "lines.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    made = build_store([folder / "lines.txt"], tokenizer, folder / "cache", workers=1)
    starts = Units(tokenizer, tuple((folder / "entities").read_text().splitlines())).starts(made, kind)  # type: ignore[arg-type]
    assert starts is not None
    first = [*np.flatnonzero(starts).tolist(), len(starts)]
    return made, [tokenizer.decode(made.tokens[a:b].tolist()).strip() for a, b in itertools.pairwise(first)]


@pytest.mark.slow
@pytest.mark.parametrize(("units", "packing"), [("words", "pairs"), ("phrases", "documents"), ("entities", "blocks")])
def test_masks_hide_whole_units(store: Store, tokenizer: Tokenizer, units: str, packing: str) -> None:
    entities = ("context manager", "command line", "standard library", "for example")
    starts = Units(tokenizer, entities).starts(store, units)  # type: ignore[arg-type]
    assert starts is not None
    specials = Specials(tokenizer.id("cls"), tokenizer.id("sep"), tokenizer.id("pad"))
    packer = packer_of(hold_out(store, 0, 0.0)[0], packing, 128, specials, words=True, units=starts)  # type: ignore[arg-type]
    rows = np.arange(min(600, len(packer)))
    batch = packer.draw(rows, chance.keys(7, rows))
    head = MaskedLMHead(8, 8, len(tokenizer), "gelu", 1e-12)
    corrupted = MaskedLM(MaskedLMConfig(), head, Vocab(len(tokenizer), tokenizer.ids())).corrupt(batch)
    targets = corrupted.targets["mlm"]
    assert targets.at is not None
    assert batch.words is not None
    masked = torch.zeros_like(batch.ids, dtype=torch.bool)
    masked.scatter_(1, targets.at, targets.labels != IGNORE)
    masked[:, 0] = False
    for row in range(batch.size):
        numbers, hidden = batch.words[row], masked[row]
        chosen = set(numbers[hidden].tolist())
        assert 0 not in chosen
        assert all(bool(hidden[numbers == number].all()) for number in chosen)
    real = batch.words > 0
    assert 0.130 < float(masked.sum() / batch.lengths.sum()) < 0.152
    if units != "words":  # units of several words are hidden about as often as others
        seen = sum(1 for a, b in _spans(batch.words) if b - a > 1)
        assert seen > 300
        multi = torch.zeros_like(real)
        for a, b in _spans(batch.words):
            multi.view(-1)[a:b] = b - a > 1
        assert 0.10 < float(masked[multi].double().mean()) < 0.18


def _spans(words: torch.Tensor) -> list[tuple[int, int]]:
    """Begin and end of each unit in the flattened batch."""
    flat = words.flatten().tolist()
    edges = [i for i in range(1, len(flat)) if flat[i] != flat[i - 1]]
    return [(a, b) for a, b in zip([0, *edges], [*edges, len(flat)], strict=True) if flat[a] > 0]


@pytest.mark.slow
def test_phrases_of_docstrings_are_phrases(store: Store, tokenizer: Tokenizer) -> None:
    units = Units(tokenizer)
    starts, words = units.starts(store, "phrases"), units.starts(store, "words")
    assert starts is not None
    assert words is not None
    found = dict(named_units(store, starts, words, tokenizer))
    assert {"keyword arguments", "context manager"} <= set(found)
    assert not {"of the", "in the", "is a"} & set(found)
    assert all(len(phrase.split()) <= 12 for phrase in found)  # four words; a word may have signs of its own
    bounds = set(store.sentences.tolist())
    assert all(starts[at] for at in bounds if at < len(starts))


KINDS: list[tuple[Kind, bool]] = [("wordpiece", True), ("wordpiece", False), ("bpe", False), ("unigram", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "lowercase"), KINDS)
def test_entities_are_units_wherever_they_stand(text: Path, tmp_path: Path, kind: Kind, lowercase: bool) -> None:
    lines = [
        "New York is far",
        "I saw New York , (New York) and New Yorkers",
        "a new york minute",
        "the Old Town of New Delhi",
    ]
    prose = text.read_text(encoding="utf-8")[:300_000].split("\n\n")
    tokenizer = train_tokenizer([*prose, *lines], kind, 1000, lowercase=lowercase)
    (tmp_path / "entities").write_text("New York\nOld Town of New Delhi\nTown\nnowhere land\n")
    _, units = sample(tokenizer, lines, tmp_path, "entities")
    counts = Counter(unit.lower() for unit in units)
    assert counts["new york"] == (4 if lowercase else 3)
    assert counts["old town of new delhi"] == 1  # the longer one, not "Town" in it
    if not lowercase:
        assert "new york" not in units


def test_text_without_spaces(tmp_path: Path) -> None:
    """SentencePiece takes a clause for a word; its pieces are units. BERT's tokenizer splits at every character."""
    lines = ["北京大学在北京", "我在北京大学学习", "他爱北京大学"] * 40
    luck = np.random.default_rng(0)
    mixed = ["".join(chr(0x4E00 + number) for number in luck.integers(0, 60, 30)) for _ in range(200)]
    tokenizer = train_tokenizer(mixed, "unigram", 400)
    (tmp_path / "entities").write_text("在北京\n")
    store, words = sample(tokenizer, mixed, tmp_path, "words")
    assert len(words) == len(store.tokens) > int(store.word_starts.sum())
    tokenizer = train_tokenizer(lines, "wordpiece", 64)
    (tmp_path / "entities").write_text("北京大学\n")
    _, units = sample(tokenizer, lines, tmp_path, "entities")
    assert sum(unit.replace(" ", "") == "北京大学" for unit in units) == 120


@pytest.mark.parametrize("first", ["\u0e01", "\u1000", "\u1780", "\u30a1"], ids=["Thai", "Burmese", "Khmer", "kana"])
def test_entities_inside_of_a_clause(tmp_path: Path, first: str) -> None:
    """WordPiece takes a clause for a word: pieces within it are other ones than at its start."""
    luck = np.random.default_rng(0)
    letters = [chr(ord(first) + number) for number in range(24)]
    lines = ["".join(luck.choice(letters, 12)) for _ in range(300)]
    name = "".join(letters[:5])
    for row in range(0, 300, 10):
        lines[row] = lines[row][:6] + name + lines[row][6:]
    (tmp_path / "entities").write_text(name + "\n", encoding="utf-8")
    _, units = sample(train_tokenizer(lines, "wordpiece", 200), lines, tmp_path, "entities")
    assert sum("".join(unit.split()).replace("##", "") == name for unit in units) > 25


def test_files_are_made_once_and_anew_when_cut(store: Store, tokenizer: Tokenizer) -> None:
    units = Units(tokenizer)
    starts = units.starts(store, "phrases")
    (file,) = store.path.parent.glob(f"{store.path.name}-phrases-*.bin")
    made = file.stat().st_mtime_ns
    assert isinstance(starts, np.memmap)
    assert np.array_equal(np.asarray(units.starts(store, "phrases")), np.asarray(starts))
    assert file.stat().st_mtime_ns == made
    whole = np.array(starts)
    os.truncate(file, 10)
    assert np.array_equal(np.asarray(units.starts(store, "phrases")), whole)
    one, two = (Units(tokenizer, (name,)).starts(store, "entities") for name in ("python", "command line"))
    assert one is not None
    assert two is not None
    assert not np.array_equal(one, two)
    assert Units(tokenizer).starts(store, "entities") is not None  # phrases
    assert len(list(store.path.parent.glob(f"{store.path.name}-phrases-*.bin"))) == 1
    assert units.starts(store, "pieces") is None
    assert units.starts(store, "") is None


def test_bad_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SesameError, match=r"no such file.*one entity a line"):
        read_entities(tmp_path / "missing")
    (tmp_path / "empty").write_text("\n  \n")
    with pytest.raises(SesameError, match="has no entity"):
        read_entities(tmp_path / "empty")
    (tmp_path / "good").write_text("\ufeffNew   York \n\nNew York\r\nBonn")
    assert read_entities(tmp_path / "good") == ["New York", "Bonn"]
    with lzma.open(tmp_path / "good.xz", "wt") as handle:
        handle.write("Bonn\n")
    assert read_entities(tmp_path / "good.xz") == ["Bonn"]
    (tmp_path / "long").write_text("x" * 3_000_000)
    with pytest.raises(SesameError, match="one entity a line"):
        read_entities(tmp_path / "long")
    with pytest.raises(SesameError, match=r"no stage of this recipe hides entities.*stages\.main\.units=entities"):
        wanted_entities(str(tmp_path / "good"), {"main": Stage(1, 8, 8)})
    assert wanted_entities(None, {"main": Stage(1, 8, 8, units="entities")}) == ()
    assert "stage main hides phrases" in capsys.readouterr().err


def test_n_grams_are_not_of_pieces() -> None:
    with pytest.raises(SesameError, match=r"objectives\.mlm\.ngram=1"):
        resolve("ernie", size="tiny", settings=["objectives.mlm.ngram=3"])
    with pytest.raises(SesameError, match="units"):
        resolve("ernie", size="tiny", settings=["stages.basic.units=syllables"])
