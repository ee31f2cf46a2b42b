"""`finetune`, `evaluate` and `predict` from the command line: what they say, write, and refuse."""

import csv
import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertModel

import sesame
from sesame.cli.evaluate import _show, _verdict
from sesame.cli.explanations import _table
from tests.cli.calling import Cli, Result
from tests.tasks.toys import examples, start_folder, toy_tokenizer, write_csv, write_examples

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = [
    "--set",
    "batch=16",
    "--set",
    "epochs=16",
    "--set",
    "least_steps=0",
    "--set",
    "optimizer.rate=3e-3",
    "--set",
    "rate_width=0",
]
KINDS = {
    "classify": "csv",
    "regress": "csv",
    "tag": "conll",
    "qa": "jsonl",
    "choice": "jsonl",
    "pairs": "csv",
    "multi": "csv",
}


@dataclass(frozen=True)
class Ground:
    """A start model, files for every task, and a place for the runs."""

    folder: Path
    begin: Path

    def file(self, kind: str, part: str) -> Path:
        return self.folder / f"{kind}-{part}.{KINDS[kind]}"

    def words(self, kind: str, out: Path, *more: object) -> list[object]:
        """The words of a small `sesame finetune`; what comes later wins."""
        task = "classify" if kind in ("pairs", "multi") else kind
        words: list[object] = [
            "finetune",
            self.begin,
            "--task",
            task,
            "--train",
            self.file(kind, "train"),
            "--out",
            out,
        ]
        words += ["--valid", self.file(kind, "valid"), "--seeds", 1, "--device", "cpu", *SETTINGS, "--no-baselines"]
        return [*words, *(["--multi", "|"] if kind == "multi" else []), *more]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("ground")
    made = Ground(folder, start_folder(folder / "start", width=32))
    for kind in KINDS:
        task = "classify" if kind in ("pairs", "multi") else kind
        wanted: dict[str, Any] = {"pair": True} if kind == "pairs" else {"multi": True} if kind == "multi" else {}
        for part, count, seed in (("train", 120, 1), ("valid", 40, 2)):
            write_examples(made.file(kind, part), task, examples(task, count, seed, **wanted))
    return made


@pytest.fixture(scope="module")
def taught(ground: Ground) -> Callable[[str], Path]:
    """A finished run for each kind, made when first asked for."""

    def run(kind: str) -> Path:
        out = ground.folder / "runs" / kind
        if not out.exists():
            from typer.testing import CliRunner

            from sesame.cli import app

            result = CliRunner().invoke(app, [str(word) for word in ground.words(kind, out)])
            assert result.exit_code == 0, (result.output, result.exception)
        return out

    return run


# ---- predict --------------------------------------------------------------------------------------------------------


def replies(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.fine().out.splitlines()]


def test_predict_texts(cli: Cli, taught: Callable[[str], Path]) -> None:
    model = taught("classify")
    shown = cli("predict", model, "w1 alpha w2", "gamma w3").fine().out.splitlines()
    assert len(shown) == 2
    found = replies(cli("predict", model, "w1 alpha w2", "gamma w3", "--json"))
    assert [one["text"] for one in found] == ["w1 alpha w2", "gamma w3"]
    assert [one["label"] for one in found] == ["good", "bad"]
    assert shown[0].split("\t")[0] == "good"
    for one in found:
        assert one["probabilities"][one["label"]] == one["probability"] == max(one["probabilities"].values())
    twin = sesame.load(model, "cpu").predict(["w1 alpha w2", "gamma w3"])
    assert [one["probabilities"] for one in twin] == [one["probabilities"] for one in found]


def test_predict_from_files_and_standard_input(cli: Cli, taught: Callable[[str], Path], tmp_path: Path) -> None:
    model, texts = taught("classify"), ["w1 alpha w2", "gamma w3", "beta"]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    write_csv(tmp_path / "a.csv", [("id", "body", "label"), *((f"n{n}", text, "") for n, text in enumerate(texts))])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    ways = [
        cli("predict", model, *texts, "--json"),
        cli("predict", model, "--file", tmp_path / "a.txt", "--json"),
        cli("predict", model, "--file", tmp_path / "a.csv", "--text-column", "body", "--json"),
        cli("predict", model, "--file", tmp_path / "a.jsonl", "--json"),
        cli("predict", model, "--json", given="\n".join(texts).encode()),
    ]
    found = [[(one["text"], one["label"]) for one in replies(way)] for way in ways]
    assert all(one == found[0] for one in found)
    rows = replies(ways[2])
    assert [row["id"] for row in rows] == ["n0", "n1", "n2"]
    assert rows[0]["place"].endswith("a.csv:2")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.TXT", "a.md", "a.log", "a"])
