"""Pages are whole, hold the numbers, and let no text of a user become markup; pictures are what their names say."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from sesame.errors import SesameError
from sesame.explain import page
from sesame.explain.attention import CAPTION, Maps
from sesame.explain.attribution import Attribution
from sesame.explain.heads import Ablation
from sesame.explain.inside import draw_attention, draw_attribution, draw_heads, draw_layers
from sesame.explain.layers import Probe

ODD = ["[CLS]", "</script><b>", "$x_1$", "лук", "&amp;", "\ud800", "\u202e"]


def maps() -> Maps:
    luck = np.random.default_rng(0)
    layers = [luck.dirichlet(np.ones(7), size=(3, 5)).astype(np.float32) for _ in range(2)]
    return Maps("a <kind>", ODD[:5], ODD, layers)


ATTRIBUTION = Attribution("the logit of “<i>”", ODD, [0.0, 1.5, -0.5, 0.25, 0.0, 0.0, 1e-9], 1.0, -0.25, "[MASK]", 16)
ABLATION = Ablation("accuracy", 0.9, ["1", "2"], np.array([[0.8, 0.95], [0.9, np.nan]]), 40, (0.8, 0.97))
PROBE = Probe("accuracy", [0.5, 0.7, 0.9], [0.1, 0.05, 0.02], (0.8123, 0.0345), 0.5, 100, 5)
MIXES = {"<i>mood": [0.125, 0.25, 0.625]}


class Tags(HTMLParser):
    """All start tags, and whether every end has its start."""

    VOID = ("meta", "br", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def written(name: str, folder: Path) -> str:
    given = {"attention": [maps()], "attribution": ATTRIBUTION, "heads": ABLATION, "layers": PROBE}[name]
    more = [MIXES] if name == "layers" else []
    getattr(page, f"write_{name}")(given, folder / f"{name}.html", *more)
    return (folder / f"{name}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["attention", "attribution", "heads", "layers"])
def test_pages_are_whole_and_without_network(name: str, tmp_path: Path) -> None:
    text = written(name, tmp_path)
    tags = Tags(text)
    assert not tags.links
    assert not {"b", "i"} & set(tags.seen), "a token became markup"
    assert "default-src 'none'" in text
    assert ("script" in tags.seen) == (name == "attention")


def test_attention_is_all_there(tmp_path: Path) -> None:
    text = written("attention", tmp_path)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    (kind,) = json.loads(found[1])
    assert kind["rows"] == ["[CLS]", "</script><b>", "$x_1$", "лук", "&amp;"]
    assert kind["columns"][5] == "?"
    for packed, layer in zip(kind["weights"], maps().layers, strict=True):
        raw = np.frombuffer(base64.b64decode(packed), "<u2").reshape(3, 5, 7) / 65535
        np.testing.assert_allclose(raw, layer, atol=1e-5)
    assert CAPTION.split(":")[0] in text
    assert CAPTION.startswith("Attention is not explanation")


def test_figures_stand_in_the_pages(tmp_path: Path) -> None:
    text = written("attribution", tmp_path)
    for figure in ("+1.5000", "-0.5000", "-0.2500", "1.0000", "+1.2500", "0.00%", "[MASK]"):
        assert figure in text
    text = written("heads", tmp_path)
    for figure in ("-0.1000", "+0.0500", "0.9000", "0.8000 to 0.9700", "40 rows", "do not add up"):
        assert figure in text
    text = written("layers", tmp_path)
    for figure in (
        "0.7000",
        "± 0.0500",
        "0.5000",
        "100",
        "not whether the model uses it",
        "0.8123",
        "± 0.0345",
        "mix</text>",
    ):
        assert figure in text
    for figure in ("12.5%", "25.0%", "62.5%", "&lt;i&gt;mood"):
        assert figure in text
    assert text.count("<path") == 5, "a bar for each layer and their mix, and the line of who does not read"
    page.write_layers(PROBE, tmp_path / "plain.html")
    assert "It learnt" not in (tmp_path / "plain.html").read_text(encoding="utf-8")


def test_too_many_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST", 200)
    with pytest.raises(SesameError, match="210 weights are too many"):
        written("attention", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_pictures(tmp_path: Path, ending: str) -> None:
    plain = Maps("self-attention", ["a", "$b", "лук", "d", "e"], [*"abcdefg"], maps().layers)
    draw_attention(plain, tmp_path / f"one{ending}", 1, 2)
    draw_attention(plain, tmp_path / f"all{ending}")
    tokens = ["[CLS]", "</b>", "$x_1$", "лук", "&", "g", "h"]
    draw_attribution(Attribution("x", tokens, ATTRIBUTION.values, 1.0, -0.25, "[MASK]", 16), tmp_path / f"add{ending}")
    draw_heads(ABLATION, tmp_path / f"heads{ending}")
    draw_layers(PROBE, tmp_path / f"layers{ending}")
    draw_layers(PROBE, tmp_path / f"mixes{ending}", {"a $ b": MIXES["<i>mood"], "two": [0.5, 0.25, 0.25]})
    for file in tmp_path.iterdir():
        assert file.read_bytes().startswith(b"\x89PNG") if ending == ".png" else b"<svg" in file.read_bytes()
    if ending == ".svg":
        assert (tmp_path / "all.svg").read_text().count("head ") > (tmp_path / "one.svg").read_text().count("head ")
    with pytest.raises(SesameError, match="--layer 3: there are 1 to 2"):
        draw_attention(plain, tmp_path / f"none{ending}", 3)


def test_a_narrow_picture_holds_its_whole_title(tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw_attention(Maps("self-attention", [*"abc"], [*"abc"], [maps().layers[0][:, :3, :3]]), tmp_path / "a.png", 1, 2)
    draw_heads(replace(ABLATION, name="the logit of the label “a rather long one”"), tmp_path / "h.png")
    for name in ("a.png", "h.png"):
        assert (imread(tmp_path / name)[:, -3:] == 1.0).all(), f"{name}: something is cut at the right edge"
