"""The decoder's loss: smoothing as PyTorch defines it but without logits, plain in evaluation; the head's three options."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.objectives.base import Together
from sesame.objectives.seq2seq import DecoderHead, Seq2Seq, Seq2SeqConfig, shifted

VOCAB, WIDTH = 90, 8  # 128 rows in the table


class Table(Backbone):
    """A token table, and nothing that would read it."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(128, WIDTH, dtype=dtype))

    def token_table(self) -> Tensor:
        return self.table


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    hidden = torch.randn(3, 7, WIDTH, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, VOCAB, (3, 7))
    labels[1, 4:] = labels[2, 1:] = IGNORE
    return hidden, labels


def encoded(hidden: Tensor, labels: Tensor, name: str = "seq2seq") -> Encoded:
    batch = Batch(torch.zeros(3, 5, dtype=torch.long), torch.full((3,), 5), targets={name: Targets(labels)})
    return Encoded(batch, [hidden])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(
    "options",
    [{}, {"scale": 0.35}, {"bias": "trained"}, {"bias": "fixed"}, {"tied": False, "bias": "trained"}],
    ids=str,
)
def test_the_loss_and_its_gradients_are_those_of_pytorch(seed: int, smoothing: float, options: dict[str, Any]) -> None:
    torch.manual_seed(seed)
    backbone, (hidden, labels) = Table(), example()
    head = DecoderHead(WIDTH, VOCAB, **options).double()
    nn.init.normal_(head.bias) if options.get("bias") else None
    objective = Seq2Seq("seq2seq", head, start=0, pad=0, smoothing=smoothing)
    (term,) = objective.train().terms(encoded(hidden, labels), backbone)
    table = backbone.table if head.table is None else head.table
    logits = (hidden * options.get("scale", 1.0)) @ table[:VOCAB].T + head.bias
    wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing)
    assert float(term.total.detach()) == pytest.approx(float(wanted.detach()), abs=1e-10)
    assert (term.name, int(term.count), term.hits) == ("seq2seq", 7 + 4 + 1, None)
    leaves = [hidden, table, *([head.bias] if head.bias.requires_grad else [])]
    for ours, theirs in zip(torch.autograd.grad(term.total, leaves), torch.autograd.grad(wanted, leaves), strict=True):
        assert float((ours - theirs).abs().max()) < 1e-12


def test_static_shapes_give_the_same() -> None:
    """On a GPU the padding stays in: the head leaves it out of all sums."""
    torch.manual_seed(0)
    backbone, (hidden, labels) = Table(), example()
    head, real = DecoderHead(WIDTH, VOCAB).double(), (labels != IGNORE).flatten()
    padded = head.loss(hidden.flatten(0, 1), backbone.table, labels.flatten(), 0.1)
    bare = head.loss(hidden.flatten(0, 1)[real], backbone.table, labels.flatten()[real], 0.1)
    assert float(padded.detach()) == pytest.approx(float(bare.detach()), abs=1e-12)


def test_sixteen_bits_come_near() -> None:
    torch.manual_seed(0)
    head, table, hidden = DecoderHead(WIDTH, VOCAB), torch.randn(128, WIDTH), torch.randn(500, WIDTH)
    labels = torch.randint(0, VOCAB, (500,))
    exact = head.loss(hidden, table, labels, 0.1)
    half = head.to(torch.bfloat16).loss(hidden.bfloat16(), table.bfloat16(), labels, 0.1)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(exact), rel=2e-3)


def test_the_other_convention_is_this_one_with_a_little_more() -> None:
    """Tensor2tensor and today's fairseq: 1 - eps for the truth, eps / (V - 1) for each of the others."""
    torch.manual_seed(0)
    hidden, table, labels = torch.randn(20, WIDTH).double(), torch.randn(128, WIDTH).double(), torch.arange(20)
    logs = (hidden @ table[:VOCAB].T).log_softmax(-1)
    truth = logs.gather(1, labels[:, None])[:, 0]
    theirs = -(0.9 * truth + 0.1 / (VOCAB - 1) * (logs.sum(1) - truth)).sum()
    ours = DecoderHead(WIDTH, VOCAB).double().loss(hidden, table, labels, 0.1 * VOCAB / (VOCAB - 1))
    assert float(ours) == pytest.approx(float(theirs), abs=1e-10)


