"""Sentence order: its head, its loss, and what it is told by packing."""

import pytest
import torch

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import Batch, Targets
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.pair import NextSentenceConfig, SentenceOrderConfig

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def made() -> tuple[Encoder, Batch]:
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(50, 16, 2, 2, dropout=0.0, attention_dropout=0.0)).double()
    batch = Batch(torch.randint(5, 50, (6, 9)), torch.tensor([9, 8, 9, 4, 5, 9]), segments=torch.zeros(6, 9).long())
    return backbone, batch.with_targets(sop=Targets(torch.tensor([0, 1, 1, 0, 1, 0])))


@torch.no_grad()
def test_the_loss_is_the_formula() -> None:
    backbone, batch = made()
    sop = build({"sop": SentenceOrderConfig(weight=2.0)}, backbone, Vocab(50, ROLES)).double().eval()
    (term,) = sop(backbone, batch)
    heads = sop.heads()
    assert set(heads) == {"pooler", "sop"}
    logits = heads["sop"](torch.tanh(heads["pooler"](backbone(batch).last[:, 0])))
    labels = batch.targets["sop"].labels
    wanted = -logits.log_softmax(-1)[torch.arange(6), labels].sum()
    assert logits.shape == (6, 2)
    assert float(term.total) == pytest.approx(float(wanted), abs=1e-12)
    assert (term.name, term.weight, int(term.count)) == ("sop", 2.0, 6)
    assert term.hits is not None
    assert int(term.hits) == int((logits.argmax(-1) == labels).sum())
    (unpadded,) = sop(backbone, batch.unpadded(4))
    assert float(unpadded.total) == pytest.approx(float(wanted), abs=1e-10)


def test_it_stands_beside_masks_and_reads_its_own_labels() -> None:
    backbone, batch = made()
    both = build({"mlm": MaskedLMConfig(), "sop": SentenceOrderConfig()}, backbone, Vocab(50, ROLES)).double()
    batch = Batch(**{**batch.__dict__, "keys": torch.arange(6)})
    terms = {term.name: term for term in both(backbone, both.corrupt(batch))}
    assert set(terms) == {"mlm", "sop"}
    other = build({"nsp": NextSentenceConfig()}, backbone, Vocab(50, ROLES)).double()
    assert set(other.heads()) == {"pooler", "nsp"}
    assert other.present(batch) == []  # an order is no answer to "does it follow?"