def test_predict_from_lines_by_any_name(cli: Cli, taught: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """As `embed` and `fill` read them."""
    data = b"w1 alpha w2\n\ngamma w3\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = replies(cli("predict", taught("classify"), "--file", tmp_path / name, "--json"))
    assert [(one["place"], one["label"]) for one in found] == [
        (f"{tmp_path / name}:1", "good"),
        (f"{tmp_path / name}:2", None),
        (f"{tmp_path / name}:3", "bad"),
    ]


@pytest.mark.slow
def test_predict_from_the_columns_that_were_learnt_from(
    cli: Cli, ground: Ground, taught: Callable[[str], Path], tmp_path: Path
) -> None:
    """Words and tags in a .txt, as CoNLL's are called: each "word TAG" was answered as a text of its own."""
    columns = ground.file("tag", "valid")
    shutil.copy(columns, tmp_path / "a.txt")
    wanted = replies(cli("predict", taught("tag"), "--file", columns, "--json"))
    found = replies(cli("predict", taught("tag"), "--file", tmp_path / "a.txt", "--json"))
    assert [one["text"] for one in found] == [one["text"] for one in wanted]
    assert [one["tags"] for one in found] == [one["tags"] for one in wanted]
    (tmp_path / "a.txt").write_text("w1 alpha O\nw2 w3\n")  # sentences, one of which ends like a tag
    assert len(replies(cli("predict", taught("tag"), "--file", tmp_path / "a.txt", "--json"))) == 2


@pytest.mark.slow
def test_predict_to_files(cli: Cli, taught: Callable[[str], Path], tmp_path: Path) -> None:
    model = taught("tag")
    text = 'w1 alpha, "w2"\nüber\tgamma 👩‍🚀'
    wanted = replies(cli("predict", model, text, "w1", "--json"))
    cli("predict", model, text, "w1", "--out", tmp_path / "a.jsonl").fine()
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == wanted
    cli("predict", model, text, "w1", "--out", tmp_path / "a.csv").fine()
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["text"] for row in rows] == [text, "w1"]
    assert [json.loads(row["entities"]) for row in rows] == [one["entities"] for one in wanted]
    assert [(e["text"], e["label"]) for e in wanted[0]["entities"]] == [("alpha", "GOOD"), ("gamma", "BAD")]
    assert all(text[e["start"] : e["end"]] == e["text"] for e in wanted[0]["entities"])
    cli("predict", model, "w1", "--out", tmp_path / "a.csv").refused("a.csv", "exists already")
    cli("predict", model, "w1", "--out", tmp_path / "a.xlsx").refused("a.xlsx", ".jsonl or .csv")
    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines() == lines


@pytest.mark.slow
def test_predict_every_task(cli: Cli, ground: Ground, taught: Callable[[str], Path]) -> None:
    (one,) = replies(cli("predict", taught("regress"), "w1 alpha", "--json"))
    assert abs(one["value"] - 4.5) < 1
    (one,) = replies(cli("predict", taught("qa"), "who", "--context", "w1 alpha w2", "--json"))
    assert (one["answer"], one["start"], one["end"]) == ("alpha", 3, 8)
    (one,) = replies(cli("predict", taught("choice"), "w1", "gamma w2", "alpha w3", "--json"))
    assert (one["choice"], one["option"], one["text"]) == (1, "alpha w3", "w1")
    (one,) = replies(cli("predict", taught("pairs"), "w1", "--pair", "w2", "--json"))
    assert one["label"] in ("yes", "no")
    (one,) = replies(cli("predict", taught("multi"), "w1 w2", "--json"))
    assert set(one["probabilities"]) == {"alpha", "gamma"}
    for kind in ("regress", "qa", "choice", "multi", "tag", "pairs"):
        shown = cli("predict", taught(kind), "--file", ground.file(kind, "valid")).fine().out.splitlines()
        assert len(shown) == 40 * (2 if kind in ("qa", "tag") else 1), kind


