"""`sesame pretrain` with recurrent recipes: folders open again, crashes change nothing, parts of a step add up, numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import weights

import sesame
from sesame.backbones import EncoderDecoder, EncoderDecoderConfig, RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.checkpoint.loading import load_parts
from sesame.data.answer_pack import AnswerPacker, bucketed
from sesame.data.build import build_pairs
from sesame.data.loader import Loader
from sesame.data.pack import Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.train import compute
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from tests.answer_toys import rows, tokenizer_for, write_rows
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

RECIPES = ("seq2seq", "rnn-encoder-decoder", "rnnsearch", "luong")
SETTINGS = ("backbone.width=16", "tokenizer.size=300", "stages.main.length=32", "stages.main.tokens=256")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_rows(tmp_path_factory.mktemp("pairs") / "pairs.tsv", rows("swap", 120, 0, longest=6))


def run(recipe: str, pairs: str, out: Path, *more: str, **wanted: Any) -> Path:
    settings = (*SETTINGS, *more)
    wishes: dict[str, Any] = {
        "size": "tiny",
        "steps": 6,
        "save_steps": 2,
        "device": "cpu",
        "settings": settings,
    } | wanted
    return pretrain(Wishes(recipe, [], out, pairs=[f"aa-bb={pairs}"], **wishes))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_folder_opens_again_and_answers(recipe: str, pairs: str, tmp_path: Path) -> None:
    final = run(recipe, pairs, tmp_path / "run")
    parts = load_parts(final)
    assert isinstance(parts.backbone, RecurrentSeq2Seq)
    assert parts.unused == []
    assert set(parts.heads) == {"seq2seq"}
    assert parts.speech is not None
    assert parts.speech.reverse == (recipe in ("seq2seq", "luong"))
    said = sesame.load(final, "cpu").translate(["ba be", "do"], most=5, beams=3, best=2)
    assert [len(answers) for answers in said] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "more"), [("luong", ("backbone.dropout=0.2",)), ("rnnsearch", ()),
                                              ("luong", ("backbone.attention=hard",))])  # fmt: skip
def test_a_crash_changes_no_bit(recipe: str, more: tuple[str, ...], pairs: str, tmp_path: Path) -> None:
    run(recipe, pairs, tmp_path / "whole", *more)
    with crash_while_saving(after=2):
        run(recipe, pairs, tmp_path / "crashed", *more)
    run(recipe, pairs, tmp_path / "crashed", *more)
    assert weights(tmp_path / "crashed") == weights(tmp_path / "whole")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("options", [
    {"attention": "global", "feed": True}, {"attention": "local-p"}, {"depth": 2},
    {"cell": "gru", "bidirectional": True, "start": "tanh", "attention": "global", "score": "additive",
     "looks": "before", "readout": "maxout", "coverage": True},
], ids=str)  # fmt: skip
def test_accumulation_equals_the_whole_batch(options: dict[str, Any], seed: int, tmp_path: Path) -> None:
    """Pairs of all lengths in one step, in parts of 20 places or at once: the same weights."""
    tokenizer = tokenizer_for("t5")
    file = write_rows(tmp_path / "pairs.tsv", rows("swap", 60, seed, longest=9))
    part = hold_out(build_pairs([file], ("aa", "bb"), tokenizer, tmp_path / "cache"), 0, 0.0)[0]
    packer = AnswerPacker(part, 16, Specials(None, tokenizer.id("sep"), tokenizer.id("pad")))
    found = []
    for micro in (20, 10_000):
        torch.manual_seed(seed)
        backbone = RecurrentSeq2Seq(
            RecurrentSeq2SeqConfig(**{"vocab": len(tokenizer), "width": 16, "depth": 1} | options)
        )
        objective = build({"seq2seq": Seq2SeqConfig()}, backbone, Vocab(len(tokenizer), tokenizer.ids()))
        model = Model(backbone, objective).double()
        optimizer = build_optimizer(model, OptimConfig(eps=1e-3))
        batches = bucketed(Loader(packer, 8, 8, seed, model.objective.corrupt), 400, micro).load(0, 0.0)
        assert (len(batches) > 1) == (micro == 20)
        take_step(model, model, optimizer, batches, 1.0, choose_machine("cpu"), seed, Window())
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("first", "then"), [("rnnsearch", "luong"), ("luong", "rnnsearch")])
def test_sources_are_not_turned_around_on_the_way(first: str, then: str, pairs: str, tmp_path: Path) -> None:
    """A recipe that reads sources from the other end than the start model has learnt would waste what it knows."""
    start = run(first, pairs, tmp_path / "first", steps=2)
    wanted: dict[str, Any] = {"start": str(start), "steps": 2, "save_steps": 2, "size": None, "device": "cpu"}
    more = ("stages.main.length=32", "stages.main.tokens=256")
    given = {"out": tmp_path / "then", "pairs": [f"aa-bb={pairs}"], **wanted}
    said = "true" if first == "luong" else "false"
    with pytest.raises(SesameError, match=f"set stages.main.reverse={said}"):
        pretrain(Wishes(then, [], settings=more, **given))
    final = pretrain(Wishes(then, [], settings=(*more, f"stages.main.reverse={said}"), **given))
    speech = load_parts(final).speech
    assert speech is not None
    assert speech.reverse == (first == "luong")


def test_the_recipes_are_the_papers() -> None:
    first = resolve("seq2seq", size="paper")
    assert (first.backbone["depth"], first.backbone["width"], first.backbone["init"]) == (4, 1000, 0.08)
    assert (first.stages["main"].reverse, first.stages["main"].batch, first.optimizer.clip) == (True, 128, 5.0)
    cho = resolve("rnn-encoder-decoder", size="paper")
    assert (cho.backbone["cell"], cho.backbone["inner"], cho.backbone["context"]) == ("gru", 1000, "all")
    search = resolve("rnnsearch", size="paper")
    assert (search.backbone["width"], search.backbone["inner"], search.backbone["score"]) == (620, 1000, "additive")
    assert search.backbone["readout_before"]
    assert (search.stages["main"].reverse, search.stages["main"].batch, search.optimizer.clip) == (False, 80, 1.0)
    luong = resolve("luong", size="paper")
    assert (luong.backbone["depth"], luong.backbone["width"], luong.backbone["dropout"]) == (4, 1000, 0.2)
    assert (luong.backbone["window"], luong.backbone["feed"], luong.backbone["init"]) == (10, True, 0.1)
    for recipe in RECIPES:
        for size in ("tiny", "small", "paper"):
            for device in ("cpu", "cuda"):
                found = resolve(recipe, size=size, budget=True, device=device)
                settings = {key: value for key, value in found.backbone.items() if key != "kind"}
                with torch.device("meta"):
                    RecurrentSeq2Seq(RecurrentSeq2SeqConfig(vocab=100, **settings))


def test_steps_in_python_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler would unroll them; recorded they still are, on a GPU."""
    monkeypatch.setattr(compute, "has_triton", lambda device: True)
    monkeypatch.setattr(torch, "compile", lambda model, **how: "compiled")
    machine, roles = choose_machine("cpu", "fp32"), {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    for backbone in (
        RecurrentSeq2Seq(RecurrentSeq2SeqConfig(50, 16, 1)),
        EncoderDecoder(EncoderDecoderConfig(50, 16, 1, 2)),
    ):
        model = Model(backbone, build({"seq2seq": Seq2SeqConfig()}, backbone, Vocab(50, roles)))
        assert (compute.computing(model, machine) == "compiled") == backbone.compiles
