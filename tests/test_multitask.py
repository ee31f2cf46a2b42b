"""Several tasks, one encoder: learnt together, saved in one folder, loaded, asked for by name, resumed to the bit."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import SETTINGS, make_text
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sesame
from sesame.checkpoint.loading import load_parts
from sesame.cli import app
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.finetuning.multitask import Asked, check_names, parse_also
from sesame.finetuning.run import Wishes, finetune
from sesame.finetuning.transfer import resolve_transfer, task_config
from sesame.tasks import TASKS, Item
from sesame.tasks.loader import ItemLoader, ManyLoader
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.slow  # whole runs

QUICK = ["epochs=12", "least_steps=0", "optimizer.rate=1e-2", "rate_width=0", "batch=16", "task.pooling=mean"]
FRUIT, METAL, NAMES = ("plum", "pear", "fig"), ("iron", "zinc", "lead"), ("ada", "bob", "eve")
OTHER = ("the", "we", "saw", "near", "old", "was")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose words are those of the tasks."""
    folder = tmp_path_factory.mktemp("start")
    words = " ".join([*FRUIT, *METAL, *NAMES, *OTHER])
    text = make_text(folder / "text.txt", 20)
    text.write_text(text.read_text() + "\n\n" + "\n".join([words] * 200) + "\n")
    wishes = {"steps": 2, "device": "cpu", "precision": "fp32", "settings": SETTINGS}
    sesame.pretrain("bert", text, folder / "run", **wishes)
    return folder / "run"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fruit or metal, by one word; which words are names; how many fruits there are."""
    folder, luck = tmp_path_factory.mktemp("data"), random.Random(0)
    kinds, tags, counts = ["text\tlabel"], [], ["text\tscore"]
    for number in range(120):
        words = luck.choices(OTHER, k=4)
        label = ("fruit", "metal")[number % 2]
        kinds.append(
            " ".join([*words[:2], luck.choice(FRUIT if number % 2 == 0 else METAL), *words[2:]]) + f"\t{label}"
        )
        if number < 80:
            row = luck.choices((*OTHER, *NAMES), k=5)
            tags.append("\n".join(f"{word}\t{'B-PER' if word in NAMES else 'O'}" for word in row) + "\n")
        row = [*luck.choices(METAL, k=4 - number % 4), *luck.choices(FRUIT, k=number % 4)]
        counts.append(" ".join(luck.sample(row, k=len(row))) + f"\t{number % 4}")
    (folder / "kinds.tsv").write_text("\n".join(kinds) + "\n")
    (folder / "names.conll").write_text("\n".join(tags))
    (folder / "counts.tsv").write_text("\n".join(counts) + "\n")
    return folder


def wishes(start: Path, data: Path, out: Path, **more: Any) -> Wishes:
    also = [f"tag:{data / 'names.conll'}", f"fruits=regress:{data / 'counts.tsv'}"]
    given: dict[str, Any] = {"seeds": 1, "settings": QUICK, "device": "cpu", "precision": "fp32", "baselines": False}
    given |= {"also": also} | more
    return Wishes(str(start), "classify", str(data / "kinds.tsv"), out, **given)


@pytest.fixture(scope="module")
def taught(start: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("taught") / "run"
    finetune(wishes(start, data, out, seeds=2))
    return out


# ---- learnt together -------------------------------------------------------------------------------------------------


def test_all_tasks_are_learnt(taught: Path) -> None:
    found = json.loads((taught / "results.json").read_text())
    assert list(found["tasks"]) == ["classify", "tag", "fruits"]
    means = {name: task["scores"]["valid"][task["metric"]]["mean"] for name, task in found["tasks"].items()}
    assert means["classify"] > 0.95
    assert means["tag"] > 0.95
    assert means["fruits"] > 0.8
    assert found["scores"] == found["tasks"]["classify"]["scores"]


def test_every_task_has_a_report_a_curve_and_predictions(taught: Path) -> None:
    found = json.loads((taught / "results.json").read_text())
    for name, end in (("classify", ""), ("tag", "-tag"), ("fruits", "-fruits")):
        page = (taught / f"report{end}.html").read_text()
        assert f"{name}: " in page
        rows = (taught / f"predictions{end}.jsonl").read_text().splitlines()
        assert len(rows) == found["tasks"][name]["data"]["rows"]["valid"]
        curves = [seed["curve"] for seed in found["tasks"][name]["seeds"]]
        assert all(len(curve) >= 4 and curve[-1][0] > curve[0][0] for curve in curves)
    assert "report-tag.html" in (taught / "report.html").read_text()
    means = {name: task["seeds"][0]["curve"][-1][1] for name, task in found["tasks"].items()}
    seed = json.loads((taught / "seed-0" / "result.json").read_text())
    assert seed["curve"][-1][1] == pytest.approx(sum(means.values()) / 3)
    card = (taught / "final" / "README.md").read_text()
    assert "taught 3 tasks" in card
    assert "| fruits | regress | counts.tsv |" in card


def test_one_folder_answers_for_all(taught: Path, data: Path) -> None:
    model = sesame.load(taught)
    replies = model.predict(["we saw plum near old", "we saw zinc near old"], "classify")
    assert [reply["label"] for reply in replies] == ["fruit", "metal"]
    (reply,) = model.predict("near ada was bob", "tag")
    assert [entity["text"] for entity in reply["entities"]] == ["ada", "bob"]
    few, many = model.predict(["iron zinc lead iron", "fig plum pear iron"], "fruits")
    assert few["value"] + 1 < many["value"]
    with pytest.raises(SesameError, match=r"several tasks \(classify, tag, fruits\)"):
        model.predict("we saw")
    said = CliRunner().invoke(app, ["predict", str(taught), "was eve", "--task", "tag", "--json"])
    assert [entity["text"] for entity in json.loads(said.stdout)["entities"]] == ["eve"]
    judged = CliRunner().invoke(
        app, ["evaluate", str(taught), "--data", str(data / "counts.tsv"), "--task", "fruits", "--json"]
    )
    assert json.loads(judged.stdout)["scores"]["pearson"] > 0.8


def test_transformers_opens_the_first_task_it_has_a_class_for(start: Path, data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    settings = [*QUICK[2:5], "epochs=1", "least_steps=0"]  # with a pooler: that is the class's own
    final = finetune(wishes(start, data, tmp_path / "run", settings=settings))
    theirs, log = transformers.AutoModelForSequenceClassification.from_pretrained(final, output_loading_info=True)
    assert not log["missing_keys"]
    assert theirs.config.id2label == {0: "fruit", 1: "metal"}
    ours = sesame.load(final)
    encoding = ours.tokenizer.encode("we saw old plum", special=True)
    logits = theirs.eval()(torch.tensor([encoding.ids])).logits[0]
    config = ours.task("classify").config
    (reply,) = ours.predict("we saw old plum", "classify")
    shares = (logits / config.temperature).softmax(-1).tolist()
    assert reply["probabilities"] == pytest.approx(dict(zip(config.labels, shares, strict=True)), abs=1e-5)


def test_the_best_seed_is_best_on_average(taught: Path) -> None:
    found = json.loads((taught / "results.json").read_text())
    each = [[task["scores"]["valid"][task["metric"]]["values"][n] for task in found["tasks"].values()] for n in (0, 1)]
    assert found["best"] == int(np.argmax(np.mean(each, axis=1)))


def test_frozen_features_of_several_tasks(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where those of one task are too many to keep, they are computed as they come, with the same result."""
    found = []
    for number, most in enumerate((3_000_000_000, 60_000)):
        monkeypatch.setattr("sesame.finetuning.one_seed.KEEP_BYTES", most)
        out = tmp_path / str(number)
        finetune(wishes(start, data, out, strategy="frozen", settings=["epochs=2", "least_steps=0"]))
        said = capsys.readouterr().err
        assert [name for name in ("classify", "tag", "fruits") if f"{name}: features of" in said] == ["tag"][:number]
        found.append(load_parts(out).state())
    before = load_parts(start).state()
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], rtol=1e-4, atol=1e-5)
        assert not name.startswith("backbone.") or torch.equal(tensor, before[name])
    assert {"classify.weight", "tag.weight", "fruits.weight"} <= set(found[0])


