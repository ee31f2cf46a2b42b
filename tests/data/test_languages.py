"""Several languages: shares follow the exponent, steps are pure, translations are well formed and masked on both sides."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame import chance
from sesame.data.batch import IGNORE, Batch
from sesame.data.build import build_pairs, build_store
from sesame.data.docstrings import harvest
from sesame.data.languages import (
    MixedLoader,
    Source,
    Turns,
    mixed,
    pairs_by_languages,
    shares,
    source_shares,
    texts_by_language,
)
from sesame.data.loader import Loader
from sesame.data.pack import Packer, Specials
from sesame.data.parts import Part, hold_out
from sesame.data.translation_pack import TranslationPacker
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead, Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig
from tests.languages import store_of, word_tokenizer

WORDS = [f"x{i}" for i in range(400)]
TOKENIZER = word_tokenizer(WORDS)
CLS, SEP, PAD = (TOKENIZER.id(role) for role in ("cls", "sep", "pad"))
SPECIALS = Specials(CLS, SEP, PAD)


def pairs_part(lengths: list[tuple[int, int]], folder: Path) -> Part:
    """Pairs of these lengths; the words of a source are even, those of a target odd."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = [(" ".join(WORDS[: 2 * a : 2]), " ".join(WORDS[1 : 2 * b + 1 : 2])) for a, b in lengths]
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in sides))
    return hold_out(build_pairs([folder / "pairs.tsv"], ("en", "ru"), TOKENIZER, folder, workers=1), 0, 0.0)[0]


def draw(packer: Packer, epoch: int = 0) -> Batch:
    rows = np.arange(len(packer))
    return packer.draw(rows, chance.keys(chance.key(epoch), rows))


def packed(part: Part, length: int, langs: tuple[int, ...] = (0, 1), reset: bool = True) -> TranslationPacker:
    return TranslationPacker(part, length, SPECIALS, langs=langs, reset=reset, words=True)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=9),
    length=st.integers(8, 40),
)
def test_translations_are_well_formed(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]], length: int
) -> None:
    batch = draw(packed(pairs_part(lengths, tmp_path_factory.mktemp("pairs")), length, (4, 2)))
    assert batch.langs is not None
    assert batch.positions is not None
    for row, (source, target) in enumerate(lengths):
        size = int(batch.lengths[row])
        ids = batch.ids[row].tolist()
        middle = ids.index(SEP) + 1
        assert [place for place, id in enumerate(ids) if id == SEP] == [middle - 1, middle, size - 1]
        assert ids[0] == CLS
        assert ids[size:] == [PAD] * (len(ids) - size)
        one, other = ids[1 : middle - 1], ids[middle + 1 : size - 1]
        swapped = one[0] != TOKENIZER.encode("x0").ids[0]
        assert batch.langs[row, :size].tolist() == [2 if swapped else 4] * middle + [4 if swapped else 2] * (
            size - middle
        )
        assert batch.positions[row, :size].tolist() == [*range(middle), *range(size - middle)]
        a, b = (other, one) if swapped else (one, other)
        body = length - 4
        assert len(a) + len(b) == min(source + target, body)  # nothing is lost that has room
        assert len(a) == source or len(a) >= body // 2
        assert len(b) == target or len(b) >= body // 2
        assert a == TOKENIZER.encode(" ".join(WORDS[: 2 * len(a) : 2])).ids
        assert b == TOKENIZER.encode(" ".join(WORDS[1 : 2 * len(b) : 2])).ids


def test_either_side_comes_first_and_positions_may_go_on(tmp_path: Path) -> None:
    part = pairs_part([(5, 6)] * 2000, tmp_path)
    batch = draw(packed(part, 20, reset=False))
    assert batch.positions is None
    assert batch.langs is not None
    assert batch.langs[:, 0].double().mean() == pytest.approx(0.5, abs=0.05)  # 4.5 deviations


def test_a_class_token_that_is_the_separator_too(tmp_path: Path) -> None:
    """As XLM's "</s>" is: the first side was taken to end at the class token."""
    part = pairs_part([(5, 6)] * 30, tmp_path)
    usual = draw(packed(part, 20))
    batch = draw(TranslationPacker(part, 20, Specials(SEP, SEP, PAD), langs=(0, 1), reset=True))
    assert batch.langs is not None
    assert batch.positions is not None
    assert usual.langs is not None
    assert usual.positions is not None
    assert batch.langs.equal(usual.langs)
    assert batch.positions.equal(usual.positions)


