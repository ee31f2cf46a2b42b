"""Suites: what is found in a folder, the runs, and tables with the numbers of the runs and the average of the paper."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kill_resume import SETTINGS, make_text
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sesame
from sesame.cli import app
from sesame.data.labelled import read_labelled
from sesame.errors import SesameError
from sesame.finetuning import suites
from sesame.finetuning.suite_files import GLUE, LAYERS, PARTS, Entry, columns_of, find_file, is_conll, plan
from sesame.finetuning.suites import average, run_suite, shown

pytestmark = pytest.mark.slow  # whole runs

TINY = ["epochs=0.5", "least_steps=0", "batch=8"]
QUICK: dict[str, Any] = {"settings": TINY, "device": "cpu", "precision": "fp32"}
ORIGINAL = {  # a header (or none) and a row, as the files of GLUE have them
    "CoLA": ("", "gj04\t{0}\t*\tThe {1} ."),
    "MRPC": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{0}\t7\t8\tA {1}\tThe \"{1}"),
    "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "9\t7\t8\tWhy {1} ?\tHow {1} ?\t{0}"),
    "SST-2": ("sentence\tlabel", "so {1}\t{0}"),
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t1e\tfiction\t(\t(\tA {1}\tNo {1}\tneutral\t{0}",
    ),
    "QNLI": ("index\tquestion\tsentence\tlabel", "0\tWhy {1} ?\tThe {1} .\t{0}"),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tmain\tMSR\t2012\t1\tnone\tnone\tA {1}\tThe {1}\t{0}",
    ),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\tA {1}\tThe {1}\t{0}"),
}  # fmt: skip
NAMED = {
    "rte": ("entailment", "not_entailment"),
    "QNLI": ("entailment", "not_entailment"),
    "MNLI": ("neutral", "other"),
}


def write_task(folder: Path, task: str, files: tuple[str, ...] = ("train.tsv", "dev.tsv"), rows: int = 24) -> None:
    header, row = ORIGINAL[task]
    (folder / task).mkdir(parents=True, exist_ok=True)
    luck = random.Random(task)
    for file in files:
        lines = [row.format(NAMED.get(task, "01")[n % 2], luck.choice(("plum", "pear", "fig"))) for n in range(rows)]
        (folder / task / file).write_text("\n".join([*([header] if header else []), *lines]) + "\n", encoding="utf-8")


def write_tags(folder: Path, parts: tuple[str, ...] = ("train", "dev"), sentences: int = 20) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    luck = random.Random(0)
    for part in parts:
        rows = [luck.choices(("the", "old", "ada", "eve"), k=4) for _ in range(sentences)]
        lines = ["\n".join(f"{w} NN {'I-PER' if w in ('ada', 'eve') else 'O'}" for w in row) + "\n" for row in rows]
        (folder / f"{part}.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    wishes = {"steps": 1, "device": "cpu", "precision": "fp32", "settings": SETTINGS}
    sesame.pretrain("bert", make_text(folder / "text.txt", 20), folder / "small", **wishes)
    return folder / "small"


# ---- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ORIGINAL)
def test_the_original_files_of_glue_are_read(tmp_path: Path, task: str) -> None:
    write_task(tmp_path, task)
    (entry,), _ = plan("glue", tmp_path)
    found = read_labelled(entry.files["train"], entry.kind, columns_of(entry))
    assert len(found.examples) == 24
    wanted = {"STS-B": {0.0, 1.0}}.get(task, set(NAMED.get(task, "01")))
    assert {example.label for example in found.examples} == wanted
    texts = (found.examples[0].text, found.examples[0].pair)
    assert all(text is None or any(fruit in text for fruit in ("plum", "pear", "fig")) for text in texts)
    assert (found.examples[0].pair is None) == (task in ("CoLA", "SST-2"))


def test_other_formats_keep_their_own_columns(tmp_path: Path) -> None:
    (tmp_path / "cola").mkdir()
    for part in ("train", "dev"):
        (tmp_path / "cola" / f"{part}.jsonl").write_text('{"text": "A plum.", "label": 1, "source": "x"}\n' * 3)
    (entry,), missing = plan("glue", tmp_path)
    assert columns_of(entry) == {}
    assert list(missing) == [one.key for one in GLUE if one.key != "cola"]


def test_files_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("train-v1.1.json", "dev_matched.tsv", "dev_mismatched.tsv", "validation.jsonl.gz", "test.tsv", "x.md"):
        (tmp_path / name).write_text("x")
    assert find_file(tmp_path, PARTS["train"]) == tmp_path / "train-v1.1.json"
    assert find_file(tmp_path, PARTS["valid"]) == tmp_path / "validation.jsonl.gz"
    (tmp_path / "validation.jsonl.gz").unlink()
    assert find_file(tmp_path, PARTS["valid"]) == tmp_path / "dev_matched.tsv"
    (tmp_path / "train.tsv").write_text("x")
    assert find_file(tmp_path, PARTS["train"]) == tmp_path / "train.tsv"
    (tmp_path / "train.csv").write_text("x")
    with pytest.raises(SesameError, match=r"several files could be meant \(train.csv, train.tsv\)"):
        find_file(tmp_path, PARTS["train"])


@given(st.lists(st.sampled_from(["train", "training", "trained", "dev", "devil", "dev-clean"]), unique=True))
def test_only_whole_words_name_a_part(names: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / f"{name}.tsv").write_text("x")
        train = find_file(Path(folder), PARTS["train"])
        assert (train is not None) == ("train" in names)
        dev = find_file(Path(folder), PARTS["valid"])
        assert (dev is None) == (not {"dev", "dev-clean"} & set(names))
        assert dev is None or dev.stem == ("dev" if "dev" in names else "dev-clean")


def test_conll_is_told_from_other_text(tmp_path: Path) -> None:
    tagged = write_tags(tmp_path / "a") / "train.txt"
    assert is_conll(tagged)
    for name, content in (
        ("plain.txt", "We saw ada.\nO no\n"),
        ("glue.tsv", "sentence\tlabel\nso good\t1\n"),
        ("rows.jsonl", '{"a": "O"}\n'),
        ("none.txt", "\n\n"),
    ):
        (tmp_path / name).write_text(content)
        assert not is_conll(tmp_path / name)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    write_task(tmp_path, "SST-2")
    write_task(tmp_path, "rte", ("dev.tsv",))
    entries, missing = plan("glue", tmp_path)
    assert [entry.key for entry in entries] == ["sst2"]
    assert missing["rte"].endswith("rte: has no train file")
    assert missing["cola"].endswith("has no folder cola")
    with pytest.raises(SesameError, match=r"nothing to run for glue \(.*rte: has no train file\)"):
        plan("glue", tmp_path, ["RTE"])
    with pytest.raises(SesameError, match="--only: unknown task 'sst3'; did you mean 'sst2'"):
        plan("glue", tmp_path, ["sst3"])
    with pytest.raises(SesameError, match="unknown suite 'glu'; did you mean 'glue'"):
        plan("glu", tmp_path)
    with pytest.raises(SesameError, match="no such folder"):
        plan("glue", tmp_path / "none")
    with pytest.raises(SesameError, match="no folder in it holds a train file of CoNLL"):
        plan("ner", tmp_path)
    with pytest.raises(SesameError, match="takes the folder of one tag dataset"):
        plan("layers", tmp_path)
    write_task(tmp_path, "SST-2")
    (tmp_path / "sst2").mkdir()
    with pytest.raises(SesameError, match="is the same task as"):
        plan("glue", tmp_path)


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        (("eng.train", "eng.testa", "eng.testb"), "-DOCSTART- -X- -X- O\n\nThe DT I-NP O\nAda NNP I-NP I-PER\n"),
        (("train.conll", "dev.conll", "test.conll"), "# id 0aa-11\tdomain=train\nThe _ _ O\nAda _ _ B-PER\n\n"),
        (("train.tsv.gz", "dev.tsv", "test.tsv"), "#\thttp://a.b [2009]\n1\tThe\tO\n2\tAda\tB-PER\n\n"),
    ],
    ids=["conll2003", "multiconer", "germeval"],
)
def test_entities_as_they_are_published(tmp_path: Path, names: tuple[str, ...], lines: str) -> None:
    for name in names:
        data = lines.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (entry,), _ = plan("ner", tmp_path)
    assert {part: file.name for part, file in entry.files.items()} == dict(
        zip(("train", "valid", "test"), names, strict=True)
    )
    for file in entry.files.values():
        (found,) = read_labelled(file, "tag").examples
        assert (found.text, found.label) == ("The Ada", ("O", "B-PER"))


@pytest.mark.parametrize("one", ["squad", "SQuAD1.1", "squad_v1"])
@pytest.mark.parametrize("two", ["squad2", "squad_v2", "SQuAD-v2.0"])
def test_folders_of_squad(tmp_path: Path, one: str, two: str) -> None:
    for name in (one, two):
        (tmp_path / name).mkdir()
        for part in ("train", "dev"):
            (tmp_path / name / f"{part}-v.json").write_text('{"data": []}')
    entries, missing = plan("squad", tmp_path)
    assert ([entry.key for entry in entries], missing) == (["squad1", "squad2"], {})
    assert [entry.files["train"].parent.name for entry in entries] == [one, two]


# ---- the runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def glue(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNLI with both dev sets, CoLA, STS-B and MRPC, two seeds."""
    folder = tmp_path_factory.mktemp("glue")
    write_task(folder / "data", "MNLI", ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"))
    for task in ("CoLA", "STS-B", "MRPC"):
        write_task(folder / "data", task)
    (folder / "data" / "MRPC" / "test.tsv").write_text("this would be an error if it were read\n")
    run_suite(start, "glue", folder / "data", folder / "out", seeds=2, **QUICK)
    return folder


def test_the_table_holds_the_numbers_of_the_runs(glue: Path) -> None:
    found = json.loads((glue / "out" / "suite.json").read_text())
    assert [row["key"] for row in found["rows"]] == ["mnli", "cola", "stsb", "mrpc"]
    for row in found["rows"]:
        own = json.loads((glue / "out" / row["key"] / "results.json").read_text())["scores"]
        for score in row["scores"]:
            assert score["mean"] == own[score["split"]][score["metric"]]["mean"]
            assert len(score["values"]) == score["n"] == 2
    metrics = {row["key"]: [score["metric"] for score in row["scores"]] for row in found["rows"]}
    assert metrics == {
        "mnli": ["accuracy", "accuracy"], "cola": ["matthews"], "stsb": ["spearman", "pearson"], "mrpc": ["f1", "accuracy"],
    }  # fmt: skip
    counted = [score["mean"] for row in found["rows"] for score in row["scores"] if score["counts"]]
    assert len(counted) == found["average"]["scores"] == 5
    assert found["average"]["mean"] == pytest.approx(sum(counted) / 5)


def test_the_table_reads_like_the_paper(glue: Path) -> None:
    found = json.loads((glue / "out" / "suite.json").read_text())
    page = (glue / "out" / "suite.md").read_text()
    head, cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (page.splitlines()[2], page.splitlines()[4])
    )
    assert head == ["model", "MNLI-(m/mm)", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "average"]
    scores = {row["name"]: [f"{100 * score['mean']:.1f}" for score in row["scores"]] for row in found["rows"]}
    shown_cells = dict(zip(head, cells, strict=True))
    assert shown_cells["MNLI-(m/mm)"] == "/".join(scores["MNLI-(m/mm)"])
    assert shown_cells["MRPC"] == scores["MRPC"][0]
    assert [name for name, cell in shown_cells.items() if cell == "-"] == ["QQP", "QNLI", "SST-2", "RTE"]
    assert "over 5 of 9 scores" in page
    assert "not there: qqp, qnli, sst2, rte." in page
    assert f"± {100 * found['average']['std']:.1f}" in shown_cells["average"]


