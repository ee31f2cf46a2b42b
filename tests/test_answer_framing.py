"""What a model reads and tells in training is what it reads and tells when it answers, for every family."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame import chance
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import answer_frame, voice_of
from sesame.data.answer_pack import AnswerPacker
from sesame.data.batch import IGNORE
from sesame.data.build import build_pairs
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.finetuning import answering
from sesame.pretraining.preparation import Ingredients
from sesame.pretraining.start_model import model_at_start
from sesame.pretraining.wishes import Wishes
from sesame.recipe import resolve
from sesame.tasks.speak import inputs_of
from tests.answer_toys import rows, stranger, write_rows

FAMILIES = ["t5", "t5-1.1", "bart", "marian"]
PAIRS = rows("swap", 40, 0, longest=12)


def packer_of(parts: Parts, folder: Path, length: int = 32, reverse: bool = False) -> AnswerPacker:
    assert parts.tokenizer is not None
    file = write_rows(folder / "pairs.tsv", PAIRS)
    store = build_pairs([file], ("aa", "bb"), parts.tokenizer, folder / "cache")
    frame = answer_frame(parts.tokenizer, parts.speech)
    specials = Specials(None, frame.end[0], parts.tokenizer.id("pad"))
    part = hold_out(store, 0, 0.0)[0]
    return AnswerPacker(part, length, specials, reverse=reverse, cut=True, frame=frame, quiet=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_sources_are_the_same_in_training_and_in_use(family: str, reverse: bool, tmp_path: Path) -> None:
    parts = load_parts(stranger(tmp_path / "model", family))
    assert parts.tokenizer is not None
    for length in (32, 8):  # whole, and cut
        packer = packer_of(parts, tmp_path, length, reverse)
        fitting = [number for number, (_, b) in enumerate(PAIRS) if len(b.split()) <= length - packer.more[1]]
        assert len(packer) == len(fitting) > 5
        voice = replace(voice_of(parts), reverse=reverse)
        wanted = inputs_of(parts.tokenizer, [PAIRS[number][0] for number in fitting], voice, length)
        chosen = np.arange(len(packer))
        batch = packer.draw(chosen, chance.keys(1, chosen))
        found = [row[:size].tolist() for row, size in zip(batch.ids, batch.lengths.tolist(), strict=True)]
        assert found == wanted


def test_a_cut_counts_and_a_long_answer_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = load_parts(stranger(tmp_path / "model", "t5"))
    loud = packer_of(parts, tmp_path)
    capsys.readouterr()
    AnswerPacker(loud.part, 8, loud.specials, cut=True, frame=loud.frame)
    told, long = capsys.readouterr().err, sum(len(a.split()) > 7 for a, _ in PAIRS)
    assert f"{long} of 40 sources have more than 8 tokens; their ends are not read" in told
    assert f"{long} of 40 pairs are left out: the answer has more than 7 tokens" in told


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = stranger(tmp_path / "model", family, dtype=torch.float64)
    parts = load_parts(folder)
    assert parts.tokenizer is not None
    packer = packer_of(parts, tmp_path)
    ingredients = Ingredients(parts.tokenizer, packer.part, packer.part, parts)
    wishes = Wishes("answer", (), tmp_path / "run", start=str(folder))
    model, _ = model_at_start(ingredients, wishes, resolve("answer", settings=["stages.main.length=32"]), None, False)  # type: ignore[arg-type]
    chosen = np.arange(6)
    batch = model.objective.corrupt(packer.draw(chosen, chance.keys(1, chosen)))
    with torch.no_grad():
        [term] = model.eval()(batch)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()
    reader = AutoTokenizer.from_pretrained(folder)
    sources = reader([a for a, _ in PAIRS[:6]], padding=True, return_tensors="pt")
    labels = reader([b for _, b in PAIRS[:6]], padding=True, return_tensors="pt")["input_ids"]
    labels = labels.masked_fill(labels == reader.pad_token_id, IGNORE)
    with torch.no_grad():
        wanted = theirs(
            input_ids=sources["input_ids"], attention_mask=sources["attention_mask"], labels=labels
        ).loss  # fmt: skip
    torch.testing.assert_close(term.total / term.count, wanted, rtol=1e-7, atol=0)  # T5 there takes means in 32 bits


def test_distances_have_no_end(tmp_path: Path) -> None:
    """T5's config names a length that nothing depends on: it is taught as long texts as any other."""
    for family, more in (("t5", {"n_positions": 16}), ("bart", {})):
        parts = load_parts(stranger(tmp_path / family, family, **more))
        packer = packer_of(parts, tmp_path)
        assert parts.tokenizer is not None
        ingredients = Ingredients(parts.tokenizer, packer.part, packer.part, parts)
        wishes = Wishes("answer", (), tmp_path / "run", start=family)
        if family == "t5":
            model_at_start(ingredients, wishes, resolve("answer"), None, False)  # type: ignore[arg-type]
        else:
            with pytest.raises(SesameError, match=r"bart: takes 32 tokens; .* so set stages\.main\.length=32"):
                model_at_start(ingredients, wishes, resolve("answer"), None, False)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_reversal_is_remembered(family: str, tmp_path: Path) -> None:
    parts = load_parts(stranger(tmp_path / "model", family))
    assert parts.speech is not None
    assert not voice_of(parts).reverse
    parts.speech = replace(parts.speech, reverse=True)
    (tmp_path / "kept").mkdir()
    save_parts(tmp_path / "kept", parts)
    again = load_parts(tmp_path / "kept")
    assert again.speech == parts.speech
    assert voice_of(again).reverse
    taught = answering._settings(answering.Wishes("", "", tmp_path), again)
    assert "stages.main.reverse=true" in taught, "when it is taught further, too"
