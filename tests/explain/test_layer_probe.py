"""A probe finds what a layer holds, nothing where nothing is, and equals one that is fitted by hand."""

import numpy as np
import pytest
import torch

from sesame.backbones import BiLM, BiLMConfig
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.explain import layers
from sesame.explain.layers import learnt_mixes, probe
from sesame.text.train import train_tokenizer
from tests.explain.explain_toys import WORDS, toy

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(count: int, seed: int) -> list[str]:
    luck = np.random.default_rng(seed)
    return [" ".join(luck.choice(WORDS, size=3 + number % 6)) for number in range(count)]


@pytest.mark.parametrize("seed", range(2))
def test_what_the_words_say_is_found_and_luck_is_not(seed: int) -> None:
    parts = toy("post", seed, double=False)
    assert parts.tokenizer is not None
    given = texts(150, seed)
    luck = np.random.default_rng(seed)
    by_word = [Example("", text, label="yes" if text.split().count("ba") or "ku" in text else "no") for text in given]
    by_luck = [Example("", text, label=str(luck.choice(["yes", "no"]))) for text in given]
    found = probe(parts.backbone, parts.tokenizer, by_word, "classify")
    assert (found.metric, len(found.means), found.rows, found.folds) == ("accuracy", 3, 150, 5)
    assert found.means[0] > found.least + 0.1, "the mean of token vectors knows which words there are"
    none = probe(parts.backbone, parts.tokenizer, by_luck, "classify")
    assert max(none.means) < 0.7
    assert all(spread > 0 for spread in none.spreads)


def test_order_is_known_above_the_embeddings_only() -> None:
    """Bags of words are the same: only layers that saw who stands before whom can tell."""
    parts = toy("causal", 3, double=False)
    assert parts.tokenizer is not None
    luck = np.random.default_rng(0)
    examples = []
    for _ in range(100):
        one, two = luck.choice(WORDS, size=2, replace=False).tolist()
        examples += [Example("", f"{one} {two}", label="up" if one < two else "down")]
        examples += [Example("", f"{two} {one}", label="up" if two < one else "down")]
    found = probe(parts.backbone, parts.tokenizer, examples, "classify")
    assert found.means[0] < 0.6
    assert max(found.means[1:]) > found.means[0] + 0.1


def test_tags_go_by_words_and_texts_stay_together() -> None:
    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    examples = []
    for text in texts(40, 0):
        words, start = [], 0
        for word in text.split():
            words.append((start, start + len(word)))
            start += len(word) + 1
        tags = tuple(word[0].upper() for word in text.split())
        examples.append(Example("", text, label=tags, words=tuple(words)))
    found = probe(parts.backbone, parts.tokenizer, examples, "tag")
    assert found.rows == sum(len(example.words) for example in examples)
    assert found.means[0] > found.least + 0.3, "a word's own vector knows its first letter"
    owners = np.repeat(np.arange(10), 3)
    for learn, asked in layers._folds(np.zeros(30), owners, 5, stratified=False):
        assert not set(owners[learn]) & set(owners[asked])


def test_numbers_and_the_score_of_one_layer_by_hand() -> None:
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GroupKFold

    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    given = texts(60, 1)
    examples = [Example("", text, label=float(len(text.split()) + text.count("a"))) for text in given]
    found = probe(parts.backbone, parts.tokenizer, examples, "regress", folds=3)
    rows, numbers = [], np.array([example.label for example in examples])
    with torch.no_grad():
        for text in given:
            ids = torch.tensor([parts.tokenizer.encode(text, special=True).ids])
            x = parts.backbone.embeddings(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))  # type: ignore[operator]
            rows.append(x[0].mean(0).double().numpy())
    vectors, scores = np.array(rows), []
    for learn, asked in GroupKFold(3, shuffle=True, random_state=0).split(vectors, groups=range(60)):
        mean, spread = vectors[learn].mean(0), vectors[learn].std(0)
        model = RidgeCV(layers.STRENGTHS).fit((vectors[learn] - mean) / spread, numbers[learn])
        scores.append(np.corrcoef(numbers[asked], model.predict((vectors[asked] - mean) / spread))[0, 1])
    assert found.metric == "pearson"
    assert found.means[0] == pytest.approx(np.mean(scores), abs=1e-5)