def test_what_is_finished_is_not_repeated(start: Path, glue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stop in the middle the same command does the rest only."""
    trained: list[str] = []
    real = suites.finetune

    def watched(wishes: Any) -> Path:
        if not (wishes.out / "final").exists():
            trained.append(wishes.out.name)
        return real(wishes)

    monkeypatch.setattr(suites, "finetune", watched)
    before = json.loads((glue / "out" / "suite.json").read_text())
    for item in (glue / "out" / "cola" / "final").iterdir():
        item.unlink()
    (glue / "out" / "cola" / "final").rmdir()
    again = run_suite(start, "glue", glue / "data", glue / "out", seeds=2, **QUICK)
    assert trained == ["cola"]
    assert again == before
    with pytest.raises(SesameError, match="holds another run"):
        run_suite(start, "glue", glue / "data", glue / "out", seeds=3, **QUICK)


def test_ner_takes_every_tagged_folder(start: Path, tmp_path: Path) -> None:
    write_tags(tmp_path / "data" / "wiki", ("train", "dev"))
    write_tags(tmp_path / "data" / "conll2003", ("train", "dev", "test"))
    write_task(tmp_path / "data", "SST-2")
    found = run_suite(start, "ner", tmp_path / "data", tmp_path / "out", seeds=1, **QUICK)
    assert [(row["name"], [score["split"] for score in row["scores"]]) for row in found["rows"]] == [
        ("conll2003", ["valid", "test"]),
        ("wiki", ["valid"]),
    ]
    assert "| conll2003 | F1, test |" in (tmp_path / "out" / "suite.md").read_text()


def test_squad_answers_are_scored_twice(start: Path, tmp_path: Path) -> None:
    answers = [{"text": "plum", "answer_start": 8}]
    questions = [{"id": str(n), "question": "what ?", "answers": answers} for n in range(6)]
    paper = {"data": [{"title": "t", "paragraphs": [{"context": "we saw a plum here", "qas": questions}]}]}
    paper["data"][0]["paragraphs"][0]["context"] = "we saw  plum here"  # type: ignore[index]
    (tmp_path / "data" / "SQuAD").mkdir(parents=True)
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / "data" / "SQuAD" / name).write_text(json.dumps(paper))
    found = run_suite(start, "squad", tmp_path / "data", tmp_path / "out", seeds=1, **QUICK)
    assert [score["metric"] for score in found["rows"][0]["scores"]] == ["exact", "f1"]
    assert found["missing"] == {"squad2": f"{tmp_path / 'data'}: has no folder squad2"}


def test_seven_choices_of_layers_from_one_command(start: Path, tmp_path: Path) -> None:
    data = write_tags(tmp_path / "tags")
    said = CliRunner().invoke(
        app, ["evaluate", str(start), "--suite", "layers", "--data", str(data), "--out", str(tmp_path / "out"), "--seeds",
              "1", "--device", "cpu", *(word for one in TINY for word in ("--set", one))],
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    rows = [line.split("|")[1].strip() for line in said.stdout.splitlines() if line.startswith("|")]
    assert rows == ["layers", "-" * len(rows[1]), *LAYERS]
    for name in LAYERS:
        recipe = (tmp_path / "out" / name / "recipe.toml").read_text()
        assert f'layers = "{name}"' in recipe
        assert 'strategy = "frozen"' in recipe


# ---- the numbers -----------------------------------------------------------------------------------------------------


def _rows(table: dict[str, list[float]], seeds: int = 1, shift: float = 0.0) -> list[dict[str, Any]]:
    rows = []
    for entry in GLUE:
        counted = [score for score in entry.scores if score.counts]
        scores = [
            {"metric": score.metric, "split": score.split, "counts": True, "mean": value / 100, "std": None, "n": seeds,
             "on": score.on, "values": [value / 100 + shift * (n - (seeds - 1) / 2) for n in range(seeds)]}
            for score, value in zip(counted, table.get(entry.key, []), strict=False)
        ]  # fmt: skip
        if scores:
            rows.append({"key": entry.key, "name": entry.shown, "rows": {"train": 1}, "scores": scores})
    return rows


PAPER = {  # Devlin et al. 2018, table 1
    "base": ([84.6, 83.4], 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "large": ([86.7, 85.9], 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
}


@pytest.mark.parametrize("size", PAPER)
def test_the_average_is_that_of_the_paper(size: str) -> None:
    mnli, *others, wanted = PAPER[size]
    keys = ["qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"]
    table = {"mnli": mnli} | {key: [value] for key, value in zip(keys, others, strict=True)}
    found = average(_rows(table))  # type: ignore[arg-type]
    assert found is not None
    assert found["scores"] == 9
    assert round(100 * found["mean"], 1) == wanted
    page = shown({"suite": "glue", "model": size, "rows": _rows(table), "average": found, "missing": {}})  # type: ignore[arg-type]
    assert f"| {mnli[0]}/{mnli[1]} " in page  # type: ignore[index]
    assert page.splitlines()[2].endswith(f" {wanted}    |")


def test_the_spread_of_the_average_is_over_seeds() -> None:
    rows = _rows({"sst2": [90.0], "rte": [60.0]}, seeds=3, shift=0.02)
    found = average(rows)
    assert found is not None
    assert (found["mean"], found["std"], found["n"]) == (pytest.approx(0.75), pytest.approx(0.02), 3)
    rows[0]["scores"][0] |= {"n": 1, "values": [0.9]}
    assert average(rows) == {"mean": pytest.approx(0.75), "std": None, "n": None, "scores": 2}
    assert average([]) is None


def test_wnli_does_not_count() -> None:
    (wnli,) = [entry for entry in GLUE if entry.key == "wnli"]
    assert isinstance(wnli, Entry)
    assert not any(score.counts for score in wnli.scores)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_options_of_the_two_kinds_of_evaluation_do_not_mix(start: Path, tmp_path: Path) -> None:
    begin = ["evaluate", str(start), "--data", str(tmp_path)]
    for words, sentence in (
        (["--suite", "glue", "--against", "x"], "--against: does not go with --suite"),
        (["--seeds", "2"], "--seeds: goes with --suite or --shots only"),
        (["--only", "sst2"], "--only: goes with --suite only"),
    ):
        said = CliRunner().invoke(app, [*begin, *words])
        assert isinstance(said.exception, SesameError)
        assert sentence in str(said.exception)


def test_a_table_grows_part_by_part(start: Path, glue: Path) -> None:
    out = glue / "parts"
    words = ["evaluate", str(start), "--suite", "glue", "--data", str(glue / "data"), "--out", str(out), "--json"]
    words += ["--seeds", "1", "--device", "cpu", *(word for one in TINY for word in ("--set", one))]
    for only, keys in (("STS-B", ["stsb"]), ("cola", ["cola", "stsb"])):
        said = CliRunner().invoke(app, [*words, "--only", only])
        assert said.exit_code == 0, said.output
        found = json.loads(said.stdout)
        assert [row["key"] for row in found["rows"]] == keys
        assert found["missing"] == {}
        assert found["average"]["scores"] == len(keys)
    other = CliRunner().invoke(app, [*words, "--only", "mrpc", "--strategy", "frozen"])
    assert [row["key"] for row in json.loads(other.stdout)["rows"]] == ["mrpc"]  # not the same thing: not in one table
