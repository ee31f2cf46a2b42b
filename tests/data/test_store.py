"""The store: what is in it, when it is built again, and what kills and damage leave behind."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from sesame.data import build, sums, workers
from sesame.data.build import build_store
from sesame.data.sentences import split_sentences
from sesame.data.store import FORMAT, Store
from sesame.data.workers import Workers
from sesame.errors import SesameError
from sesame.text import Tokenizer, train_tokenizer

TEXT = "the ferry left noon nobody waved gulls follow un ##ed ##s ##ing a b c d . , ! ? [ ] sep"
WORDS = TEXT.split()
PARTS = ("tokens", "word_starts", "sentences", "documents", "sources")


def make_tokenizer(extra: int = 0) -> Tokenizer:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"filler{i}" for i in range(extra))]
    model = models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(vocabulary[:5])
    return Tokenizer(backend, {"pad": "[PAD]", "unk": "[UNK]", "sep": "[SEP]"})


def make_text(path: Path, documents: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if word.isalpha()] + ["waveds", "unfollowing", "[SEP]", "Ferry"]
    with path.open("w", encoding="utf-8") as handle:
        for _ in range(documents):
            for _ in range(int(rng.integers(1, 4))):
                sentences = [" ".join(rng.choice(words, int(rng.integers(1, 12)))) for _ in range(3)]
                handle.write(". ".join(s.capitalize() for s in sentences) + ".\n")
            handle.write("\n")
    return path


@pytest.fixture
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return make_text(tmp_path / "a.txt", 200)


def content(store: Store) -> dict[str, bytes]:
    return {name: (store.path / f"{name}.bin").read_bytes() for name in PARTS}


def test_equals_each_sentence_encoded_alone(tmp_path: Path, tokenizer: Tokenizer, text: Path) -> None:
    store = build_store([text], tokenizer, tmp_path / "cache")
    documents = text.read_text().strip().split("\n\n")
    assert store.tokens.dtype == np.uint16
    assert len(store.documents) == len(documents) + 1
    assert store.documents[0] == store.sentences[0] == 0
    for number, document in enumerate(documents):
        first, last = store.documents[number : number + 2]
        for sentence, place in zip(split_sentences(document), range(first, last), strict=True):
            start, end = store.sentences[place : place + 2]
            pieces = tokenizer.encode(sentence, literal=True)
            assert store.tokens[start:end].tolist() == pieces.ids
            starts = [int(i == 0 or pieces.words[i - 1] != word) for i, word in enumerate(pieces.words)]
            assert store.word_starts[start:end].tolist() == starts
    assert tokenizer.id("sep") not in set(store.tokens.tolist())
    meta = store.meta
    assert meta["tokens"] == len(store.tokens)
    assert meta["words"] == store.word_starts.sum() < meta["tokens"]
    assert meta["sentences"] == len(store.sentences) - 1
    assert meta["bytes"] == sum(len(document.encode()) for document in documents)
    assert meta["vocabulary"] == len(tokenizer)
    assert meta["tokenizer"] == tokenizer.fingerprint()


def test_sources_and_dropped_documents(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "a.txt").write_text("a b.\n\n\u200b\n\nc d.\n\u200b\n")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    store = build_store([tmp_path / "a.txt", tmp_path / "b.jsonl"], tokenizer, tmp_path / "cache")
    names = [f"{tmp_path}/{name}" for name in ("a.txt:1", "a.txt:5", "b.jsonl:1", "b.jsonl:2")]
    assert [store.source(i) for i in range(4)] == names
    assert store.meta["documents"] == 4
    assert store.meta["dropped_documents"] == 1
    assert store.meta["dropped_sentences"] == 2


def test_big_vocabulary(tmp_path: Path, text: Path) -> None:
    store = build_store([text], make_tokenizer(extra=70_000), tmp_path / "cache")
    assert store.tokens.dtype == np.uint32


def test_workers_change_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "CHUNK", 10_000)
    text = make_text(tmp_path / "a.txt", 2000)
    one = build_store([text], tokenizer, tmp_path / "one", workers=1)
    two = build_store([text], tokenizer, tmp_path / "two", workers=2)
    assert content(one) == content(two)
    assert one.meta == two.meta
    assert one.path.name == two.path.name
    assert "MB/s" in capsys.readouterr().err
    with pytest.raises(SesameError, match="workers = 0"):
        build_store([text], tokenizer, tmp_path / "three", workers=0)


def test_reuse(tmp_path: Path, tokenizer: Tokenizer, text: Path) -> None:
    cache = tmp_path / "cache"
    os.utime(text, (time.time() - 100,) * 2)
    first = build_store([text], tokenizer, cache)
    built = (first.path / "meta.json").stat().st_mtime_ns
    assert build_store([text], tokenizer, cache).path == first.path
    assert (first.path / "meta.json").stat().st_mtime_ns == built
    renamed = text.rename(tmp_path / "renamed.txt")
    again = build_store([renamed], tokenizer, cache)
    assert again.path == first.path
    assert again.source(0) == f"{renamed}:1"
    assert Store.open(again.path).source(0) == f"{text}:1"


def test_hashes_are_remembered_but_not_of_fresh_files(
    tmp_path: Path, tokenizer: Tokenizer, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    build_store([text], tokenizer, cache)
    assert not (cache / "hashes.json").exists()
    os.utime(text, (time.time() - 100,) * 2)
    store = build_store([text], tokenizer, cache)
    assert list(json.loads((cache / "hashes.json").read_text())) == [str(text)]
    with monkeypatch.context() as patch:
        patch.setattr(sums, "_hash", lambda *_: pytest.fail("the file was read again"))
        assert build_store([text], tokenizer, cache).path == store.path
    (cache / "hashes.json").write_text("{broken")
    assert build_store([text], tokenizer, cache).path == store.path


def test_every_change_gives_another_store(tmp_path: Path, tokenizer: Tokenizer, text: Path) -> None:
    cache = tmp_path / "cache"
    other = make_text(tmp_path / "b.txt", 20, seed=1)
    names = {build_store([text], tokenizer, cache).path}
    names.add(build_store([text, other], tokenizer, cache).path)
    names.add(build_store([other, text], tokenizer, cache).path)
    names.add(build_store([text], make_tokenizer(extra=1), cache).path)
    names.add(build_store([text], tokenizer, cache, field="body").path)
    stat = text.stat()
    text.write_text(text.read_text().replace("ferry", "gulls"))  # the same size
    os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    names.add(build_store([text], tokenizer, cache).path)
    assert len(names) == 6


def test_nothing_is_left_when_the_text_is_bad(tmp_path: Path, tokenizer: Tokenizer) -> None:
    bad = tmp_path / "a.jsonl"
    bad.write_text('{"text": "a b c"}\n{"no": 1}\n')
    cache = tmp_path / "cache"
    with pytest.raises(SesameError, match=r"a\.jsonl:2"):
        build_store([bad], tokenizer, cache)
    bad.write_text('{"text": "\u200b"}\n')
    with pytest.raises(SesameError, match="no tokens"):
        build_store([bad], tokenizer, cache)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.parametrize("name", PARTS)
def test_damage_is_noticed(tmp_path: Path, tokenizer: Tokenizer, text: Path, name: str) -> None:
    store = build_store([text], tokenizer, tmp_path / "cache")
    file = store.path / f"{name}.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    with pytest.raises(SesameError, match=rf"damaged.*{name}\.bin"):
        Store.open(store.path)
    file.unlink()
    with pytest.raises(SesameError, match="missing"):
        Store.open(store.path)
    if name in ("sentences", "documents"):
        file.write_bytes(whole[:-8] + b"\1" * 8)
        with pytest.raises(SesameError, match="fit together"):
            build_store([text], tokenizer, tmp_path / "cache")


def test_other_folders_are_not_stores(tmp_path: Path, tokenizer: Tokenizer, text: Path) -> None:
    with pytest.raises(SesameError, match="no such file"):
        Store.open(tmp_path)
    store = build_store([text], tokenizer, tmp_path / "cache")
    for meta, why in (({}, "version"), ([], "version"), ({"format": FORMAT}, "damaged")):
        (store.path / "meta.json").write_text(json.dumps(meta))
        with pytest.raises(SesameError, match=why):
            Store.open(store.path)


def test_a_store_travels_by_name(tmp_path: Path, tokenizer: Tokenizer, text: Path) -> None:
    store = build_store([text], tokenizer, tmp_path / "cache")
    data = pickle.dumps(store)
    assert len(data) < 1000
    assert np.array_equal(pickle.loads(data).tokens, store.tokens)
    assert not store.tokens.flags.writeable


def test_a_killed_worker_is_replaced(tokenizer: Tokenizer) -> None:
    with Workers(tokenizer, 2) as pool:
        expected = list(pool.map([["a b"], ["c d"]]))
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        found = list(pool.map([["a b"], ["c d"]]))
    assert [part.tokens.tolist() for part in found] == [part.tokens.tolist() for part in expected]


def test_workers_that_always_die_are_an_error(
    tmp_path: Path, tokenizer: Tokenizer, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    with pytest.raises(SesameError, match="killed twice"):
        build_store([text], tokenizer, tmp_path / "cache", workers=2)
    assert not list((tmp_path / "cache").glob("*store*.part"))


def test_workers_end_with_the_pool(tokenizer: Tokenizer) -> None:
    with Workers(tokenizer, 2) as pool:
        pids = pool.pids
        assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


SLOW_BUILD = """
import sys, time
from pathlib import Path
from sesame.data import build
from sesame.text import Tokenizer, train_tokenizer
build.CHUNK = 2000
append = build._Writer.append
def slow(self, result):
    append(self, result)
    print("appended", flush=True)
    time.sleep(0.05)