def test_the_mix_is_the_mean_of_all_layers_and_stands_last() -> None:
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.model_selection import StratifiedKFold

    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    given = sorted(texts(60, 2), key=lambda text: len(text.split()))  # as batches take them, so folds are the same
    labels = np.array(["yes" if "ba" in text or "ku" in text else "no" for text in given])
    rows = [Example("", text, label=label) for text, label in zip(given, labels.tolist(), strict=True)]
    found = probe(parts.backbone, parts.tokenizer, rows, "classify", folds=3)
    vectors = []
    with torch.no_grad():
        for text in given:
            ids = torch.tensor([parts.tokenizer.encode(text, special=True).ids])
            batch = Batch(ids, torch.tensor([ids.shape[1]]), segments=torch.zeros_like(ids), full=True)
            states = parts.backbone(batch).layers
            vectors.append(torch.stack(tuple(states))[:, 0].double().mean((0, 1)).numpy())
    mixed, scores = np.array(vectors), []
    for learn, asked in StratifiedKFold(3, shuffle=True, random_state=0).split(mixed, labels):
        mean, spread = mixed[learn].mean(0), mixed[learn].std(0)
        model = RidgeClassifierCV(layers.STRENGTHS).fit((mixed[learn] - mean) / spread, labels[learn])
        scores.append((model.predict((mixed[asked] - mean) / spread) == labels[asked]).mean())
    assert found.mix == pytest.approx((np.mean(scores), np.std(scores, ddof=1)))
    assert [name for name, _, _ in found.each()] == ["embeddings", "1", "2", "mix"]
    assert found.each()[-1][1:] == found.mix
    assert [mean for _, mean, _ in found.each()[:-1]] == found.means


def test_what_tasks_learnt_to_mix() -> None:
    parts = toy("post", 0, ("classify", "tag"), double=False)
    assert learnt_mixes(parts.tasks) == {}
    mixed = toy("post", 0, ("classify",), double=False, layers="mix").tasks["classify"]
    assert mixed.choice.mix is not None
    mixed.choice.mix.scores.data = torch.tensor([1.0, 2.0, 4.0]).log()
    found = learnt_mixes({**parts.tasks, "mixed": mixed})
    assert list(found) == ["mixed"]
    assert found["mixed"] == pytest.approx([1 / 7, 2 / 7, 4 / 7])


def test_rows_that_cannot_be_probed_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    parts = toy("post", 0, double=False)
    assert parts.tokenizer is not None
    given = (parts.backbone, parts.tokenizer)
    with pytest.raises(SesameError, match="same label"):
        probe(*given, [Example("", text, label="a") for text in texts(9, 0)], "classify")
    with pytest.raises(SesameError, match="occurs once"):
        probe(*given, [Example("", text, label="b" if at else "a") for at, text in enumerate(texts(9, 0))], "classify")
    with pytest.raises(SesameError, match="not for qa"):
        probe(*given, [], "qa")
    with pytest.raises(SesameError, match="many labels"):
        probe(*given, [Example("", "ba", label=("a", "b"))], "classify")
    some = [Example("", text, label="b" if at < 3 else "a") for at, text in enumerate(texts(9, 0))]
    assert probe(*given, some, "classify").folds == 3
    assert "3 folds instead of 5" in capsys.readouterr().err


def test_readers_of_letters_are_probed_too() -> None:
    tokenizer = train_tokenizer(["ba de fi go ku", "ba be bi"] * 3, "word", 285)
    backbone = BiLM(BiLMConfig(len(tokenizer), width=12, cell=10, letter_width=5, filters=((1, 3), (3, 4))))
    backbone.spell(tokenizer)
    rows = [Example("", text, label="yes" if "ba" in text.split() else "no") for text in texts(40, 0)]
    found = probe(backbone, tokenizer, rows, "classify")
    assert len(found.means) == backbone.depth + 1
