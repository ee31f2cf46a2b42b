"""Going on from a model that exists: what is its own cannot be changed, and what does not fit is told."""

import tomllib
from pathlib import Path

import pytest
import transformers
from benchmarks.kill_resume import make_text

import sesame
from sesame.backbones import TaggerConfig, build_backbone
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.errors import SesameError
from sesame.finetuning.adaptation import _recipe, adaptable
from sesame.finetuning.framing import open_start
from sesame.pretraining.run import Wishes, pretrain
from sesame.runs import find_runs
from sesame.text import Tokenizer
from sesame.text.template import around
from sesame.text.train import train_tokenizer

pytestmark = pytest.mark.slow
ROWS = ("stages.short.length=32", "stages.short.batch=4", "stages.long.share=0", "stages.short.share=1")
TINY = ("backbone.width=32", "backbone.depth=1", "backbone.heads=2", "tokenizer.size=300")


def wishes(
    folder: Path, recipe: str, out: str, start: Path | None = None, settings: tuple[str, ...] = (), **more: object
) -> Wishes:
    return Wishes(
        recipe, [str(folder / "text.txt")], folder / out, size=None if start else "tiny", start=str(start) if start else None,
        settings=[*(() if start else TINY), *settings], device="cpu", **{"steps": 2, **more},  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("start")
    make_text(place / "text.txt", 60)
    for recipe in ("roberta", "gpt2"):
        pretrain(wishes(place, recipe, recipe, settings=("stages.main.length=32", "stages.main.batch=4")))
    return place


def test_pairs_for_a_model_without_segments(folder: Path) -> None:
    """BERT's next sentences on a RoBERTa, which knows one segment: both sentences are of that one."""
    pretrain(wishes(folder, "bert", "bert", folder / "roberta", ROWS))
    assert transformers.AutoConfig.from_pretrained(folder / "bert" / "final").type_vocab_size == 1


def test_the_recipe_of_the_run_says_what_was_trained(folder: Path) -> None:
    pretrain(wishes(folder, "adapt", "adapted", folder / "roberta", ("stages.short.length=32", "stages.short.batch=4")))
    said = tomllib.loads((folder / "adapted" / "recipe.toml").read_text())
    assert "backbone" not in said
    assert set(said["tokenizer"]) == {"template"}
    (run,) = [run for run in find_runs(folder) if run.name == "adapted"]
    assert run.size == "from roberta"


@pytest.mark.parametrize("setting", ["backbone.width=64", "backbone.dropout=0.3"])
def test_what_the_model_has_decided_cannot_be_set(folder: Path, setting: str) -> None:
    with pytest.raises(SesameError, match=f"--set {setting}: .*roberta stays as it was built"):
        pretrain(wishes(folder, "adapt", "other", folder / "roberta", (setting,)))


def test_the_settings_that_it_was_built_with_may_be_given_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("stages.short.length=32", "stages.short.batch=4")
    pretrain(wishes(folder, "adapt", "again", folder / "roberta", (*TINY, *more)))
    assert "--set tokenizer.size=300 changes nothing" in capsys.readouterr().err


def test_another_tokenizer_is_refused(folder: Path) -> None:
    other = train_tokenizer(["zum Beispiel ein anderer Text, ganz anders"] * 9, "wordpiece", 100)
    other.save(folder / "other-tokenizer")
    with pytest.raises(SesameError, match="leave --tokenizer out"):
        pretrain(wishes(folder, "adapt", "third", folder / "roberta", tokenizer=str(folder / "other-tokenizer")))


def test_the_models_own_tokenizer_may_be_named(folder: Path) -> None:
    same = str(folder / "roberta" / "final")
    more = ("stages.short.length=32", "stages.short.batch=4")
    pretrain(wishes(folder, "adapt", "fourth", folder / "roberta", more, tokenizer=same))


def test_kinds_that_cannot_be_adapted_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("backbone.cell=16", "tokenizer.size=300", "stages.main.batch=4")
    out = folder / "skip"
    pretrain(
        Wishes(
            "skip-thought", [str(folder / "text.txt")], out, size="tiny", steps=1, settings=settings[1:], device="cpu"
        )
    )
    with pytest.raises(SesameError, match=r"cannot be adapted.*`sesame pretrain skip-thought --start"):
        _recipe(str(out))
    (folder / "tagger").mkdir()
    save_parts(folder / "tagger", Parts(build_backbone(TaggerConfig(vocab=97))))  # which no recipe trains
    with pytest.raises(SesameError, match=r"leave --text out$"):
        _recipe(str(folder / "tagger"))
    assert not adaptable(open_start(str(out)))
    with monkeypatch.context() as before_the_text:
        before_the_text.setattr(
            "sesame.pretraining.preparation.build_store", lambda *_, **__: pytest.fail("was encoded")
        )
        for recipe in ("ulmfit", "elmo"):  # settings of a backbone change nothing of a model that exists
            with pytest.raises(SesameError, match="or --start from"):
                pretrain(wishes(folder, recipe, f"{recipe}-skip", out))
    assert adaptable(open_start(str(folder / "gpt2")))


def test_a_decoder_goes_on_with_next_tokens(folder: Path) -> None:
    recipe, settings = _recipe(str(folder / "gpt2"))
    pretrain(wishes(folder, recipe, "gpt2-adapted", folder / "gpt2", (*settings, "stages.short.length=32")))
    said = tomllib.loads((folder / "gpt2-adapted" / "recipe.toml").read_text())
    assert set(said["objectives"]) == {"clm"}
    assert set(load_parts(folder / "gpt2-adapted").heads) == {"lm"}
    with pytest.raises(SesameError, match="tells next tokens"):
        pretrain(wishes(folder, "bert", "masked", folder / "gpt2"))


def test_transformers_continues_a_prompt_as_it_stands(folder: Path) -> None:
    """No end of a text behind a prompt there; here the template is still known."""
    where = folder / "gpt2" / "final"
    theirs, ours = transformers.AutoTokenizer.from_pretrained(where), Tokenizer.load(where)
    prompt = "and then the"
    assert theirs(prompt).input_ids == ours.encode(prompt).ids
    assert around(ours) == ((), (ours.id("sep"),))
    model = transformers.AutoModelForCausalLM.from_pretrained(where)
    said = model.generate(**theirs(prompt, return_tensors="pt"), do_sample=False, max_new_tokens=6)
    [[found]] = sesame.load(where, device="cpu").generate(prompt, most=6)
    assert theirs.decode(said[0], skip_special_tokens=True) == prompt + found.text
