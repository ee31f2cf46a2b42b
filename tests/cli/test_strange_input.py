"""What a stranger does with the commands: two inputs at once, empty lines, folders for files, weights that are no numbers."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import sesame
from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.errors import SesameError
from sesame.tasks import TaskConfig, build_task
from tests.cli.calling import Cli
from tests.languages import word_tokenizer

WORDS = [f"w{chr(97 + i)}" for i in range(20)]
LONGEST = 12


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An encoder with a task, whose weights are noise."""
    torch.manual_seed(3)
    backbone = Encoder(EncoderConfig(25, 16, 2, 2, max_length=LONGEST))
    task = build_task("mood", TaskConfig("classify", ("good", "bad")), backbone)
    with torch.no_grad():
        for module in (backbone, task):
            for weight in module.parameters():
                weight.normal_(0.0, 1.0)
    folder = tmp_path / "model"
    folder.mkdir()
    save_parts(folder, Parts(backbone, task.heads(), word_tokenizer(WORDS), tasks={"mood": task}))
    return folder


@pytest.mark.parametrize("command", ["embed", "predict", "fill", "translate", "generate"])
def test_texts_and_a_file_are_not_given_together(cli: Cli, model: Path, tmp_path: Path, command: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text("wb wc\n")
    cli(command, model, "wa", "--file", file).refused("give texts or --file, not both")


def test_a_row_for_each_line(cli: Cli, model: Path, tmp_path: Path) -> None:
    """Row n of the vectors is line n of the file, also behind an empty one."""
    file, out = tmp_path / "a.txt", tmp_path / "a.npy"
    file.write_text("wa wb\n\n   \nwc\n")
    said = cli("embed", model, "--file", file, "--out", out).fine().err
    assert "2 of 4 lines are empty; their vectors are zeros" in said
    found = np.load(out)
    assert found.shape == (4, 16)
    assert not found[1:3].any()
    alone = json.loads(cli("embed", model, "wc").fine().out)["vector"]
    np.testing.assert_allclose(found[3], alone, atol=1e-5)
    piped = cli("embed", model, given=b"wa wb\n\nwc\n").fine().out.splitlines()
    assert [any(json.loads(line)["vector"]) for line in piped] == [True, False, True]


TABLES = {
    "a.txt": "wa wb\n\nwc\n",
    "a.csv": "text,id\nwa wb,1\n ,2\nwc,3\n",
    "one.csv": 'text\nwa wb\n""\nwc\n',
    "a.tsv": "text\tid\nwa wb\t1\n\t\nwc\t3\n",
    "a.jsonl": '{"text": "wa wb"}\n{"id": 2}\n{"text": "wc"}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_an_answer_for_each_row(cli: Cli, model: Path, tmp_path: Path, name: str) -> None:
    """Row n of the answers is row n of the file: who puts them beside each other must not shift them in silence."""
    file, out = tmp_path / name, tmp_path / "out.csv"
    file.write_text(TABLES[name])
    result = cli("predict", model, "--file", file, "--json").fine()
    lines = [json.loads(line) for line in result.out.splitlines()]
    first = 1 if name.endswith(("txt", "jsonl")) else 2
    assert [row["place"] for row in lines] == [f"{file}:{first + number}" for number in range(3)]
    assert [row["label"] is None for row in lines] == [False, True, False]
    assert lines[1]["empty"]
    assert "1 of 3 rows have no text, and get no answer" in result.err
    cli("predict", model, "--file", file, "--out", out).fine()
    with out.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["label"] for row in rows] == [lines[0]["label"], "", lines[2]["label"]]
    shown = cli("predict", model, "--file", file).fine().out.splitlines()
    assert [line.startswith("(no text)") for line in shown] == [False, True, False]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (["wa", None], "text 2 is None"),
        (["wa", float("nan")], "text 2 is nan"),
        ([b"wa"], "text 1 is b'wa'"),
        ([{"text": "wa", "label": "x"}], "text 1 is {'text': 'wa'"),
        ([("wa", "wb", "wc")], "text 1 is ('wa', 'wb', 'wc')"),
        ([("wa", float("nan"))], "text 1 is ('wa', nan)"),
    ],
)
def test_what_is_no_text_is_told_by_its_number(model: Path, given: list[Any], part: str) -> None:
    """Gaps in a data frame ended in a traceback, and of {"text": ..., "label": ...} the two keys were answered as a pair."""
    loaded = sesame.load(model, "cpu")
    for ask in (loaded.predict, loaded.embed):
        with pytest.raises(SesameError) as caught:
            ask(given)
        assert part in str(caught.value)


