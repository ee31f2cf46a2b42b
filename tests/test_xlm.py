"""XLM from text to model: languages, translations, resuming, what a generated bilingual language teaches, bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import weights

import sesame
from sesame import chance
from sesame.backbones import Encoder
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.data.build import build_pairs
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.data.translation_pack import TranslationPacker
from sesame.errors import SesameError
from sesame.objectives import Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead
from sesame.pretraining.dry_run import dry_run
from sesame.pretraining.mixture import check_mixture
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import recipe_names, resolve
from tests.crashes import crash_while_saving
from tests.languages import word_tokenizer

COUNT = 30  # words of each language; word n of one is word n of the other
ENGLISH = [f"e{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(COUNT)]
RUSSIAN = [f"р{chr(1072 + i // 26)}{chr(1072 + i % 26)}" for i in range(COUNT)]
SMALL = (
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "stages.main.length=24", "stages.main.batch=16",
    "backbone.dropout=0.0", "backbone.attention_dropout=0.0", "evaluation.tokens=2000",
)  # fmt: skip


class Bilingual:
    """Texts of two languages whose words follow each other at random, and sentences with their translations word by word."""

    def __init__(self, folder: Path, pairs: int = 400, seed: int = 0) -> None:
        self.folder = folder
        rng = np.random.default_rng(seed)
        for name, words, documents in (("en", ENGLISH, 90), ("ru", RUSSIAN, 30)):
            lines = ("\n".join(" ".join(rng.choice(words, 8)) for _ in range(6)) for _ in range(documents))
            (folder / f"{name}.txt").write_text("\n\n".join(lines), encoding="utf-8")
        rows = [rng.integers(0, COUNT, rng.integers(5, 9)) for _ in range(pairs)]
        (folder / "pairs.tsv").write_text(
            "".join(f"{' '.join(ENGLISH[i] for i in row)}\t{' '.join(RUSSIAN[i] for i in row)}\n" for row in rows),
            encoding="utf-8",
        )
        word_tokenizer([*ENGLISH, *RUSSIAN]).save(folder / "tokenizer")

    def wishes(self, out: str, recipe: str = "xlm", settings: tuple[str, ...] = (), **more: Any) -> Wishes:
        given: dict[str, Any] = {
            "text": [f"en={self.folder}/en.txt", f"ru={self.folder}/ru.txt"], "pairs": [f"en-ru={self.folder}/pairs.tsv"],
            "tokenizer": str(self.folder / "tokenizer"), "size": "tiny", "steps": 24, "save_steps": 5, "device": "cpu",
            "precision": "fp32",
        }  # fmt: skip
        return Wishes(recipe, out=self.folder / out, settings=(*SMALL, *settings), **{**given, **more})


@pytest.fixture
def two(tmp_path: Path) -> Bilingual:
    return Bilingual(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["xlm", "xlm-e"])
def test_a_crash_changes_no_bit(two: Bilingual, recipe: str, one_thread: None) -> None:
    pretrain(two.wishes("calm", recipe))
    with crash_while_saving(after=2):
        pretrain(two.wishes("run", recipe))
    pretrain(two.wishes("run", recipe))
    lines = (two.folder / "run" / "metrics.jsonl").read_text()
    assert ("rtd_recall" in lines) == (recipe == "xlm-e")
    assert weights(two.folder / "run") == weights(two.folder / "calm")


def test_every_language_is_embedded_and_learnt(two: Bilingual, one_thread: None) -> None:
    """Rows move only where a batch uses them: positions beyond the longest row, and nothing else, stay as they were."""
    pretrain(two.wishes("short", steps=1))
    pretrain(two.wishes("long"))
    one, many = (load_parts(two.folder / name / "final").backbone for name in ("short", "long"))
    assert many.config.languages == ("en", "ru")
    assert many.embeddings.languages is not None
    assert one.embeddings.languages is not None
    moved = (many.embeddings.languages.weight != one.embeddings.languages.weight).any(1)
    assert moved.tolist() == [True, True]
    assert many.embeddings.positions is not None
    assert one.embeddings.positions is not None
    moved = (many.embeddings.positions.weight[:24] != one.embeddings.positions.weight[:24]).any(1)
    assert moved.all()


@pytest.mark.slow
def test_the_model_opens_as_xlm_and_others_as_what_they_are(two: Bilingual) -> None:
    import transformers

    for recipe, kind in (("xlm", "xlm"), ("xlm-mlm", "xlm"), ("xlm-clm", "xlm"), ("xlm-e", "distilbert")):
        pairs = {"pairs": []} if recipe == "xlm-clm" else {}
        pretrain(two.wishes(recipe, recipe, steps=2, **pairs))
        final = two.folder / recipe / "final"
        model = transformers.AutoModel.from_pretrained(final)
        assert model.config.model_type == kind
        assert load_parts(final).backbone.config.causal == (recipe == "xlm-clm")
        assert sesame.load(final).embed([ENGLISH[0], RUSSIAN[0]]).shape[0] == 2


def test_training_goes_on_with_the_languages_of_the_start(two: Bilingual) -> None:
    pretrain(two.wishes("first", steps=2))
    start = {"start": str(two.folder / "first" / "final"), "size": None, "tokenizer": None}
    settings = tuple(value for value in SMALL if not value.startswith("backbone"))
    text = [f"ru={two.folder}/ru.txt"]
    wishes = two.wishes("second", text=text, pairs=[], steps=2, **start)
    wishes = Wishes(**{**wishes.__dict__, "settings": settings})
    pretrain(wishes)
    first, second = (load_parts(two.folder / name / "final").backbone for name in ("first", "second"))
    assert second.config.languages == ("en", "ru")
    assert first.embeddings.languages is not None
    assert second.embeddings.languages is not None
    same = (first.embeddings.languages.weight == second.embeddings.languages.weight).all(1)
    assert same.tolist() == [True, False]
    with pytest.raises(SesameError, match="does not know the language 'de'; it knows en, ru"):
        pretrain(Wishes(**{**wishes.__dict__, "text": [f"de={two.folder}/ru.txt"], "out": two.folder / "third"}))


@pytest.mark.slow
def test_one_tokenizer_for_all_languages(two: Bilingual, one_thread: None) -> None:
    """The small language's words are pieces too, and the plan can be told before."""
    wishes = two.wishes("own", tokenizer=None, settings=("tokenizer.kind=wordpiece", "tokenizer.size=260"), steps=2)
    plan = dry_run(wishes)
    assert plan.steps == 2
    pretrain(wishes)
    tokenizer = load_parts(two.folder / "own" / "final").tokenizer
    assert tokenizer is not None
    pieces = [len(tokenizer.encode(word).ids) for word in (*ENGLISH, *RUSSIAN)]
    assert np.mean(pieces[:COUNT]) < 2
    assert np.mean(pieces[COUNT:]) < 2