@pytest.mark.slow
def test_abstaining(cli: Cli, taught: Callable[[str], Path]) -> None:
    for kind, words, key in (
        ("classify", ["w1 w2"], "label"),
        ("qa", ["who", "--context", "w1 w2"], "answer"),
        ("choice", ["w1", "w2", "w3", "w4"], "option"),
    ):
        (one,) = replies(cli("predict", taught(kind), *words, "--abstain", 1.0, "--json"))
        assert one[key] is None
        assert one["abstained"]
        assert "not sure enough" in cli("predict", taught(kind), *words, "--abstain", 1.0).fine().out
    (one,) = replies(cli("predict", taught("tag"), "w1 alpha gamma", "--abstain", 1.0, "--json"))
    assert one["entities"] == []
    (one,) = replies(cli("predict", taught("multi"), "alpha gamma", "--abstain", 1.0, "--json"))
    assert one["labels"] == []
    cli("predict", taught("regress"), "w1", "--abstain", 0.5).refused("probability", "leave it out")
    assert cli("predict", taught("classify"), "w1", "--abstain", 1.5).code == 2


@pytest.mark.slow
def test_predict_refuses(cli: Cli, ground: Ground, taught: Callable[[str], Path], tmp_path: Path) -> None:
    cli("predict", ground.begin, "w1").refused(ground.begin, "not taught any task", "sesame finetune")
    cli("predict", tmp_path / "no", "w1").refused(tmp_path / "no", "no such folder")
    cli("predict", taught("pairs"), "w1").refused("text 1", "pairs", "give two")
    cli("predict", taught("qa"), "who").refused("--context")
    cli("predict", taught("choice"), "w1", "w2").refused("at least two options")
    cli("predict", taught("classify"), "w1", "--task", "mood").refused("mood", "classify")
    cli("predict", taught("classify"), "--file", tmp_path / "no.csv").refused("no.csv", "no such file")
    cli("predict", taught("classify"), given=b"\n \n").refused("standard input", "no text")
    cli("predict", taught("classify"), given=b"fine\nbad \xff\n").refused("standard input, line 2", "UTF-8")
    write_csv(tmp_path / "a.csv", [("x", "y", "z"), (1, 2, 3)])
    cli("predict", taught("classify"), "--file", tmp_path / "a.csv").refused("a.csv", "--text-column")
    cli("predict", taught("classify"), "--file", tmp_path / "a.csv", "--text-column", "w").refused("a.csv", "'w'")