def test_a_chance_to_abstain_by(model: Path) -> None:
    for chance in (1.5, -0.1, float("nan")):
        with pytest.raises(SesameError, match="from 0 to 1"):
            sesame.load(model, "cpu").predict("wa", abstain=chance)


def test_json_lines_are_texts(cli: Cli, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "wa wb"}\n{"text": "wc"}\n')
    found = [json.loads(line) for line in cli("embed", model, "--file", file).fine().out.splitlines()]
    assert [row["text"] for row in found] == ["wa wb", "wc"]


def test_a_folder_is_no_file(cli: Cli, model: Path, tmp_path: Path) -> None:
    cli("embed", model, "--file", tmp_path).refused(tmp_path, "is a folder; name a file in it")


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_long_text_is_all_of_its_tokens(cli: Cli, model: Path, pooling: str) -> None:
    """Windows of equal size, each counting by its tokens: one token more does not turn the vector around."""
    words = (WORDS * 2)[:21]  # three windows of 7 between two marks; ten fit
    windows = [cli("embed", model, " ".join(words[a : a + 7]), "--pooling", pooling).fine().out for a in (0, 7, 14)]
    each = np.array([json.loads(line)["vector"] for line in windows])
    found = json.loads(cli("embed", model, " ".join(words), "--pooling", pooling).fine().out)["vector"]
    np.testing.assert_allclose(found, each.mean(0) if pooling == "mean" else each.max(0), atol=1e-5)
    assert not np.allclose(found, each[0], atol=1e-2)


def test_weights_that_are_no_numbers_are_refused(cli: Cli, model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    broken = next(name for name in weights if name.endswith("query.weight"))
    weights[broken][3, 2] = torch.nan
    save_file(weights, model / "model.safetensors")
    cli("embed", model, "wa").refused(model, "NaN", broken)


def test_safetensors_come_before_an_old_index(model: Path) -> None:
    (model / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "gone.bin"}}))
    assert load_parts(model).tasks


@pytest.mark.parametrize(
    "broken",
    [
        {"type_vocab_size": -1},
        {"intermediate_size": -1},
        {"vocab_size": 0},
        {"hidden_size": "wide"},
        {"model_type": ["bert"]},
        {"num_attention_heads": 7},
        {"id2label": ["good", "bad"], "sesame": None},
        {"id2label": {"good": "0", "bad": "1"}, "sesame": None},
    ],
    ids=str,
)
def test_settings_that_make_no_model(cli: Cli, model: Path, broken: dict[str, object]) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | broken))
    cli("embed", model, "wa").refused()


def test_a_class_that_is_no_name_is_nobody(cli: Cli, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    del config["sesame"]
    (model / "config.json").write_text(json.dumps(config | {"architectures": [1]}))
    cli("embed", model, "wa").fine()


def test_equal_models_are_no_different(cli: Cli, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"w{'abcdef'[n % 6]},{'good' if n % 2 else 'bad'}\n" for n in range(30)))
    said = cli("evaluate", model, "--data", rows, "--against", model).fine().out
    assert "no different from" in said
    assert "better" not in said


def test_labels_that_nobody_taught_are_told(cli: Cli, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "text,label\n" + "".join(f"w{'abcdef'[n % 6]},{'good' if n % 2 else 'sports'}\n" for n in range(30))
    )
    said = cli("evaluate", model, "--data", rows).fine().err
    assert "15 of 30 rows have labels that the model was not taught (sports); these are wrong" in said


def test_labels_that_the_other_model_was_not_taught_are_told(cli: Cli, model: Path, tmp_path: Path) -> None:
    """The difference to it says nothing then."""
    rows, other = tmp_path / "rows.csv", tmp_path / "other"
    rows.write_text("text,label\n" + "".join(f"w{'abcdef'[n % 6]},{'good' if n % 2 else 'bad'}\n" for n in range(30)))
    parts = load_parts(model)
    task = build_task("mood", TaskConfig("classify", ("good", "poor")), parts.backbone)
    other.mkdir()
    save_parts(other, Parts(parts.backbone, task.heads(), parts.tokenizer, tasks={"mood": task}))
    said = cli("evaluate", model, "--data", rows, "--against", other).fine().err
    assert f"15 of 30 rows have labels that {other} was not taught (bad); these are wrong" in said
    assert "that the model was not taught" not in said
