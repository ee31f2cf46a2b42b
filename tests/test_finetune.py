"""Fine-tuning from files to a folder: it learns, resumes, repeats, chooses honestly, and writes down what it saw."""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import kill_group, start, weights
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import sesame
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.errors import SesameError
from sesame.evaluate.answers import squad_scores
from sesame.finetuning.run import Wishes, finetune
from tests.tasks.toys import examples, start_folder, write_csv, write_examples

pytestmark = pytest.mark.usefixtures("one_thread")

PATIENCE = 120.0
SUFFIX = {"classify": "csv", "regress": "csv", "tag": "conll", "choice": "jsonl", "qa": "jsonl"}
QUICK = ["batch=16", "epochs=6", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]
SHORT = ["batch=8", "epochs=4", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]  # 24 steps of 48 examples


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_folder(tmp_path_factory.mktemp("start") / "model", width=32, dropout=0.1)


def files(folder: Path, kind: str, train: int, valid: int, **wanted: Any) -> tuple[str, str]:
    made = [
        write_examples(folder / f"{part}.{SUFFIX[kind]}", kind, examples(kind, count, seed, **wanted))
        for part, count, seed in (("train", train, 1), ("valid", valid, 2))
    ]
    return str(made[0]), str(made[1])


def run(begin: Path, out: Path, kind: str, train: str, valid: str | None, **more: Any) -> dict[str, Any]:
    """Fine-tune quietly; what results.json says."""
    given = {"seeds": 1, "device": "cpu", "precision": "fp32", "settings": QUICK, "baselines": False, **more}
    finetune(Wishes(model=str(begin), task=kind, train=train, valid=valid, out=out, **given))  # type: ignore[arg-type]
    return dict(json.loads((out / "results.json").read_text()))


def reached(results: dict[str, Any]) -> float:
    return float(results["scores"]["valid"][results["metric"]]["mean"])


# ---- learning -------------------------------------------------------------------------------------------------------

TOYS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "classify": ("classify", {}, []),
    "several labels": ("classify", {"multi": True}, ["epochs=16"]),
    "pairs": ("classify", {"pair": True}, ["epochs=12"]),
    "regress": ("regress", {}, []),
    "tag": ("tag", {}, ["epochs=12"]),
    "qa with silence": ("qa", {}, []),
    "choice": ("choice", {}, []),
}


QUICKLY = ("classify", "regress", "qa with silence")


@pytest.mark.parametrize("toy", [toy if toy in QUICKLY else pytest.param(toy, marks=pytest.mark.slow) for toy in TOYS])
def test_a_keyword_is_learnt(toy: str, begin: Path, tmp_path: Path) -> None:
    kind, wanted, settings = TOYS[toy]
    train, valid = files(tmp_path, kind, 240, 80, **wanted)
    multi = "|" if "multi" in wanted else None
    results = run(begin, tmp_path / "run", kind, train, valid, multi=multi, settings=[*QUICK, *settings])
    assert reached(results) > 0.95
    lines = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == 80
    model = sesame.load(tmp_path / "run", "cpu")
    told = examples(kind, 80, 2, **wanted)
    again = model.predict(told)
    for line, reply in zip(lines, again, strict=True):
        said = json.loads(line)
        for key in ("label", "labels", "tags", "answer", "choice"):
            assert said.get(key) == reply.get(key)
        if kind == "regress":
            assert abs(said["value"] - reply["value"]) < 1e-4
    assert model.task().config.scale == (0.0, 1.0)


@pytest.mark.slow
def test_the_folder_opens_in_transformers_with_the_same_answers(begin: Path, tmp_path: Path) -> None:
    for kind in ("classify", "regress"):
        folder = tmp_path / kind
        folder.mkdir()
        train, valid = files(folder, kind, 64, 16)
        run(begin, folder / "run", kind, train, valid, settings=SHORT)
        final = folder / "run" / "final"
        theirs = AutoModelForSequenceClassification.from_pretrained(final).eval()
        tokenizer = AutoTokenizer.from_pretrained(final)
        model = sesame.load(final, "cpu")
        for example in examples(kind, 16, 2):
            (reply,) = model.predict(example.text)
            with torch.no_grad():
                logits = theirs(**tokenizer(example.text, return_tensors="pt")).logits[0]
            if kind == "regress":
                assert abs(float(logits[0]) - reply["value"]) < 1e-4
            else:
                chances = (logits / model.task().config.temperature).softmax(-1).tolist()
                named = dict(zip(theirs.config.id2label.values(), chances, strict=True))
                assert all(abs(named[name] - reply["probabilities"][name]) < 1e-4 for name in named)


