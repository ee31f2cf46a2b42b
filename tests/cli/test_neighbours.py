"""`sesame neighbours`: occurrences of a word, what lies near them, and the page of it."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame.backbones import Backbone, BiLMConfig, EncoderConfig, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.data.readers import Document
from sesame.errors import SesameError
from sesame.explain.occurrences import Occurrence, contextual, find
from sesame.explain.senses import nearest, senses
from sesame.text import Tokenizer
from tests.cli.calling import Cli
from tests.languages import word_tokenizer

STAGE = ["actors", "stage", "curtain", "audience", "drama"]
FIELD = ["team", "ball", "goal", "referee", "match"]


def model(kind: str, tokenizer: Tokenizer, seed: int) -> Backbone:
    """Seeded weights, large enough that the words around a word matter to its state."""
    torch.manual_seed(seed)
    if kind == "bilm":
        config: object = BiLMConfig(
            len(tokenizer), width=32, depth=2, cell=32, reads="tokens", letter_width=4, filters=((1, 8),), max_length=12
        )
    else:
        config = EncoderConfig(len(tokenizer), width=32, depth=2, heads=2, max_length=12, init=0.2)
    return build_backbone(config).eval()  # type: ignore[arg-type]


def sentences(seed: int) -> list[str]:
    luck = random.Random(seed)
    lines = []
    for number in range(16):
        words = luck.sample(STAGE if number % 2 else FIELD, 4)
        lines.append(" ".join([*words[:2], "play", *words[2:]]))
    return lines


@pytest.fixture
def tokenizer() -> Tokenizer:
    return word_tokenizer(["play", "plays", *STAGE, *FIELD])


def test_find_takes_whole_words_in_any_case() -> None:
    document = Document("We play. Plays and display!\nPLAY, play-off", "a.txt", 7)
    found = find("play", [document])
    assert [(one.word, one.place) for one in found] == [("play", "a.txt:7"), ("PLAY", "a.txt:8"), ("play", "a.txt:8")]
    assert [one.word for one in find("play*", [document])] == ["play", "Plays", "PLAY", "play"]
    assert len(find("play", [document], most=2)) == 2


@pytest.mark.parametrize(
    ("word", "text", "wanted"),
    [
        ("银行", "我们去银行取钱", [3]),  # no space tells where it ends
        ("銀行*", "銀行に行く", [0]),
        ("อาหาร", "ที่นี่มีอาหารไทย", [8]),
        ("ที", "ที่นี่", []),  # a tone more is another syllable
        ("कम", "कमी है। यह कम है", [11]),  # a vowel more is another word
        ("कम*", "कमी है", [0]),
        ("cafe", "cafe\u0301 cafe", [6]),
        ("می", "می\u200cخواهم می", [9]),
    ],
)
def test_find_knows_marks_and_scripts_without_spaces(word: str, text: str, wanted: list[int]) -> None:
    found = find(word, [Document(text, "", 1)])
    assert [text.index(one.text) + one.start for one in found] == wanted


@pytest.mark.parametrize("kind", ["encoder", "bilm"])
@pytest.mark.parametrize("seed", range(3))
def test_a_vector_is_the_state_of_the_word_in_its_sentence(kind: str, seed: int, tokenizer: Tokenizer) -> None:
    backbone = model(kind, tokenizer, seed)
    found = find("play", [Document(line, "", 1) for line in sentences(seed)])
    vectors = contextual(backbone, tokenizer, found, "last")
    for one, vector in zip(found, vectors, strict=True):
        ids = tokenizer.encode(one.text, special=True).ids
        with torch.inference_mode():
            states = backbone(Batch(torch.tensor([ids]), torch.tensor([len(ids)]), segments=None)).last[0]
        at = ids.index(tokenizer.encode("play").ids[0])
        np.testing.assert_allclose(vector, states[at].numpy(), atol=2e-5)


def test_a_model_that_was_left_in_training_reads_without_dropout(tokenizer: Tokenizer) -> None:
    backbone = model("encoder", tokenizer, 0)
    found = find("play", [Document(line, "", 1) for line in sentences(0)])
    wanted = contextual(backbone, tokenizer, found)
    np.testing.assert_array_equal(contextual(backbone.train(), tokenizer, found), wanted)


def test_of_a_long_sentence_the_tokens_around_the_word_are_read(tokenizer: Tokenizer) -> None:
    backbone = model("encoder", tokenizer, 0)
    for before, behind, kept in ((0, 40, (0, 7)), (20, 20, (4, 3)), (40, 0, (7, 0))):  # ten of the twelve are words
        pair = []
        for left, right in ((before, behind), kept):
            text = " ".join(["ball"] * left + ["goal play team"] + ["match"] * right)
            at = text.index("play")
            pair.append(contextual(backbone, tokenizer, [Occurrence(text, at, at + 4)], "last")[0])
        np.testing.assert_allclose(*pair, atol=1e-6)


@pytest.mark.parametrize("layers", ["last", "sum-last-4"])
def test_a_hidden_word_is_the_state_at_a_mask_in_its_place(layers: str, tokenizer: Tokenizer) -> None:
    backbone = model("encoder", tokenizer, 1)
    mask = tokenizer.token(tokenizer.id("mask"))
    texts = [*sentences(1)[:4], "ball play goal play team", " ".join(["ball"] * 30 + ["play", "goal"])]
    found = [one for text in texts for one in find("play", [Document(text, "", 1)])]
    seen = contextual(backbone, tokenizer, found, layers, hide=True)
    for one, vector in zip(found, seen, strict=True):
        hidden = f"{one.text[: one.start]}{mask}{one.text[one.end :]}"
        ids = tokenizer.encode(hidden, special=True).ids
        ids = [ids[0], *ids[1:-1][-10:], ids[-1]]  # twelve tokens are read, ten of them words
        with torch.inference_mode():
            states = backbone(Batch(torch.tensor([ids]), torch.tensor([len(ids)]))).layers
        kept = states[-1] if layers == "last" else torch.stack(states[-2:]).sum(0)  # it has two
        np.testing.assert_allclose(vector, kept[0, ids.index(tokenizer.id("mask"))].numpy(), atol=2e-5)
    plain = contextual(backbone, tokenizer, found, layers)
    assert np.abs(plain - seen).max() > 0.1


@pytest.mark.parametrize("kind", ["bilm", "causal"])
def test_a_mask_that_was_never_learnt_hides_nothing(kind: str, tokenizer: Tokenizer) -> None:
    """Every tokenizer made here has a mask; what ELMo and GPT answer there came from noise."""
    config = EncoderConfig(len(tokenizer), width=32, depth=2, heads=2, max_length=12, causal=True)
    backbone = model(kind, tokenizer, 0) if kind == "bilm" else build_backbone(config)
    found = [Occurrence("goal play match", 5, 9)] * 2
    assert contextual(backbone, tokenizer, found).shape == (2, 32)
    with pytest.raises(SesameError, match="never learnt from masks"):
        contextual(backbone, tokenizer, found, hide=True)


def test_a_word_of_several_tokens_is_one_mask(tokenizer: Tokenizer) -> None:
    backbone = model("encoder", tokenizer, 2)
    long = Occurrence("goal team ball match", 5, 14)  # two tokens
    short = Occurrence("goal play match", 5, 9)
    one, other = contextual(backbone, tokenizer, [long, short], "last", hide=True)
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_two_senses_come_apart(seed: int) -> None:
    luck = np.random.default_rng(seed)
    truth = np.array([0] * 12 + [1] * 7)
    common, apart = luck.normal(size=16) * 20, luck.normal(size=(2, 16)) * 2
    vectors = (common + apart[truth] + luck.normal(size=(19, 16)) * 0.5).astype(np.float32)
    assert senses(vectors, 2).tolist() == truth.tolist()
    assert senses(vectors).tolist() == truth.tolist()
    near = nearest(vectors, 3)
    assert (truth[near.rows] == truth[:, None]).all()
    assert near.rows.shape == (19, 3)
    assert nearest(np.concatenate([vectors, 3 * vectors]), 38).cosines.max() <= 1  # rounding makes 1.0000001


@pytest.mark.parametrize("seed", range(2))
def test_the_command(cli: Cli, tokenizer: Tokenizer, tmp_path: Path, seed: int) -> None:
    (tmp_path / "model").mkdir()
    save_parts(tmp_path / "model", Parts(model("encoder", tokenizer, seed), tokenizer=tokenizer))
    text, page = tmp_path / "text.txt", tmp_path / "page.html"
    text.write_text("\n".join([*sentences(seed), "<b> team play ball"]) + "\n")
    shown = cli("neighbours", tmp_path / "model", "play", "--text", text, "--senses", 2, "--out", page).fine()
    assert "nearest others" in shown.out
    made = page.read_text()
    assert made.count("<article") == 17
    assert "&lt;b&gt;" in made
    assert "<b>" not in made
    rows = cli("neighbours", tmp_path / "model", "play", "--text", text, "--json", "--top", 1).fine().out.splitlines()
    records = [json.loads(row) for row in rows]
    assert len(records) == 17
    hidden = cli("neighbours", tmp_path / "model", "play", "--text", text, "--json", "--hide").fine().out.splitlines()
    assert [json.loads(row)["text"] for row in hidden] == [one["text"] for one in records]
    assert [json.loads(row)["near"] for row in hidden] != [one["near"] for one in records]
    kept = [(one["text"].split()[0] in STAGE, one["near"][0]["text"].split()[0] in STAGE) for one in records[:16]]
    assert sum(own == other for own, other in kept) >= 13  # by chance it would be 7 of 16
    assert records[0]["place"].endswith("text.txt:1")


def test_static_vectors_have_one_list(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("play 1 0\ngame 0.9 0.1\nstage 0 1\n")
    shown = cli("neighbours", tmp_path / "v.txt", "play").fine().out
    assert shown.index("game") < shown.index("stage")
    found = json.loads(cli("neighbours", tmp_path / "v.txt", "Play", "--json").fine().out)
    assert [word for word, _ in found["neighbours"]] == ["game", "stage"]
    unknown = cli("neighbours", tmp_path / "v.txt", "stages", "--unknown", "letters").fine()
    assert "no vector for 'stages'" in unknown.err


def test_mistakes_get_one_sentence(cli: Cli, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save_parts(tmp_path / "model", Parts(model("encoder", tokenizer, 0), tokenizer=tokenizer))
    (tmp_path / "v.txt").write_text("play 1 0\n")
    (tmp_path / "t.txt").write_text("a play\n")
    cli("neighbours", tmp_path / "v.txt", "play", "--text", tmp_path / "t.txt").refused("--text")
    cli("neighbours", tmp_path / "v.txt", "play", "--unknown", "guess").refused("--unknown")
    cli("neighbours", tmp_path / "v.txt", "play", "--hide").refused("--hide")
    cli("neighbours", tmp_path / "model", "play").refused("--text")
    cli("neighbours", tmp_path / "model", "play", "--text", tmp_path / "t.txt").refused("'play' stands 1 times")
    cli("neighbours", tmp_path / "model", "*", "--text", tmp_path / "t.txt").refused("holds no letter")
    cli("neighbours", tmp_path / "model", "a", "--text", tmp_path / "t.txt", "--out", "x.txt").refused(".html")


def test_a_static_word_that_nothing_resembles_is_told(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "v.txt").write_text("3 2\nplay 1 0\nplayed 0.9 0.1\ntree 0 1\n")
    cli("neighbours", tmp_path / "v.txt", "жук").refused("v.txt", "жук", "spelled like it")
    cli("neighbours", tmp_path / "v.txt", " ").refused("the word is empty")
    assert "has no vector for 'plays'" in cli("neighbours", tmp_path / "v.txt", "plays").fine().err
