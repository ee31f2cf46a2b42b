"""`sesame picture`: from files and models to pictures."""

from pathlib import Path

import numpy as np

from sesame.backbones import SkipThoughtConfig, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from tests.cli.calling import Cli
from tests.languages import word_tokenizer
from tests.test_pictures import parts, translations


def test_alignment(cli: Cli, tmp_path: Path) -> None:
    for kind in ("attention", "plain"):
        (tmp_path / kind).mkdir()
        save_parts(tmp_path / kind, parts(kind, 0))
    out = tmp_path / "a.svg"
    cli("picture", "alignment", tmp_path / "attention", "ba be", "--answer", "da do", "--out", out).fine()
    assert all(word in out.read_text() for word in ("ba", "be", "da", "do", "attention"))
    cli("picture", "alignment", tmp_path / "attention", "ba", "--answer", "da", "--out", out).refused("exists already")
    page = tmp_path / "a.html"
    cli("picture", "alignment", tmp_path / "attention", "ba be", "--answer", "da do", "--out", page).fine()
    assert "<svg" in page.read_text()
    other = tmp_path / "b.png"
    cli("picture", "alignment", tmp_path / "plain", "ba", "--answer", "da", "--out", other).refused("without attention")
    cli("picture", "alignment", tmp_path / "attention", " ", "--out", other).refused("holds no text")
    cli("picture", "alignment", tmp_path / "plain", "ba", "--out", tmp_path / "b.gif").refused(".png, .svg or .html")


def test_vectors_of_a_file(cli: Cli, tmp_path: Path) -> None:
    luck = np.random.default_rng(0)
    rows = [f"w{number} " + " ".join(map(str, luck.normal(size=3).round(3))) for number in range(9)]
    (tmp_path / "v.txt").write_text("\n".join(rows))
    (tmp_path / "t.tsv").write_text("".join(f"kind{n % 2}\tw{n} w{n + 1}\n" for n in range(8)))
    out = tmp_path / "v.svg"
    cli("picture", "vectors", tmp_path / "v.txt", "--file", tmp_path / "t.tsv", "--labelled", "--out", out).fine()
    assert "kind1" in out.read_text()
    assert "8 texts" in out.read_text()
    (tmp_path / "t.txt").write_text("w1\nw2\nw3\nno known one\n")
    asked = ("picture", "vectors", tmp_path / "v.txt", "--file", tmp_path / "t.txt", "--out", tmp_path / "u.svg")
    assert "1 of 4 texts hold no word that has a vector" in cli(*asked).fine().err
    (tmp_path / "t.txt").write_text("w1 w2\nw3\n")
    asked = ("picture", "vectors", tmp_path / "v.txt", "--file", tmp_path / "t.txt", "--out", tmp_path / "w.png")
    cli(*asked).refused("2 texts are too few")
    cli(*asked, "--labelled").refused("text 1 has no tab")


def test_a_model_pools_as_it_does_for_embed(cli: Cli, tmp_path: Path) -> None:
    """Skip-thought's vector of a sentence stands at its end."""
    (tmp_path / "model").mkdir()
    config = SkipThoughtConfig(20, width=8, inner=8)
    save_parts(tmp_path / "model", Parts(build_backbone(config), {}, word_tokenizer(["a", "b", "c"])))
    (tmp_path / "t.txt").write_text("a b\nb c\na c b\n")
    asked = ("picture", "vectors", tmp_path / "model", "--file", tmp_path / "t.txt")
    drawn = []
    for name, more in {"asked.svg": (), "cls.svg": ("--pooling", "cls"), "mean.svg": ("--pooling", "mean")}.items():
        cli(*asked, *more, "--out", tmp_path / name).fine()
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1] != drawn[2]


def test_lengths(cli: Cli, tmp_path: Path) -> None:
    sources, gold, systems = translations(120)
    for name, texts in {"en": sources, "de": gold, **systems}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n")
    given = ("--source", tmp_path / "en.txt", "--reference", tmp_path / "de.txt", "--out", tmp_path / "l.png")
    shown = cli("picture", "lengths", f"whole={tmp_path / 'whole.txt'}", f"cut={tmp_path / 'cut.txt'}", *given).fine()
    assert "whole 100.0" in shown.out.splitlines()[-1]
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")
    more = ("--source", tmp_path / "en.txt", "--reference", tmp_path / "de.txt", "--out", tmp_path / "m.png")
    cli("picture", "lengths", "whole.txt", *more).refused("NAME=FILE")
