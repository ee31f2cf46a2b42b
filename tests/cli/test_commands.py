"""Every command from end to end on one small run, each beside its twin in Python and beside transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main
from benchmarks.kill_resume import SETTINGS, make_text
from typer.testing import CliRunner

import sesame
from sesame.cli import app
from sesame.recipe import recipe_names
from sesame.tasks.embed import POOLS
from sesame.tasks.layers import LAYERS
from sesame.text import Tokenizer

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
STEPS = 12


def cli(*words: object, given: str | None = None) -> str:
    """What a command prints on stdout; it must succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=given, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("text") / "text.txt", 60)


@pytest.fixture(scope="module")
def tokenizer(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "tokenizer"
    cli("tokenizer", text, "--size", 300, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def run(text: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    begin = ["pretrain", "bert", "--text", text, "--out", out, "--tokenizer", tokenizer, "--device", "cpu"]
    cli(*begin, "--precision", "fp32", "--steps", STEPS, *settings)
    return out


@pytest.fixture(scope="module")
def sentences(text: Path) -> list[str]:
    lines = text.read_text().splitlines()
    return [lines[0], lines[1], " ".join(lines[2:5])]


# ---- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    assert f"Example: sesame {command}" in cli(command, "--help")


def test_help_lists_all_commands() -> None:
    shown = cli("--help")
    assert all(command in shown for command in COMMANDS)
    assert {"convert", "demo", "doctor", "embed", "fill", "pretrain", "recipes", "tokenizer"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_narrow_screen(command: str) -> None:
    """No word of it is cut in 80 columns; what an option takes is N, X, PATH or TEXT, and no Python type."""
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    options = [line for line in shown.partition("─ Options ")[2].splitlines() if "--help" not in line]
    assert options
    assert not any(
        sign in line for line in options for sign in ("…", "<int", "<str", "<float", "<list", "<bool", "<path")
    )


@pytest.mark.parametrize("words", [["--help"], ["pretrain", "--help"], ["--version"]])
def test_help_answers_without_torch(words: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['sesame', *{words!r}]\n"
        "from sesame.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print('loaded:', [m for m in ('torch', 'numpy', 'tokenizers', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_version() -> None:
    assert cli("--version") == f"sesame {sesame.__version__}\n"


# ---- before the training --------------------------------------------------------------------------------------------


def test_recipes(tmp_path: Path) -> None:
    shown = cli("recipes")
    assert all(name in shown for name in recipe_names())
    assert "arxiv.org/abs/1810.04805" in shown
    shown = cli("recipes", "show", "bert")
    assert "[objectives.mlm]" in shown
    mine = tmp_path / "mine.toml"
    mine.write_text('base = "bert"  # and nothing else\n')
    assert cli("recipes", "show", mine) == mine.read_text()


def test_tokenizer(tokenizer: Path, sentences: list[str]) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tokenizer)
    ours = sesame.text.Tokenizer.load(tokenizer)
    assert len(ours) == len(theirs) == 300
    for sentence in sentences:
        assert ours.encode(sentence, special=True).ids == theirs(sentence)["input_ids"]


def test_doctor(text: Path, tokenizer: Path) -> None:
    report = json.loads(cli("doctor", text, "--tokenizer", tokenizer, "--json"))
    assert report["text"]["documents"] == 60


# ---- the run --------------------------------------------------------------------------------------------------------


def test_what_a_run_holds(run: Path) -> None:
    held = {path.name for path in run.iterdir()}
    assert {"recipe.toml", "metrics.jsonl", "events", "final"} <= held
    model = {path.name for path in (run / "final").iterdir()}
    written = {"config.json", "model.safetensors", "README.md", "sesame.toml"}
    assert written | {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} <= model
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [10, STEPS]
    assert lines[-1]["held_out"]["mlm"] > 0


@pytest.mark.parametrize(("words", "small"), [(["bpe"], False), (["bpe", "--lowercase"], True), (["wordpiece"], True)])
def test_letters_are_small_when_asked_or_usual(words: list[str], small: bool, text: Path, tmp_path: Path) -> None:
    """--lowercase was passed over for pieces of bytes."""
    cli("tokenizer", text, "--size", 330, "--kind", *words, "--out", tmp_path / "made")
    made = Tokenizer.load(tmp_path / "made")
    assert (made.encode("Lake").ids == made.encode("lake").ids) == small


def test_a_finished_run_is_left_alone(run: Path, text: Path, tokenizer: Path) -> None:
    before = (run / "final" / "model.safetensors").stat().st_mtime_ns
    wishes: dict[str, Any] = {"tokenizer": str(tokenizer), "steps": STEPS, "settings": SETTINGS, "device": "cpu"}
    sesame.pretrain("bert", text, run, **wishes)
    assert (run / "final" / "model.safetensors").stat().st_mtime_ns == before


def test_pretrain_from_python_is_the_same(run: Path, text: Path, tokenizer: Path, tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"tokenizer": str(tokenizer), "steps": STEPS, "settings": SETTINGS, "device": "cpu"}
    made = sesame.pretrain("bert", text, tmp_path / "twin", precision="fp32", **wishes)
    assert made.folder == tmp_path / "twin" / "final"
    twin, first = (folder / "final" / "model.safetensors" for folder in (tmp_path / "twin", run))
    assert twin.read_bytes() == first.read_bytes()


def test_going_on_from_a_model(run: Path, text: Path, tmp_path: Path) -> None:
    made = sesame.pretrain("bert", [text], tmp_path / "more", start=str(run), steps=2, settings=SETTINGS, device="cpu")
    before, after = (part.parts.state() for part in (sesame.load(run), made))
    assert before.keys() == after.keys()
    moved = [float((before[name] - after[name]).abs().max()) for name in before]
    assert 0 < max(moved) < 0.01


# ---- answers --------------------------------------------------------------------------------------------------------


def test_transformers_opens_it(run: Path, sentences: list[str]) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    theirs = AutoModelForMaskedLM.from_pretrained(run / "final").eval()
    tokenizer = AutoTokenizer.from_pretrained(run / "final")
    ours = sesame.load(run, "cpu")
    for sentence in sentences:
        masked = sentence.replace(sentence.split()[1], "[MASK]", 1)
        given = tokenizer(masked, return_tensors="pt")
        assert ours.tokenizer.encode(masked, special=True).ids == given["input_ids"][0].tolist()
        at = given["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        with torch.no_grad():
            chances = theirs(**given).logits[0, at].softmax(-1)
        best = chances.topk(5)
        (mask,) = ours.fill(masked)[0]
        assert mask.tokens == tokenizer.convert_ids_to_tokens(best.indices.tolist())
        assert np.allclose(mask.probabilities, best.values.numpy(), rtol=1e-5, atol=1e-8)


def test_transformers_gives_equal_logits(run: Path, sentences: list[str]) -> None:
    from transformers import AutoModelForMaskedLM

    from sesame.tasks.inputs import batch_of

    theirs = AutoModelForMaskedLM.from_pretrained(run / "final").eval()
    ours = sesame.load(run, "cpu")
    encodings = [ours.tokenizer.encode(sentence, special=True) for sentence in sentences]
    batch = batch_of(encodings, ours.tokenizer.id("pad"))
    real = torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]
    backbone = ours.parts.backbone
    with torch.no_grad():
        found = ours.parts.heads["mlm"](backbone(batch).layers[-1], backbone.token_table())[..., : len(ours.tokenizer)]
        wanted = theirs(input_ids=batch.ids, attention_mask=real.long(), token_type_ids=batch.segments).logits
    assert float((found - wanted)[real].abs().max()) < 1e-5


def test_fill(run: Path, tmp_path: Path) -> None:
    texts = ["Da [MASK] ___.", "[MASK]."]
    lines = [json.loads(line) for line in cli("fill", run, *texts, "--top", 3, "--json").splitlines()]
    assert [line["text"] for line in lines] == texts
    assert [len(line["masks"]) for line in lines] == [2, 1]
    twin = sesame.load(run).fill(texts, 3)
    for line, masks in zip(lines, twin, strict=True):
        assert [mask["tokens"] for mask in line["masks"]] == [mask.tokens for mask in masks]
        assert all(len(mask["tokens"]) == len(mask["probabilities"]) == 3 for mask in line["masks"])
    shown = cli("fill", run, *texts)
    assert lines[0]["masks"][0]["tokens"][0] in shown
    assert "%" in shown
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    assert cli("fill", run, *texts) == cli("fill", run, "--file", tmp_path / "texts.txt")
    assert cli("fill", run, *texts) == cli("fill", run, given="\n".join(texts))


@pytest.mark.parametrize("layers", [*LAYERS, "0", "1", "-1"])
@pytest.mark.parametrize("pooling", [*POOLS, "pooler"])
def test_embed(layers: str, pooling: str, run: Path, sentences: list[str], tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    cli("embed", run, *sentences, "--layers", layers, "--pooling", pooling, "--out", out)
    found = np.load(out)
    assert found.shape == (3, 32)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert np.array_equal(found, sesame.load(run).embed(sentences, layers, pooling))


def test_embed_prints_json(run: Path, sentences: list[str], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in cli("embed", run, *sentences).splitlines()]
    assert [line["text"] for line in lines] == sentences
    wanted = sesame.load(run).embed(sentences)
    assert np.allclose([line["vector"] for line in lines], wanted, atol=1e-6)
    for sentence, vector in zip(sentences, wanted, strict=True):  # alone or among others, a text means the same
        assert np.allclose(sesame.load(run).embed(sentence)[0], vector, atol=1e-5)


def test_convert(run: Path, sentences: list[str], tmp_path: Path) -> None:
    cli("convert", run, "--out", tmp_path / "clean")
    ours, theirs = sesame.load(run), sesame.load(tmp_path / "clean")
    assert ours.parts.state().keys() == theirs.parts.state().keys()
    assert all(torch.equal(tensor, theirs.parts.state()[name]) for name, tensor in ours.parts.state().items())
    assert np.array_equal(ours.embed(sentences), theirs.embed(sentences))
