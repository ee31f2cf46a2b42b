"""An XLM or a GPT that was taught here opens in transformers as a class of its family, beside a tokenizer that pads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Backend
from tokenizers import processors
from transformers import AutoTokenizer

import sesame
from sesame.backbones import EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.hf import FAMILIES
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.examples import Example
from sesame.finetuning.framing import open_start
from sesame.finetuning.run import Wishes, finetune
from sesame.finetuning.transfer import in_family
from sesame.tasks import TaskConfig, build_task
from sesame.text import Tokenizer
from tests.checkpoint.test_task_parity import AUTO
from tests.tasks.toys import encoder, examples, noise, toy_tokenizer, write_examples

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]

SHAPES: dict[str, dict[str, Any]] = {
    "xlm": {},
    "gpt2": {"causal": True, "order": "pre"},
    "openai-gpt": {"causal": True, "bare_embeddings": True, "activation": "gelu_tanh"},
}
TEXTS = ["w1 w2 alpha", "w3", "w4 beta w5 w6 w7", "gamma w1"]
OTHERS = ["w8", "delta w2 w9", "w3 w4", "w5 w5 w5 w5 w5"]


def around(single: str, pair: str, roles: tuple[str, ...]) -> Tokenizer:
    """Another template, and only some of the roles."""
    tokenizer = toy_tokenizer()
    backend = Backend.from_str(tokenizer.backend.to_str())
    specials = [("[CLS]", 2), ("[SEP]", 3)]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    known = {"eos": "[SEP]", "unk": "[UNK]"}
    return Tokenizer(backend, {role: known[role] for role in roles})


TOKENIZERS = {
    "own": toy_tokenizer,
    "published": lambda: around("$A:0", "$A:0 $B:0", ("eos", "unk")),  # GPT-2's
    "first": lambda: around("$A:0", "$A:0 $B:0", ("unk",)),  # the first GPT's
    "ended": lambda: around("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ("eos", "unk")),
}
PADS = {"own": "[PAD]", "published": "[SEP]", "first": "<|start|>", "ended": "[CLS]"}


def begun(folder: Path, family: str, tokenizer: str) -> Path:
    found = TOKENIZERS[tokenizer]()
    folder.mkdir()
    shape = {"segments": 0, "width": 32, "init": 0.2, **SHAPES[family]}
    save_parts(folder, Parts(encoder(len(found), **shape), tokenizer=found, family=family))
    assert load_parts(folder).family == family
    return folder


# ---- which head -----------------------------------------------------------------------------------------------------


def test_the_head_of_the_family() -> None:
    plain, number = TaskConfig("classify", ("a", "b")), TaskConfig("regress")
    both_ways = EncoderConfig(70, 16, 2, 2, segments=0)
    causal = replace(both_ways, causal=True)
    xlm, gpt2, electra = (FAMILIES[name] for name in ("xlm", "gpt2", "electra"))
    assert in_family(plain, both_ways, None) == plain
    assert in_family(plain, both_ways, FAMILIES["bert"]) == plain
    assert in_family(plain, both_ways, electra) == replace(plain, squeeze="gelu")
    for kind in ("classify", "regress", "choice"):
        config = replace(plain, kind=kind)  # type: ignore[arg-type]
        assert in_family(config, both_ways, xlm) == replace(config, pooling="cls")
        assert in_family(config, both_ways, xlm, frozen=True) == replace(config, pooling="cls")
        assert in_family(config, causal, xlm) == config  # theirs reads the first token, ours the last
    for order in ("pre", "post"):
        gpt = replace(causal, order=order)  # type: ignore[arg-type]
        bare = replace(plain, pooling="cls", bias=False)
        assert in_family(plain, gpt, gpt2) == in_family(replace(plain, pooling="cls"), gpt, gpt2) == bare
        assert in_family(replace(plain, multi=True), gpt, gpt2) == replace(bare, multi=True)
        assert in_family(plain, gpt, gpt2, frozen=True) == plain
        for config in (
            number, TaskConfig("choice"), TaskConfig("tag", ("a",)), TaskConfig("qa"), replace(plain, pooling="mean"),
            replace(plain, layers="mix"), replace(plain, pair=True, both=True),
        ):  # fmt: skip
            assert in_family(config, gpt, gpt2) == config


# ---- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    ("family", "tokenizer"), [("xlm", "own"), *((family, name) for family in ("gpt2", "openai-gpt") for name in PADS)]
)
def test_their_tokenizer_fills_up_what_their_class_reads(
    family: str, tokenizer: str, pairs: bool, tmp_path: Path
) -> None:
    """Single texts and pairs, all in one padded batch, through transformers alone: what `predict` says."""
    start = open_start(str(begun(tmp_path / "start", family, tokenizer)))
    assert start.tokenizer is not None
    labels = ("no", "yes", "Ω")
    config = in_family(TaskConfig("classify", labels, pair=pairs), start.backbone.config, FAMILIES[family])
    task = build_task("classify", config, start.backbone)
    noise(task, 1)
    start.heads, start.tasks = task.heads(), {"classify": task}
    save_parts(tmp_path, start)
    model, report = AUTO["classify"].from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    reader = AutoTokenizer.from_pretrained(tmp_path)
    assert reader.pad_token == PADS[tokenizer]
    assert reader.pad_token_id == model.config.pad_token_id
    assert reader.padding_side == "right"
    given = reader(TEXTS, OTHERS if pairs else None, padding=True, return_tensors="pt")
    assert len(set(given["attention_mask"].sum(1).tolist())) > 1
    with torch.no_grad():
        chances = model.eval()(**given).logits.softmax(-1)
    asked = list(zip(TEXTS, OTHERS, strict=True)) if pairs else TEXTS
    for reply, row in zip(sesame.load(tmp_path, "cpu").predict(asked), chances.tolist(), strict=True):  # type: ignore[arg-type]
        assert [reply["probabilities"][name] for name in labels] == pytest.approx(row, abs=1e-5)


def test_the_padding_of_a_folder_from_elsewhere_is_kept(tmp_path: Path) -> None:
    """Often config.json alone names one; the tokenizer that is written pads with it too."""
    parts = load_parts(begun(tmp_path / "start", "gpt2", "published"))
    task = build_task("t", TaskConfig("classify", ("a", "b"), pooling="cls", bias=False), parts.backbone)
    parts.heads, parts.tasks, parts.pad = task.heads(), {"t": task}, 4
    save_parts(tmp_path, parts)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == 4
    assert AutoTokenizer.from_pretrained(tmp_path).pad_token_id == 4
    again = load_parts(tmp_path)
    assert again.tokenizer is not None
    assert (again.pad, again.tokenizer.id("pad"), again.tokenizer.roles["eos"]) == (4, 4, "[SEP]")


# ---- from rows to a folder ------------------------------------------------------------------------------------------

QUICK = ["batch=16", "epochs=4", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]
RUNS = [  # the family, its tokenizer, the task, and whether a class of theirs can hold it
    ("xlm", "own", "classify", True),
    ("xlm", "own", "regress", True),
    ("xlm", "own", "choice", True),
    ("xlm", "own", "qa", True),
    ("gpt2", "published", "classify", True),
    ("gpt2", "published", "tag", True),
    ("gpt2", "published", "regress", False),
    ("gpt2", "published", "choice", False),
    ("openai-gpt", "first", "classify", True),
    ("openai-gpt", "first", "tag", False),
]


@pytest.mark.parametrize(("family", "tokenizer", "kind", "theirs"), RUNS)
def test_taught_here_and_opened_there(family: str, tokenizer: str, kind: str, theirs: bool, tmp_path: Path) -> None:
    """With the default strategy."""
    begin, out = begun(tmp_path / "start", family, tokenizer), tmp_path / "run"
    suffix = {"tag": "conll", "classify": "csv", "regress": "csv"}.get(kind, "jsonl")
    train = write_examples(tmp_path / f"train.{suffix}", kind, examples(kind, 60, 1))
    told = examples(kind, 12, 2)
    given: dict[str, Any] = {"seeds": 1, "device": "cpu", "precision": "fp32", "settings": QUICK, "baselines": False}
    finetune(Wishes(str(begin), kind, str(train), out, **given))
    kept = load_file(out / "final" / "model.safetensors")
    assert any(name.startswith("sesame.") for name in kept) != theirs
    described = json.loads((out / "final" / "config.json").read_text())
    assert described["architectures"][0].endswith("Model") != theirs
    model = sesame.load(out, "cpu")
    assert len(model.predict(told)) == 12
    if not theirs:
        return
    there, report = AUTO[kind].from_pretrained(out / "final", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    if kind in ("classify", "regress"):
        agree(model, there, out / "final", told)


@torch.no_grad()
def agree(model: Any, there: Any, folder: Path, told: list[Example]) -> None:
    given = AutoTokenizer.from_pretrained(folder)([e.text for e in told], padding=True, return_tensors="pt")
    found = there.eval()(**given).logits
    for reply, row in zip(model.predict(told), found, strict=True):
        if "value" in reply:
            assert reply["value"] == pytest.approx(float(row[0]), abs=1e-4)
        else:
            chances = (row / model.task().config.temperature).softmax(-1).tolist()
            for number, chance in enumerate(chances):
                assert reply["probabilities"][there.config.id2label[number]] == pytest.approx(chance, abs=1e-4)


@pytest.mark.parametrize("family", ["xlm", "gpt2"])
def test_a_frozen_model_keeps_a_bias(family: str, tmp_path: Path) -> None:
    """Its features are centred while the head learns, and the centre becomes the bias."""
    begin, out = begun(tmp_path / "start", family, "own"), tmp_path / "run"
    train = write_examples(tmp_path / "train.csv", "classify", examples("classify", 60, 1))
    settings = [*QUICK, "task.pooling=cls"]
    given: dict[str, Any] = {"seeds": 1, "device": "cpu", "precision": "fp32", "baselines": False}
    finetune(Wishes(str(begin), "classify", str(train), out, strategy="frozen", settings=settings, **given))
    task = sesame.load(out, "cpu").task()
    assert task.config.bias
    assert (task.config.pooling, bool(task.out.bias.detach().any())) == ("cls", True)
    kept = load_file(out / "final" / "model.safetensors")
    assert any(name.startswith("sesame.") for name in kept) == (family == "gpt2")
