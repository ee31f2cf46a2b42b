"""`sesame pretrain --vectors`: the token table starts from them, and stays there if it is frozen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sesame.checkpoint.loading import load_parts
from sesame.data.vector_files import write_vectors
from sesame.data.vector_table import token_vectors
from sesame.data.vectors import Vectors
from sesame.errors import SesameError
from sesame.pretraining import preparation
from sesame.pretraining.run import Wishes, pretrain
from tests.answer_toys import OTHERS, WORDS, rows, write_rows
from tests.languages import word_tokenizer

SEQ2SEQ = ("backbone.width=16", "tokenizer.size=300", "stages.main.length=32", "stages.main.tokens=256")
ELMO = ("tokenizer.size=280", "backbone.reads=tokens", "backbone.width=32", "backbone.cell=24")


def given(folder: Path, width: int = 16) -> Vectors:
    words = (*WORDS, *OTHERS)
    made = Vectors(words, np.random.default_rng(4).normal(size=(len(words), width)).astype(np.float32))
    write_vectors(made, folder / "v.txt")
    return made


def run(folder: Path, recipe: str, **wanted: Any) -> Path:
    if recipe == "elmo":
        (folder / "text.txt").write_text("\n".join(a for a, _ in rows("copy", 300, 0, longest=8)) + "\n")
        wanted = {"text": [str(folder / "text.txt")], "settings": ELMO} | wanted
    else:
        pairs = write_rows(folder / "pairs.tsv", rows("swap", 120, 0, longest=6))
        wanted = {"text": [], "pairs": [f"aa-bb={pairs}"], "settings": SEQ2SEQ} | wanted
    return pretrain(Wishes(recipe, out=folder / "run", size="tiny", steps=3, device="cpu", **wanted))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("recipe", ["luong", pytest.param("elmo", marks=pytest.mark.slow)])
def test_words_that_are_tokens_have_their_vectors(tmp_path: Path, recipe: str, frozen: bool) -> None:
    vectors = given(tmp_path)
    parts = load_parts(run(tmp_path, recipe, vectors=str(tmp_path / "v.txt"), freeze_vectors=frozen))
    assert parts.tokenizer is not None
    ids, wanted = token_vectors(parts.tokenizer, vectors, 16)
    assert len(ids) >= len(WORDS)
    table = parts.backbone.token_table().detach().numpy()[ids]
    assert np.array_equal(table, wanted) == frozen
    np.testing.assert_allclose(table, wanted, atol=0.1)  # three steps do not go far


def test_pieces_inside_of_words_have_none(tmp_path: Path) -> None:
    vectors = given(tmp_path)
    ids, found = token_vectors(word_tokenizer(["ba", "##be", "xx"]), vectors, 16)
    assert ids == [word_tokenizer(["ba", "##be", "xx"]).encode("ba").ids[0]]
    assert np.array_equal(found[0], vectors.vector("ba"))
    with pytest.raises(SesameError, match="no token"):
        token_vectors(word_tokenizer(["xx"]), vectors, 16)
    with pytest.raises(SesameError, match="16 numbers and the token table of this model 8"):
        token_vectors(word_tokenizer(["ba"]), vectors, 8)


def test_what_does_not_go_together_is_told(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="--freeze-vectors"):
        run(tmp_path, "luong", freeze_vectors=True)


@pytest.mark.parametrize("recipe", ["luong", "elmo"])
def test_vectors_without_room_are_told_before_the_text_is_encoded(
    tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*given: Any, **more: Any) -> None:
        raise AssertionError("hours went by")

    monkeypatch.setattr(preparation, "build_store", encode)
    monkeypatch.setattr(preparation, "gather_mixture", encode)
    given(tmp_path, width=8)
    with pytest.raises(SesameError, match="8 numbers and the token table of this model 16"):
        run(tmp_path, recipe, vectors=str(tmp_path / "v.txt"))
    if recipe == "elmo":
        with pytest.raises(SesameError, match="reads letters"):
            run(tmp_path, recipe, vectors=str(tmp_path / "v.txt"), settings=("tokenizer.size=280",))
