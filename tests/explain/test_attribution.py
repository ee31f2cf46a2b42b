"""Integrated gradients: complete on every kind of model, exact where the score is linear, equal to a plain sum of steps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sesame.checkpoint.folder import Parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.explain.asked import Question, Wish, ask
from sesame.explain.attribution import attribute, baseline_of
from tests.explain.explain_toys import TEXT, WORDS, toy
from tests.languages import word_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TOKENIZER = word_tokenizer(WORDS)
MASK = TOKENIZER.id("mask")


@pytest.mark.parametrize("kind", ["post", "pre", "branch", "rotary", "windows", "albert", "xlnet", "half", "decoded"])
@pytest.mark.parametrize("task", ["classify", "tag", "qa", "regress"])
@pytest.mark.parametrize("seed", range(2))
def test_contributions_sum_to_the_difference_of_scores(kind: str, task: str, seed: int) -> None:
    parts = toy(kind, seed, (task,))
    question = ask(parts, TEXT, "da do ga ge" if task == "qa" else None, parts.tasks[task])
    found = attribute(question, MASK, "[MASK]")
    difference = found.score - found.base
    assert abs(difference) > 1e-3, "nothing to explain"
    assert sum(found.values) == pytest.approx(difference, rel=0.01)
    assert found.gap <= 0.01
    assert found.score == pytest.approx(question.now())
    assert max(map(abs, found.values)) > 1e-3
    kept = [value for value, free in zip(found.values, question.free, strict=True) if not free]
    assert len(kept) == (3 if task == "qa" else 2)
    assert kept == [0.0] * len(kept), "specials are as in the baseline"


@pytest.mark.parametrize("kind", ["post", "rotary", "causal", "transformer", "recurrent"])
@pytest.mark.parametrize("seed", range(2))
def test_masks_next_tokens_and_answers_too(kind: str, seed: int) -> None:
    text = "ba de [MASK] go ku" if kind in ("post", "rotary") else "ba de go ku"
    parts = toy(kind, seed)
    question = ask(parts, text, wish=Wish("fa"))
    found = attribute(question, MASK, "[MASK]")
    assert found.score == pytest.approx(question.now()), "the source's vectors stand where the source is read"
    assert abs(found.score - found.base) > 1e-4
    assert sum(found.values) == pytest.approx(found.score - found.base, rel=0.01)


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_an_answer_longer_than_its_source(kind: str) -> None:
    question = ask(toy(kind), "ba", wish=Wish("fa go ku de fa go ku de"))
    found = attribute(question, MASK)
    assert found.score == pytest.approx(question.now())
    assert sum(found.values) == pytest.approx(found.score - found.base, rel=0.01)


@pytest.mark.parametrize("kind", ["post", "half", "decoded"])
@pytest.mark.parametrize("seed", range(2))
def test_the_baseline_is_the_score_of_masked_text(kind: str, seed: int) -> None:
    parts = toy(kind, seed, ("classify",))
    found = attribute(ask(parts, TEXT, task=parts.tasks["classify"], wish=Wish("bad")), MASK)
    hidden = ask(parts, " ".join(["ba"] * 7), task=parts.tasks["classify"]).copies(1)
    masked = replace(hidden, ids=torch.where(hidden.ids == TOKENIZER.encode("ba").ids[0], MASK, hidden.ids))
    assert int((masked.ids == MASK).sum()) == 7
    with torch.no_grad():
        logits = parts.tasks["classify"].answer(parts.backbone(masked))
    assert float(logits[0, 1]) == pytest.approx(found.base)


def linear_question(weight: Tensor, parts: Parts) -> Question:
    """f = Σ_i w_i · x_i: the integral is w_i · (x_i - b_i)."""
    ids = torch.tensor([[2, 7, 9, 11, 3]])
    free = [False, True, True, True, False]
    backbone: Any = parts.backbone

    def score(batch: Batch) -> Tensor:
        return (backbone.embeddings.tokens(batch.ids) * weight).sum((1, 2)) + 3.0

    def copies(count: int) -> Batch:
        return Batch(ids.expand(count, -1), torch.full((count,), 5), full=True)

    return Question("linear", backbone, ids.tolist(), ["?"] * 5, free, copies, score)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_score_is_explained_exactly(seed: int) -> None:
    parts = toy("post", seed)
    weight = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = attribute(linear_question(weight, parts), MASK)
    table = parts.backbone.token_table().detach()
    moved = table[[2, 7, 9, 11, 3]] - table[[2, MASK, MASK, MASK, 3]]
    np.testing.assert_allclose(found.values, (moved * weight).sum(1).numpy(), rtol=1e-10, atol=1e-12)
    assert found.gap < 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_it_is_what_many_plain_steps_give(seed: int) -> None:
    """The definition as the paper computes it: a Riemann sum, one step after another, through vectors put in by hand."""
    parts = toy("post", seed, ("classify",))
    question = ask(parts, TEXT, task=parts.tasks["classify"])
    found = attribute(question, MASK, tolerance=1e-6)
    table: Any = parts.backbone.embeddings.tokens
    ids = torch.tensor(question.rows)
    x = table.weight.detach()[ids]
    b = torch.where(torch.tensor(question.free)[None, :, None], table.weight.detach()[MASK], x)
    total = torch.zeros_like(x)
    for step in range(400):
        point = (b + (step + 0.5) / 400 * (x - b)).requires_grad_()
        hook = table.register_forward_hook(lambda *_, given=point: given)
        score = question.score(question.copies(1))
        hook.remove()
        total += torch.autograd.grad(score.sum(), point)[0] / 400
    np.testing.assert_allclose(found.values, ((x - b) * total).sum(-1)[0].numpy(), rtol=2e-3, atol=2e-4)


def test_long_texts_are_explained_over_all_windows() -> None:
    parts = toy("post", 0, ("classify",), length=16)
    text = " ".join(WORDS)
    question = ask(parts, text, task=parts.tasks["classify"])
    assert len(question.rows) > 1
    found = attribute(question, MASK)
    assert len(found.values) == len(found.tokens) == sum(map(len, question.rows))
    assert found.gap <= 0.01


def test_32_bits_are_enough() -> None:
    parts = toy("post", 1, ("classify",), double=False)
    assert attribute(ask(parts, TEXT, task=parts.tasks["classify"]), MASK).gap <= 0.01


def test_a_text_that_is_its_own_baseline_adds_nothing() -> None:
    parts = toy("post", 0)
    found = attribute(ask(parts, "[MASK] [MASK]", wish=Wish("ba")), MASK)
    assert found.values == [0.0] * 4
    assert found.score == found.base


def test_what_cannot_be_asked_is_told() -> None:
    parts = toy("post", 0, ("classify", "tag", "qa"))
    with pytest.raises(SesameError, match="bad, good, plain"):
        ask(parts, TEXT, task=parts.tasks["classify"], wish=Wish("gut"))
    with pytest.raises(SesameError, match="is no word of the text"):
        ask(parts, TEXT, task=parts.tasks["tag"], wish=Wish(at="zu"))
    with pytest.raises(SesameError, match="needs its context"):
        ask(parts, TEXT, task=parts.tasks["qa"])
    with pytest.raises(SesameError, match="no mask in"):
        ask(parts, TEXT)
    with pytest.raises(SesameError, match="masks 1 to 1"):
        ask(parts, "ba [MASK]", wish=Wish(at="2"))
    with pytest.raises(SesameError, match="not one token"):
        ask(parts, "ba [MASK]", wish=Wish("zzz"))
    with pytest.raises(SesameError, match="reads one text"):
        ask(toy("causal"), "ba", "de")
    with pytest.raises(SesameError, match="has no such token"):
        baseline_of(TOKENIZER, "eos")
    assert baseline_of(TOKENIZER) == MASK


def test_a_mask_may_stand_in_the_second_text() -> None:
    parts = toy("post", 0)
    question = ask(parts, "ba de", "fi [MASK] go", wish=Wish("ku"))
    assert question.tokens == ["[CLS]", "ba", "de", "[SEP]", "fi", "[MASK]", "go", "[SEP]"]
    batch = question.copies(1)
    assert batch.segments is not None
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    with torch.no_grad():
        logits = parts.heads["mlm"](parts.backbone(batch).last[:, 5], parts.backbone.token_table())
    assert question.now() == pytest.approx(float(logits[0, TOKENIZER.encode("ku").ids[0]]))
    assert attribute(question, MASK).gap <= 0.01


@pytest.mark.parametrize("at", ["fi", "3"])
def test_the_number_asked_about_is_the_tasks_own(at: str) -> None:
    parts = toy("post", 0, ("tag",))
    question = ask(parts, TEXT, task=parts.tasks["tag"], wish=Wish("B-X", at))
    assert question.name == "the logit of the tag “B-X” at “fi”"
    with torch.no_grad():
        logits = parts.tasks["tag"].answer(parts.backbone(question.copies(1)))
    assert question.now() == pytest.approx(float(logits[0, 3, 1]))