build._Writer.append = slow
text, tokenizer, cache = sys.argv[1:]
build.build_store([text], Tokenizer.load(tokenizer), Path(cache), workers=2)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_build_killed_in_the_middle(tmp_path: Path, tokenizer: Tokenizer, how: signal.Signals) -> None:
    text, cache = make_text(tmp_path / "a.txt", 1000), tmp_path / "cache"
    tokenizer.save(tmp_path / "tokenizer")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    arguments = [sys.executable, "-c", SLOW_BUILD, str(text), str(tmp_path / "tokenizer"), str(cache)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        for _ in range(3):
            assert process.stdout.readline() == b"appended\n"
        process.send_signal(how)
    assert process.returncode != 0
    assert len(list(cache.glob(".store*.part"))) == (how == signal.SIGKILL)
    assert not list(cache.glob("store-*"))
    store = build_store([text], tokenizer, cache)
    assert not list(cache.glob(".store*.part"))
    assert content(store) == content(build_store([text], tokenizer, tmp_path / "fresh"))


def test_two_builders_at_once(
    tmp_path: Path,
    tokenizer: Tokenizer,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built, write = [], build._write

    def slow_write(*arguments: object) -> None:
        built.append(1)
        time.sleep(0.3)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "_write", slow_write)
    threads = [threading.Thread(target=build_store, args=([text], tokenizer, tmp_path / "cache")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert "another process is building" in capsys.readouterr().err
    Store.open(next((tmp_path / "cache").glob("store-*")))


def test_a_text_that_grows_while_it_is_read_is_told(
    tmp_path: Path, tokenizer: Tokenizer, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store would be named after what it held before, and found by whoever has that text again."""
    write, before = build._write, text.read_bytes()

    def grow(*arguments: object) -> None:
        with text.open("a") as handle:
            handle.write("Another line.\n")
        write(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(build, "_write", grow)
        with pytest.raises(SesameError, match="has changed while it was read"):
            build_store([text], tokenizer, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("store-*"))
    grown = build_store([text], tokenizer, tmp_path / "cache")
    text.write_bytes(before)
    assert build_store([text], tokenizer, tmp_path / "cache").path != grown.path


def test_many_unknown_words_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, "wordpiece", 64)
    (tmp_path / "a.txt").write_text("the cat sat. жук на мате.\n" * 20)
    build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "cache")
    assert "of the tokens are unknown words" in capsys.readouterr().err
    (tmp_path / "b.txt").write_text("the cat sat on the mat\n" * 20)
    build_store([tmp_path / "b.txt"], tokenizer, tmp_path / "cache")
    assert "unknown words" not in capsys.readouterr().err
