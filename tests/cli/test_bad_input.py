"""Every mistake of a user: exit code 2, one sentence that names the place and the remedy, and nothing lost.

Most go through `sesame.cli.main` in this process, which is what the `sesame` command calls; a few through a real one.
"""

import errno
import gzip
import json
import lzma
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import SETTINGS, make_text
from safetensors.torch import load_file, save_file

import sesame
from sesame import files
from sesame.cli import main
from tests.cli.calling import Cli, Result

pytestmark = pytest.mark.usefixtures("one_thread")


def pretrain(text: object, out: Path, *more: object) -> list[object]:
    """The words of a small `sesame pretrain`; what comes later in `more` wins."""
    words: list[object] = ["pretrain", "bert", "--text", text, "--out", out, "--steps", 2, "--device", "cpu"]
    return [*words, *(word for setting in SETTINGS for word in ("--set", setting)), *more]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("text") / "good.txt", 30)


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which no test may change."""
    out = tmp_path_factory.mktemp("run") / "run"
    sesame.pretrain("bert", text, out, steps=2, device="cpu", settings=SETTINGS)
    return out


@pytest.fixture
def model(run: Path, tmp_path: Path) -> Path:
    """A model folder to spoil."""
    return Path(shutil.copytree(run / "final", tmp_path / "model"))


# ---- text -----------------------------------------------------------------------------------------------------------

SENTENCE = b"Just one sentence here."
RUSSIAN = "Мой дядя самых честных правил, когда не в шутку занемог.\n" * 20
JSON_LINES = b'{"text": "First. Second."}\n'
BAD_TEXT = {
    "empty": ("a.txt", b"", ["a.txt", "empty"]),
    "white space": ("a.txt", b" \n\n \n", ["a.txt", "no text inside"]),
    "binary": ("a.txt", bytes(range(256)) * 50, ["a.txt", "binary"]),
    "cp1251": ("a.txt", RUSSIAN.encode("cp1251"), ["a.txt:1", "iconv -f cp1251"]),
    "utf-16": ("a.txt", RUSSIAN.encode("utf-16"), ["a.txt", "iconv -f utf-16"]),
    "no field": ("a.jsonl", JSON_LINES + b'{"body": "x"}\n', ["a.jsonl:2", "'text'", "body"]),
    "bad json": ("a.jsonl", JSON_LINES * 2 + b'{"text": "x"\n', ["a.jsonl:3", "JSON", "mend or remove"]),
    "cut xz": ("a.txt.xz", lzma.compress(os.urandom(9000).hex().encode())[:5000], ["a.txt.xz", "copy it again"]),
    "cut gz": ("a.txt.gz", gzip.compress(SENTENCE * 900)[:-20], ["a.txt.gz", "copy it again"]),
    "no gz": ("a.txt.gz", SENTENCE, ["a.txt.gz", "copy it again or mend its name"]),
    "table": ("a.csv", b"text,label\na,b\n", ["a.csv", "is a table", ".jsonl"]),
    "one sentence": ("a.txt", SENTENCE, ["two documents", "blank line"]),
    "one document": ("a.txt", (SENTENCE + b"\n") * 400, ["two documents", "blank line"]),
}
PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text(case: str, cli: Cli, tmp_path: Path) -> None:
    name, data, parts = BAD_TEXT[case]
    bad, out = tmp_path / name, tmp_path / "run"
    bad.write_bytes(data)
    cli(*pretrain(bad, out)).refused(*parts)
    assert bad.read_bytes() == data
    assert set(content(tmp_path)) <= {name, "run/.lock"}, "something was left that binds the corrected command"


@pytest.mark.parametrize("case", ["cp1251", "one document", "bad json", "cut xz"])
def test_corrected_text(case: str, cli: Cli, text: Path, tmp_path: Path) -> None:
    """After the mistake another text serves for the same folder, and so does the mended file."""
    name, data, parts = BAD_TEXT[case]
    bad, out, again = tmp_path / name, tmp_path / "run", tmp_path / "again"
    bad.write_bytes(data)
    cli(*pretrain(bad, out)).refused(*parts)
    cli(*pretrain(text, out)).fine()
    cli(*pretrain(bad, again)).refused(*parts)
    good = text.read_bytes()
    if bad.suffix == ".jsonl":
        good = b"".join(json.dumps({"text": part}).encode() + b"\n" for part in good.decode().split("\n\n"))
    bad.write_bytes(PACK.get(bad.suffix, bytes)(good))
    cli(*pretrain(bad, again)).fine()
    trained = json.loads((again / "final" / "config.json").read_text())
    assert trained["vocab_size"] == 300, "the tokenizer of the bad text was kept"


@pytest.mark.parametrize("case", [case for case in BAD_TEXT if not case.startswith("one ")])
def test_bad_text_for_a_tokenizer(case: str, cli: Cli, tmp_path: Path) -> None:
    name, data, parts = BAD_TEXT[case]
    (tmp_path / name).write_bytes(data)
    cli("tokenizer", tmp_path / name, "--size", 300, "--out", tmp_path / "tokenizer").refused(*parts)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_text(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "photo.jpg").write_bytes(b"x")
    for words in (pretrain, lambda text, out: ["tokenizer", text, "--out", out], lambda text, out: ["doctor", text]):
        cli(*words(tmp_path / "no.txt", tmp_path / "out")).refused("no.txt", "no such file")
        cli(*words(tmp_path / "folder", tmp_path / "out")).refused(tmp_path / "folder", "no text", ".jsonl")
    assert not (tmp_path / "out").exists()


def test_an_empty_text_for_the_doctor(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    cli("doctor", tmp_path / "a.txt").refused("a.txt", "empty")


def test_a_held_out_file_that_is_learnt_from_is_told(cli: Cli, text: Path, tmp_path: Path) -> None:
    """As where --text names the folder in which it lies."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("a.txt", "valid.txt"):
        shutil.copy(text, texts / name)
    said = cli(*pretrain(texts, tmp_path / "run", "--valid", texts / "valid.txt")).fine().err
    assert f"warning: {texts / 'valid.txt'}: also in --text; losses on it are too good" in said
    shutil.move(texts / "valid.txt", tmp_path)
    assert "warning" not in cli(*pretrain(texts, tmp_path / "two", "--valid", tmp_path / "valid.txt")).fine().err


