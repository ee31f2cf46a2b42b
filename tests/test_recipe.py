"""Recipes and their TOML: strict, layered, and the same after a round trip."""

import json
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from benchmarks.kill_resume import SETTINGS, make_text
from hypothesis import given
from hypothesis import strategies as st

from sesame.backbones import Encoder, EncoderConfig
from sesame.config import build, dump_toml, merge, parse_setting
from sesame.errors import SesameError
from sesame.pretraining.run import Wishes, chosen_recipe, pretrain
from sesame.recipe import check, how_scaled, read_recipe, recipe_names, resolve, scaled
from sesame.train.precision import Machine, choose_machine

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


def test_roberta_is_the_papers() -> None:
    recipe = resolve("roberta", size="base")
    (stage,) = recipe.stages.values()
    assert (stage.length, stage.batch, stage.packing, stage.short) == (512, 8192, "sentences", 0.0)
    assert set(recipe.objectives) == {"mlm"}
    assert recipe.objectives["mlm"].static == 0
    assert recipe.steps * recipe.schedule.warmup == 24_000
    o = recipe.optimizer
    assert (o.kind, o.rate, o.beta2, o.eps, o.decay, o.clip) == ("adamw", 6e-4, 0.98, 1e-6, 0.01, 0.0)
    large = resolve("roberta", size="large")
    assert (large.optimizer.rate, large.steps * large.schedule.warmup) == (4e-4, 30_000)
    assert (recipe.tokenizer.kind, recipe.tokenizer.lowercase) == ("bpe", False)


def test_pieces_of_bytes_keep_letters_as_written() -> None:
    kinds = {name: resolve(name).tokenizer for name in recipe_names()}
    assert {name for name, made in kinds.items() if made.kind == "bpe" and made.lowercase} == set()


ALBERTS = {
    "base": (12, 768, 12, 12),
    "large": (24, 1024, 16, 18),
    "xlarge": (24, 2048, 16, 60),
    "xxlarge": (12, 4096, 64, 235),
}


@pytest.mark.parametrize("size", ALBERTS)
def test_albert_is_the_papers(size: str) -> None:
    """Its parameters too: table 1, in millions, with the pooler and without the heads."""
    recipe = resolve("albert", size=size)
    (stage,) = recipe.stages.values()
    assert (stage.length, stage.batch, stage.packing) == (512, 4096, "orders")
    assert set(recipe.objectives) == {"mlm", "sop"}
    assert recipe.objectives["mlm"].ngram == 3
    assert (recipe.optimizer.kind, recipe.optimizer.rate) == ("lamb", 0.00176)
    assert recipe.steps * recipe.schedule.warmup == 3125
    depth, width, heads, millions = ALBERTS[size]
    backbone = {key: value for key, value in recipe.backbone.items() if key != "kind"}
    assert (backbone["depth"], backbone["width"], backbone["heads"]) == (depth, width, heads)
    with torch.device("meta"):
        encoder = Encoder(EncoderConfig(30_000, **backbone))
    count = sum(p.numel() for p in encoder.parameters()) + width * (width + 1)
    assert count / 1e6 == pytest.approx(millions, rel=0.055)  # rounded there: 11.7, 17.7, 58.7, 222.6


def test_ablations_differ_from_bert_in_what_they_say() -> None:
    bert, without, left = (resolve(name, size="base") for name in ("bert", "bert-no-nsp", "bert-ltr"))
    assert set(without.objectives) == {"mlm"}
    assert (without.stages, without.backbone, without.optimizer) == (bert.stages, bert.backbone, bert.optimizer)
    assert set(left.objectives) == {"clm"}
    assert left.backbone == {**bert.backbone, "causal": True}
    assert left.stages == bert.stages
    for device in ("cpu", "cuda"):
        assert set(resolve("bert-ltr", size="mini", budget=True, device=device).objectives) == {"clm"}


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("t5", "inner_dropout=3.0"),
        ("bart", "inner_dropout=-0.5"),
        ("sesame", "rotary_base=0"),
        ("sesame", "local_base=-1.0"),
        ("awd-lstm", "init=nan"),
        ("t5", "inner_dropout=nan"),
    ],
)
def test_numbers_that_no_backbone_can_be_built_with(recipe: str, setting: str, tmp_path: Path) -> None:
    name = setting.partition("=")[0]
    (tmp_path / "text.txt").write_text("one two three.\n\nfour five six.\n" * 20)
    more: dict[str, Any] = {"size": "tiny", "steps": 1, "device": "cpu", "settings": [f"backbone.{setting}"]}
    with pytest.raises(SesameError, match=rf"{name} is "):
        pretrain(Wishes(recipe, [str(tmp_path / "text.txt")], tmp_path / "run", **more))


