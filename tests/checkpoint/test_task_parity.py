"""The heads of tasks: our logits are transformers', in both directions, with the same label names."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    EsmConfig,
    MegatronBertConfig,
)

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.tasks import share_pooler
from sesame.data.batch import IGNORE
from sesame.tasks import Item, Task, TaskConfig, build_task
from sesame.tasks.windows import Window
from tests.tasks.toys import encoder, noise

TINY = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
CONFIGS: dict[str, Any] = {
    "bert": lambda **more: BertConfig(**TINY, **more),
    "megatron": lambda **more: MegatronBertConfig(**TINY, **more),
    "esm": lambda **more: EsmConfig(
        **TINY, pad_token_id=0, mask_token_id=4, position_embedding_type="rotary", emb_layer_norm_before=False,
        token_dropout=False, **more,
    ),
}  # fmt: skip
AUTO: dict[str, Any] = {
    "classify": AutoModelForSequenceClassification,
    "regress": AutoModelForSequenceClassification,
    "tag": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
}
NAMES = ["ärger", "b 2", "日本", "10", "9", "Ω"]  # neither sorted nor plain
LABELS = {"id2label": dict(enumerate(NAMES)), "label2id": {name: id for id, name in enumerate(NAMES)}}
RELEVANCE = {"id2label": {0: "relevance"}, "label2id": {"relevance": 0}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "three labels": ("classify", {"id2label": {0: "c", 1: "a", 2: "b"}, "label2id": {"c": 0, "a": 1, "b": 2}}),
    "default labels": ("classify", {}),
    "several labels": ("classify", {**LABELS, "problem_type": "multi_label_classification"}),
    "regression": ("regress", {"num_labels": 1}),
    "regression by name": ("regress", {**RELEVANCE, "problem_type": "regression"}),
    "one number that has a name": ("regress", RELEVANCE),
    "tags": ("tag", LABELS),
    "questions": ("qa", {}),
    "options": ("choice", {}),
}
KNOWN = [(f, case) for f in CONFIGS for case, (kind, _) in CASES.items() if f != "esm" or kind not in ("qa", "choice")]


def windows(lengths: list[int], segments: bool = True) -> list[Window]:
    luck = torch.Generator().manual_seed(1)
    found = []
    for length in lengths:
        ids = torch.randint(5, 97, (length,), generator=luck).tolist()
        types = torch.randint(0, 2 if segments else 1, (length,), generator=luck).tolist()
        found.append(Window(ids, types, [(n, n + 1) for n in range(length)], range(length), range(length)))
    return found


def items_of(kind: str, segments: bool = True) -> list[Item]:
    if kind == "choice":
        return [Item(tuple(windows(lengths, segments)), (0, 1, 2)) for lengths in ([9, 4, 6], [3, 11, 5])]
    single = windows([11, 5, 2], segments)
    return [Item((window,), (0,), extra={"spots": [[]], "words": []}) for window in single]


def assert_same_labels(back: Any, model: Any, kind: str, case: str) -> None:
    if kind in ("classify", "tag", "regress"):
        assert back.config.id2label == model.config.id2label
        assert back.config.label2id == model.config.label2id
        assert back.num_labels == model.num_labels
    if kind == "regress":  # where nothing is said, a pipeline there shows the sigmoid of the number
        assert back.config.problem_type == model.config.problem_type
    if kind == "classify":
        problem = {"several labels": "multi_label_classification"}
        assert back.config.problem_type == problem.get(case, "single_label_classification")


@torch.no_grad()
def ours(parts: Parts, items: list[Item]) -> Tensor:
    (task,) = parts.tasks.values()
    task.eval()
    parts.backbone.eval()
    batch = task.collate(items, 0)
    return task.answer(parts.backbone(batch, task.looks_at(batch)))


@torch.no_grad()
def theirs(model: Any, kind: str, items: list[Item]) -> Tensor:
    task = build_task("x", TaskConfig(kind, ("a", "b")), encoder(97))  # type: ignore[arg-type]
    batch = task.collate(items, 0)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask().long()}  # type: ignore[union-attr]
    if model.config.model_type != "esm":
        inputs["token_type_ids"] = batch.segments  # type: ignore[assignment]
    if kind == "choice":
        inputs = {name: value.view(len(items), -1, value.shape[-1]) for name, value in inputs.items()}
    said = model.eval()(**inputs)
    return torch.stack([said.start_logits, said.end_logits], -1) if kind == "qa" else said.logits


def real(kind: str, items: list[Item]) -> Tensor:
    """Where there is something to compare: padding is nobody's business."""
    if kind not in ("tag", "qa"):
        return torch.ones(len(items), dtype=torch.bool)
    lengths = torch.tensor([len(item.windows[0].ids) for item in items])
    return torch.arange(int(lengths.max()))[None] < lengths[:, None]