def test_documents_of_one_sentence_are_told(cli: Cli, text: Path, tmp_path: Path) -> None:
    """Tweets: next-sentence prediction learnt to say "unrelated" always, and its accuracy looked splendid."""
    tweets = [line for line in text.read_text(encoding="utf-8").split("\n") if line]
    (tmp_path / "tweets.txt").write_text("\n\n".join(tweets), encoding="utf-8")
    told = "100 % of the documents are a single sentence, which has no next one to predict"
    assert told in cli(*pretrain(tmp_path / "tweets.txt", tmp_path / "run")).fine().err
    bare = cli(*pretrain(tmp_path / "tweets.txt", tmp_path / "bare", "--set", "objectives.nsp=false")).fine().err
    assert "single sentence" not in bare
    assert "single sentence" not in cli(*pretrain(text, tmp_path / "good")).fine().err


def test_unreadable_files(cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.txt"
    shutil.copy(text, secret)
    forbid(monkeypatch, secret, "r")
    cli(*pretrain(secret, tmp_path / "run")).refused(secret, "permissions")
    monkeypatch.undo()


def forbid(monkeypatch: pytest.MonkeyPatch, below: Path, kind: str, number: int = errno.EACCES) -> None:
    """Opening anything at or below a path fails; for root, whom permissions do not stop."""
    real = Path.open

    def no(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if (path == below or below in path.parents) and mode[0] in kind:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", no)


# ---- recipes and settings -------------------------------------------------------------------------------------------


def test_unknown_recipe(cli: Cli, text: Path, tmp_path: Path) -> None:
    cli("pretrain", "bertt", "--text", text, "--out", tmp_path / "run").refused("'bertt'", "did you mean 'bert'?")
    cli("recipes", "show", "bertt").refused("'bertt'", "did you mean 'bert'?")
    cli("recipes", "show").refused("sesame recipes show NAME")
    cli("pretrain", tmp_path / "no.toml", "--text", text).refused("no.toml", "no such file")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("[optimizer]\nrat = 1e-3", ["optimizer", "'rat'", "did you mean 'rate'?"]),
        ("[backbone]\nwidht = 32", ["backbone", "'widht'", "did you mean 'width'?"]),
        ("[objectives.mlm]\nrates = 0.2", ["objectives.mlm", "'rates'", "did you mean 'rate'?"]),
        ("[objectives.mlmm]\nrate = 0.2", ["'mlmm'", "did you mean 'mlm'?"]),
        ("[optimizer]\nrate = 'fast'", ["rate", "'fast'", "a number"]),
        ("[optimizer", ["mine.toml", "not valid TOML"]),
    ],
)
def test_bad_recipe_file(written: str, parts: list[str], cli: Cli, text: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'base = "bert"\n{written}\n')
    words = pretrain(text, tmp_path / "run")
    words[1] = recipe
    cli(*words).refused("mine.toml", *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--set", "optimizer.rat=1"], ["'rat'", "did you mean 'rate'?"]),
        (["--set", "optimiser.rate=1"], ["'optimiser'", "did you mean 'optimizer'?"]),
        (["--set", "optimizer.rate=100"], ["optimizer.rate is 100", "between 0 and 100"]),
        (["--set", "optimizer.decay=-1"], ["decay and clip are 0 or above; found -1"]),
        (["--set", "optimizer.rate=fast"], ["rate", "'fast'", "a number"]),
        (["--set", "stages.short.batch=0.5"], ["batch", "0.5", "a whole number"]),
        (["--set", "stages.short.batch=0"], ["batch is 0", "at least 1"]),
        (["--set", "stages.short.length=1000"], ["1000", "backbone.max_length"]),
        (["--set", "backbone.heads=3"], ["32", "3 heads"]),
        (["--set", "stages=3"], ["stages", "3", "table"]),
        (["--set", "rate"], ["--set rate", "key=value"]),
        (["--set", "objectives.nsp=false", "--set", "objectives.mlm=false"], ["no objective", "objectives.mlm"]),
        (["--budget", "soon"], ["--budget soon", "10m"]),
        (["--budget", "0"], ["--budget 0", "longer than nothing"]),
        (["--budget", "0s"], ["--budget 0s"]),
        (["--budget", "5m"], ["--budget", "--steps", "one of them"]),
        (["--device", "abacus"], ["'abacus'", "cpu"]),
        (["--precision", "fp8"], ["fp8", "bf16"]),
        (["--size", "huge"], ["'huge'", "large"]),
        (["--tokenizer", "nowhere"], ["nowhere", "check the path"]),
        (["--start", "nowhere"], ["nowhere", "no such folder"]),
        (["--valid", "nowhere.txt"], ["nowhere.txt", "no such file"]),
    ],
)
def test_bad_settings(more: list[str], parts: list[str], cli: Cli, text: Path, tmp_path: Path) -> None:
    words = pretrain(text, tmp_path / "run", *more)
    if parts[0].startswith("--budget ") and "--steps" not in parts:
        words[words.index("--steps") : words.index("--steps") + 2] = []
    cli(*words).refused(*parts)
    assert set(content(tmp_path)) <= {"run/.lock"}, "something was left that binds the corrected command"