def test_recipes_hold_together() -> None:
    for name in ("xlm", "xlm-mlm", "xlm-clm", "xlm-e"):
        assert name in recipe_names()
        for size in ("tiny", "mini", "small", "medium", "base"):
            for budget in (False, True):
                for device in ("cpu", "cuda"):
                    recipe = resolve(name, size=size, budget=budget, device=device)
                    assert recipe.languages.exponent == 0.7


# ---- what a translation teaches --------------------------------------------------------------------------------------


def visible_hits(final: Path, two: Bilingual) -> tuple[float, float]:
    """How often a hidden word is told whose translation is seen: the model, and one who reads the translation only."""
    parts = load_parts(final)
    tokenizer, head = parts.tokenizer, parts.heads["mlm"]
    assert tokenizer is not None
    assert isinstance(head, MaskedLMHead)
    fresh = Bilingual(two.folder / "fresh", 600, seed=99)
    store = build_pairs([fresh.folder / "pairs.tsv"], ("en", "ru"), tokenizer, fresh.folder, workers=1)
    roles = tokenizer.ids()
    specials = Specials(roles["cls"], roles["sep"], roles["pad"])
    packer = TranslationPacker(hold_out(store, 0, 0.0)[0], 24, specials, langs=(0, 1), reset=True)
    rows = np.arange(len(packer))
    clean = packer.draw(rows, chance.keys(7, rows))
    batch = MaskedLM(MaskedLMConfig(), head, Vocab(len(tokenizer), roles)).corrupt(clean)
    return _hits(parts.backbone, head, clean, batch, roles)


@torch.no_grad()
def _hits(encoder: Encoder, head: MaskedLMHead, clean: Batch, batch: Batch, roles: Any) -> tuple[float, float]:
    logits = head(encoder.eval()(batch).last, encoder.token_table())
    found = asked = read = 0
    for row in range(clean.size):
        size = int(clean.lengths[row])
        half = size // 2  # both sides are equally long
        for place in range(size):
            if batch.ids[row, place] != roles["mask"]:
                continue
            beside = place + half if place < half else place - half
            seen = int(batch.ids[row, beside])
            if seen == roles["mask"]:
                continue
            truth = int(clean.ids[row, place])
            asked += 1
            found += int(logits[row, place].argmax()) == truth
            read += seen == int(clean.ids[row, beside])
    assert asked > 500
    return found / asked, read / asked