@pytest.mark.parametrize("setting", ["tokens=500", "reverse=true", "cut=true"])
def test_settings_of_pairs_are_for_pairs(setting: str) -> None:
    with pytest.raises(SesameError, match=f"{setting.partition('=')[0]} is for packing = answers"):
        resolve("bert", size="tiny", settings=[f"stages.short.{setting}"])


def test_the_rate_follows_the_batch(tmp_path: Path) -> None:
    recipe = resolve("bert", size="mini", settings=["stages.short.batch=256"])
    assert scaled(recipe, 1024).optimizer.rate == pytest.approx(1e-4 / 4)
    wishes = Wishes("bert", [], tmp_path, settings=["stages.short.batch=4096", "optimizer.rate=2e-4"], scale_lr=512)
    assert chosen_recipe(wishes, Machine(torch.device("cpu"), "fp32")).optimizer.rate == pytest.approx(16e-4)
    assert how_scaled(scaled(recipe, 1024), 1024) == "rate 0.0001 * 256 / 1,024 = 2.5e-05"
    wide = resolve("roberta", size="mini")
    assert "8,192 / 256 = 0.0192 (the linear rule breaks near 8,000" in how_scaled(scaled(wide, 256), 256)
    with pytest.raises(SesameError, match="rate"):
        scaled(resolve("bert", size="mini", settings=["optimizer.rate=1.0"]), 1)  # the rule leads astray
    with pytest.raises(SesameError, match=r"stages\.main\.tokens"):
        scaled(resolve("transformer", size="tiny"), 512)  # there `batch` says nothing


def test_a_stage_may_have_a_dropout_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sesame.pretraining import training

    seen = []
    fit = training.fit

    def watch(model: Any, *rest: Any, **more: Any) -> Any:
        block = model.backbone.blocks[0]
        parts = (model.backbone.embeddings.dropout, block.attention.dropout, block.attention, block.feedforward.dropout)
        seen.append([part.rate for part in parts])
        return fit(model, *rest, **more)

    monkeypatch.setattr(training, "fit", watch)
    stages = ("stages.long.share=0.1", "stages.long.length=32", "stages.long.batch=8", "stages.long.dropout=0.0")
    settings = [*SETTINGS, *stages, "backbone.attention_dropout=0.2"]
    text = [str(make_text(tmp_path / "text.txt", 40))]
    wishes = Wishes("bert", text, tmp_path / "run", steps=2, settings=settings, device="cpu", scale_lr=2)
    pretrain(wishes)
    assert seen == [[0.1, 0.1, 0.2, 0.1], [0.0, 0.0, 0.0, 0.0]]
    assert "rate 0.0001 * 8 / 2 = 0.0004" in capsys.readouterr().err  # said once, with everything else


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


