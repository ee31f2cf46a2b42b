"""Pairs of texts: translation and fine-tuning learn small languages, go on after a crash, write down what they saw."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import weights

import sesame
from sesame.backbones import EncoderDecoder
from sesame.backbones.encoder_decoder import EncoderDecoderConfig
from sesame.checkpoint.loading import load_parts
from sesame.data.answer_pack import AnswerPacker, bucketed
from sesame.data.build import build_pairs
from sesame.data.loader import Loader
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.evaluate.spoken import Sides
from sesame.explain.alignment import told_and_read
from sesame.finetuning.answering_pairs import mix_tasks, split_pairs
from sesame.finetuning.answering_wishes import Wishes
from sesame.loaded import Loaded
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from tests.answer_toys import rows, stranger, tokenizer_for, write_rows
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

TINY = (
    "backbone.width=64", "backbone.inner=128", "backbone.heads=4", "backbone.depth=2", "backbone.dropout=0.0",
    "tokenizer.size=300", "stages.main.tokens=512", "stages.main.length=32", "optimizer.rate=3e-3", "optimizer.clip=1.0",
    "schedule.warmup=0.1", "schedule.kind='linear'", "objectives.seq2seq.smoothing=0.0",
)  # fmt: skip
QUICK = ("stages.main.tokens=512", "objectives.seq2seq.smoothing=0.0")


def exact(model: Loaded, kind: str, count: int = 200) -> float:
    asked = rows(kind, count, 99)
    said = model.translate([source for source, _ in asked], beams=1, most=20)
    return sum(answers[0].text == wanted for answers, (_, wanted) in zip(said, asked, strict=True)) / count


def from_scratch(
    folder: Path, kind: str, steps: int, seed: int = 0, recipe: str = "transformer", **more: Any
) -> Loaded:
    folder.mkdir(exist_ok=True)
    file = write_rows(folder / "pairs.tsv", rows(kind, 2000, seed))
    wishes = {"settings": TINY, "size": "tiny", "device": "cpu"} | more
    return sesame.pretrain(recipe, pairs=[f"aa-bb={file}"], out=folder / "run", steps=steps, seed=seed, **wishes)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("copy", 0), ("reverse", 1), ("swap", 2)])
def test_a_transformer_learns_small_languages(kind: str, seed: int, tmp_path: Path) -> None:
    assert exact(from_scratch(tmp_path, kind, 400, seed), kind) > 0.95


@pytest.mark.slow
def test_a_stranger_learns_to_reverse(tmp_path: Path) -> None:
    start = stranger(tmp_path / "start", "t5", 0, 64, initializer_factor=0.4)
    train, valid = (write_rows(tmp_path / f"{n}.tsv", rows("reverse", n, n)) for n in (3000, 50))
    wishes: dict[str, Any] = {"steps": 600, "rate": 4e-3, "beams": 1, "settings": QUICK, "device": "cpu"}
    model = sesame.finetune(start, "seq2seq", train, tmp_path / "run", valid=valid, seeds=1, seed=0, **wishes)
    assert exact(model, "reverse") > 0.95


def test_white_space_in_a_source_is_read_as_it_was_learnt(tmp_path: Path) -> None:
    """Pairs are learnt and scored with single spaces, so a line with a space too many must not be another source."""
    file = write_rows(tmp_path / "pairs.tsv", rows("copy", 40, 0))
    small = (*TINY, "backbone.width=16", "backbone.inner=16", "backbone.depth=1")
    model = sesame.pretrain("transformer", pairs=[f"aa-bb={file}"], out=tmp_path / "run", steps=1, settings=small)
    plain, *odd = "ba be da", " ba be da", "ba  be\u00a0da ", "ba be\nda"
    encoded = [model.tokenizer.encode(text).ids for text in (plain, *odd)]
    assert all(ids != encoded[0] for ids in encoded[1:]), "this tokenizer tells them apart"
    wanted, *others = (model.translate(text, beams=1, most=5)[0][0] for text in (plain, *odd))
    assert all(said == wanted for said in others)
    assert all(told_and_read(model.parts, text, "ba").read == [*encoded[0], model.tokenizer.id("sep")] for text in odd)
    speech = load_parts(stranger(tmp_path / "stranger", "bart")).speech
    assert speech is not None, "and others read a text as it is written"
    assert not speech.plain


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"alpha": math.nan}, "generate.alpha is nan"),  # was said when the first seed had been trained
        ({"epochs": math.nan}, "--epochs nan: passes over the pairs lie above 0"),  # was a traceback
        ({"epochs": -1.0}, "--epochs -1.0: passes"),  # was one step
        ({"rate": 0.0}, "optimizer.rate is 0.0"),  # was the usual rate
    ],
)
def test_numbers_that_mean_nothing_are_refused_before_a_pair_is_read(
    wish: dict[str, float], why: str, tmp_path: Path
) -> None:
    start = stranger(tmp_path / "start", "t5")
    with pytest.raises(SesameError, match=why):
        sesame.finetune(start, "seq2seq", tmp_path / "none.tsv", tmp_path / "run", **wish)
    assert not (tmp_path / "run").exists()


def test_passes_that_must_agree_need_dropout(tmp_path: Path) -> None:
    """The model's, or that of every stage: a model that exists stays as it was built, but a stage may drop more."""
    wishes = (*TINY, "objectives.seq2seq.agreement=5")
    for number, more in enumerate([(), ("backbone.dropout=0.1", "stages.main.dropout=0.0")]):
        with pytest.raises(SesameError, match=r"needs dropout.* set stages\.main\.dropout=0\.1"):
            from_scratch(tmp_path / str(number), "copy", 1, settings=(*wishes, *more))
    looks = ("backbone.width=16", "backbone.depth=1", "tokenizer.size=300", "backbone.attention=hard", wishes[-1])
    with pytest.raises(SesameError, match=r"agreement does not go with backbone\.attention=hard.* leave agreement out"):
        from_scratch(tmp_path / "hard", "copy", 1, recipe="luong", size="small", settings=looks)
    from_scratch(tmp_path / "stage", "copy", 1, settings=(*wishes, "stages.main.dropout=0.1"))
    from_scratch(tmp_path / "looks", "copy", 1, settings=(*wishes, "backbone.attention_dropout=0.1"))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a fine-tuning."""
    folder = tmp_path_factory.mktemp("taught")
    start = stranger(folder / "start", "marian", 0, 64)
    files = {part: write_rows(folder / f"{part}.tsv", rows("copy", n, n)) for part, n in (("train", 600), ("test", 40))}
    sesame.finetune(
        start, "seq2seq", files["train"], folder / "run", test=files["test"], seeds=2, steps=30, rate=3e-3, beams=2,
        metric="exact", settings=QUICK, device="cpu",
    )  # fmt: skip
    return folder / "run"


@pytest.mark.slow
def test_a_finetuning_writes_down_what_it_saw(taught: Path) -> None:
    results = json.loads((taught / "results.json").read_text())
    sizes = results["data"]["rows"]
    assert sizes["train"] + sizes["valid"] == 600
    assert (30 < sizes["valid"] < 90, sizes["test"]) == (True, 40)
    each = [json.loads((taught / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    for part in ("valid", "test"):
        assert set(results["scores"][part]) == {"bleu", "chrf", "rouge1", "rouge2", "rougeL", "exact"}
        for name, found in results["scores"][part].items():
            values = [one["scores"][part][name] for one in each]
            assert found["mean"] == pytest.approx(np.mean(values))
            assert found["std"] == pytest.approx(np.std(values, ddof=1))
    best = max(each, key=lambda one: one["scores"]["valid"]["exact"])
    assert results["best"] == best["seed"]
    lines = [json.loads(line) for line in (taught / "predictions.jsonl").read_text().splitlines()]
    assert [line["answer"] for line in lines] == best["said"]["valid"] + best["said"]["test"]
    assert best["scores"]["test"]["exact"] == np.mean([a["answer"] == a["wanted"] for a in lines[sizes["valid"] :]])
    card = (taught / "final" / "README.md").read_text()
    assert "tok:13a" in card
    assert f"| test | exact | {100 * results['scores']['test']['exact']['mean']:.2f} |" in card
    assert weights(taught) == weights(taught / f"seed-{best['seed']}")


def test_steps_among_the_settings_say_when_to_end(tmp_path: Path) -> None:
    """`--set steps=3` was accepted, and 500 steps were made."""
    start, train = (
        stranger(tmp_path / "start", "marian", 0, 64),
        write_rows(tmp_path / "train.tsv", rows("copy", 60, 60)),
    )
    again: dict[str, Any] = {"seeds": 1, "beams": 1, "most": 4, "settings": [*QUICK, "steps=3"], "device": "cpu"}
    sesame.finetune(start, "seq2seq", train, tmp_path / "run", **again)
    lines = (tmp_path / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 3
    for option in ("steps", "epochs"):
        with pytest.raises(SesameError, match=rf"--set steps=.* and --{option} both say when to end"):
            sesame.finetune(start, "seq2seq", train, tmp_path / "other", **again, **{option: 2})


def test_the_result_is_the_stranger_s_own_family(taught: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, reader = (kind.from_pretrained(taught / "final") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    assert model.config.model_type == "marian"
    sources = [source for source, _ in rows("copy", 10, 5)]
    with torch.no_grad():
        ids = model.generate(**reader(sources, padding=True, return_tensors="pt"), num_beams=1, max_new_tokens=20)
    ours = sesame.load(taught / "final", "cpu").translate(sources, beams=1, most=20)
    assert [said[0].text for said in ours] == reader.batch_decode(ids, skip_special_tokens=True)


def test_a_finished_run_is_not_done_again(taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = taught.parent
    again: dict[str, Any] = {
        "test": str(folder / "test.tsv"), "seeds": 2, "steps": 30, "rate": 3e-3, "beams": 2, "metric": "exact",
        "settings": QUICK, "device": "cpu",
    }  # fmt: skip
    sesame.finetune(folder / "start", "seq2seq", folder / "train.tsv", taught, **again)
    assert "finished already" in capsys.readouterr().err
    with pytest.raises(SesameError, match="holds another run"):
        sesame.finetune(folder / "start", "seq2seq", folder / "train.tsv", taught, **(again | {"prefix": "say: "}))
    kept = (folder / "train.tsv").read_text()
    try:
        (folder / "train.tsv").write_text(kept.replace("\t", "\tthe ", 1))
        with pytest.raises(SesameError, match="changed since this run began"):
            sesame.finetune(folder / "start", "seq2seq", folder / "train.tsv", taught, **again)
        (folder / "train.tsv").unlink()
        sesame.finetune(folder / "start", "seq2seq", folder / "train.tsv", taught, **again)
        assert "finished already" in capsys.readouterr().err
    finally:
        (folder / "train.tsv").write_text(kept)


@pytest.mark.slow
def test_a_crash_changes_no_bit(tmp_path: Path) -> None:
    def run(name: str) -> Path:
        more = {"save_steps": 5, "settings": (*TINY, "backbone.dropout=0.1", "stages.main.reverse=true")}
        (tmp_path / name).mkdir(exist_ok=True)
        file = write_rows(tmp_path / "pairs.tsv", rows("reverse", 200, 0))
        sesame.pretrain(
            "transformer", pairs=[f"aa-bb={file}"], out=tmp_path / name / "run", steps=17, size="tiny", **more
        )
        return tmp_path / name / "run"

    whole = run("whole")
    with crash_while_saving(after=2):
        run("crashed")
    assert weights(run("crashed")) == weights(whole)
    assert json.loads((whole / "final" / "config.json").read_text())["sesame"]["reverse"] is True


@pytest.mark.slow
def test_a_crash_of_a_finetuning_changes_no_bit(tmp_path: Path) -> None:
    start = stranger(tmp_path / "start", "bart", 0, 32)
    train = write_rows(tmp_path / "train.tsv", rows("copy", 100, 0))

    def run(name: str) -> Path:
        wishes: dict[str, Any] = {
            "steps": 12,
            "save_steps": 5,
            "seeds": 1,
            "beams": 1,
            "settings": QUICK,
            "device": "cpu",
        }
        return sesame.finetune(start, "seq2seq", train, tmp_path / name, **wishes).folder.parent

    whole = run("whole")
    with crash_while_saving(after=1):
        run("crashed")
    assert weights(run("crashed")) == weights(whole)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_accumulation_equals_the_whole_batch(seed: int, tmp_path: Path) -> None:
    """Pairs of all lengths in one step, in parts of 20 places or at once: the same weights."""
    tokenizer = tokenizer_for("t5")
    file = write_rows(tmp_path / "pairs.tsv", rows("swap", 60, seed, longest=9))
    part = hold_out(build_pairs([file], ("aa", "bb"), tokenizer, tmp_path / "cache"), 0, 0.0)[0]
    packer = AnswerPacker(part, 16, Specials(None, tokenizer.id("sep"), tokenizer.id("pad")))
    found = []
    for micro in (20, 10_000):
        torch.manual_seed(seed)
        backbone = EncoderDecoder(EncoderDecoderConfig(len(tokenizer), 16, 1, 2, dropout=0.0, attention_dropout=0.0))
        model = Model(
            backbone, build({"seq2seq": Seq2SeqConfig()}, backbone, Vocab(len(tokenizer), tokenizer.ids()))
        ).double()
        optimizer = build_optimizer(model, OptimConfig(eps=1e-3))
        basic = Loader(packer, 8, 8, seed, model.objective.corrupt)
        batches = bucketed(basic, 400, micro).load(0, 0.0)
        assert (len(batches) > 1) == (micro == 20)
        take_step(model, model, optimizer, batches, 1.0, choose_machine("cpu"), seed, Window())
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


def test_what_is_kept_aside_is_not_learnt_from() -> None:
    sides = Sides([f"s{n % 50}" for n in range(200)], [f"a{n}" for n in range(200)], [f"t:{n}" for n in range(200)])
    for seed in range(3):
        train, valid = split_pairs(sides, seed)
        assert not set(train.sources) & set(valid.sources)
        assert sorted(train.answers + valid.answers) == sorted(sides.answers)
        assert len(set(valid.sources)) == 5
        assert all(place == f"t:{answer[1:]}" for answer, place in zip(valid.answers, valid.places, strict=True))
    assert split_pairs(sides, 0)[1] != split_pairs(sides, 1)[1]
    with pytest.raises(SesameError, match="give --valid"):
        split_pairs(Sides(["a"] * 30, ["b"] * 30, ["t:1"] * 30), 0)


@pytest.mark.parametrize(("temperature", "cap", "wanted"), [(1.0, 1e9, 90), (1e9, 1e9, 900), (1.0, 180.0, 450)])
def test_tasks_are_mixed_by_their_rates(temperature: float, cap: float, wanted: int) -> None:
    names = {name: [f"{name}{n}" for n in range(size)] for name, size in (("l", 900), ("s", 90))}
    large, small = (Sides(texts, ["x"] * len(texts), texts) for texts in names.values())
    wishes = replace(Wishes("m", "t", Path("o")), temperature=temperature, cap=cap)
    found = mix_tasks({"": large, "other: ": small}, wishes)
    assert set(found.sources) == {*large.sources, *small.sources}
    assert found.places == found.sources
    assert sum(source[0] == "s" for source in found.sources) == pytest.approx(wanted, abs=1)
    assert sum(source[0] == "l" for source in found.sources) == 900


def test_several_tasks_are_told_by_their_prefix(tmp_path: Path) -> None:
    start = stranger(tmp_path / "start", "marian", 0, 32)
    files = [write_rows(tmp_path / f"{kind}.tsv", rows(kind, 60, 0)) for kind in ("copy", "reverse")]
    sesame.finetune(
        start, "seq2seq", files[0], tmp_path / "run", prefix="ba", also=[f"be={files[1]}"], steps=2, seeds=1, beams=1,
        settings=QUICK, device="cpu",
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "run" / "pairs" / "train.jsonl").read_text().splitlines()]
    assert {line["source"][:3] for line in lines} == {"ba ", "be "}
    reverse = dict(rows("reverse", 60, 0))
    assert all(reverse[line["source"][3:]] == line["target"] for line in lines if line["source"].startswith("be "))
