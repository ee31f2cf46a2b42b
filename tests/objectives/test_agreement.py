"""R-Drop: the loss is the paper's, two passes that agree cost nothing more, and held-out text is passed once."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig
from sesame.backbones.flops import flops_per_token
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.agreement import agreed, twice
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.accounting import work_of
from sesame.train.step import count_targets, step_loss

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p | q) of two rows of logits, by PyTorch."""
    return F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="sum", log_target=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
def test_the_loss_is_the_papers(seed: int, smoothing: float, alpha: float) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(14, 30, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 30, (7,))
    labels[[2, 5]] = IGNORE
    both, real = torch.cat([labels, labels]), [row for row in range(7) if row not in (2, 5)]
    told = F.cross_entropy(logits, both, reduction="sum", label_smoothing=smoothing)
    apart = sum(kl(logits[n], logits[n + 7]) + kl(logits[n + 7], logits[n]) for n in real)
    wanted = (told + alpha * apart / 2) / 2
    found = agreed(logits, both, smoothing, alpha)
    assert float(found.detach()) == pytest.approx(float(wanted.detach()), abs=1e-12)
    ours, theirs = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (found, wanted))
    assert float((ours - theirs).abs().max()) < 1e-12


@pytest.mark.parametrize("cuts", [(4, 4), (1, 7), (2, 3, 3)])
def test_micro_batches_add_up(cuts: tuple[int, ...]) -> None:
    """A sum over rows, each with its own second pass: how a step is cut up changes nothing."""
    torch.manual_seed(1)
    one, other = torch.randn(2, 8, 30, dtype=torch.float64)
    labels = torch.tensor([3, IGNORE, 5, 7, IGNORE, 2, 9, 1])
    whole = agreed(torch.cat([one, other]), torch.cat([labels, labels]), 0.1, 5.0)
    parts = zip(one.split(list(cuts)), other.split(list(cuts)), labels.split(list(cuts)), strict=True)
    summed = sum(agreed(torch.cat([p, q]), torch.cat([y, y]), 0.1, 5.0) for p, q, y in parts)
    assert float(summed) == pytest.approx(float(whole), abs=1e-12)


def made(agreement: float, dropout: float = 0.2) -> tuple[Model, Batch]:
    torch.manual_seed(3)
    backbone = EncoderDecoder(
        EncoderDecoderConfig(70, 32, 2, 4, max_length=30, dropout=dropout, attention_dropout=dropout)
    )
    vocab = Vocab(70, ROLES)
    model = Model(backbone, build({"seq2seq": Seq2SeqConfig(agreement=agreement)}, backbone, vocab)).double()
    lengths = torch.tensor([12, 12, 7])
    labels = torch.randint(5, 70, (3, 9))
    labels[1, 4:] = IGNORE
    batch = Batch(torch.randint(5, 70, (3, 12)), lengths, keys=torch.arange(3), targets={"seq2seq": Targets(labels)})
    return model.train(), model.objective.corrupt(batch)


def loss_of(model: Model, batch: Batch) -> Tensor:
    return step_loss(model(batch), count_targets([batch]))


def test_passes_that_agree_cost_nothing_more() -> None:
    gradients = []
    for agreement in (0.0, 5.0):
        model, batch = made(agreement)
        model.backbone.drop(0.0)
        loss = loss_of(model, batch)
        loss.backward()
        gradients.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(gradients[0]) == len(gradients[1]) > 10
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_passes_that_differ_cost_more_the_more_it_weighs() -> None:
    losses = []
    for agreement in (1e-9, 1.0, 5.0):
        model, batch = made(agreement)
        torch.manual_seed(0)
        losses.append(float(loss_of(model, batch).detach()))
    assert losses[1] > losses[0] * 1.0001
    assert losses[2] - losses[0] == pytest.approx(5 * (losses[1] - losses[0]), rel=1e-6)


def test_held_out_text_is_passed_once() -> None:
    model, batch = made(5.0)
    (term,) = model.eval()(batch)
    assert int(term.count) == int((batch.targets["seq2seq"].labels != IGNORE).sum()) == 22
    again, _ = made(0.0)
    assert torch.equal(term.total, again.eval()(batch)[0].total)


def test_the_work_is_counted_twice() -> None:
    backbone = EncoderDecoder(EncoderDecoderConfig(1000, 64, 2, 4, max_length=32, dropout=0.1, attention_dropout=0.1))
    config = {"seq2seq": Seq2SeqConfig(agreement=1.0)}
    model = Model(backbone, build(config, backbone, Vocab(1000, ROLES))).train()
    batch = Batch(torch.randint(5, 1000, (4, 32)), torch.full((4,), 32), full=True)
    batch = model.objective.corrupt(batch.with_targets(seq2seq=Targets(torch.randint(5, 1000, (4, 32)))))
    counter = FlopCounterMode(display=False)
    with counter:
        loss_of(model, batch).backward()
    hidden = 2 * 6 * 2 * 31 * 64  # what a causal mask hides is computed here all the same
    found = flops_per_token(backbone.config, work_of(config, 32)) + hidden
    assert found == pytest.approx(counter.get_total_flops() / 128, rel=0.01)


def test_every_tensor_of_a_batch_comes_twice() -> None:
    _, batch = made(1.0)
    both = twice(batch)
    assert both.size == 6
    for one, two in zip(batch.tensors(), both.tensors(), strict=True):
        assert torch.equal(two[:3], one)
        assert torch.equal(two[3:], one)


def test_settings_that_make_no_sense() -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(SesameError, match=rf"objectives\.seq2seq\.agreement is {wrong}; it is 0 or above"):
            Seq2SeqConfig(agreement=wrong)
