"""Equal to seqeval in its default mode, for tags in and out of order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from sesame.errors import SesameError
from sesame.evaluate.entities import entities, entity_counts, entity_scores, entity_table
from sesame.evaluate.statistics import micro_f1

TYPES = ["PER", "LOC", "B-PER", "I-", "имя", "_"]
IOB = ["O", *(f"{kind}-{type_}" for kind in "BI" for type_ in TYPES)]
BIOES = ["O", *(f"{kind}-{type_}" for kind in "BIES" for type_ in TYPES[:3])]


def sentences(tags: list[str]) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    word = st.tuples(st.sampled_from(tags), st.sampled_from(tags)) | st.sampled_from(tags).map(lambda tag: (tag, tag))
    return st.lists(st.lists(word, min_size=1, max_size=12), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(sentences(IOB) | sentences(BIOES))
def test_equals_seqeval(drawn: list[list[tuple[str, str]]]) -> None:
    gold, said = ([[word[side] for word in sentence] for sentence in drawn] for side in (0, 1))
    for tags in gold + said:
        assert [(type_, start, end - 1) for type_, start, end in entities(tags)] == get_entities(tags)
    scores = entity_scores(gold, said)
    assert scores["precision"] == pytest.approx(precision_score(gold, said, zero_division=0))
    assert scores["recall"] == pytest.approx(recall_score(gold, said, zero_division=0))
    assert scores["f1"] == pytest.approx(f1_score(gold, said, zero_division=0))
    assert scores["accuracy"] == pytest.approx(accuracy_score(gold, said))
    rows = {row["label"]: row for row in entity_table(gold, said)}
    if rows:
        report = classification_report(gold, said, output_dict=True, zero_division=0)
        assert set(rows) == set(report) - {"micro avg", "macro avg", "weighted avg"}
        for label, row in rows.items():
            wanted = (report[label][name] for name in ("precision", "recall", "f1-score", "support"))
            assert (row["precision"], row["recall"], row["f1"], row["count"]) == pytest.approx(
                tuple(map(float, wanted))
            )
    counts = entity_counts(gold, said)
    assert counts.shape == (len(gold), 3)
    assert micro_f1(counts)(np.arange(len(gold))[None])[0] == pytest.approx(scores["f1"])


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("O I-PER I-PER O", [("PER", 1, 3)]),  # IOB1
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("S-PER B-LOC I-LOC E-LOC S-LOC", [("PER", 0, 1), ("LOC", 1, 4), ("LOC", 4, 5)]),
        ("U-PER B-LOC L-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3), ("LOC", 3, 4)]),
        ("E-PER E-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-B-PER I-B-PER", [("B-PER", 0, 2)]),
        ("B I O I", [("_", 0, 2), ("_", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_by_hand(tags: str, wanted: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == wanted


def test_all_three_schemes_mean_the_same() -> None:
    iob1, iob2, bioes = "I-A I-A B-A O I-B", "B-A I-A B-A O B-B", "B-A E-A S-A O S-B"
    assert entities(iob1.split()) == entities(iob2.split()) == entities(bioes.split())


def test_no_entities_are_zero() -> None:
    assert entity_scores([["O", "O"]], [["O", "O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0}
    assert entity_scores([[]], [[]])["accuracy"] == 0.0
    assert entity_table([["O"]], [["O"]]) == []


def test_mistakes_are_sentences() -> None:
    with pytest.raises(SesameError, match="sentence 2 has 2 words but 1 tags"):
        entity_scores([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(SesameError, match="'NOUN' is not a tag of IOB or BIOES"):
        entities(["O", "NOUN"])
    with pytest.raises(SesameError, match="nothing to score"):
        entity_scores([], [])