@torch.no_grad()
def test_evaluation_is_plain_and_counts_hits() -> None:
    torch.manual_seed(0)
    backbone, (hidden, labels) = Table(), example()
    with torch.no_grad():
        hidden[0, :3] = 9 * backbone.table[labels[0, :3]]  # these are told rightly
    objective = Seq2Seq("span", DecoderHead(WIDTH, VOCAB).double(), start=0, pad=0, smoothing=0.3).eval()
    (term,) = objective.terms(encoded(hidden, labels, "span"), backbone)
    logits = (hidden @ backbone.table[:VOCAB].T).flatten(0, 1)
    real = labels.flatten() != IGNORE
    assert float(term.total) == pytest.approx(
        float(F.cross_entropy(logits[real], labels.flatten()[real], reduction="sum")), abs=1e-10
    )
    assert term.hits is not None
    assert int(term.hits) == int((logits.argmax(-1) == labels.flatten())[real].sum()) >= 2
    assert math.exp(float(term.total / term.count)) > 1  # the perplexity


def test_what_a_checkpoint_keeps_and_what_trains() -> None:
    kept = {bias: set(DecoderHead(WIDTH, VOCAB, bias=bias).state_dict()) for bias in ("none", "fixed", "trained")}  # type: ignore[arg-type]
    assert kept == {"none": set(), "fixed": {"bias"}, "trained": {"bias"}}
    trained = {
        bias: {name for name, _ in DecoderHead(WIDTH, VOCAB, bias=bias).named_parameters()}  # type: ignore[arg-type]
        for bias in ("none", "fixed", "trained")
    }
    assert trained == {"none": set(), "fixed": set(), "trained": {"bias"}}
    untied = DecoderHead(WIDTH, VOCAB, tied=False)
    assert untied.table is not None
    assert untied.table.shape == (128, WIDTH)
    assert 0.5 < float(untied.table.detach().std() * WIDTH**0.5) < 1.5
    logits = DecoderHead(WIDTH, VOCAB)(torch.ones(2, WIDTH), torch.ones(128, WIDTH))
    assert logits[:, VOCAB:].eq(-torch.inf).all()  # nobody generates a token that is not there
    assert logits[:, :VOCAB].eq(WIDTH).all()
    objectives = [Seq2Seq(name, untied, 0, 0) for name in ("span", "mass")]
    assert all(set(objective.heads()) == {"seq2seq"} for objective in objectives)


def test_the_decoder_reads_what_it_has_told() -> None:
    labels = torch.tensor([[5, 6, 7, 3], [8, 3, IGNORE, IGNORE], [IGNORE] * 4])
    assert shifted(labels, 1, 0).tolist() == [[1, 5, 6, 7], [1, 8, 0, 0], [0, 0, 0, 0]]
    sources = torch.tensor([[9, 3], [9, 3], [9, 3]])
    batch = Batch(sources, torch.full((3,), 2), langs=sources, targets={"seq2seq": Targets(labels)})
    together = Together({"seq2seq": Seq2Seq("seq2seq", DecoderHead(WIDTH, VOCAB), start=1, pad=0)})
    after = together.corrupt(batch)
    assert after.outputs is not None
    assert after.outputs.tolist() == shifted(labels, 1, 0).tolist()
    assert after.ids is batch.ids
    assert after.langs is batch.langs  # what belongs to a source that was not corrupted stays
    assert after.targets["seq2seq"].labels is labels


def test_settings_that_cannot_be() -> None:
    for wrong in (-0.1, 1.0):
        with pytest.raises(SesameError, match=r"objectives\.seq2seq\.smoothing"):
            Seq2SeqConfig(smoothing=wrong)
