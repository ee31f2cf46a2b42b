"""Recipes and their TOML: strict, layered, and the same after a round trip."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesame.backbones import Encoder, EncoderConfig
from sesame.config import build, dump_toml, merge, parse_setting
from sesame.errors import SesameError
from sesame.recipe import check, read_recipe, recipe_names, resolve

SIZES = {  # depth, width, heads: Devlin et al. 2018 and Turc et al. 2019
    "tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8),
    "medium": (8, 512, 8), "base": (12, 768, 12), "large": (24, 1024, 16),
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    count: int
    share: float = 0.5
    kind: Literal["a", "b"] = "a"
    on: bool = False


def test_dataclasses_are_built_strictly() -> None:
    assert build(Sample, {"count": 3, "share": 1}, "x") == Sample(3, 1.0)
    for values, complaint in [
        ({"count": 3, "shape": 1}, "did you mean 'share'"),
        ({}, "'count' is missing"),
        ({"count": "3"}, "whole number"),
        ({"count": True}, "whole number"),
        ({"count": 1, "on": 1}, "true or false"),
        ({"count": 1, "kind": "c"}, "one of a, b"),
        ({"count": 1.5}, "whole number"),
    ]:
        with pytest.raises(SesameError, match=complaint):
            build(Sample, values, "x")


plain = st.one_of(
    st.text(max_size=20), st.integers(-(2**60), 2**60), st.booleans(), st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(-5, 5), max_size=3),
)  # fmt: skip
tables = st.recursive(
    st.dictionaries(st.text(max_size=8), plain, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=8), st.one_of(plain, inner), max_size=4),
    max_leaves=12,
)


@given(tables)
def test_toml_survives_a_round_trip(table: dict[str, Any]) -> None:
    assert tomllib.loads(dump_toml(table)) == table


def test_settings_are_toml_or_text() -> None:
    assert parse_setting("optimizer.rate=1e-3") == {"optimizer": {"rate": 1e-3}}
    assert parse_setting("backbone.order=pre") == {"backbone": {"order": "pre"}}
    assert parse_setting("objectives.nsp=false") == {"objectives": {"nsp": False}}
    for bad in ("rate", "=3"):
        with pytest.raises(SesameError, match="key=value"):
            parse_setting(bad)


def test_layers_lie_over_each_other() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4}) == {"a": {"b": 1, "c": 3}, "d": 4}
    recipe = resolve("bert", size="mini", settings=["optimizer.rate=3e-4"])
    assert (recipe.backbone["width"], recipe.optimizer.rate) == (256, 3e-4)
    hurried = resolve("bert", size="mini", budget=True, device="cpu", settings=["optimizer.rate=3e-4"])
    assert hurried.stages["short"].batch == 32
    assert hurried.optimizer.rate == 3e-4  # the user has the last word
    assert recipe.stages["short"].batch == 1024


def test_bert_is_the_papers() -> None:
    recipe = resolve("bert", size="base")
    assert recipe.steps == 1_000_000
    assert recipe.schedule.warmup * recipe.steps == 10_000
    short, long = recipe.stages["short"], recipe.stages["long"]
    assert (short.share, short.length, long.share, long.length) == (0.9, 128, 0.1, 512)
    assert short.batch * short.length == long.batch * long.length == 131_072
    assert (recipe.optimizer.rate, recipe.optimizer.decay, recipe.optimizer.beta2) == (1e-4, 0.01, 0.999)
    assert recipe.objectives["mlm"].rate == 0.15
    assert set(recipe.objectives) == {"mlm", "nsp"}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_the_published_ones(size: str) -> None:
    backbone = resolve("bert", size=size).backbone
    assert (backbone["depth"], backbone["width"], backbone["heads"]) == SIZES[size]


@pytest.mark.slow
def test_parameters_are_as_many_as_published() -> None:
    """BERT-base has 110 M: 109.48 M with the pooler, 108.89 M without it."""
    encoder = Encoder(EncoderConfig(30_522, 768, 12, 12))
    padding = (30_528 - 30_522) * 768
    assert sum(p.numel() for p in encoder.parameters()) - padding + 768 * 769 == 109_482_240


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_resolves_in_every_size_and_returns(name: str) -> None:
    for size in read_recipe(name)["sizes"]:
        for device in ("cpu", "cuda"):
            recipe = resolve(name, size=size, budget=True, device=device)
            again = tomllib.loads(dump_toml(recipe.to_dict()))
            assert check(again, "again") == recipe


def test_a_users_recipe_takes_a_base(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    changes = {"objectives": {"nsp": False}, "stages": {"short": {"packing": "documents"}, "long": {"share": 0}}}
    file.write_text(dump_toml({"base": "bert", "name": "mine", **changes}))
    recipe = resolve(str(file), size="tiny")
    assert (recipe.name, set(recipe.objectives), list(recipe.stages)) == ("mine", {"mlm"}, ["short"])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["optimizer.rat=1"], "did you mean 'rate'"),
        (["objectives.mln.rate=0.1"], "did you mean 'mlm'"),
        (["backbone.widht=3"], "did you mean 'width'"),
        (["stages.short.share=0", "stages.long.share=0"], "no stage"),
        (["objectives.mlm=false", "objectives.nsp=false"], "no objective"),
        (["stages.short.packing=blocks"], "pairs"),
        (["stages.long.length=1024"], "max_length"),
        (["backbone.width=100"], "does not divide|heads"),
        (["schedule.kind=linera"], "one of"),
    ],
)
def test_mistakes_are_named(settings: list[str], complaint: str) -> None:
    with pytest.raises(SesameError, match=complaint):
        resolve("bert", size="base", settings=settings)


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(SesameError, match="did you mean 'bert'"):
        resolve("brt")
    with pytest.raises(SesameError, match="did you mean 'mini'"):
        resolve("bert", size="mimi")
    with pytest.raises(SesameError, match="no such file"):
        resolve("nowhere.toml")