def assert_equal(found: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype == torch.float64
    assert (found - wanted).abs().max() < tolerance


@pytest.mark.parametrize(("family", "case"), KNOWN)
def test_both_ways(family: str, case: str, tmp_path: Path) -> None:
    kind, labels = CASES[case]
    tolerance = 1e-5 if family == "esm" else 1e-9  # transformers turns ESM's heads in float32
    items = items_of(kind, segments=family != "esm")
    model = AUTO[kind].from_config(CONFIGS[family](**labels))
    noise(model)
    model = model.double().eval()
    model.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    where = real(kind, items)
    wanted = theirs(model, kind, items)
    assert_equal(ours(parts, items)[where], wanted[where], tolerance)
    assert parts.unused == []
    (task,) = parts.tasks.values()
    assert task.config.kind == kind
    assert task.config.multi == (case == "several labels")
    if kind in ("classify", "tag"):
        assert dict(enumerate(task.config.labels)) == model.config.id2label

    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    back, report = AUTO[kind].from_pretrained(tmp_path / "ours", output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(back) is type(model)
    assert_equal(theirs(back, kind, items)[where], wanted[where], tolerance)
    assert_same_labels(back, model, kind, case)
    again = load_parts(tmp_path / "ours")
    assert {name: task.config for name, task in again.tasks.items()} == {kind: task.config}
    assert torch.equal(ours(again, items)[where], ours(parts, items)[where])


def test_more_classes_than_names(tmp_path: Path) -> None:
    """Old folders say num_labels beside the two names that every config had: the number counts, there and here."""
    model = AutoModelForSequenceClassification.from_config(CONFIGS["bert"](num_labels=5))
    model.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    said |= {"num_labels": 5, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    (task,) = load_parts(tmp_path).tasks.values()
    assert task.config.labels == tuple(f"LABEL_{number}" for number in range(5))


ODD: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {  # id2label, the labels here, what is said
    "from one": ({"1": "neg", "2": "pos"}, ("neg", "pos"), "numbers its labels 1, 2 and not from 0 to 1"),
    "a gap": ({"7": "c", "0": "a", "2": "b"}, ("a", "b", "c"), "numbers its labels 0, 2, 7 and not from 0 to 2"),
    "one name twice": ({"0": "x", "1": "y", "2": "x"}, ("x (0)", "y", "x (2)"), "several labels of one name"),
    "in order": ({"1": "b", "0": "a"}, ("a", "b"), ""),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_numbers_of_labels_are_told(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels that were numbered otherwise, or had one name, took each other's probabilities without a word."""
    named, labels, told = ODD[case]
    model = BertForSequenceClassification(CONFIGS["bert"](num_labels=len(named)))
    model.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(said | {"id2label": named}))
    capsys.readouterr()
    (task,) = load_parts(tmp_path).tasks.values()
    assert task.config.labels == labels
    err = capsys.readouterr().err
    assert told in err if told else not err


def test_one_label_has_no_problem_type(tmp_path: Path) -> None:
    """transformers refuses a config.json that says so of one label."""
    parts = together({"only": TaskConfig("classify", ("yes",))})
    save_parts(tmp_path, parts)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert (model.config.problem_type, model.config.id2label) == (None, {0: "yes"})
    assert load_parts(tmp_path).tasks["only"].config == parts.tasks["only"].config


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    """One label, several labels, and a number: sum / count is what transformers trains on."""
    luck = torch.Generator().manual_seed(3)
    targets = {
        "three labels": torch.tensor([2, 0, 1]),
        "several labels": torch.randint(0, 2, (3, 6), generator=luck).double(),
        "regression": torch.randn(3, generator=luck, dtype=torch.float64),
    }
    for number, (case, labels) in enumerate(targets.items()):
        kind, more = CASES[case]
        model = BertForSequenceClassification(CONFIGS["bert"](**more))
        noise(model)
        model = model.double().eval()
        model.save_pretrained(tmp_path / str(number))
        parts = load_parts(tmp_path / str(number))
        batch = next(iter(parts.tasks.values())).collate(items_of(kind), 0)
        target = dataclasses.replace(batch.targets[kind], labels=labels)
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask().long(), "token_type_ids": batch.segments}  # type: ignore[union-attr]
        with torch.no_grad():
            wanted = model(**inputs, labels=labels).loss
            found = parts.tasks[kind].loss(ours(parts, items_of(kind)), target) / target.count()
        assert abs(float(found - wanted)) < 1e-9, case


# ---- what transformers has no place for -----------------------------------------------------------------------------


def together(tasks: dict[str, TaskConfig], **settings: Any) -> Parts:
    backbone = encoder(97, **settings).double()
    built = {name: build_task(name, config, backbone) for name, config in tasks.items()}
    share_pooler(built)
    heads: dict[str, Any] = {}
    for task in built.values():
        heads |= task.heads()
    noise(backbone)
    for number, head in enumerate(heads.values()):
        noise(head.double(), number + 5)
    return Parts(backbone, heads, tasks=built)


@torch.no_grad()
def logits(task: Task, parts: Parts, items: list[Item]) -> Tensor:
    batch = task.eval().collate(items, 0)
    return task.answer(parts.backbone.eval()(batch, task.looks_at(batch)))


SEVERAL = {
    "topic": TaskConfig("classify", ("x", "y", "z")),
    "mood": TaskConfig("classify", ("0", "1"), multi=True),
    "names": TaskConfig("tag", ("O", "B-Ö")),
    "stars": TaskConfig("regress", scale=(3.0, 2.0)),
    "which": TaskConfig("choice"),
    "where": TaskConfig("qa", null=True, threshold=1.5),
}
SPECIAL = {
    "mix": TaskConfig("classify", ("a", "b", "c"), layers="mix"),
    "concat": TaskConfig("tag", ("a", "b", "c"), layers="concat-last-4"),
    "mean": TaskConfig("classify", ("a", "b"), pooling="mean"),
    "max": TaskConfig("regress", pooling="max", temperature=2.0),
    "cls": TaskConfig("choice", pooling="cls"),
    "second": TaskConfig("qa", layers="second-to-last"),
    "sum": TaskConfig("classify", ("a", "b"), layers="sum-all", pooling="mean", length=20, overlap=0.5),
    "concat pooler": TaskConfig("classify", ("a", "b"), layers="concat-last-4"),
}
FOLDERS: dict[str, dict[str, TaskConfig]] = {
    "several": SEVERAL,
    "reversed": dict(reversed(SEVERAL.items())),
    **{name: {"one": config} for name, config in SPECIAL.items()},
    "special beside": {"plain": SEVERAL["topic"], "mean": SPECIAL["mean"], "mix": SPECIAL["mix"]},
}
BACKBONES: dict[str, dict[str, Any]] = {
    "bert": {},
    "megatron": {"order": "pre"},
    "esm": {"order": "pre", "positions": "rotary", "segments": 0},
    "own": {"share": "all", "positions": "sinusoidal"},
}


@pytest.mark.parametrize("family", BACKBONES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_round_trip(folder: str, family: str, tmp_path: Path) -> None:
    parts = together(FOLDERS[folder], **BACKBONES[family])
    save_parts(tmp_path, parts)
    back = load_parts(tmp_path)
    assert {name: task.config for name, task in back.tasks.items()} == FOLDERS[folder]
    assert list(back.tasks) == list(FOLDERS[folder])
    assert set(back.heads) == set(parts.heads)
    assert not [name for name in back.unused if "contact_head" not in name]
    for name, task in parts.tasks.items():
        items = items_of(task.config.kind)
        assert torch.equal(logits(back.tasks[name], back, items), logits(task, parts, items)), name
    if family == "own":
        return
    model = AutoModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    items = items_of("tag")
    batch = build_task("t", TaskConfig("tag", ("a",)), parts.backbone).collate(items, 0)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask().long()}  # type: ignore[union-attr]
    if family != "esm":
        inputs["token_type_ids"] = batch.segments  # type: ignore[assignment]
    where = real("tag", items)
    with torch.no_grad():
        wanted = parts.backbone.eval()(batch).last[where]
        assert_equal(model(**inputs).last_hidden_state[where], wanted, 1e-5 if family == "esm" else 1e-9)


def test_the_first_task_that_fits_is_theirs(tmp_path: Path) -> None:
    for number, (names, kind, opened) in enumerate(
        [(["mean", "topic", "names"], "classify", "topic"), (["names", "topic"], "tag", "names")]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        parts = together({name: (SEVERAL | SPECIAL)[name] for name in names})
        save_parts(folder, parts)
        model, report = AUTO[kind].from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
        assert not report["missing_keys"]
        assert list(model.config.id2label.values()) == list(SEVERAL[opened].labels)
        items = items_of(kind)
        where = real(kind, items)
        assert_equal(theirs(model, kind, items)[where], logits(parts.tasks[opened], parts, items)[where])


def test_a_head_that_was_never_trained_is_not_offered(tmp_path: Path) -> None:
    """config.json may name a class whose head the weights lack: what comes out would be chance."""
    model = AutoModel.from_config(CONFIGS["bert"]())
    model.save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    for name in ("BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering"):
        (tmp_path / "config.json").write_text(json.dumps(described | {"architectures": [name]}))
        assert load_parts(tmp_path).tasks == {}


def test_padding_never_leaks() -> None:
    """A text alone and the same text in a padded batch have the same logits, for all tasks, layers and poolings."""
    for family, settings in BACKBONES.items():
        for name, config in (SEVERAL | SPECIAL).items():
            parts = together({"t": config}, **settings)
            task = parts.tasks["t"]
            items = items_of(config.kind)
            both = logits(task, parts, items)
            for number, item in enumerate(items):
                alone = logits(task, parts, [item])[0]
                found = both[number][: alone.shape[0]]
                assert_equal(found, alone, 1e-12)
                assert (both[number][alone.shape[0] :] == -torch.inf).all() or config.kind == "tag", (family, name)


def test_labels_that_are_missing_carry_no_loss() -> None:
    for name, config in SEVERAL.items():
        if config.kind == "regress" or config.multi:
            continue
        task = together({"t": config}).tasks["t"]
        batch = task.collate(items_of(config.kind), 0)
        assert (batch.targets["t"].labels == IGNORE).all(), name
        assert batch.targets["t"].count() == 0