def test_a_head_that_was_never_trained_refuses_to_predict(cli: Cli, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=len(toy_tokenizer()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(tmp_path)
    toy_tokenizer().save(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | {"architectures": ["BertForSequenceClassification"]}))
    cli("predict", tmp_path, "w1").refused("not taught any task")
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    assert replies(cli("predict", tmp_path, "w1", "--json"))[0]["label"] in ("LABEL_0", "LABEL_1")


# ---- evaluate -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_evaluate(kind: str, cli: Cli, ground: Ground, taught: Callable[[str], Path]) -> None:
    words = [
        "evaluate",
        taught(kind),
        "--data",
        ground.file(kind, "valid"),
        *(["--multi", "|"] if kind == "multi" else []),
    ]
    found = json.loads(cli(*words, "--json").fine().out)
    results = json.loads((taught(kind) / "results.json").read_text())
    metric = results["metric"]
    assert found["metric"] == metric
    assert found["rows"] == 40
    if kind != "qa":  # whose threshold is tuned after the seeds are scored
        assert found["scores"][metric] == pytest.approx(results["scores"]["valid"][metric]["mean"], abs=1e-6)
    low, high = found["interval"]
    assert low - 1e-9 <= found["scores"][metric] <= high + 1e-9
    shown = cli(*words).fine().out
    assert metric in shown
    assert f"{found['scores'][metric]:.4f}" in shown


@pytest.mark.parametrize(
    ("difference", "low", "high", "p", "claim"),
    [
        (0.1, 0.05, 0.2, 0.01, "better than"),
        (-0.1, -0.2, -0.05, 0.01, "worse than"),
        (0.01, 0.0, 0.03, 1.0, "not clearly better than"),
        (-0.01, -0.03, 0.0, 1.0, "not clearly worse than"),
        (0.1, 0.05, 0.2, 0.0625, "not clearly better than"),  # five rows of five: the interval alone would be sure
        (0.0, 0.0, 0.0, 1.0, "no different from"),
    ],
)
def test_what_is_said_of_a_difference(difference: float, low: float, high: float, p: float, claim: str) -> None:
    assert _verdict({"difference": difference, "low": low, "high": high, "p": p}) == claim


def test_labels_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables took "[/quote]" for markup and ended in a traceback, "[urgent]" for a color and ":cat:" for a cat."""
    labels = ["[urgent]", "[/quote]", ":cat:"]
    classes = [{"label": label, "precision": 1.0, "recall": 1.0, "f1": 1.0, "count": 2} for label in labels]
    versus = {"difference": 0.1, "low": 0.0, "high": 0.2, "p": 0.5}
    _show({
        "scores": {"accuracy": 1.0}, "metric": "accuracy", "interval": [1.0, 1.0], "per_class": classes,
        "against": "runs/[red]b", "versus": versus,
    })  # fmt: skip
    out = capsys.readouterr().out
    for text in (*labels, "better than runs/[red]b"):
        assert text in out
    _table(["token", "[b] reads"], [[label, "1"] for label in labels])
    out = capsys.readouterr().out
    for text in (*labels, "[b] reads"):
        assert text in out


@pytest.mark.parametrize(("size", "told"), [(1e-5, "1.235e-05"), (0.5, "0.6173"), (1e30, "1.235e+30")])
def test_errors_are_shown_in_the_size_of_the_numbers(
    size: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four decimals of targets like 1e-5 are zeros, and of 1e30 a line of digits."""
    scores = {"pearson": 0.00012, "mae": 1.234567 * size}
    _show({"scores": scores, "metric": "pearson", "interval": [-0.1, 0.2]})
    out = capsys.readouterr().out
    assert told in out
    assert "0.0001" in out
    assert "-0.1000 to 0.2000" in out


@pytest.mark.slow
def test_evaluate_against_another(cli: Cli, ground: Ground, taught: Callable[[str], Path], tmp_path: Path) -> None:
    worse = tmp_path / "worse"
    cli(*ground.words("classify", worse, "--set", "epochs=0.2", "--seed", 7)).fine()
    data = ground.file("classify", "valid")
    words = ["evaluate", taught("classify"), "--data", data, "--against"]
    found = json.loads(cli(*words, worse, "--json").fine().out)
    mine, other = (
        found["scores"]["accuracy"],
        json.loads(cli("evaluate", worse, "--data", data, "--json").out)["scores"],
    )
    assert mine > other["accuracy"]
    assert found["versus"]["difference"] == pytest.approx(mine - other["accuracy"])
    assert found["versus"]["low"] <= found["versus"]["difference"] <= found["versus"]["high"]
    assert "better than" in cli(*words, worse).fine().out.replace("\n", " ")
    same = json.loads(cli(*words, taught("classify"), "--json").fine().out)["versus"]
    assert same["difference"] == same["low"] == same["high"] == 0
    cli(*words, taught("regress")).refused("regress", "classify", "like with like")
    cli(*words, ground.begin).refused("not taught any task")


def test_evaluate_counts_unseen_labels_as_wrong(cli: Cli, taught: Callable[[str], Path], tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", [("text", "label"), ("alpha", "good"), ("gamma", "bad"), ("w1", "new")])
    found = json.loads(cli("evaluate", taught("classify"), "--data", data, "--json").fine().out)
    assert found["scores"]["accuracy"] == pytest.approx(2 / 3)
    assert [row["label"] for row in found["per_class"]] == ["bad", "good", "new"]
    (tmp_path / "b.jsonl").write_text('{"text": "w1", "label": ["good", "bad"]}\n')
    cli("evaluate", taught("classify"), "--data", tmp_path / "b.jsonl").refused("b.jsonl:1", "several labels")
    cli("evaluate", taught("classify"), "--data", tmp_path / "no.csv").refused("no.csv", "no such file")


# ---- finetune: mistakes ---------------------------------------------------------------------------------------------

GOOD = "text,label\n" + "".join(f"w{n} alpha,good\nw{n} gamma,bad\n" for n in range(10))
SQUAD = {"context": "w1 alpha w2", "question": "who", "answers": {"text": ["alpha"], "answer_start": [3]}}
BAD: dict[str, tuple[str, str, bytes, list[str], list[str]]] = {
    "missing column": ("classify", "a.csv", GOOD.encode(), ["--label-column", "topic"], ["a.csv", "'topic'", "label"]),
    "no such guess": ("classify", "a.csv", b"x,y,z\n1,2,3\n", [], ["a.csv", "--text-column"]),
    "one class": ("classify", "a.csv", GOOD.replace("bad", "good").encode(), [], ["a.csv", "one class only", "'good'"]),
    "nan": ("regress", "a.csv", b"text,score\nw1,1.5\nw2,nan\nw3,2\n", [], ["a.csv:3", "nan", "finite number"]),
    "word for a score": ("regress", "a.csv", b"text,score\nw1,1.5\nw2,much\n", [], ["a.csv:3", "much"]),
    "mixed encodings": ("classify", "a.csv", GOOD.encode() + "Grüße,gut\n".encode("cp1252"), [], ["a.csv:22", "UTF-8"]),
    "open quote": ("classify", "a.csv", GOOD.encode() + b'"w1 w2,good\nw3,bad\n' * 30, [], ["a.csv:22", "quote"]),
    "wrong tags": ("tag", "a.conll", b"w1 O\nalpha Q-GOOD\n\nw2 B-X\nw3 O\n", [], ["a.conll:2", "Q-GOOD"]),
    "no tags": ("tag", "a.conll", b"w1 O\nw2 O\n\nw3 O\n", [], ["a.conll", "tag O", "nothing to learn"]),
    "ragged tags": ("tag", "a.conll", b"w1 O\nalpha\n\nw2 B-X\n", [], ["a.conll:2"]),
    "answer not there": (
        "qa", "a.jsonl", "\n".join(json.dumps(SQUAD | more) for more in ({}, {"context": "w1 w2"})).encode(), [],
        ["a.jsonl:2"],
    ),
    "one row": ("classify", "a.csv", b"text,label\nw1,a\n", [], ["a.csv", "1 labelled rows", "at least 2"]),
    "no row": ("classify", "a.csv", b"text,label\n", [], ["a.csv"]),
    "empty": ("classify", "a.csv", b"", [], ["a.csv", "empty"]),
    "all texts empty": ("classify", "a.csv", b"text,label\n,a\n ,b\n", [], ["a.csv", "no text"]),
    "a label a row": (
        "classify", "a.csv", ("text,label\n" + "".join(f"w1 w2,n{n}\n" for n in range(100_000))).encode(), [],
        ["a.csv", "100,000 different labels", "--label-column"],
    ),
    "half without labels": ("classify", "a.csv", b"text,label\nw1,a\nw2,b\nw3,\nw4,\n", [], ["a.csv:4", "no label"]),
    "one of each": ("classify", "a.csv", b"text,label\nw1,a\nw2,b\n", [], ["a.csv", "--valid"]),
    "wrong option": ("choice", "a.jsonl", b'{"stem": "w1", "options": ["w2", "w3"], "label": 7}\n', [], ["a.jsonl:1", "7"]),
    "wrong metric": ("classify", "a.csv", GOOD.encode(), ["--metric", "beauty"], ["--metric beauty", "accuracy"]),
    "wrong strategy": ("classify", "a.csv", GOOD.encode(), ["--strategy", "ful"], ["ful", "full"]),
    "wrong setting": ("classify", "a.csv", GOOD.encode(), ["--set", "adapt.speed=3"], ["adapt", "'speed'", "reinit"]),
    "wrong layers": ("classify", "a.csv", GOOD.encode(), ["--layers", "lsat"], ["lsat", "last"]),
    "layer out of reach": ("classify", "a.csv", GOOD.encode(), ["--layers", "7"], ["layer 7", "0", "2"]),
    "wrong task": ("classify", "a.csv", GOOD.encode(), ["--task", "summarize"], ["summarize", "classify"]),
    "short windows": ("classify", "a.csv", GOOD.encode(), ["--set", "task.length=5"], ["5 tokens", "at least"]),
    "no test file": ("classify", "a.csv", GOOD.encode(), ["--test", "nowhere.csv"], ["nowhere.csv", "no such file"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case: str, cli: Cli, ground: Ground, tmp_path: Path) -> None:
    kind, name, data, more, parts = BAD[case]
    (tmp_path / name).write_bytes(data)
    out = tmp_path / "run"
    words: list[object] = ["finetune", ground.begin, "--task", kind, "--train", tmp_path / name, "--out", out]
    cli(*words, "--device", "cpu", "--seeds", 1, *SETTINGS, *more).refused(*parts)
    assert (tmp_path / name).read_bytes() == data
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left <= {name, "run/.lock"}, "something was left that binds the corrected command"


@pytest.mark.slow
def test_the_corrected_command_serves_for_the_same_folder(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    out = tmp_path / "run"
    cli(*ground.words("classify", out, "--metric", "beauty")).refused("beauty")
    cli(*ground.words("classify", out, "--label-column", "nothing")).refused("nothing")
    cli(*ground.words("classify", out)).fine()
    assert "finished already" in cli(*ground.words("classify", out)).fine().err
    cli(*ground.words("classify", out, "--set", "optimizer.rate=1e-4")).refused(out, "holds another run", "--out")


def test_what_is_counted_and_not_fatal(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    """Empty texts, unseen labels, missing labels in a few rows: one sentence each, and it goes on."""
    train = tmp_path / "train.csv"
    train.write_text(GOOD + "w5 alpha,\n" + ",good\n")
    valid = write_csv(
        tmp_path / "valid.csv", [("text", "label"), ("w1 alpha w2", "good"), ("w3 gamma w9", "bad"), ("w1", "new")]
    )
    said = cli(*ground.words("classify", tmp_path / "run", "--train", train, "--valid", valid)).fine().err
    assert "left out 1 of 22 rows with an empty text" in said
    assert "left out 1 of 21 rows without a label" in said
    assert '1 of 3 validation rows have labels that training does not: "new"' in said
    lost = [SQUAD | {"context": f"w{n} alpha"} for n in range(20)] + [SQUAD | {"context": "w1 w2"}]
    (tmp_path / "qa.jsonl").write_text("\n".join(map(json.dumps, lost)))
    said = (
        cli(*ground.words("qa", tmp_path / "asked", "--train", tmp_path / "qa.jsonl", "--set", "epochs=1")).fine().err
    )
    assert "not in the context: 1 answers" in said
    assert "qa.jsonl:21" in said


def test_out_that_cannot_be_written(cli: Cli, ground: Ground, taught: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cli(*ground.words("classify", tmp_path / "file" / "run")).refused(tmp_path / "file")
    cli(*ground.words("classify", tmp_path / "file")).refused(tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    cli(*ground.words("classify", tmp_path / "full")).refused(tmp_path / "full", "not empty", "--out")
    cli("predict", taught("classify"), "w1", "--out", tmp_path / "file" / "a.csv").refused(tmp_path / "file")


def test_a_model_that_is_none(cli: Cli, ground: Ground, tmp_path: Path) -> None:
    words = ground.words("classify", tmp_path / "run")
    words[1] = tmp_path / "nothing"
    found = cli(*words)
    found.refused("nothing", "no such folder")
    assert "rows" not in found.err  # before the rows are read, which may take minutes
    bare = shutil.copytree(ground.begin, tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (bare / name).unlink()
    words[1] = bare
    cli(*words).refused(bare, "no tokenizer", "tokenizer.json")


@pytest.mark.slow
def test_a_taught_model_can_be_taught_again(
    cli: Cli, ground: Ground, taught: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ground.words("regress", tmp_path / "run")
    words[1] = taught("tag")
    cli(*words).fine()
    assert list(sesame.load(tmp_path / "run", "cpu").parts.tasks) == ["regress"]


@pytest.mark.slow
def test_a_very_long_text(cli: Cli, taught: Callable[[str], Path], tmp_path: Path) -> None:
    """50,000 words: nothing is cut, and the last word is found."""
    text = "w1 w2 w3 " * 16_667 + "alpha"
    (tmp_path / "long.txt").write_text(text)
    result = cli("predict", taught("tag"), "--file", tmp_path / "long.txt", "--json")
    (one,) = replies(result)
    assert "longer than 32 tokens" in result.err
    assert len(one["tags"]) == 50_002
    assert one["entities"][-1]["end"] == len(text)
    assert one["entities"][-1]["text"] == "alpha"
