"""A head that is dropped is a head whose columns of W_O are 0; shared layers are dropped at one depth only."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sesame.backbones import LSTMConfig, build_backbone
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.explain.asked import Wish, ask
from sesame.explain.heads import ablate, ablate_on, layers_of, without
from sesame.tasks.predict import predict
from tests.explain.explain_toys import TEXT, WORDS, toy

pytestmark = pytest.mark.usefixtures("one_thread")


def masked_by_hand(backbone: Any, layer: int, head: int) -> Any:
    """A copy whose W_O does not listen to the head."""
    copy = deepcopy(backbone)
    out, heads = layers_of(copy)[layer].attention.out, layers_of(copy)[layer].heads
    size = out.in_features // heads  # type: ignore[union-attr, operator]
    with torch.no_grad():
        out.weight[:, head * size : (head + 1) * size] = 0.0  # type: ignore[union-attr, index]
    return copy


@pytest.mark.parametrize("kind", ["post", "pre", "branch", "rotary", "windows", "xlnet", "causal"])
@pytest.mark.parametrize("seed", range(2))
def test_dropping_is_masking_by_hand(kind: str, seed: int) -> None:
    parts = toy(kind, seed, ("classify",))
    question = ask(parts, TEXT, task=parts.tasks["classify"], wish=Wish("good"))
    found = ablate(parts.backbone, question.name, question.now)
    assert found.layers == ["1", "2"]
    assert found.whole == pytest.approx(question.now())
    for layer in range(2):
        for head in range(2):
            copy = masked_by_hand(parts.backbone, layer, head)
            with torch.no_grad():
                logits = parts.tasks["classify"].answer(copy(question.copies(1)))
            assert found.without[layer, head] == pytest.approx(float(logits[0, 0]), abs=1e-12)
    assert np.abs(found.change).min() > 1e-6, "a head that does nothing would hide a mistake"


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_encoder_decoders(kind: str) -> None:
    parts = toy(kind, 0)
    question = ask(parts, "ba de go", wish=Wish("fa fe"))
    if kind == "recurrent":
        with pytest.raises(SesameError, match="no attention heads"):
            ablate(parts.backbone, "", question.now)
        return
    found = ablate(parts.backbone, question.name, question.now)
    assert found.layers == ["encoder 1", "encoder 2"] + [
        f"decoder {n}{to}" for n in (1, 2) for to in ("", " to the source")
    ]
    for layer in range(6):
        copy = masked_by_hand(parts.backbone, layer, 1)
        own = toy(kind, 0)
        own.backbone = copy
        assert found.without[layer, 1] == pytest.approx(ask(own, "ba de go", wish=Wish("fa fe")).now(), abs=1e-12)


def test_a_shared_layer_is_dropped_at_one_depth() -> None:
    shared, own = toy("albert", 0), toy("post", 0)
    own.backbone = type(shared.backbone)(
        type(shared.backbone.config)(**{**vars(shared.backbone.config), "share": "none"})
    ).double()
    state = shared.backbone.state_dict()
    own.backbone.load_state_dict(state)
    own.heads = shared.heads
    wish = Wish("fa")
    one, two = (ask(parts, "ba [MASK] go", wish=wish) for parts in (shared, own))
    assert one.now() == pytest.approx(two.now())
    found = [ablate(parts.backbone, "", question.now) for parts, question in ((shared, one), (own, two))]
    np.testing.assert_allclose(found[0].without, found[1].without, atol=1e-12)
    assert np.abs(found[0].without[0] - found[0].without[1]).max() > 1e-6


def test_hooks_are_gone_afterwards() -> None:
    parts = toy("post", 0)
    question = ask(parts, "ba [MASK]", wish=Wish("fa"))
    before = question.now()
    with without(parts.backbone, layers_of(parts.backbone)[0], 0):
        assert question.now() != before
    assert question.now() == before


@pytest.mark.parametrize("seed", range(2))
def test_a_metric_on_rows(seed: int) -> None:
    parts = toy("post", seed, ("regress",), double=False)
    luck = np.random.default_rng(seed)
    rows = [Example("", " ".join(luck.choice(WORDS, size=1 + number % 9))) for number in range(40)]
    task, tokenizer = parts.tasks["regress"], parts.tokenizer
    assert tokenizer is not None
    values = np.array([reply["value"] for reply in predict(task, parts.backbone, tokenizer, rows)])
    gold = values + luck.normal(size=40) * values.std()
    found = ablate_on(parts, task, [replace(row, label=float(label)) for row, label in zip(rows, gold, strict=True)])
    assert (found.name, found.rows) == ("pearson", 40)
    assert found.whole == pytest.approx(np.corrcoef(gold, values)[0, 1], abs=1e-5)
    assert found.between is not None
    assert found.between[0] <= found.whole <= found.between[1]
    replies = predict(task, masked_by_hand(parts.backbone, 1, 0), tokenizer, rows)
    by_hand = np.corrcoef(gold, [reply["value"] for reply in replies])[0, 1]
    assert found.without[1, 0] == pytest.approx(by_hand, abs=1e-5)
    assert np.abs(found.change).min() > 1e-4


def test_no_heads_no_ablation() -> None:
    with pytest.raises(SesameError, match="no attention heads"):
        layers_of(build_backbone(LSTMConfig(20, width=8, depth=1)))