@pytest.mark.parametrize("more", [["--steps", "0"], ["--steps", "many"], ["--sed", "1"], ["--save-steps", "-1"]])
def test_usage_errors_are_typers(more: list[str], cli: Cli, text: Path, tmp_path: Path) -> None:
    result = cli(*pretrain(text, tmp_path / "run", *more))
    assert result.code == 2
    assert more[0] in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


# ---- the folder of the run ------------------------------------------------------------------------------------------


def test_out_is_a_file(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    cli(*pretrain(text, file)).refused(file, "a file stands")
    cli(*pretrain(text, file / "run")).refused(file / "run", "a file stands")
    cli("tokenizer", text, "--size", 300, "--out", file).refused(file, "exists already")
    cli("tokenizer", text, "--size", 300, "--out", file / "new").refused(file / "new", "a file stands")
    assert file.read_text() == "mine"


def test_out_is_somebody_elses_folder(cli: Cli, text: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    cli(*pretrain(text, tmp_path / "photos")).refused("photos", "not empty", "choose another --out")
    cli("tokenizer", text, "--out", tmp_path / "photos").refused("photos", "exists already", "choose another --out")
    assert content(tmp_path / "photos") == {"cat.jpg": b"cat"}


def test_out_holds_another_run(cli: Cli, text: Path, run: Path) -> None:
    before = content(run)
    cli(*pretrain(text, run, "--seed", 1)).refused(run, "run.seed is 0 there, 1 here", "choose another --out")
    cli(*pretrain(text, run, "--steps", 3)).refused(run, "steps is 2 there, 3 here")
    cli(*pretrain(text, run, "--set", "optimizer.rate=1e-3")).refused(run, "optimizer.rate is 0.0001 there, 0.001 here")
    assert content(run) == before
    cli(*pretrain(text, run)).fine()
    assert content(run) == before


def test_too_long_a_name(cli: Cli, text: Path, run: Path, tmp_path: Path) -> None:
    name = tmp_path / ("n" * 300)
    cli(*pretrain(text, name)).refused("too long")
    cli("tokenizer", text, "--out", name).refused("too long")
    cli("convert", run, "--out", name).refused("too long")
    assert cli(*pretrain(name, tmp_path / "run")).code == 2


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; skips where that is not allowed."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("only root can mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_read_only_places(cli: Cli, text: Path, run: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "fixed", "ro,size=1m") as fixed:
        cli(*pretrain(text, fixed / "run")).refused(fixed / "run", "cannot write here")
        cli("tokenizer", text, "--size", 300, "--out", fixed / "t").refused(fixed / "t", "cannot write here")
        cli("convert", run, "--out", fixed / "m").refused(fixed / "m", "cannot write here")
        cli("embed", run, "ba", "--out", fixed / "v.npy").refused(fixed / "v.npy", "cannot write here")


def test_forbidden_places(cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, tmp_path / "fixed", "wa", errno.EROFS)
    cli(*pretrain(text, tmp_path / "fixed")).refused(tmp_path / "fixed", "cannot write here", "choose a folder")
    monkeypatch.undo()


@pytest.mark.parametrize("size", ["12k", "64k", "200k"])  # the tokenizer, the events or weights, the optimizer
def test_full_disk_for_the_run(size: str, cli: Cli, text: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", f"size={size}") as disk:
        cli(*pretrain(text, disk / "run", "--save-steps", 1)).refused(disk / "run", "the disk is full", "same command")
        assert not [path for path in disk.rglob("*") if files.is_aside(path)]
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        cli(*pretrain(text, disk / "run", "--save-steps", 1)).fine()


def test_full_disk_for_the_store(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text.txt", 40)
    with mounted(tmp_path / "disk", "size=16k") as disk:
        monkeypatch.setenv("SESAME_CACHE", str(disk / "cache"))
        cli(*pretrain(text, tmp_path / "run")).refused(disk / "cache", "the disk is full", "same command again")
        assert not [path for path in disk.rglob("*") if files.is_aside(path)]
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        cli(*pretrain(text, tmp_path / "run")).fine()


def test_full_disk_without_a_disk(cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where nothing can be mounted: fsync finds the disk full while a checkpoint is written."""

    def full(path: Path) -> None:
        if path.name == "optimizer.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "sync", full)
    words = pretrain(text, tmp_path / "run", "--save-steps", 1)
    cli(*words).refused(tmp_path / "run" / "checkpoints" / "step-1", "the disk is full", "same command again")
    monkeypatch.undo()
    assert not [path for path in tmp_path.rglob("*") if files.is_aside(path)]
    monkeypatch.setattr(sys, "argv", ["sesame", *map(str, words)])
    with pytest.raises(SystemExit, match="0"):
        main()


# ---- models ---------------------------------------------------------------------------------------------------------


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.trace,)


def spoil(model: Path, how: str) -> None:
    weights, config = model / "model.safetensors", model / "config.json"
    if how == "no config":
        config.unlink()
    elif how == "bad config":
        config.write_text("{")
    elif how == "unknown type":
        config.write_text(config.read_text().replace('"bert"', '"abert"'))
    elif how == "no weights":
        weights.unlink()
    elif how == "cut weights":
        os.truncate(weights, 2000)
    elif how == "lacking tensors":
        found = load_file(weights)
        del found["bert.encoder.layer.0.output.dense.weight"]
        save_file(found, weights)
    elif how == "other shape":
        config.write_text(config.read_text().replace('"intermediate_size": 128', '"intermediate_size": 64'))
    else:
        weights.unlink()
        bomb = {"weight": Bomb(model / "boom")}
        target = model / "pytorch_model.bin"
        if how == "zipped bomb":
            torch.save(bomb, target)
        else:
            target.write_bytes(pickle.dumps(bomb, protocol=2))


BAD_MODELS = {
    "no config": ["config.json", "no such file", "give the folder of a model"],
    "bad config": ["config.json", "copy the file again"],
    "unknown type": ["config.json", "'abert'", "known are"],
    "no weights": ["no weights here", "model.safetensors"],
    "cut weights": ["model.safetensors", "copy it again"],
    "lacking tensors": ["the weights lack", "copy the folder again"],
    "other shape": ["does not fit its config.json", "feedforward"],
    "bomb": ["pytorch_model.bin", "convert it to safetensors"],
    "zipped bomb": ["pytorch_model.bin", "convert it to safetensors"],
}


@pytest.mark.parametrize("how", BAD_MODELS)
def test_bad_models(how: str, cli: Cli, model: Path, text: Path, tmp_path: Path) -> None:
    spoil(model, how)
    before = content(model)
    for words in (
        ["fill", model, "Da [MASK]."],
        ["embed", model, "Da."],
        ["convert", model, "--out", tmp_path / "new"],
        pretrain(text, tmp_path / "run", "--start", model),
    ):
        cli(*words).refused(model, *BAD_MODELS[how])
    assert content(model) == before
    assert not (tmp_path / "new").exists()
    assert not (model / "boom").exists()
    assert set(content(tmp_path / "run")) <= {".lock"}


def test_a_tokenizer_that_does_not_fit(cli: Cli, model: Path, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    cli("tokenizer", text, "--size", 350, "--out", other).fine()
    sentence = ["the tokenizer has 350 pieces", "only 300", "take the tokenizer that the model was trained with"]
    cli(*pretrain(text, tmp_path / "run", "--start", model, "--tokenizer", other)).refused(other, *sentence)
    cli("convert", model, "--out", tmp_path / "new", "--tokenizer", other).refused(other, *sentence)
    cli(*pretrain(text, tmp_path / "run", "--start", model)).fine()


def test_fill(cli: Cli, model: Path, tmp_path: Path) -> None:
    cli("fill", tmp_path / "none", "Da [MASK].").refused("none", "no such folder")
    cli("fill", model, "No gap.").refused("No gap.", "write [MASK]")
    cli("fill", model, "[MASK] " + "da " * 600).refused("tokens", "512", "shorten it")
    cli("fill", model, "da [MASK] da", "da da").refused("text 2: no mask in 'da da'")
    cli("fill", model, "--file", tmp_path / "no.txt").refused("no.txt", "no such file")
    cli("fill", model, "\udcff [MASK]").refused("the command line", "not UTF-8")
    found = {name: row for name, row in load_file(model / "model.safetensors").items() if not name.startswith("cls.")}
    save_file(found, model / "model.safetensors")
    cli("fill", model, "Da [MASK].").refused(model, "no trained masked-language head", "pretrain adapt --start")
    cli("translate", model, "Da.").refused(model, "no encoder and decoder", "trained on pairs")
    cli("generate", model, "Da.").refused("does not read from left to right", "gpt, gpt2, transformer-xl")


def test_embed(cli: Cli, model: Path, tmp_path: Path) -> None:
    cli("embed", model, "Da.", "--layers", "lats").refused("layers", "'lats'", "did you mean 'last'?")
    cli("embed", model, "Da.", "--layers", "7").refused("layer 7", "0 (embeddings) to 1")
    cli("embed", model, "Da.", "--pooling", "men").refused("--pooling", "'men'", "did you mean 'mean'?")
    cli("embed", model, "Da.", "--pooling", "none").refused("none")
    cli("embed", model, "Da.", "--out", tmp_path / "v.csv").refused("v.csv", ".npy")
    (tmp_path / "mine.npy").write_bytes(b"mine")
    cli("embed", model, "Da.", "--out", tmp_path / "mine.npy").refused("mine.npy", "exists already")
    assert (tmp_path / "mine.npy").read_bytes() == b"mine"


def test_convert_never_overwrites(cli: Cli, model: Path, run: Path) -> None:
    before = content(model)
    cli("convert", run, "--out", model).refused(model, "exists already", "choose another --out")
    assert content(model) == before


# ---- real processes -------------------------------------------------------------------------------------------------


def real(*words: object, given: bytes = b"") -> Result:
    command = [sys.executable, "-m", "sesame", *map(str, words)]
    done = subprocess.run(command, input=given, capture_output=True)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.slow
def test_the_real_command(run: Path, tmp_path: Path) -> None:
    real("pretrain", "bert", "--text", tmp_path / "no.txt").refused("no.txt", "no such file")
    real("fill", run, given=b"caf\xe9 [MASK]\n").refused("standard input, line 1", "not UTF-8")
    real("fill", run, given=b"\n").refused("standard input", "no text")


@pytest.mark.slow
def test_a_reader_that_leaves() -> None:
    command = f"{sys.executable} -m sesame recipes show bert | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