@pytest.mark.slow
def test_translations_are_used_where_they_are_seen(tmp_path: Path, one_thread: None) -> None:
    """Words are drawn at random, so nothing but the translation tells one. Who reads it is wrong only where a random token
    took its place; the model comes within 3 % of that. Without translations it could only guess, 1 in 30."""
    two = Bilingual(tmp_path, pairs=3000)
    settings = (
        "languages.translated=0.9", "optimizer.rate=5e-3", "schedule.warmup=0.1", "stages.main.batch=32",
        "backbone.depth=1", "backbone.width=64", "backbone.init=0.1", "evaluation.every=0.5",
    )  # fmt: skip
    final = pretrain(two.wishes("run", settings=settings, steps=300, save_steps=1000))
    (tmp_path / "fresh").mkdir()
    told, best = visible_hits(final, two)
    assert best > 0.96
    assert told > best - 0.03
    # Steps in one language lose three nats more than translations do: no accident, nothing of them may be left out.
    assert "skipped" not in (tmp_path / "run" / "metrics.jsonl").read_text()


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_told_in_one_sentence(two: Bilingual) -> None:
    few = two.folder / "few.tsv"
    few.write_text("eaa\tраа\n" * 5, encoding="utf-8")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"text": [f"{two.folder}/en.txt"]}, "has no language, but --pairs has; write LANGUAGE="),
        ({"text": [f"en={two.folder}/en.txt", f"{two.folder}/ru.txt"]}, "has no language, but other texts have"),
        ({"pairs": [f"{two.folder}/pairs.tsv"]}, "write the two languages and a file, such as en-ru=pairs.tsv"),
        ({"pairs": ["en-ru=nowhere.tsv"]}, "--pairs en-ru=nowhere.tsv: no such file"),
        ({"pairs": [f"en-ru={__file__},{__file__}"]}, f"no such file; write --pairs en-ru={__file__} --pairs en-ru="),
        ({"pairs": [f"en-ru={few}"]}, "has 5 pairs; 20 are the fewest"),
        ({"pairs": [f"en-ru={two.folder}/en.txt"]}, "plain text comes in two files"),
        ({"text": ["en=nowhere.txt"]}, "nowhere.txt: no such file or folder"),
        ({"valid": [f"{two.folder}/en.txt"]}, "write the language before it, one of en, ru"),
        ({"recipe": "xlm-clm"}, "translations are for mlm and rtd, not for clm; leave them out, or take recipe xlm"),
        ({"recipe": "mass"}, "leave them out, or teach them when it is done: sesame finetune RUN --task seq2seq"),
        ({"settings": ("stages.main.ramp=8",)}, "ramp"),
        (
            {"pairs": [f"EN-ru={two.folder}/pairs.tsv"]},
            "the languages en and EN differ in capitals only; write them alike",
        ),
        ({"settings": ("languages.translated=2",)}, "translated is a share"),
    ]
    for number, (change, message) in enumerate(cases):
        with pytest.raises(SesameError, match=message) as caught:
            pretrain(two.wishes(f"bad{number}", **change))
        assert "\n" not in str(caught.value)


def test_a_recipe_for_translations_without_any_says_what_is_left(
    two: Bilingual, capsys: pytest.CaptureFixture[str]
) -> None:
    """`xlm` was `xlm-mlm` without --pairs, without a word."""
    told = {}
    for recipe in ("xlm", "xlm-e", "xlm-mlm", "xlm-clm", "bert"):
        check_mixture(two.wishes("a", pairs=[]), resolve(recipe, size="tiny", budget=False, device="cpu"))
        told[recipe] = capsys.readouterr().err
    said = "recipe {}: no translations were given (--pairs), so objectives.{} learns from each text by itself\n"
    assert told == {
        "xlm": said.format("xlm", "mlm"),
        "xlm-e": said.format("xlm-e", "rtd"),
        "xlm-mlm": "",
        "xlm-clm": "",
        "bert": "",
    }
    check_mixture(two.wishes("a"), resolve("xlm", size="tiny", budget=False, device="cpu"))
    assert capsys.readouterr().err == ""


def test_translations_between_strangers_are_told(two: Bilingual, capsys: pytest.CaptureFixture[str]) -> None:
    """One language under two names was two, without a word: translations joined neither text."""
    resolved = resolve("xlm", size="tiny", budget=False, device="cpu")
    check_mixture(two.wishes("a"), resolved)
    check_mixture(two.wishes("b", pairs=[f"en-de={two.folder}/pairs.tsv"]), resolved)
    assert capsys.readouterr().err == ""
    check_mixture(two.wishes("c", pairs=[f"english-russian={two.folder}/pairs.tsv"]), resolved)
    assert "--pairs english-russian: neither side is a language of --text (en, ru)" in capsys.readouterr().err
