"""Pictures: the figures behind them are right, the files are what their names say, and any letter may be in them."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame.backbones import EncoderDecoderConfig, RecurrentSeq2SeqConfig, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import Speech
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.translation import Bleu, corpus_score
from sesame.explain.alignment import Alignment, align
from sesame.explain.by_length import by_length
from sesame.explain.drawing import components, draw_alignment, draw_lengths, draw_vectors
from tests.explain.test_pages import Tags
from tests.languages import word_tokenizer

WORDS = ["ba", "be", "bo", "da", "de", "do"]


def parts(kind: str, seed: int, reverse: bool = False) -> Parts:
    tokenizer = word_tokenizer(WORDS)
    torch.manual_seed(seed)
    if kind == "transformer":
        config: object = EncoderDecoderConfig(len(tokenizer), width=16, depth=3, heads=2, max_length=32, init=0.5)
    else:
        more = {"attention": "none", "readout": "tanh"} if kind == "plain" else {"attention": "global"}
        config = RecurrentSeq2SeqConfig(len(tokenizer), width=16, depth=1, init=0.8, **more)  # type: ignore[arg-type]
    ids = tokenizer.ids()
    speech = Speech(start=(ids["cls"],), end=(ids["sep"],), pad=ids["pad"], reverse=reverse)
    return Parts(build_backbone(config).eval(), tokenizer=tokenizer, speech=speech)  # type: ignore[arg-type]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["transformer", "attention"])
@pytest.mark.parametrize("seed", range(2))
def test_an_alignment_is_the_look_that_chose_each_token(kind: str, seed: int, reverse: bool) -> None:
    model = parts(kind, seed, reverse)
    tokenizer = model.tokenizer
    assert tokenizer is not None
    found = align(model, "ba be do", "da bo")
    assert (found.source, found.answer) == (["[CLS]", "ba", "be", "do", "[SEP]"], ["da", "bo", "[SEP]"])
    assert (found.layer, found.layers) == ((2, 3) if kind == "transformer" else (1, 1))
    inner = tokenizer.encode("do be ba" if reverse else "ba be do", special=True).ids
    read, said = torch.tensor([inner]), torch.tensor([[tokenizer.id("cls"), *tokenizer.encode("da bo").ids]])
    with torch.inference_mode():
        maps = model.backbone(Batch(read, torch.tensor([5]), outputs=said), maps=True).maps
    expected = maps[found.layer - 1][0].mean(0).numpy()
    expected = expected[:, [0, 3, 2, 1, 4]] if reverse else expected
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    np.testing.assert_allclose(found.weights.sum(1), 1.0, atol=1e-5)
    assert found.weights.std() > 1e-3, "all looks are alike, so the order would not show"


def test_what_cannot_be_aligned_is_told() -> None:
    with pytest.raises(SesameError, match="without attention"):
        align(parts("plain", 0), "ba be", "da")
    with pytest.raises(SesameError, match="layers 1 to 3"):
        align(parts("transformer", 0), "ba be", "da", layer=4)


@pytest.mark.parametrize("seed", range(3))
def test_components_are_sklearns(seed: int) -> None:
    from sklearn.decomposition import PCA

    luck = np.random.default_rng(seed)
    vectors = (luck.normal(size=(20, 3)) @ luck.normal(size=(3, 7))).astype(np.float32)
    points, shares = components(vectors)
    oracle = PCA(2).fit(vectors)
    np.testing.assert_allclose(np.abs(points), np.abs(oracle.transform(vectors)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(shares, oracle.explained_variance_ratio_, rtol=1e-3)


def translations(count: int) -> tuple[list[str], list[str], dict[str, list[str]]]:
    luck = np.random.default_rng(1)
    sources = [" ".join(luck.choice(WORDS, size=2 + number % 12)) for number in range(count)]
    gold = [" ".join(word[::-1] for word in source.split()) for source in sources]
    short = [" ".join(text.split()[:6]) for text in gold]  # right on short sources only
    return sources, gold, {"whole": gold, "cut": short}


def test_bleu_by_length_is_that_of_each_group() -> None:
    sources, gold, systems = translations(240)
    found = by_length(sources, gold, systems, groups=4, rounds=0)
    assert sorted(row for group in found for row in group.rows) == list(range(240))
    assert [group.name for group in found] == ["2–4", "5–7", "8–10", "11–13"]
    for group in found:
        lengths = [len(sources[row].split()) for row in group.rows]
        assert (min(lengths), max(lengths)) == (group.low, group.high)
        assert group.scores["whole"].value == pytest.approx(1.0)
        own = corpus_score(Bleu(), [gold[row] for row in group.rows], [systems["cut"][row] for row in group.rows])
        assert group.scores["cut"].value == own.value
    cut = [group.scores["cut"].value for group in found]
    assert cut[0] == pytest.approx(1.0)
    assert cut[1] > cut[2] > cut[3]


def test_few_sentences_make_fewer_groups() -> None:
    sources, gold, systems = translations(50)
    assert len(by_length(sources, gold, systems, groups=6, rounds=0)) == 1
    with pytest.raises(SesameError, match="cut: 49 lines for 50 sources"):
        by_length(sources, gold, {"cut": systems["cut"][1:]}, rounds=0)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_files_are_what_their_names_say(tmp_path: Path, ending: str) -> None:
    odd = ["<b>", "$x_1$", "лук", "^{", "&amp;"]
    weights = np.eye(5, dtype=np.float32)
    drawn = [tmp_path / f"{name}{ending}" for name in ("a", "v", "l")]
    draw_alignment(Alignment(odd, odd, weights, 1, 1), drawn[0])
    draw_vectors(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), drawn[1], odd, odd)
    sources, gold, systems = translations(120)
    draw_lengths(by_length(sources, gold, {"$a": systems["cut"], "_b": gold}, rounds=20), drawn[2])
    for file in drawn:
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG") if ending == ".png" else b"<svg" in data
    if ending == ".svg":
        text = drawn[0].read_text()
        assert "&lt;b&gt;" in text
        assert "$x_1$" in text
        assert "лук" in text


@pytest.mark.slow
def test_a_page_holds_the_picture_its_title_and_its_words(tmp_path: Path) -> None:
    odd = ["<b>", "$x_1$", "лук", "^{", '"&amp;']
    drawn = {name: tmp_path / f"{name}.html" for name in ("a", "v", "l")}
    draw_alignment(Alignment(odd, odd, np.eye(5, dtype=np.float32)[::-1], 1, 1), drawn["a"], "A <title>")
    draw_vectors(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), drawn["v"], odd, odd)
    sources, gold, systems = translations(120)
    draw_lengths(by_length(sources, gold, {"cut": systems["cut"]}, rounds=20), drawn["l"])
    said = {}
    for name, file in drawn.items():
        text = file.read_text(encoding="utf-8")
        tags = Tags(text)
        assert tags.seen.count("svg") == tags.seen.count("h1") == 1
        assert not {"b", "script", "link", "metadata"} & set(tags.seen)
        assert "<!DOCTYPE svg" not in text
        assert "prefers-color-scheme:dark" in text
        assert re.search(r"Content-Security-Policy\" content=\"default-src 'none'; [^\"]*img-src data:\"", text)
        within = re.findall(r"(?:xlink:href|src|href)=\"([^\"]+)\"|url\(([^)]+)\)", text)
        assert all((one or other).startswith(("#", "data:")) for one, other in within)
        found = re.search(r'<svg role="img" aria-label="([^"]+)"', text)
        assert found is not None
        said[name] = unescape(found[1])
    assert "<title>A &lt;title&gt;</title>" in drawn["a"].read_text(encoding="utf-8")
    assert '<b> at "&amp;, $x_1$ at ^{, лук at лук' in said["a"]
    assert said["v"] == '5 points on two axes, one color for each of 5 labels: <b>, $x_1$, лук, ^{, "&amp;'
    assert "; 11–13 words: cut " in said["l"]


def test_texts_that_are_all_alike_can_be_drawn(tmp_path: Path) -> None:
    draw_vectors(np.ones((4, 3), np.float32), tmp_path / "v.svg")
    assert (tmp_path / "v.svg").stat().st_size > 1000


def test_letters_that_the_font_lacks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Alignment(["猫", "a"], ["b"], np.ones((1, 2), np.float32), 1, 1)
    draw_alignment(found, tmp_path / "a.png")
    assert "lacks 1 letters" in capsys.readouterr().err
    draw_alignment(found, tmp_path / "a.svg")
    assert capsys.readouterr().err == "", "an SVG lacks none"


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match=r"\.png, \.svg or \.html"):
        draw_alignment(Alignment(["a"], ["b"], np.ones((1, 1), np.float32), 1, 1), tmp_path / "a.jpg")