# ---- the same again -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_seeds_are_equal_and_others_are_not(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 48, 16)
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        run(begin, tmp_path / name, "classify", train, valid, settings=SHORT, seed=seed)
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


@pytest.mark.slow
def test_a_lesson_has_a_dropout_of_its_own(tmp_path: Path) -> None:
    begin = start_folder(tmp_path / "start", width=32, dropout=0.0)
    train, valid = files(tmp_path, "classify", 48, 16)
    for name, more in (("own", []), ("none", ["task.dropout=0"]), ("some", ["task.dropout=0.2"])):
        run(begin, tmp_path / name, "classify", train, valid, settings=[*SHORT, *more])
    own, none, some = (load_file(tmp_path / name / "final/model.safetensors") for name in ("own", "none", "some"))
    assert all(torch.equal(own[name], none[name]) for name in own)
    assert not any(torch.equal(own[name], some[name]) for name in own if "query.weight" in name)
    assert load_parts(tmp_path / "some/final").backbone.config.dropout == 0.0
    with pytest.raises(SesameError, match="below 1"):
        run(begin, tmp_path / "bad", "classify", train, valid, settings=[*SHORT, "task.dropout=1"])


@pytest.mark.slow
def test_frozen_leaves_the_backbone_as_it_was(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "tag", 48, 16)
    results = run(
        begin,
        tmp_path / "run",
        "tag",
        train,
        valid,
        strategy="frozen",
        settings=["epochs=20", "batch=8", "optimizer.rate=1e-2"],
    )
    before, after = load_file(begin / "model.safetensors"), load_file(tmp_path / "run" / "final" / "model.safetensors")
    shared = [name for name in before if name in after]
    assert len(shared) > 20
    assert all(torch.equal(before[name], after[name]) for name in shared)
    assert reached(results) > 0.5


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["full", pytest.param("frozen", marks=SLOW), pytest.param("gradual", marks=SLOW)])
def test_a_crash_while_saving(strategy: str, begin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two seeds, the second of which crashes; regress, so that its scale is met half-way too."""
    train, valid = files(tmp_path, "regress", 48, 16)
    wishes: dict[str, Any] = {"strategy": strategy, "settings": SHORT, "save_steps": 3, "seeds": 2}
    run(begin, tmp_path / "calm", "regress", train, valid, **wishes)
    save, saved = Run.save, []

    def crash(one: Run, *rest: Any) -> Path:
        saved.append(1)
        if len(saved) == 12:
            raise RuntimeError("crash")
        return save(one, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", crash)
        with pytest.raises(RuntimeError, match="crash"):
            run(begin, tmp_path / "run", "regress", train, valid, **wishes)
    assert (tmp_path / "run" / "seed-0" / "result.json").exists()
    assert list((tmp_path / "run" / "seed-1" / "checkpoints").iterdir())
    run(begin, tmp_path / "run", "regress", train, valid, **wishes)
    for seed in ("seed-0", "seed-1"):
        assert weights(tmp_path / "run" / seed) == weights(tmp_path / "calm" / seed)
    assert weights(tmp_path / "run") == weights(tmp_path / "calm")
    both = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("run", "calm")]
    assert both[0]["scores"] == both[1]["scores"]
    assert [seed["loss"] for seed in both[0]["seeds"]] == [seed["loss"] for seed in both[1]["seeds"]]


@pytest.mark.slow
def test_other_data_are_noticed(begin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stopped half-way must not go on with other rows under the same name."""
    train, valid = files(tmp_path, "classify", 48, 16)
    wishes: dict[str, Any] = {"settings": SHORT, "save_steps": 3, "seeds": 2}

    def crash(*_: object) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_final", crash)
        with pytest.raises(RuntimeError, match="crash"):
            run(begin, tmp_path / "run", "classify", train, valid, **wishes)
    write_examples(Path(train), "classify", examples("classify", 48, 9))
    with pytest.raises(SesameError, match="changed since this run began"):
        run(begin, tmp_path / "run", "classify", train, valid, **wishes)


def test_other_rows_are_no_finished_run(begin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever mends labels and gives the same command again must not be told that nothing is to be done."""
    train, valid = files(tmp_path, "classify", 24, 8)
    wishes: dict[str, Any] = {"settings": [*SHORT, "epochs=1"]}
    told = run(begin, tmp_path / "run", "classify", train, valid, **wishes)
    write_examples(Path(train), "classify", examples("classify", 24, 9))
    with pytest.raises(SesameError, match="changed since this run began"):
        run(begin, tmp_path / "run", "classify", train, valid, **wishes)
    Path(train).unlink()
    assert run(begin, tmp_path / "run", "classify", train, valid, **wishes) == told
    assert "finished already" in capsys.readouterr().err


def command(begin: Path, train: str, valid: str, out: Path, strategy: str) -> list[str]:
    words = ["finetune", begin, "--task", "classify", "--train", train, "--valid", valid, "--out", out]
    words += ["--strategy", strategy, "--seeds", 1, "--save-steps", 3, "--device", "cpu", "--precision", "fp32"]
    words += ["--no-baselines", *(word for setting in SHORT for word in ("--set", setting))]
    return [sys.executable, "-m", "sesame", *map(str, words)]


def finish(arguments: list[str], folder: Path) -> str:
    process = start(arguments, folder / "cache", folder / "log")
    assert process.wait(PATIENCE) == 0, (folder / "log").read_text()
    return (folder / "log").read_text()


def appeared(out: Path, names: list[str]) -> set[Path]:
    return {path for name in names for path in out.glob(name)}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["full", "frozen", "gradual"])
def test_kills_at_any_moment(strategy: str, begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 48, 16)
    calm, out = tmp_path / "calm", tmp_path / "run"
    finish(command(begin, train, valid, calm, strategy), tmp_path)
    luck, kills = random.Random(strategy), 0
    for moments in (["seed-0/recipe.toml", "seed-0/final"], ["seed-0/checkpoints/*"], ["seed-0/*", ".final*"]):
        before = appeared(out, moments)
        process = start(command(begin, train, valid, out, strategy), tmp_path / "cache", tmp_path / "log")
        until = time.monotonic() + PATIENCE
        while appeared(out, moments) <= before and process.poll() is None:
            assert time.monotonic() < until, "nothing happened"
            time.sleep(0.001)
        time.sleep(luck.uniform(0, 0.1))
        if process.poll() is None:
            kill_group(process)
            kills += 1
    assert kills >= 2
    finish(command(begin, train, valid, out, strategy), tmp_path)
    assert weights(out) == weights(calm)
    both = [json.loads((folder / "results.json").read_text())["scores"] for folder in (out, calm)]
    assert both[0] == both[1]


@pytest.mark.slow
def test_sigterm_saves_and_the_same_command_goes_on(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 48, 16)
    long = [*command(begin, train, valid, tmp_path / "run", "full"), "--set", "epochs=1000"]
    process = start(long, tmp_path / "cache", tmp_path / "log")
    until = time.monotonic() + PATIENCE
    while not list((tmp_path / "run").glob("seed-0/checkpoints/step-*")):
        assert time.monotonic() < until
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    said = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("sesame:")]
    assert len(said) == 1
    assert "run the same command again" in said[0]
    process = start(long, tmp_path / "cache", tmp_path / "log")
    while "going on from step" not in (tmp_path / "log").read_text():
        assert time.monotonic() < until
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- honesty --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_chosen_by_the_test_data(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 40, 30)
    told = write_examples(tmp_path / "test.csv", "classify", examples("classify", 30, 3))
    garbage = [
        ("text", "label"),
        *((e.text, "bad" if e.label == "good" else "good") for e in examples("classify", 30, 3)),
    ]
    lies = write_csv(tmp_path / "lies.csv", garbage)
    found = {}
    for name, test in (("none", None), ("told", str(told)), ("lies", str(lies))):
        settings = ["batch=8", "epochs=2", "least_steps=0", "rate_width=0", "optimizer.rate=2e-3"]
        found[name] = run(begin, tmp_path / name, "classify", train, valid, test=test, seeds=4, settings=settings)
    values = found["told"]["scores"]["valid"]["accuracy"]["values"]
    assert len(set(values)) > 1, "seeds that are all alike prove nothing"
    for name in ("none", "lies"):
        assert found[name]["best"] == found["told"]["best"] == values.index(max(values))
        assert weights(tmp_path / name) == weights(tmp_path / "told")
        assert found[name]["tuned"] == found["told"]["tuned"]
    right, wrong = (found[name]["scores"]["test"]["accuracy"]["mean"] for name in ("told", "lies"))
    assert right == pytest.approx(1 - wrong)


@pytest.mark.slow
def test_a_collapse_is_noticed_and_trained_again(begin: Path, tmp_path: Path) -> None:
    """All texts are the same tokens, so every try gives one answer, on any machine; the notes and the report say so."""
    train, valid = spaces_apart(tmp_path)
    results = run(begin, tmp_path / "run", "classify", train, valid, settings=[*SHORT, "epochs=5"])
    (seed,) = results["seeds"]
    assert seed["collapsed"]
    assert seed["attempts"] == 3
    assert seed["folder"] == "seed-0/again-2"
    assert "collapsed to one answer 3 times; lower the rate or give more labels" in " ".join(results["data"]["notes"])
    assert (tmp_path / "run" / "report.html").is_file()


def spaces_apart(folder: Path) -> tuple[str, str]:
    """Texts that differ in their spaces only, which the tokenizer does not see."""
    train, valid = folder / "train.csv", folder / "valid.csv"
    for file, rows in ((train, 40), (valid, 20)):
        file.write_text("text,label\n" + "red sun,good\nred  sun,bad\n" * (rows // 2))
    return str(train), str(valid)


def test_a_collapse_after_few_steps_is_told_to_train_longer(begin: Path, tmp_path: Path) -> None:
    """Two steps away from its start no model has learnt anything, at whatever rate and of however many labels."""
    train, valid = spaces_apart(tmp_path)
    results = run(begin, tmp_path / "run", "classify", train, valid, settings=[*SHORT, "epochs=0.4"])
    assert "collapsed to one answer 3 times; train longer than 2 steps (--epochs)" in results["data"]["notes"][-1]


def test_one_text_to_validate_by_is_no_collapse(begin: Path, tmp_path: Path) -> None:
    """Few texts in many rows: what is kept aside is one of them, to which every model gives one answer."""
    texts = ("red sun", "old moon", "w1 w2", "w3", "w4 w5", "w6")
    rows = [(text, f"{number + at / 10}") for number in range(13) for at, text in enumerate(texts)]
    train = write_csv(tmp_path / "train.csv", [("text", "score"), *rows])
    results = run(begin, tmp_path / "run", "regress", str(train), None, settings=SHORT)
    notes = " ".join(results["data"]["notes"])
    assert "warning: all 13 validation rows have the same text" in notes
    assert "give others with --valid" in notes
    assert "collapsed" not in notes
    assert results["seeds"][0]["attempts"] == 1


@pytest.mark.slow
def test_another_attempt_is_another_training(begin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = files(tmp_path, "classify", 40, 20)
    answers = iter([True, False, False])
    monkeypatch.setattr("sesame.finetuning.seeds.collapsed", lambda *_: next(answers))
    results = run(begin, tmp_path / "run", "classify", train, valid, settings=SHORT, seeds=2)
    assert [seed["attempts"] for seed in results["seeds"]] == [2, 1]
    first, second = (tmp_path / "run" / "seed-0" / place for place in ("", "again-1"))
    assert weights(first) != weights(second)
    assert results["seeds"][0]["folder"] == "seed-0/again-1"


@pytest.mark.slow
def test_a_collapsed_seed_is_never_the_best(begin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = files(tmp_path, "classify", 60, 20)
    answers = iter([True, True, True, False])
    monkeypatch.setattr("sesame.finetuning.seeds.collapsed", lambda *_: next(answers))
    assert run(begin, tmp_path / "run", "classify", train, valid, settings=SHORT, seeds=2)["best"] == 1


def test_questions_are_scored_as_the_models_answer(begin: Path, tmp_path: Path) -> None:
    """When nothing is answered is tuned on validation rows: each seed's scores are those with its own threshold."""
    train, valid = files(tmp_path, "qa", 40, 30)
    results = run(begin, tmp_path / "run", "qa", train, valid, settings=[*SHORT, "epochs=2"], seeds=2)
    asked = examples("qa", 30, 2)
    gold = {str(number): [answer.text for answer in example.label] for number, example in enumerate(asked)}
    for number, seed in enumerate(results["seeds"]):
        model = sesame.load(tmp_path / "run" / seed["folder"], "cpu")
        assert abs(model.task().config.threshold) > 1e-6
        said = {str(place): reply["answer"] for place, reply in enumerate(model.predict(asked))}
        assert seed["scores"]["valid"] == pytest.approx(squad_scores(gold, said))
        if number == results["best"]:
            lines = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
            assert [json.loads(line)["answer"] for line in lines] == list(said.values())


# ---- data at their edges --------------------------------------------------------------------------------------------


def test_everything_is_written_down(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 60, 20)
    results = run(begin, tmp_path / "run", "classify", train, valid, baselines=True, seeds=2, settings=SHORT)
    assert set(results["baselines"]) == {"majority", "tf-idf"}
    assert {"accuracy", "macro_f1", "matthews"} <= set(results["scores"]["valid"])
    assert results["scores"]["valid"]["accuracy"]["n"] == 2
    assert {"versus", "per_class", "confusion", "calibration", "mistakes", "summary", "next"} <= set(results)
    assert results["data"]["rows"] == {"train": 60, "valid": 20}
    report = (tmp_path / "run" / "report.html").read_text()
    assert "train.csv" in report
    assert "<svg" in report
    final = load_parts(tmp_path / "run" / "final")
    assert final.tasks["classify"].config.temperature == results["tuned"]["temperature"]
    assert final.tasks["classify"].config.labels == ("bad", "good")
    assert "sesame.load(folder).predict" in (tmp_path / "run" / "final" / "README.md").read_text()
    assert not list((tmp_path / "run").rglob("checkpoints"))


def test_a_text_of_unknown_words_is_told(begin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of another script learns nothing, and the rate is not to blame."""
    rows = [("ปลา นก w1", "b") if number % 2 else ("หมา แมว", "a") for number in range(40)]
    train = write_csv(tmp_path / "train.csv", [("text", "label"), *rows])
    results = run(begin, tmp_path / "run", "classify", str(train), str(train), settings=SHORT)
    told = "warning: 80 % of the tokens of the training texts are unknown words"
    assert told in capsys.readouterr().err
    assert any(told in note for note in results["data"]["notes"])


def test_labels_that_training_has_not(begin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(e.text, e.label) for e in examples("classify", 60, 1)]
    train = write_csv(tmp_path / "train.csv", [("text", "label"), *rows])
    odd = [("text", "label"), *rows[:10], ("w1 w2 strange", "new"), ("w3 stranger", "newer")]
    valid = write_csv(tmp_path / "valid.csv", odd)
    results = run(begin, tmp_path / "run", "classify", str(train), str(valid), baselines=True, test=str(valid))
    assert '2 of 12 validation rows have labels that training does not: "new", "newer"' in capsys.readouterr().err
    assert results["scores"]["valid"]["accuracy"]["mean"] <= 10 / 12
    assert [row["label"] for row in results["per_class"]] == ["bad", "good", "new", "newer"]

    told = examples("tag", 40, 1)
    train = write_examples(tmp_path / "train.conll", "tag", told)
    (tmp_path / "valid.conll").write_text("w1 O\nalpha B-GOOD\n\nw2 B-NEW\nw3 I-NEW\n")
    results = run(begin, tmp_path / "tags", "tag", str(train), str(tmp_path / "valid.conll"), settings=SHORT)
    assert {row["label"] for row in results["per_class"]} >= {"GOOD", "NEW"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUFFIX)
def test_one_row_to_validate_by(kind: str, begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, kind, 24, 1)
    results = run(begin, tmp_path / "run", kind, train, valid, settings=SHORT, baselines=True, seeds=2)
    assert results["data"]["rows"]["valid"] == 1
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUFFIX)
def test_without_validation_rows_some_are_kept_aside(kind: str, begin: Path, tmp_path: Path) -> None:
    train, _ = files(tmp_path, kind, 60, 1)
    results = run(begin, tmp_path / "run", kind, train, None, settings=SHORT)
    rows = results["data"]["rows"]
    assert rows["train"] + rows["valid"] == 60
    assert 3 <= rows["valid"] <= 9
    assert "no --valid: kept" in " ".join(results["data"]["notes"])


def test_nothing_can_be_kept_aside(begin: Path, tmp_path: Path) -> None:
    """One row of each class: all of them are needed."""
    train = write_csv(tmp_path / "train.csv", [("text", "label"), ("w1 w2", "a"), ("w3 w4", "b"), ("w5", "c")])
    with pytest.raises(SesameError, match=r"train\.csv.*--valid") as told:
        run(begin, tmp_path / "run", "classify", str(train), None)
    assert "\n" not in str(told.value)
    one = write_csv(tmp_path / "same.csv", [("text", "label"), ("w1", "2.5"), ("w1", "3.5")])
    with pytest.raises(SesameError, match=r"same\.csv.*--valid"):
        run(begin, tmp_path / "run", "regress", str(one), None)


def test_a_single_score_is_learnt(begin: Path, tmp_path: Path) -> None:
    """Of two rows one is kept aside; the spread of the other one's score is none, not unknown."""
    train = write_csv(tmp_path / "train.csv", [("text", "score"), ("w1 w2", "2.5"), ("w3 w4", "3.5")])
    results = run(begin, tmp_path / "run", "regress", str(train), None, settings=SHORT)
    (said,) = (json.loads(line)["value"] for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines())
    assert 1.5 < said < 4.5  # near the one score that was seen
    assert results["scores"]["valid"]["mae"]["mean"] < 2.0


def test_a_wrong_metric_is_told_before_the_training(begin: Path, tmp_path: Path) -> None:
    train, valid = files(tmp_path, "classify", 24, 8)
    with pytest.raises(SesameError, match=r"--metric beauty.*accuracy.*macro_f1"):
        run(begin, tmp_path / "run", "classify", train, valid, metric="beauty")
    assert not list((tmp_path / "run").glob("seed-*"))
    run(begin, tmp_path / "run", "classify", train, valid, metric="macro_f1", settings=SHORT)  # the folder is free


@pytest.mark.parametrize("kind", ["single", "several"])
def test_one_label_here_and_several_there(kind: str, begin: Path, tmp_path: Path) -> None:
    one = [{"text": f"w{n} alpha", "label": "ab"[n % 2]} for n in range(20)]
    many = [{"text": f"w{n} beta", "label": ["a", "b"][: 1 + n % 2]} for n in range(20)]
    train, valid = (one, many) if kind == "single" else (many, one)
    for name, rows in (("train", train), ("valid", valid)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    paths = [str(tmp_path / f"{name}.jsonl") for name in ("train", "valid")]
    if kind == "several":  # one label is a set of one
        results = run(begin, tmp_path / "run", "classify", *paths, settings=SHORT, baselines=True)
        assert {row["label"] for row in results["per_class"]} == {"a", "b"}
        return
    with pytest.raises(SesameError, match=r"valid\.jsonl:2: .*several labels"):
        run(begin, tmp_path / "run", "classify", *paths, settings=SHORT)


@pytest.mark.slow
def test_very_long_texts_train_and_predict(begin: Path, tmp_path: Path) -> None:
    """A 50,000-word text among short ones."""
    luck = random.Random(0)
    words = [f"w{luck.randrange(20)}" for _ in range(50_000)]
    rows = [(e.text, e.label) for e in examples("classify", 40, 1)]
    paths = []
    for name, given in (
        ("train", [*rows, (" ".join(words), "good")]),
        ("valid", [*rows[:8], (" ".join(words[1:]), "good")]),
    ):
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in given))
    train, valid = paths
    results = run(begin, tmp_path / "run", "classify", str(train), str(valid), settings=SHORT)
    assert "1 training texts are longer than 32 tokens" in " ".join(results["data"]["notes"])


@pytest.mark.slow
def test_the_run_is_not_spoilt_by_a_copy(begin: Path, tmp_path: Path) -> None:
    """A finished run moved elsewhere still answers: nothing in it points back."""
    train, valid = files(tmp_path, "classify", 24, 8)
    run(begin, tmp_path / "run", "classify", train, valid, settings=SHORT)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert sesame.load(tmp_path / "moved", "cpu").predict("w1 alpha")[0]["label"] in ("good", "bad")
