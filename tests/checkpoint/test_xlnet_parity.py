"""Our XLNet and transformers' XLNet compute the same, in both directions, with memory, both streams and all heads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    XLNetForMultipleChoice,
    XLNetForQuestionAnsweringSimple,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
    XLNetLMHeadModel,
    XLNetModel,
)
from transformers import XLNetConfig as TheirConfig

from sesame.backbones import State, XLNet
from sesame.backbones.xlnet import Order
from sesame.checkpoint.hf import xlnet
from sesame.checkpoint.names import export_state, import_state
from sesame.checkpoint.weights import read_weights
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.objectives.plm import TableHead
from tests.checkpoint.test_bert_parity import assert_equal, noisy

TINY = {"vocab_size": 97, "d_model": 24, "n_layer": 3, "n_head": 4, "d_inner": 40, "mem_len": 13}
SHAPES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one layer": {"n_layer": 1},
    "three heads": {"d_model": 42, "n_head": 3, "d_inner": 17},
    "one head": {"n_head": 1},
    "near and far": {"clamp_len": 4},
    "all remembered": {"mem_len": None},
    "some reused": {"reuse_len": 6, "mem_len": 9},
    "another eps": {"layer_norm_eps": 1e-3},
    "relu": {"ff_activation": "relu"},
    "gelu by tanh": {"ff_activation": "gelu_new"},
    "vocabulary of 64": {"vocab_size": 64},
}
LENGTH = 11
LENGTHS = torch.tensor([LENGTH, 5, LENGTH, 1])
MASK = (torch.arange(LENGTH)[None] < LENGTHS[:, None]).double()


class Opened(nn.Module):
    """A folder of theirs in our modules."""

    def __init__(self, folder: Path, heads: dict[str, nn.Module], task: tuple[str, str] | None) -> None:
        super().__init__()
        found = json.loads((folder / "config.json").read_text())
        self.config = xlnet.read_config(found, str(folder))
        self.backbone = XLNet(self.config)
        self.heads, self.task = nn.ModuleDict(heads), task
        self.double().eval()
        wanted = self.tensors()
        tidy = xlnet.clean(read_weights(folder), found)
        state, missing, self.unused = import_state(xlnet.table(self.config, task), tidy, wanted)
        assert not missing
        with torch.no_grad():
            for name, tensor in wanted.items():
                tensor.copy_(state[name])

    def tensors(self) -> dict[str, Tensor]:
        found = {f"backbone.{name}": p for name, p in self.backbone.named_parameters()}
        return found | dict(self.heads.named_parameters())

    def save(self, folder: Path) -> None:
        named = export_state(xlnet.table(self.config, self.task), {n: t.detach() for n, t in self.tensors().items()})
        kind = None if self.task is None else self.task[1]
        plain = set(self.heads) - ({self.task[0]} if self.task else set())
        assert xlnet.family(self.config, plain) == "xlnet"
        described = xlnet.write_config(self.config, plain, kind)
        xlnet.finish(named, described)
        if self.task is not None:
            count = self.heads[self.task[0]].out_features
            described |= {"id2label": {str(n): f"l{n}" for n in range(int(count))}}
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(described))
        save_file(named, folder / "model.safetensors", metadata={"format": "pt"})


def in_double(model: XLNetModel) -> None:
    """Its two streams cannot be run in 64 bits: the encodings of distances stay in 32. Widen them; their values stay."""
    narrow = model.relative_positional_encoding
    model.relative_positional_encoding = lambda *args, **more: narrow(*args, **more).double()  # type: ignore[method-assign]


def opened_there(auto: Any, folder: Path) -> Any:
    """Our folder by `from_pretrained`. It reads XLNet's matrices in 32 bits whatever is asked for; the rest of their digits
    is put in behind it."""
    model, report = auto.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    bare = "transformer." if auto is AutoModel else ""
    file = {name.removeprefix(bare): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    read = model.state_dict()
    for name, tensor in file.items():
        assert (read[name].double() - tensor).abs().max() < 1e-6
    model.double().load_state_dict(file, strict=False)
    return model.eval()


def made(kind: Any, tmp_path: Path, **settings: Any) -> Any:
    theirs = noisy(kind(TheirConfig(**{**TINY, **settings})))
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs


def segment(number: int, vocab: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(0, vocab, (4, LENGTH), generator=generator)
    return ids, torch.randint(0, 3, (4, LENGTH), generator=generator)


def an_order(number: int) -> tuple[Order, Tensor, Tensor]:
    """An order with context, functional tokens and targets, and what transformers calls it."""
    generator = torch.Generator().manual_seed(number)
    rank = torch.rand(4, LENGTH, generator=generator).argsort(1)
    at = torch.tensor([[2, 5, 9], [1, 4, 3], [0, 10, 7], [0, 1, 2]])
    target = torch.zeros(4, LENGTH, dtype=torch.bool).scatter(1, at, True)
    given = (torch.rand(4, LENGTH, generator=generator) < 0.6) & ~target
    given[:, 6] = True
    rank = torch.where(given, -1, rank)
    blocked = torch.where(target, rank, rank + 1)[:, :, None] <= rank[:, None, :]
    return Order(rank, at), blocked.double(), nn.functional.one_hot(at, LENGTH).double()


@torch.no_grad()
@pytest.mark.parametrize("shape", SHAPES)
def test_both_ways_over_three_segments(shape: str, tmp_path: Path) -> None:
    theirs = made(XLNetLMHeadModel, tmp_path, **SHAPES[shape])
    vocab = theirs.config.vocab_size
    ours = Opened(tmp_path / "theirs", {"plm": TableHead(theirs.config.d_model, vocab)}, None)
    assert ours.unused == []
    ours.save(tmp_path / "ours")
    back = opened_there(AutoModelForCausalLM, tmp_path / "ours")
    assert type(back) is XLNetLMHeadModel
    mems, again, state = None, None, None
    for number in range(3):
        ids, segments = segment(number, vocab)
        inputs = {"input_ids": ids, "token_type_ids": segments, "attention_mask": MASK, "use_mems": True}
        wanted = theirs(**inputs, mems=mems, output_hidden_states=True)
        found = ours.backbone(Batch(ids, LENGTHS, segments=segments), state=state)
        for layer, hidden in zip(found.layers, wanted.hidden_states, strict=True):
            assert_equal(layer, hidden)
        logits = ours.heads["plm"](found.last, ours.backbone.token_table())
        assert_equal(logits[..., :vocab], wanted.logits)
        assert torch.isinf(logits[..., vocab:]).all()
        mems = wanted.mems
        for layer, memory in zip(found.state.layers, mems, strict=True):
            assert_equal(layer, memory.transpose(0, 1))
        state = State(found.state.layers)  # they look at padding too, and take all of the memory for segment 0
        other = back(**inputs, mems=again)
        again = other.mems
        assert_equal(other.logits, wanted.logits)


@torch.no_grad()
@pytest.mark.parametrize("shape", ["as it is", "three heads", "near and far", "one layer"])
@pytest.mark.parametrize("both_directions", [False, True])
def test_two_streams_with_memory(shape: str, both_directions: bool, tmp_path: Path) -> None:
    theirs = made(XLNetLMHeadModel, tmp_path, **SHAPES[shape], bi_data=both_directions)
    in_double(theirs.transformer)
    vocab = theirs.config.vocab_size
    ours = Opened(tmp_path / "theirs", {"plm": TableHead(theirs.config.d_model, vocab)}, None)
    backward = torch.tensor([False, False, True, True]) if both_directions else None
    mems, state = None, None
    for number in range(3):
        ids, segments = segment(number, vocab)
        order, blocked, mapping = an_order(number)
        batch = Batch(ids, LENGTHS, segments=segments)
        wanted = theirs(
            input_ids=ids, token_type_ids=segments, attention_mask=MASK, mems=mems, use_mems=True,
            perm_mask=blocked, target_mapping=mapping, output_hidden_states=True,
        )  # fmt: skip
        found = ours.backbone(batch, state=state, order=order, backward=backward)
        assert_equal(found.last, wanted.hidden_states[-1])
        for layer, hidden in zip(found.layers[:-1], wanted.hidden_states[:-2:2], strict=True):
            assert_equal(layer, hidden)
        assert_equal(ours.heads["plm"](found.last, ours.backbone.token_table())[..., :vocab], wanted.logits)
        mems, state = wanted.mems, State(found.state.layers)
        for layer, memory in zip(state.layers, mems, strict=True):
            assert_equal(layer, memory.transpose(0, 1))


@torch.no_grad()
def test_without_segments_and_bare(tmp_path: Path) -> None:
    theirs = made(XLNetModel, tmp_path)
    ours = Opened(tmp_path / "theirs", {}, None)
    ids, _ = segment(0, 97)
    assert_equal(ours.backbone(Batch(ids, LENGTHS)).last, theirs(ids, attention_mask=MASK).last_hidden_state)
    full = torch.full((4,), LENGTH)
    assert_equal(ours.backbone(Batch(ids, full, full=True)).last, theirs(ids).last_hidden_state)
    ours.save(tmp_path / "ours")
    back = opened_there(AutoModel, tmp_path / "ours")
    assert_equal(back(ids).last_hidden_state, theirs(ids).last_hidden_state)


@torch.no_grad()
def test_untied_output_layer_survives(tmp_path: Path) -> None:
    theirs = made(XLNetLMHeadModel, tmp_path, tie_word_embeddings=False)
    ours = Opened(tmp_path / "theirs", {"plm": TableHead(24, 97, tied=False)}, None)
    ids, _ = segment(0, 97)
    wanted = theirs(ids).logits
    hidden = ours.backbone(Batch(ids, torch.full((4,), LENGTH), full=True)).last
    assert_equal(ours.heads["plm"](hidden, ours.backbone.token_table())[..., :97], wanted)
    ours.save(tmp_path / "ours")
    back = opened_there(AutoModelForCausalLM, tmp_path / "ours")
    assert_equal(back(ids).logits, wanted)


def to_the_left(x: Tensor, fill: int = 0) -> Tensor:
    """Rows padded on the right, padded on the left."""
    return torch.stack(
        [torch.cat([row.new_full((LENGTH - n,), fill), row[:n]]) for row, n in zip(x, LENGTHS.tolist(), strict=True)]
    )


HEADS: dict[str, tuple[type[PreTrainedModel], Any, str, int]] = {
    "classify": (XLNetForSequenceClassification, AutoModelForSequenceClassification, "logits", 5),
    "regress": (XLNetForSequenceClassification, AutoModelForSequenceClassification, "logits", 1),
    "choice": (XLNetForMultipleChoice, AutoModelForMultipleChoice, "logits", 1),
    "tag": (XLNetForTokenClassification, AutoModelForTokenClassification, "logits", 7),
    "qa": (XLNetForQuestionAnsweringSimple, AutoModelForQuestionAnswering, "start_logits", 2),
}


@torch.no_grad()
@pytest.mark.parametrize("task", HEADS)
def test_heads_of_tasks(task: str, tmp_path: Path) -> None:
    kind, auto, output, count = HEADS[task]
    theirs = made(kind, tmp_path, num_labels=count)
    pooled = task in ("classify", "regress", "choice")
    heads: dict[str, nn.Module] = {task: nn.Linear(24, count)} | ({"pooler": nn.Linear(24, 24)} if pooled else {})
    ours = Opened(tmp_path / "theirs", heads, (task, task))
    assert ours.unused == []
    ids, segments = segment(0, 97)
    hidden = ours.backbone(Batch(ids, LENGTHS, segments=segments)).last
    if pooled:  # the last real token, [CLS]
        hidden = hidden[torch.arange(4), LENGTHS - 1]
        found = ours.heads[task](ours.heads["pooler"](hidden).tanh())
    else:
        found = ours.heads[task](hidden)
    found = found[..., 0] if task == "qa" else found.T if task == "choice" else found
    inputs = {
        "input_ids": to_the_left(ids),
        "token_type_ids": to_the_left(segments),
        "attention_mask": to_the_left(MASK),
    }
    if task == "choice":
        inputs = {name: x[None] for name, x in inputs.items()}
    ours.save(tmp_path / "ours")
    back = opened_there(auto, tmp_path / "ours")
    for model in (theirs, back):
        wanted = model(**inputs)[output]
        if not pooled:
            places = torch.arange(LENGTH)[None] + LENGTH - LENGTHS[:, None]
            wanted = torch.stack([row[at.clamp(max=LENGTH - 1)] for row, at in zip(wanted, places, strict=True)])
            real = MASK.bool()
            assert_equal(found[real], wanted[real])
        else:
            assert_equal(found, wanted)


def test_what_computes_differently_is_refused() -> None:
    for key, value in (
        ("attn_type", "uni"),
        ("same_length", True),
        ("ff_activation", "silu"),
    ):
        with pytest.raises(SesameError):
            xlnet.read_config({**TINY, key: value}, "config.json")
