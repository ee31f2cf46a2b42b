"""Classes for tasks without a pooler, XLM's and GPT's: our logits are theirs, both ways; what they cannot hold stays ours."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from sesame.backbones import Encoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.objectives.decoder_head import DecoderHead
from sesame.tasks import Item, TaskConfig, build_task
from tests.checkpoint import test_gpt_parity as gpt
from tests.checkpoint import test_xlm_parity as xlm
from tests.checkpoint.test_bert_parity import noisy
from tests.checkpoint.test_task_parity import (
    AUTO,
    CASES,
    assert_equal,
    assert_same_labels,
    items_of,
    logits,
    real,
    together,
    windows,
)

TINY = {"xlm": {**xlm.TINY, **xlm.NAMES}, "gpt2": gpt.TINY, "openai-gpt": gpt.TINY}
KINDS = {
    "xlm": ("classify", "regress", "tag", "qa", "choice"),
    "gpt2": ("classify", "regress", "tag", "qa"),
    "openai-gpt": ("classify", "regress"),
}
ODD = {  # what is odd about a model; labels have names in all
    "xlm": {name: more for name, more in xlm.SHAPES.items() if name not in ("plain", "left to right", "untied")},
    "gpt2": {name: who["gpt2"] for name, who in gpt.SHAPES.items() if name not in ("plain", "untied")},
    "openai-gpt": {name: who["openai-gpt"] for name, who in gpt.SHAPES.items() if "openai-gpt" in who and name != "plain"},
}  # fmt: skip
EACH = [
    (family, case, "plain") for family, kinds in KINDS.items() for case, (kind, _) in CASES.items() if kind in kinds
]
EACH += [(family, "three labels", shape) for family, shapes in ODD.items() for shape in shapes]
EACH += [("xlm", "tags", "left to right"), ("xlm", "questions", "left to right"), ("xlm", "options", "three heads")]
EACH += [("gpt2", "tags", "three heads"), ("gpt2", "questions", "relu")]
PAD = 3


def settings_of(family: str, shape: str) -> dict[str, Any]:
    more = {} if shape == "plain" else xlm.SHAPES[shape] if family == "xlm" else gpt.SHAPES[shape][family]
    return {**TINY[family], "pad_token_id": PAD, **more}


def made(family: str, kind: str, shape: str = "plain", **more: Any) -> Any:
    config = transformers.AutoConfig.for_model(family, **{**settings_of(family, shape), **more})
    return noisy(AUTO[kind].from_config(config))


@torch.no_grad()
def said(model: Any, kind: str, items: list[Item], **more: Tensor) -> Tensor:
    """What their class says; XLM's attention without its rounding to 32 bits, see `test_xlm_parity`."""
    task = build_task("x", TaskConfig(kind, ("a",)), Encoder(gpt.EncoderConfig(97, 8, 1, 1)))  # type: ignore[arg-type]
    batch = task.collate(items, PAD)
    seen = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    given = {"input_ids": batch.ids, "attention_mask": seen.long(), **more}
    if kind == "choice":
        given = {name: value.view(len(items), -1, value.shape[-1]) for name, value in given.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", lambda x: x)
        found = model.eval()(**given)
    return torch.stack([found.start_logits, found.end_logits], -1) if kind == "qa" else found.logits


def ragged(kind: str, vocab: int = 97) -> list[Item]:
    """Rows of several lengths, one of them of one token; ids that a small vocabulary has."""
    items = items_of(kind, segments=False)
    if kind != "choice":
        items.append(Item(tuple(windows([1], False)), (0,), extra={"spots": [[]], "words": []}))
    return [
        replace(item, windows=tuple(replace(w, ids=[id % (vocab - 5) + 5 for id in w.ids]) for w in item.windows))
        for item in items
    ]


def written(parts: Parts, folder: Path) -> Path:
    folder.mkdir()
    save_parts(folder, parts)
    return folder


def opened(kind: str, folder: Path) -> Any:
    """As their class, with nothing missing and nothing left over."""
    model, report = AUTO[kind].from_pretrained(folder, output_loading_info=True, dtype=torch.float64)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    return model


@pytest.mark.parametrize(("family", "case", "shape"), EACH)
def test_both_ways(family: str, case: str, shape: str, tmp_path: Path) -> None:
    kind, labels = CASES[case]
    model = made(family, kind, shape, **labels)
    model.save_pretrained(tmp_path / "theirs")
    parts, items = load_parts(tmp_path / "theirs"), ragged(kind, model.config.vocab_size)
    assert parts.unused == []
    (task,) = parts.tasks.values()
    assert set(parts.heads) == {kind}
    assert (task.config.kind, task.config.multi) == (kind, case == "several labels")
    assert task.config.bias == (family == "xlm" or kind in ("tag", "qa"))
    where, wanted = real(kind, items), said(model, kind, items)
    assert_equal(logits(task, parts, items)[where], wanted[where])
    assert wanted[where].std() > 1e-3  # there is something to be equal

    folder = written(parts, tmp_path / "ours")
    back = opened(kind, folder)
    assert type(back) is type(model)
    assert back.config.pad_token_id == PAD
    assert_equal(said(back, kind, items)[where], wanted[where])
    assert_same_labels(back, model, kind, case)
    again = load_parts(folder)
    assert again.unused == []
    assert again.tasks[kind].config == task.config
    assert torch.equal(logits(again.tasks[kind], again, items)[where], logits(task, parts, items)[where])


@pytest.mark.parametrize("family", KINDS)
def test_in_32_bits(family: str, tmp_path: Path) -> None:
    model = made(family, "classify", num_labels=4).float()
    model.save_pretrained(tmp_path / "theirs")
    parts, items = load_parts(tmp_path / "theirs"), ragged("classify")
    wanted = said(model, "classify", items)
    assert (logits(parts.tasks["classify"], parts, items) - wanted).abs().max() < 1e-4
    back = AUTO["classify"].from_pretrained(written(parts, tmp_path / "ours"))
    assert (said(back, "classify", items) - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_one_row_needs_no_padding(family: str, tmp_path: Path) -> None:
    """Their class takes single rows where config.json names no padding; ours is the same."""
    model = made(family, "classify", num_labels=3, pad_token_id=None)
    model.save_pretrained(tmp_path)
    parts = load_parts(tmp_path)
    for item in ragged("classify"):
        assert_equal(logits(parts.tasks["classify"], parts, [item]), said(model, "classify", [item]))


def test_xlm_with_languages(tmp_path: Path) -> None:
    model = made("xlm", "classify", num_labels=3)
    model.save_pretrained(tmp_path)
    parts, items = load_parts(tmp_path), ragged("classify")
    task = parts.tasks["classify"].eval()
    batch = task.collate(items, PAD)
    batch = replace(batch, langs=torch.arange(batch.ids.numel()).view_as(batch.ids) % 3)
    with torch.no_grad():
        found = task.answer(parts.backbone.eval()(batch, task.looks_at(batch)))
    assert batch.langs is not None
    assert_equal(found, said(model, "classify", items, langs=batch.langs))
    assert (found - said(model, "classify", items)).abs().max() > 1e-3


@pytest.mark.parametrize("between", [1, 2, 5])
def test_two_layers_of_a_choice_are_one(between: int, tmp_path: Path) -> None:
    """As many numbers stand between them as config.json has labels; ours has one layer, and writes a second that is 1."""
    model = made("xlm", "choice", num_labels=between)
    model.save_pretrained(tmp_path / "theirs")
    parts, items = load_parts(tmp_path / "theirs"), ragged("choice")
    assert_equal(logits(parts.tasks["choice"], parts, items), said(model, "choice", items))
    back = opened("choice", written(parts, tmp_path / "ours"))
    assert back.config.num_labels == 1
    assert (back.logits_proj.weight, back.logits_proj.bias) == (torch.ones(1, 1), torch.zeros(1))
    assert_equal(said(back, "choice", items), said(model, "choice", items))


# ---- what does not open ---------------------------------------------------------------------------------------------

LEFT_OUT: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "last": ("xlm", "classify", {"summary_type": "last"}, "summary_type = 'last'"),
    "mean": ("xlm", "choice", {"summary_type": "mean"}, "summary_type = 'mean'"),
    "index": ("xlm", "regress", {"summary_type": "cls_index", "num_labels": 1}, "summary_type = 'cls_index'"),
    "bent": ("xlm", "classify", {"summary_activation": "tanh"}, "summary_activation = 'tanh'"),
    "no layer": ("xlm", "classify", {"summary_use_proj": False}, "summary_use_proj = False"),
    "wide": ("xlm", "classify", {"summary_proj_to_labels": False}, "summary_proj_to_labels = False"),
    "wide choice": ("xlm", "choice", {"summary_proj_to_labels": False}, "summary_proj_to_labels = False"),
    "two": ("xlm", "choice", {"summary_type": "last", "summary_activation": "gelu"}, "'last', summary_activation = 'gelu'"),
    "first of left to right": ("xlm", "classify", {"causal": True}, "of the kind 'classify'"),
    "numbers": ("gpt2", "classify", {"num_labels": 3, "problem_type": "regression"}, "several numbers for one text"),
    "numbers of the first": ("openai-gpt", "classify", {"problem_type": "regression"}, "several numbers for one text"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_left_out_is_said(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The encoder opens as it is."""
    family, kind, more, why = LEFT_OUT[case]
    model = made(family, kind, **more)
    model.save_pretrained(tmp_path)
    capsys.readouterr()  # their bar
    parts = load_parts(tmp_path)
    assert (parts.tasks, parts.heads) == ({}, {})
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{type(model).__name__} has a head that no task here computes (" in line
    assert why in line
    assert line.endswith("left out (`sesame finetune` teaches another)")
    batch, _, given = gpt.inputs(97)
    places = given["attention_mask"].bool()
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", lambda x: x)
        wanted = model.base_model(**given).last_hidden_state[places]
    assert_equal(parts.backbone.eval()(batch).last[places], wanted)


def test_a_beam_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy(transformers.XLMForQuestionAnswering(transformers.XLMConfig(**settings_of("xlm", "plain")))).save_pretrained(
        tmp_path
    )
    assert load_parts(tmp_path).tasks == {}
    assert "XLMForQuestionAnswering has a head that no task here computes (it searches" in capsys.readouterr().err


def test_settings_of_a_summary_that_is_not_there_do_not_matter(tmp_path: Path) -> None:
    """An activation of "" is none; a class without a summary takes no notice of them."""
    for number, (kind, more) in enumerate(
        [("classify", {"summary_activation": ""}), ("tag", {"summary_type": "last"})]
    ):
        made("xlm", kind, **more).save_pretrained(tmp_path / str(number))
        assert set(load_parts(tmp_path / str(number)).tasks) == {kind}


# ---- what their classes cannot hold ---------------------------------------------------------------------------------

OURS: dict[str, dict[str, Any]] = {
    "xlm": {"segments": 0, "eps": 1e-12},
    "gpt2": {"segments": 0, "order": "pre", "causal": True},
    "openai-gpt": {"segments": 0, "causal": True, "bare_embeddings": True, "activation": "gelu_tanh"},
}
TWO = ("Ω", "a b")
FITS = {  # who has a class for it
    "bare": (TaskConfig("classify", TWO, pooling="cls"), {"xlm"}),
    "no bias": (TaskConfig("classify", TWO, pooling="cls", bias=False), {"gpt2", "openai-gpt"}),
    "several, no bias": (TaskConfig("classify", TWO, True, pooling="cls", bias=False), {"gpt2", "openai-gpt"}),
    "number": (TaskConfig("regress", pooling="cls"), {"xlm"}),
    "number, no bias": (TaskConfig("regress", pooling="cls", bias=False), {"gpt2", "openai-gpt"}),
    "bent": (TaskConfig("classify", TWO), set[str]()),
    "mean": (TaskConfig("classify", TWO, pooling="mean"), set[str]()),
    "both": (TaskConfig("regress", pair=True, both=True, pooling="cls", bias=False), set[str]()),
    "mixed": (TaskConfig("classify", TWO, layers="mix", pooling="cls", bias=False), set[str]()),
    "tags": (TaskConfig("tag", TWO), {"xlm", "gpt2"}),
    "tags, no bias": (TaskConfig("tag", TWO, bias=False), set[str]()),
    "questions": (TaskConfig("qa", null=True), {"xlm", "gpt2"}),
    "choice": (TaskConfig("choice", pooling="cls"), {"xlm"}),
}


def answering(family: str, configs: dict[str, TaskConfig], **more: Any) -> Parts:
    parts = together(configs, **{**OURS[family], **more})
    parts.family = family
    return parts


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("family", OURS)
def test_each_task_is_theirs_or_ours(family: str, name: str, tmp_path: Path) -> None:
    config, who = FITS[name]
    parts = answering(family, {"t": config})
    parts.pad = PAD
    save_parts(tmp_path, parts)
    described, kept = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / "model.safetensors")
    assert described["model_type"] == family
    assert described["pad_token_id"] == PAD
    ours = [key for key in kept if key.startswith("sesame.")]
    assert bool(ours) == (family not in who)
    assert (described["architectures"][0].endswith("Model")) == (family not in who)
    items = ragged(config.kind)
    if config.both:
        items = [replace(item, windows=item.windows * 2, slots=(0, 1)) for item in items]
    back = load_parts(tmp_path)
    assert back.unused == []
    assert torch.equal(logits(back.tasks["t"], back, items), logits(parts.tasks["t"], parts, items))
    transformers.AutoModel.from_pretrained(tmp_path)
    if family in who:
        where = real(config.kind, items)
        wanted = logits(parts.tasks["t"], parts, items)[where]
        assert_equal(said(opened(config.kind, tmp_path), config.kind, items)[where], wanted)


@pytest.mark.parametrize("family", OURS)
def test_one_is_theirs_and_the_others_stand_beside(family: str, tmp_path: Path) -> None:
    configs = {name: config for name, (config, _) in FITS.items() if not config.both}
    parts = answering(family, configs)
    save_parts(tmp_path, parts)
    back = load_parts(tmp_path)
    assert list(back.tasks) == list(configs)
    for name, task in parts.tasks.items():
        items = ragged(task.config.kind)
        assert torch.equal(logits(back.tasks[name], back, items), logits(task, parts, items)), name
    model = AUTO["classify"].from_pretrained(tmp_path, dtype=torch.float64)
    items = [ragged("classify")[0]]
    lead = next(name for name in configs if family in FITS[name][1])
    assert_equal(said(model, "classify", items), logits(parts.tasks[lead], parts, items))
    assert list(model.config.id2label.values()) == list(TWO)


def test_an_xlm_from_left_to_right_keeps_its_whole_texts(tmp_path: Path) -> None:
    for number, (kind, fits) in enumerate((("classify", False), ("tag", True))):
        parts = answering("xlm", {"t": TaskConfig(kind, TWO, pooling="cls")}, causal=True, languages=("en", "ru"))  # type: ignore[arg-type]
        folder = written(parts, tmp_path / str(number))
        assert any(key.startswith("sesame.") for key in load_file(folder / "model.safetensors")) != fits
        back, items = load_parts(folder), ragged(kind)
        assert back.family == "xlm"
        assert torch.equal(logits(back.tasks["t"], back, items), logits(parts.tasks["t"], parts, items))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "openai-gpt"])
def test_a_model_that_speaks_keeps_its_class(family: str, tied: bool, tmp_path: Path) -> None:
    """No weights tell of a tied output layer, so its class must; the task stands beside."""
    parts = answering(family, {"t": TaskConfig("classify", TWO, pooling="cls", bias=False)})
    parts.heads["lm"] = noisy(DecoderHead(16, 97, tied=tied))  # type: ignore[arg-type]
    save_parts(tmp_path, parts)
    back, items = load_parts(tmp_path), ragged("classify")
    assert set(back.heads) == {"lm", "t"}
    assert torch.equal(logits(back.tasks["t"], back, items), logits(parts.tasks["t"], parts, items))
    batch, where, given = gpt.inputs(97)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert_equal(gpt.theirs(model, given)[where], gpt.ours(parts, batch)[where])


def test_folders_of_before_still_open(tmp_path: Path) -> None:
    """There the head of an XLM was ours, though it was like theirs."""
    parts, items = answering("xlm", {"t": TaskConfig("classify", TWO, pooling="cls")}), ragged("classify")
    save_parts(tmp_path, parts)
    kept = load_file(tmp_path / "model.safetensors")
    for part in ("weight", "bias"):
        kept[f"sesame.t.{part}"] = kept.pop(f"sequence_summary.summary.{part}")
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = json.loads((tmp_path / "config.json").read_text())
    del found["sesame"]["tasks"]["t"]["bias"]
    (tmp_path / "config.json").write_text(json.dumps({**found, "architectures": ["XLMModel"]}))
    back = load_parts(tmp_path)
    assert back.unused == []
    assert torch.equal(logits(back.tasks["t"], back, items), logits(parts.tasks["t"], parts, items))


def test_padding_never_leaks() -> None:
    for family in OURS:
        for name, (config, _) in FITS.items():
            if config.both:
                continue
            parts, items = answering(family, {"t": config}), ragged(config.kind)
            whole = logits(parts.tasks["t"], parts, items)
            for number, item in enumerate(items):
                alone = logits(parts.tasks["t"], parts, [item])[0]
                assert (whole[number][: len(alone)] - alone).abs().max() < 1e-12, (family, name)


def test_a_text_that_ends_in_the_padding_token(tmp_path: Path) -> None:
    """Theirs goes by ids, ours by lengths: there such a text is read before its end, and no padding of ours may end one."""
    model = made("gpt2", "classify", num_labels=2)
    model.save_pretrained(tmp_path)
    parts, (item, *_) = load_parts(tmp_path), ragged("classify")
    longer = replace(item, windows=(replace(item.windows[0], ids=[*item.windows[0].ids, PAD], segments=[0] * 12),))
    assert_equal(said(model, "classify", [longer]), logits(parts.tasks["classify"], parts, [item]))
    assert (logits(parts.tasks["classify"], parts, [longer]) - said(model, "classify", [longer])).abs().max() > 1e-3
