"""Tasks on XLNet: the class token is last, padding never leaks, windows and heads are as transformers has them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer, XLNetForSequenceClassification
from transformers import XLNetConfig as TheirConfig

import sesame
from sesame.backbones import XLNet, XLNetConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.examples import Answer, Example
from sesame.finetuning.run import Wishes, finetune
from sesame.finetuning.transfer import fitted, resolve_transfer, task_config
from sesame.tasks import Item, Task, TaskConfig, build_task
from sesame.tasks.answer import logits_of
from sesame.tasks.windows import Inputs
from sesame.text.template import with_cls
from tests.checkpoint.test_bert_parity import assert_equal, noisy
from tests.checkpoint.test_xlnet_parity import HEADS, TINY, opened_there
from tests.tasks.toys import examples, noise, toy_tokenizer, write_examples

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENIZER = with_cls(toy_tokenizer(), last=True)
SEP, CLS = TOKENIZER.id("sep"), TOKENIZER.id("cls")
CONFIGS: dict[str, tuple[TaskConfig, dict[str, bool]]] = {
    "classify": (TaskConfig("classify", ("bad", "good")), {}),
    "pairs": (TaskConfig("classify", ("no", "yes"), pair=True), {"pair": True}),
    "mean": (TaskConfig("classify", ("bad", "good"), pooling="mean"), {}),
    "regress": (TaskConfig("regress"), {}),
    "tag": (TaskConfig("tag", ("O", "B-BAD", "B-GOOD")), {}),
    "qa": (TaskConfig("qa", null=True), {}),
    "choice": (TaskConfig("choice"), {}),
}
QUICK = ["batch=16", "epochs=8", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]
SUFFIX = {"classify": "csv", "regress": "csv", "tag": "conll", "qa": "jsonl"}


def small(**settings: Any) -> XLNet:
    torch.manual_seed(0)
    wanted: dict[str, Any] = {"width": 32, "depth": 2, "heads": 2, "max_length": 32, "dropout": 0.0, "init": 0.2}
    return XLNet(XLNetConfig(len(TOKENIZER), attention_dropout=0.0, **wanted | settings))


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    save_parts(folder, Parts(small(), tokenizer=TOKENIZER))
    return folder


def encoded(name: str, length: int, high: int = 24) -> tuple[Task, XLNet, list[Item]]:
    config, wanted = CONFIGS[name]
    config = replace(config, length=length, overlap=0.5)
    backbone = small().double().eval()
    task = build_task(config.kind, config, backbone)
    noise(task)
    inputs = Inputs(TOKENIZER, length, config.overlap, backbone.segment_kinds)
    return task.double().eval(), backbone, task.items(examples(config.kind, 12, 3, high=high, **wanted), inputs)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("length", [16, 64])
def test_padding_never_leaks(name: str, length: int) -> None:
    task, backbone, items = encoded(name, length)
    assert any(len(item.windows) > len(set(item.slots)) for item in items) == (length == 16)
    for item in items:
        for window in item.windows:
            assert window.ids[-2:] == [SEP, CLS]
            assert window.segments[-1] == 2
            assert window.cls == len(window.ids) - 1
            assert set(window.segments[:-1]) <= {0, 1}
    together = logits_of(task, backbone, items, TOKENIZER.id("pad"))
    for item, found in zip(items, together, strict=True):
        (alone,) = logits_of(task, backbone, [item], TOKENIZER.id("pad"))
        places = alone.shape[1] if name in ("tag", "qa") else None
        found = found[:, :places] if places else found[: len(alone)]  # without places and options of the others
        assert torch.allclose(found, alone, atol=1e-5, rtol=0)
    garbage = logits_of(task, backbone, items, TOKENIZER.id("unk"))  # other padding: nobody sees it
    for found, other in zip(together, garbage, strict=True):
        real = torch.isfinite(found)
        if name != "tag":
            assert torch.equal(found[real], other[real])


def test_pooled_at_the_end() -> None:
    task, _, items = encoded("classify", 64)
    batch = task.collate(items, TOKENIZER.id("pad"))
    at = task.looks_at(batch)
    assert at is not None
    assert torch.equal(batch.ids.gather(1, at)[:, 0], torch.full((len(items),), CLS))


def test_no_answer_points_at_the_class_token() -> None:
    task, _, _ = encoded("qa", 64)
    inputs = Inputs(TOKENIZER, 64, 0.5, 3)
    told = [Example("a", "w1 alpha w2", "who", (Answer("alpha", 3),)), Example("b", "w1 w2", "who", ())]
    found, silent = task.items(told, inputs)
    assert found.label == [(3, 3)]  # who [SEP] w1 alpha
    assert silent.label == [(5, 5)]  # who [SEP] w1 w2 [SEP] [CLS]
    scores = torch.full((1, 6, 2), -5.0)
    scores[0, 5] = 5.0
    reply = task.read(scores, silent, told[1])
    assert reply["answer"] == ""
    assert reply["no_answer"] > 0.99


def to_the_left(rows: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([row.roll(int(row.shape[0] - n), 0) for row, n in zip(rows, lengths, strict=True)])


@torch.no_grad()
@pytest.mark.parametrize("kind", HEADS)
def test_heads_both_ways_through_folders(kind: str, tmp_path: Path) -> None:
    there, auto, _, count = HEADS[kind]
    names = {"id2label": {n: f"l {n}" for n in range(count)}} if kind in ("classify", "tag") else {}
    theirs: Any = noisy(there(TheirConfig(**TINY, **(names or {"num_labels": count}))))
    theirs.save_pretrained(tmp_path / "theirs")
    parts = load_parts(tmp_path / "theirs")
    assert parts.unused == []
    (task,) = parts.tasks.values()
    assert task.config.kind == kind
    unnamed = ("LABEL_0",) if kind == "regress" else ()
    assert task.config.labels == (tuple(names.get("id2label", {}).values()) or unnamed)
    config = replace(CONFIGS[kind][0], length=32)
    items = build_task(kind, config, parts.backbone).items(
        examples(kind, 6, 3), Inputs(TOKENIZER, 32, 0.25, parts.backbone.segment_kinds)
    )
    if kind == "choice":
        items = [item for item in items if len(item.slots) == len(items[0].slots)]
    items = [replace(item, label=None) for item in items]
    batch = task.collate(items, 0)
    found = task.eval().answer(parts.backbone.eval()(batch, task.looks_at(batch)))
    mask = batch.mask()
    assert mask is not None
    assert batch.segments is not None
    inputs = {"input_ids": batch.ids, "token_type_ids": batch.segments, "attention_mask": mask.long()}
    inputs = {name: to_the_left(rows, batch.lengths) for name, rows in inputs.items()}
    if kind == "choice":
        inputs = {name: rows.view(len(items), -1, rows.shape[-1]) for name, rows in inputs.items()}
    (tmp_path / "ours").mkdir()
    save_parts(tmp_path / "ours", parts)
    for model in (theirs, opened_there(auto, tmp_path / "ours")):
        said = model(**inputs)
        wanted = torch.stack([said.start_logits, said.end_logits], -1) if kind == "qa" else said.logits
        if kind in ("tag", "qa"):
            wanted = to_the_left(wanted, -batch.lengths + wanted.shape[1])[mask]
            assert_equal(found[mask], wanted)
        else:
            assert_equal(found, wanted)
    again = load_parts(tmp_path / "ours")
    assert {name: one.config for name, one in again.tasks.items()} == {kind: task.config}
    for name, tensor in parts.state().items():
        assert torch.equal(again.state()[name], tensor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["classify", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pairs", "regress", "tag", "qa"))]
)
def test_a_keyword_is_learnt(name: str, begin: Path, tmp_path: Path) -> None:
    config, wanted = CONFIGS[name]
    kind = config.kind
    train, valid = (
        str(write_examples(tmp_path / f"{part}.{SUFFIX[kind]}", kind, examples(kind, count, seed, **wanted)))
        for part, count, seed in (("train", 240, 1), ("valid", 80, 2))
    )
    out = tmp_path / "run"
    settings = [*QUICK, "task.pooling=pooler"] if name == "classify" else QUICK  # what transformers' class reads
    given: dict[str, Any] = {"seeds": 1, "device": "cpu", "precision": "fp32", "settings": settings, "baselines": False}
    finetune(Wishes(str(begin), kind, train, out, valid=valid, **given))
    results = json.loads((out / "results.json").read_text())
    assert results["scores"]["valid"][results["metric"]]["mean"] > 0.9
    model = sesame.load(out, "cpu")
    told = examples(kind, 20, 2, **wanted)
    assert model.predict(told) == model.predict(told)
    if name == "classify":
        opened: Any = XLNetForSequenceClassification.from_pretrained(out / "final")
        inputs = AutoTokenizer.from_pretrained(out / "final")([e.text for e in told], padding=True, return_tensors="pt")
        said = opened.eval()(**inputs).logits.argmax(-1).tolist()
        assert [opened.config.id2label[n] for n in said] == [reply["label"] for reply in model.predict(told)]


def test_the_states_are_averaged_unless_somebody_says_otherwise() -> None:
    """Nothing teaches XLNet's [CLS]; a model that brings its pooler along, or a wish, keeps it."""
    encoder, plain = XLNetConfig(50, 16, 1, 2), TaskConfig("classify", ("bad", "good"))
    assert fitted(plain, encoder, free=True).pooling == "mean"
    assert fitted(plain, encoder) == plain
    assert fitted(TaskConfig("tag", ("O",)), encoder, free=True) == TaskConfig("tag", ("O",))
    assert resolve_transfer("full").task.pooling == "auto"
    asked = resolve_transfer("full", ["task.pooling=pooler"])
    assert task_config("classify", examples("classify", 8, 1), asked).pooling == "pooler"