def test_readme_tells_the_sizes_of_each_recipe() -> None:
    """A row names them, or `bert`, whose they are; adapt and answer have those of the model that they start from."""
    known = {name: set(read_recipe(name)["sizes"]) for name in recipe_names()}
    told: dict[str, set[str]] = {}
    for line in (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 7 or not cells[1].startswith("`") or not cells[4]:
            continue
        names, parts = re.findall(r"`([\w-]+)`", cells[1]), re.split("; (?!`)", cells[4])
        for number, name in enumerate(names):
            said = parts[min(number, len(parts) - 1)]  # one for each, or one for all
            said = said.split(";")[0] if name == "gpt" else said
            same = SIZES if re.match("as `bert`|tiny to large", said) else ()
            told[name] = {*same, *re.findall(r"\w+", said)} & set().union(*known.values())
    assert told == {name: sizes for name, sizes in known.items() if name not in ("adapt", "adapt-lstm", "answer")}


def test_a_users_recipe_takes_a_base(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    changes = {"objectives": {"nsp": False}, "stages": {"short": {"packing": "documents"}, "long": {"share": 0}}}
    file.write_text(dump_toml({"base": "bert", "name": "mine", **changes}))
    recipe = resolve(str(file), size="tiny")
    assert (recipe.name, set(recipe.objectives), list(recipe.stages)) == ("mine", {"mlm"}, ["short"])


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("sizes = 3", "sizes: expected a table of keys, found 3"),
        ("sizes.tiny = 3", "sizes.tiny: expected a table"),
        ("sizes.tiny.budget = 3", "sizes.tiny.budget: expected a table"),
        ("budget.cpu = 3", "budget: cpu: expected a table"),
        ("budget.gpu.steps = 3", "budget: unknown key 'gpu'; did you mean 'cpu'"),
        ('size = ["tiny"]', "size is .* it must be a text in quotes"),
        ('size = "tinny"', "unknown size 'tinny'; did you mean 'tiny'"),
    ],
)
def test_layers_that_cannot_lie_over_a_recipe_are_told(tmp_path: Path, lines: str, complaint: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "bert"\n{lines}\n')
    with pytest.raises(SesameError, match=complaint):
        resolve(str(file), budget=True)


def test_what_ones_own_file_says_holds_whatever_the_sizes_and_budgets_of_its_base_say(tmp_path: Path) -> None:
    """The base is resolved first; over it lie one's own settings, over these one's own size, over both one's own budget."""
    file, further = tmp_path / "mine.toml", tmp_path / "further.toml"
    file.write_text('\ufeffbase = "bert"\nbackbone.depth = 6\noptimizer.rate = 3e-3\n', encoding="utf-8")
    further.write_text('base = "mine.toml"\nbackbone.depth = 7\n')
    for size, width in (("tiny", 128), ("base", 768)):
        for device, kind in (("cpu", "adamw"), ("cuda", "muon")):
            recipe = resolve(str(file), size=size, budget=True, device=device)
            assert (recipe.backbone["depth"], recipe.backbone["width"]) == (6, width)
            assert (recipe.optimizer.kind, recipe.optimizer.rate) == (kind, 3e-3)
    with file.open("a") as lines:
        lines.write("sizes.tiny.backbone.depth = 5\nbudget.cpu.optimizer.rate = 2e-3\n")
        lines.write(
            "sizes.base.budget.cpu.optimizer.rate = 1e-3\nsizes.mine.backbone = {depth = 3, width = 64, heads = 1}\n"
        )
    assert [resolve(str(file), size=size).backbone["depth"] for size in ("tiny", "base", "mine")] == [5, 6, 3]
    rates = [resolve(str(file), size=size, budget=True).optimizer.rate for size in ("tiny", "base")]
    assert [*rates, resolve(str(file)).optimizer.rate] == [2e-3, 1e-3, 3e-3]
    assert [resolve(str(further), size=size).backbone["depth"] for size in ("tiny", "base")] == [7, 7]
    assert resolve(str(further), settings=["backbone.depth=9"]).backbone["depth"] == 9


def test_a_recipe_of_ours_lies_under_the_sizes_and_budgets_of_its_base() -> None:
    """Published numbers stand above, those of small sizes and short runs below, for all who share them."""
    assert resolve("roberta", size="base", budget=True, device="cuda").optimizer.rate == 1e-3
    assert resolve("roberta", size="base").optimizer.rate == 6e-4
    assert [resolve("luong", size=size).tokenizer.size for size in ("tiny", "paper")] == [4000, 37_000]


def test_a_model_too_large_for_memory_is_told(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A small text.\n\nAnother one.\n" * 200)
    wishes = Wishes("bert", [str(tmp_path / "text.txt")], tmp_path / "run", size="tiny", steps=1)
    with pytest.raises(SesameError, match="does not fit into this machine's memory; choose a smaller --size"):
        pretrain(replace(wishes, settings=("backbone.inner=1000000000000",)))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["optimizer.rat=1"], "did you mean 'rate'"),
        (["objectives.mln.rate=0.1"], "did you mean 'mlm'"),
        (["backbone.widht=3"], "did you mean 'width'"),
        (["stages.short.share=0", "stages.long.share=0"], "no stage"),
        (["objectives.mlm=false", "objectives.nsp=false"], "no objective"),
        (["stages.short.packing=blocks"], "pairs"),
        (["objectives.sop.weight=1.0"], "sop objective needs packing = .orders"),
        (["stages.long.dropout=1.0"], "dropout below 1; found 0.1 and 1.0"),
        (["stages.long.length=4"], "length is 4; it must be at least 8"),
        (["stages.short.batch=10000000000000000000000"], "it must be at most 100,000,000"),
        (["stages.long.share=-1"], "share is -1.0; it is a part of the run"),
        (["stages.long.length=1024"], "max_length"),
        (["backbone.width=100"], "does not divide|heads"),
        (["schedule.kind=linera"], "one of"),
        (["backbone.kind=[1]"], "unknown kind"),
        (["stages.shrt.batch=4"], "unknown stage 'shrt'; did you mean 'short'"),
        (["steps=-5"], "steps is -5; it must be at least 1"),
        (
            ["objectives.mlm.weight=0", "objectives.nsp.weight=0"],
            "no objective has a weight; set objectives.mlm.weight above 0",
        ),
        (["stages.short.units=letters"], 'one of "", pieces, words, phrases, entities'),
        (["objectives.mlm.weight=-1"], "objectives.mlm.weight is -1; it must not be below 0"),
    ],
)
def test_mistakes_are_named(settings: list[str], complaint: str) -> None:
    with pytest.raises(SesameError, match=complaint):
        resolve("bert", size="base", settings=settings)