def test_a_pair_with_an_empty_side_is_left_out_and_a_side_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        '{"ru": "x1 . X . x3\\nx5", "en": "x0 x2"}\n{"ru": "", "en": "x0"}\n{"ru": "x7", "en": "x4"}\n'
    )
    store = build_pairs([tmp_path / "pairs.jsonl"], ("en", "ru"), TOKENIZER, tmp_path, workers=1)
    assert np.diff(store.documents).tolist() == [2, 2]
    assert store.source(1).endswith("pairs.jsonl:3")
    assert packed(hold_out(store, 0, 0.0)[0], 24).source(1).endswith("pairs.jsonl:3")
    first = TOKENIZER.encode("x0 x2").ids
    assert store.tokens[: store.sentences[1]].tolist() == first  # the fields are found by the languages' names
    assert store.sentences[2] - store.sentences[1] == len(TOKENIZER.encode("x1 . X . x3 x5").ids)


def test_processes_encode_pairs_alike(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("x0 x2. X4 x6\tx1. X3! x5\nx2\tx3\n" * 50)
    stores = [
        build_pairs([tmp_path / "pairs.tsv"], ("en", "ru"), TOKENIZER, tmp_path / str(count), workers=count)
        for count in (1, 2)
    ]
    assert np.diff(stores[0].documents).tolist() == [2] * 100
    for name in ("tokens", "sentences", "documents", "sources"):
        assert np.array_equal(getattr(stores[0], name), getattr(stores[1], name))


def test_both_sides_of_real_text_are_masked_at_the_rate(tmp_path: Path) -> None:
    """Docstrings beside themselves in capitals; the shares of chosen, hidden, random and kept tokens on each side."""
    texts = [" ".join(found.text.split()[:30]) for found in harvest(900_000)]
    words = sorted({word for text in texts for word in (*text.split(), *text.upper().split())})
    tokenizer = word_tokenizer(words)
    (tmp_path / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts), encoding="utf-8")
    store = build_pairs([tmp_path / "pairs.tsv"], ("en", "EN"), tokenizer, tmp_path, workers=1)
    part = hold_out(store, 0, 0.0)[0]
    roles = tokenizer.ids()
    specials = Specials(roles["cls"], roles["sep"], roles["pad"])
    clean = draw(TranslationPacker(part, 64, specials, langs=(0, 1), reset=True))
    objective = MaskedLM(
        MaskedLMConfig(), MaskedLMHead(1, 1, len(tokenizer), "gelu", 1e-12), Vocab(len(tokenizer), roles)
    )
    batch = objective.corrupt(clean)
    at, labels = batch.targets["mlm"].at, batch.targets["mlm"].labels
    assert at is not None
    assert batch.langs is not None
    chosen = labels != IGNORE
    lang = torch.gather(batch.langs, 1, at)[chosen]
    seen = torch.gather(batch.ids, 1, at)[chosen]
    text = (
        (torch.arange(clean.ids.shape[1]) < clean.lengths[:, None])
        & (clean.ids != specials.cls)
        & (clean.ids != specials.sep)
    )
    for side in (0, 1):
        mine = lang == side
        tokens = int((text & (batch.langs == side)).sum())
        rate = (
            0.15 * int(clean.lengths.sum()) / int(text.sum())
        )  # specials count among the tokens, but are never chosen
        assert int(mine.sum()) / tokens == pytest.approx(rate, abs=0.01)  # 4 deviations
        hidden = (seen[mine] == roles["mask"]).double().mean()
        kept = (seen[mine] == labels[chosen][mine]).double().mean()
        assert float(hidden) == pytest.approx(0.8, abs=0.03)
        assert float(kept) == pytest.approx(0.1, abs=0.03)


def test_shares_follow_the_exponent() -> None:
    assert shares([1, 1, 2], 1.0) == pytest.approx([0.25, 0.25, 0.5])
    assert shares([1, 9], 0.5) == pytest.approx([0.25, 0.75])
    assert shares([1, 1000], 0.0) == pytest.approx([0.5, 0.5])
    for seed in range(3):
        turns = Turns([0.2, 0.5, 0.0, 0.3], seed)
        counts = Counter(turns.at(step)[0] for step in range(4000))
        assert counts[2] == 0
        for source, share in enumerate([0.2, 0.5, 0.0, 0.3]):
            assert counts[source] / 4000 == pytest.approx(share, abs=0.035)  # 4.4 deviations


def test_translations_have_a_share_of_their_own(tmp_path: Path) -> None:
    parts = [hold_out(store_of("x1 " * size, TOKENIZER, tmp_path / str(size)), 0, 0.0)[0] for size in (100, 900)]
    pairs = pairs_part([(3, 3)] * 30, tmp_path / "pairs")
    sources = [Source("en", (0,), parts[0]), Source("en-ru", (0, 1), pairs), Source("ru", (1,), parts[1])]
    assert source_shares(sources, 0.5, 0.4) == pytest.approx([0.15, 0.4, 0.45])
    assert source_shares(sources[1:2], 0.5, 0.4) == [1.0]
    assert source_shares(sources[::2], 0.5, 0.4) == pytest.approx([0.25, 0.75])


