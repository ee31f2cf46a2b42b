"""The words nearest to a word in context are those that a plain comparison of states finds."""

import numpy as np
import pytest
import torch

from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.explain import near_words as module
from sesame.explain.near_words import near_words, occurrence
from tests.explain.explain_toys import toy

pytestmark = pytest.mark.usefixtures("one_thread")
LINES = ["ba de ba", "ku fi, ba", "go ku ba de", "fu", "... !"]


@pytest.mark.parametrize("kind", ["post", "causal", "xlnet"])
@pytest.mark.parametrize("layer", ["last", "0"])
def test_they_are_found_by_hand(kind: str, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 3)  # several rounds, in the middle of a line too
    parts = toy(kind, 0, double=False)
    tokenizer, backbone = parts.tokenizer, parts.backbone.eval()
    assert tokenizer is not None

    def state(text: str, place: int) -> np.ndarray:  # type: ignore[type-arg]
        found = tokenizer.encode(text, special=True)
        ids = torch.tensor([found.ids])
        batch = Batch(ids, torch.tensor([ids.shape[1]]), segments=torch.tensor([found.segments]), full=True)
        with torch.no_grad():
            states = backbone(batch).layers[-1 if layer == "last" else 0][0]
        at = [at for at, (start, end) in enumerate(found.offsets) if start <= place < end]
        return states[at].mean(0).numpy()  # type: ignore[no-any-return]

    asked = state("de ba de", 3)
    wanted = []
    for number, line in enumerate(LINES, 1):
        for place in (at for at, letter in enumerate(line) if letter in "bdfgk"):
            other = state(line, place)
            cosine = float(other @ asked / np.linalg.norm(other) / np.linalg.norm(asked))
            wanted.append((cosine, number, place, line[place : place + 2]))
    wanted.sort(key=lambda each: (-each[0], each[1], each[2]))
    found = near_words(backbone, tokenizer, occurrence("de ba de", "ba"), LINES, layer, 5)
    assert [one.cosine for one in found] == pytest.approx([each[0] for each in wanted[:5]], abs=1e-5)
    if layer == "last":  # at the embeddings without places many are equal
        assert [(one.line, one.occurrence.start, one.occurrence.word) for one in found] == [e[1:] for e in wanted[:5]]
    assert len(near_words(backbone, tokenizer, occurrence("de ba de", "ba"), LINES, layer, 50)) == len(wanted) == 11


def test_which_one_is_meant_and_that_it_is_not_its_own_neighbor() -> None:
    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    assert [occurrence("ba de Ba", "ba", at).start for at in (1, 2)] == [0, 6]
    asked = occurrence("ba de ba", "ba", 2)
    found = near_words(parts.backbone, parts.tokenizer, asked, ["ba de ba", "ku"], count=9)
    assert sorted((one.line, one.occurrence.start) for one in found) == [(1, 0), (1, 3), (2, 0)]


def test_mistakes_get_one_sentence() -> None:
    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    for word, at, part in (("go", 1, "does not stand"), ("ba", 3, "stands 2 times"), ("  ", 1, "no letter")):
        with pytest.raises(SesameError, match=part):
            occurrence("ba de ba", word, at)
    asked = occurrence("ba", "ba")
    with pytest.raises(SesameError, match="line 2 has 42 tokens, the model takes 32"):
        near_words(parts.backbone, parts.tokenizer, asked, ["ba", "de " * 40])
    with pytest.raises(SesameError, match="no other word"):
        near_words(parts.backbone, parts.tokenizer, asked, ["ba", " !"])
    with pytest.raises(SesameError, match="layers 0"):
        near_words(parts.backbone, parts.tokenizer, asked, ["ba de", "go"], "7")