def test_every_task_stands_beside_its_own_baselines(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_label(kind: str, train: list[Example], test: list[Example]) -> dict[str, list[Any]]:
        return {"first": [train[0].label if kind == "classify" else ("O",) * len(one.label) for one in test]}

    monkeypatch.setattr("sesame.finetuning.outcome.baselines", first_label)
    out, short = tmp_path / "run", ["epochs=0.2", "least_steps=0"]
    finetune(wishes(start, data, out, baselines=True, also=[f"tag:{data / 'names.conll'}"], settings=short))
    found = json.loads((out / "results.json").read_text())["tasks"]
    assert found["classify"]["baselines"]["first"]["valid"]["accuracy"] == 0.5
    assert found["tag"]["baselines"]["first"]["valid"]["f1"] == 0.0
    assert json.loads((out / "baselines-tag.json").read_text())["first"]["scores"]["valid"]["f1"] == 0.0


# ---- resume ----------------------------------------------------------------------------------------------------------


def test_a_killed_run_goes_on_to_the_same_bits(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"settings": [*QUICK[1:], "epochs=3", "alpha=0.5"], "save_steps": 7}
    monkeypatch.setattr("sesame.finetuning.one_seed.LOOKING", 1e9)  # how often it looks must not hang on the clock here
    calm = finetune(wishes(start, data, tmp_path / "calm", **short))
    with crash_while_saving(after=3):
        finetune(wishes(start, data, tmp_path / "run", **short))
    assert (tmp_path / "run" / "seed-0" / "checkpoints").is_dir()
    with pytest.raises(SesameError, match="holds another run"):
        finetune(wishes(start, data, tmp_path / "run", **(short | {"also": [f"tag:{data / 'names.conll'}"]})))
    again = finetune(wishes(start, data, tmp_path / "run", **short))
    for name in ("model.safetensors", "config.json"):
        assert (again / name).read_bytes() == (calm / name).read_bytes()
    logs = [(tmp_path / run / "seed-0" / "metrics.jsonl").read_text().splitlines() for run in ("calm", "run")]
    kept = [[_bare(json.loads(line)) for line in log] for log in logs]
    assert kept[0] == kept[1]


def _bare(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second", "wait")}


# ---- how tasks are drawn ---------------------------------------------------------------------------------------------


class _Named(ItemLoader):
    """Gives its own step instead of batches."""

    def load(self, step: int) -> list[Any]:
        return [(self.seed, step)]


def _loaders(*sizes: int) -> list[ItemLoader]:
    return [_Named(None, [Item(())] * size, 0, 1, number, 1) for number, size in enumerate(sizes)]  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_tasks_are_drawn_by_size_to_the_alpha(alpha: float) -> None:
    sizes, steps = (900, 100, 400), 6000
    loader = ManyLoader(_loaders(*sizes), steps, seed=3, alpha=alpha)
    drawn: list[Any] = [loader.load(step)[0] for step in range(steps)]
    shares = np.bincount([task for task, _ in drawn], minlength=3) / steps
    wanted = np.array(sizes) ** alpha / sum(size**alpha for size in sizes)
    assert shares == pytest.approx(wanted, abs=4 * 0.5 / steps**0.5)
    for number in range(3):  # each task sees its own steps in order, without a gap
        own = [step for task, step in drawn if task == number]
        assert own == list(range(len(own)))
    assert loader.load(4321)[0] == drawn[4321]


def test_alpha_reaches_the_loader(start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    make: Callable[..., None] = ManyLoader.__init__

    def watched(self: ManyLoader, loaders: Any, steps: int, seed: int, alpha: float) -> None:
        seen.append(alpha)
        make(self, loaders, steps, seed, alpha)

    monkeypatch.setattr(ManyLoader, "__init__", watched)
    finetune(wishes(start, data, tmp_path / "run", settings=["alpha=0.25", "epochs=0.2", "least_steps=0"], seeds=1))
    assert set(seen) == {0.25}
    with pytest.raises(SesameError, match="alpha is 2"):
        resolve_transfer("full", ["alpha=2"])


# ---- how tasks are asked for -----------------------------------------------------------------------------------------

_PLAIN = st.text("abcXYZ019_./ -", min_size=1).filter(lambda text: bool(text.strip()))


_TASK_NAME = st.none() | st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True)


@given(_TASK_NAME, st.sampled_from(sorted(TASKS)), st.lists(_PLAIN, min_size=1, max_size=3))
def test_also_is_read_as_it_is_written(name: str | None, kind: str, files: list[str]) -> None:
    asked = parse_also((f"{name}=" if name else "") + ":".join([kind, *files]))
    assert (asked.name, asked.kind) == (name or kind, kind)
    assert list(asked.files().values()) == files
    assert list(asked.files()) == ["train", "valid", "test"][: len(files)]


@given(st.text())
def test_whatever_is_written_gives_a_task_or_a_sentence(text: str) -> None:
    try:
        said = parse_also(text).kind
    except SesameError as error:
        said = str(error)
    assert said in TASKS or said.startswith("--also ")


def test_a_gap_leaves_validation_out() -> None:
    assert parse_also("tag:a.conll::c.conll").files() == {"train": "a.conll", "test": "c.conll"}
    assert parse_also("tag:a=b.conll").train == "a=b.conll"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("classify", "two tasks are called 'classify'"),
        ("my task", "letters, digits"),
        ("a.b", "letters, digits"),
        ("", "letters, digits"),
        ("pooler", "means something else"),
        ("loss", "means something else"),
        ("keys", "means something else"),
        ("train", "means something else"),
    ],
)
def test_names_that_a_checkpoint_cannot_hold(name: str, sentence: str) -> None:
    with pytest.raises(SesameError, match=sentence):
        check_names([Asked("classify", "classify", "a.csv"), Asked(name, "tag", "b.conll")])


def test_a_wrong_metric_is_told_before_training(start: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="--metric pearson: this task is scored by accuracy"):
        finetune(wishes(start, data, tmp_path / "run", metric="pearson"))


def test_a_missing_file_of_a_further_task(start: Path, data: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(
        app, ["finetune", str(start), "--task", "classify", "--train", str(data / "kinds.tsv"), "--out",
              str(tmp_path / "run"), "--also", f"tag:{tmp_path / 'none.conll'}"],
    )  # fmt: skip
    assert isinstance(said.exception, SesameError)
    assert "none.conll: no such file" in str(said.exception)


def test_the_positive_of_two_labels_comes_last(data: Path) -> None:
    for one, other in (("entailment", "not_entailment"), ("Duplicate", "not duplicate"), ("0", "1"), ("no", "yes")):
        train = [Example("a", "x", label=one), Example("a", "x", label=other)]
        labels = task_config("classify", train, resolve_transfer("full")).labels
        assert labels[1] == (one if other.startswith("not") else other)