def test_turns_are_pure_and_count_themselves() -> None:
    """Asked in any order, near or far, each step has its source and the number of that source's steps before it."""
    whole = Turns([0.3, 0.7], 5)
    counted: Counter[int] = Counter()
    for step in range(3000):
        source, before = whole.at(step)
        assert before == counted[source]
        counted[source] += 1
    fresh = Turns([0.3, 0.7], 5)
    for step in (100_000, 2999, 0, 1024, 1023):
        assert fresh.at(step) == Turns([0.3, 0.7], 5).at(step)
    assert fresh.at(2999) == whole.at(2999)
    assert [Turns([0.5, 0.5], 6).at(step)[0] for step in range(30)] != [
        Turns([0.5, 0.5], 7).at(step)[0] for step in range(30)
    ]


def test_a_mixed_loader_reads_each_source_epoch_by_epoch(tmp_path: Path) -> None:
    """Every row of a language comes once an epoch, in steps of one source; ranks share a step as with one language."""
    texts = ["\n\n".join(f"{WORDS[start + i]} {WORDS[start + i]}" for i in range(24)) for start in (0, 100)]
    parts = [hold_out(store_of(text, TOKENIZER, tmp_path / str(n)), 0, 0.0)[0] for n, text in enumerate(texts)]
    packers = [Packer(part, "documents", 16, SPECIALS, short=0.1, lang=lang) for lang, part in enumerate(parts)]
    basic = Loader(packers[0], 8, 4, 3, lambda batch, progress: batch)
    loader = mixed(basic, packers, [0.5, 0.5])
    seen: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
    for step in range(40):
        batches = loader.load(step, 0.0)
        assert [batch.size for batch in batches] == [4, 4]
        langs = torch.cat([batch.langs.flatten() for batch in batches if batch.langs is not None])
        [lang] = set(langs.tolist())
        seen[lang].update(int(id) for batch in batches for id in batch.ids[:, 1])
    for lang, counts in seen.items():
        steps = sum(counts.values()) // 8
        assert len(counts) == 24
        assert set(counts.values()) <= {steps // 3, steps // 3 + 1}
        first = TOKENIZER.encode(WORDS[100 * lang]).ids[0]
        assert set(counts) == set(range(first, first + 24))
    for rank in (0, 1):
        part = MixedLoader(**{**loader.__dict__, "rank": rank, "ranks": 2}).load(7, 0.0)
        assert torch.equal(part[0].ids, loader.load(7, 0.0)[rank].ids)
    assert len(loader.sources(7)) == 8


def test_texts_and_pairs_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.txt").write_text("x1\n")
    assert texts_by_language(["a=b.txt", "c.txt"]) == {"": ["a=b.txt", "c.txt"]}
    assert texts_by_language(["en=a=b.txt", "ru=c.txt", "en=d"]) == {"en": ["a=b.txt", "d"], "ru": ["c.txt"]}
    assert pairs_by_languages(["en-ru=a=b.tsv", "en-ru=c.tsv"]) == {("en", "ru"): ["a=b.tsv", "c.tsv"]}
    with pytest.raises(SesameError, match="has no language, but other texts have"):
        texts_by_language(["en=a.txt", "b.txt"])
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(SesameError, match=r"the name of a language has letters.*write pt_BR=.*/a\.txt$"):
        texts_by_language([f"pt-BR={tmp_path}/a.txt", "en=a.txt"])
    with pytest.raises(SesameError, match=r"the name of a language has letters.*give it another name"):
        texts_by_language([f"русский={tmp_path}/a.txt"])
    for wrong in ("pairs.tsv", "en=pairs.tsv", "en-en=pairs.tsv"):
        with pytest.raises(SesameError, match="--pairs"):
            pairs_by_languages([wrong])
    with pytest.raises(SesameError, match="keep to one order"):
        pairs_by_languages(["en-ru=a.tsv", "ru-en=b.tsv"])


def test_pairs_and_text_of_the_same_file_are_two_stores(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"text": "x1 x2", "other": "x3"}\n' * 3)
    alone = build_store([tmp_path / "pairs.jsonl"], TOKENIZER, tmp_path, workers=1)
    paired = build_pairs([tmp_path / "pairs.jsonl"], ("en", "ru"), TOKENIZER, tmp_path, workers=1)
    assert alone.path != paired.path