def test_two_ends_are_one_too_many() -> None:
    wishes: dict[str, Any] = {"recipe": "bert", "text": ["a.txt"], "out": Path("nowhere"), "settings": ["steps=20"]}
    assert chosen_recipe(Wishes(**wishes), choose_machine("cpu")).steps == 20
    for option, value in (("steps", 10), ("budget", 60.0)):
        with pytest.raises(SesameError, match=rf"--set steps=.* and --{option} both say when to end"):
            Wishes(**wishes, **{option: value})


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(SesameError, match="did you mean 'bert'"):
        resolve("brt")
    with pytest.raises(SesameError, match="did you mean 'mini'"):
        resolve("bert", size="mimi")
    with pytest.raises(SesameError, match="no such file"):
        resolve("nowhere.toml")


def test_a_family_that_nobody_knows_is_told() -> None:
    with pytest.raises(SesameError, match=r"family.*ernie"):
        resolve("ernie", size="tiny", settings=["family=erni"])


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("ernie", ""),
        ("xlnet", "family = 'xlnet' of recipe bert: this model is none, so it is written as 'bert'"),
        ("distilbert", "it is written as 'bert'"),  # has no segments
    ],
)
def test_a_family_that_the_model_cannot_be_is_told(
    family: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [str(make_text(tmp_path / "text.txt", 40))]
    settings = [*SETTINGS, f"family={family}"]
    final = pretrain(Wishes("bert", text, tmp_path / "run", steps=1, settings=settings, device="cpu"))
    said = capsys.readouterr().err
    assert told in said
    assert bool(told) == ("family =" in said)
    assert json.loads((final / "config.json").read_text())["model_type"] == ("bert" if told else family)
