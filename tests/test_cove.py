"""CoVe: a translation model's encoder as context vectors: what they are, padding and order, commands on its folder."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import weights

import sesame
from sesame.backbones import CoVe, CoVeConfig, RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.backbones.cove import encoder_of
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch, Targets
from sesame.errors import SesameError
from sesame.finetuning.run import Wishes as Teaching
from sesame.finetuning.run import finetune
from sesame.objectives.base import Together
from sesame.objectives.model import Model
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.tasks import TaskConfig, build_task
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from tests.answer_toys import rows, write_rows
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

KINDS: dict[str, dict[str, Any]] = {
    "cove": {"bidirectional": True, "start": "tanh", "attention": "global", "feed": True},
    "gru": {"cell": "gru", "readout": "tanh"},
    "residual": {"residual": True, "inner": 6},
}


def translator(seed: int = 0, **settings: Any) -> RecurrentSeq2Seq:
    torch.manual_seed(seed)
    found = RecurrentSeq2Seq(RecurrentSeq2SeqConfig(20, **{"width": 6, "depth": 2, "inner": 5} | settings))
    return found.double().eval()


def batch_of(lines: list[list[int]]) -> Batch:
    lengths = torch.tensor([len(line) for line in lines])
    ids = torch.zeros(len(lines), int(lengths.max()), dtype=torch.long)
    for row, line in zip(ids, lines, strict=True):
        row[: len(line)] = torch.tensor(line)
    return Batch(ids, lengths)


LINES = [[3, 4, 5, 6, 1], [7, 1], [8, 9, 10, 1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_encoder_joined_with_the_table(kind: str, seed: int) -> None:
    model = translator(seed, **KINDS[kind])
    found = encoder_of(model).eval()
    batch = batch_of(LINES[:1])
    x = model.tokens(batch.ids)
    walked = model.encoder(x)
    encoded = found(batch)
    assert found.width == encoded.last.shape[-1] == 6 + model.config.values
    assert len(encoded.layers) == found.depth + 1 == 3
    for layer, state in zip(encoded.layers, [torch.zeros_like(walked.top), *walked.layers], strict=True):
        torch.testing.assert_close(layer, torch.cat([x, state], -1))


def test_sources_from_their_end_are_turned_and_turned_back() -> None:
    model = translator()
    plain, turned = encoder_of(model).eval(), encoder_of(model, reverse=True).eval()
    line, other = [3, 4, 5, 6, 1], [6, 5, 4, 3, 1]  # the last token stays where it is
    one, two = plain(batch_of([other])).last[0], turned(batch_of([line])).last[0]
    torch.testing.assert_close(two, one[[3, 2, 1, 0, 4]])
    both = encoder_of(model, reverse=True, front=1, back=0).eval()(batch_of([[2, 3, 4]])).last[0]
    torch.testing.assert_close(both, plain(batch_of([[2, 4, 3]])).last[0][[0, 2, 1]])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_order_change_nothing(kind: str, reverse: bool) -> None:
    found = encoder_of(translator(**KINDS[kind]), reverse).eval()
    together, turned = found(batch_of(LINES)), found(batch_of(LINES[::-1]))
    for row, line in enumerate(LINES):
        alone = found(batch_of([line]))
        for x, y, z in zip(alone.layers, together.layers, turned.layers, strict=True):
            torch.testing.assert_close(x[0], y[row, : len(line)])
            torch.testing.assert_close(x[0], z[len(LINES) - 1 - row, : len(line)])
    only = torch.tensor([[4], [1], [2]])
    torch.testing.assert_close(found(batch_of(LINES), only).last, together.take(only))


def test_a_folder_gives_equal_states(tmp_path: Path) -> None:
    found = encoder_of(translator(**KINDS["cove"]), reverse=True).eval()
    save_parts(tmp_path, Parts(found))
    parts = load_parts(tmp_path)
    assert isinstance(parts.backbone, CoVe)
    assert parts.unused == []
    assert parts.backbone.config == found.config
    assert torch.equal(parts.backbone.eval()(batch_of(LINES)).last, found(batch_of(LINES)).last)


def test_parts_of_a_step_add_up() -> None:
    found, batch = [], batch_of(LINES)
    for chosen in ([[0, 1, 2]], [[0], [1, 2]]):
        backbone = encoder_of(translator(**KINDS["cove"]))
        torch.manual_seed(1)
        task = build_task("tag", TaskConfig("tag", ("a", "b", "c")), backbone, 0.0).double()
        model = Model(backbone, Together({"tag": task}))
        optimizer = build_optimizer(model, OptimConfig(decay=0.0, eps=1e-3))
        optimizer.set_rate(0.1)
        parts = [replace(batch, ids=batch.ids[r], lengths=batch.lengths[r]) for r in chosen]
        parts = [part.with_targets(tag=Targets(part.ids % 3)) for part in parts]
        take_step(model, model, optimizer, parts, 1e9, choose_machine("cpu"), 0, Window())
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1])


def test_wrong_settings_get_one_sentence() -> None:
    with pytest.raises(SesameError, match="at least 1"):
        CoVeConfig(9, depth=0)
    with pytest.raises(SesameError, match="dropout"):
        CoVeConfig(9, dropout=1.0)


# ---- from pairs to a task ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_rows(tmp_path_factory.mktemp("pairs") / "pairs.tsv", rows("swap", 120, 0, longest=6))


def run(recipe: str, pairs: str, out: Path, *more: str, **wanted: Any) -> Path:
    settings = ("backbone.width=16", "tokenizer.size=300", "stages.main.length=32", "stages.main.tokens=256", *more)
    wishes: dict[str, Any] = {"size": "tiny", "steps": 4, "save_steps": 2, "device": "cpu", "settings": settings}
    return pretrain(Wishes(recipe, [], out, pairs=[f"aa-bb={pairs}"], **wishes | wanted))


def test_vectors_of_a_translation_model(pairs: str, tmp_path: Path) -> None:
    for recipe in ("cove", "luong"):  # the second one reads from the end
        final = run(recipe, pairs, tmp_path / recipe)
        model = sesame.load(final, "cpu")
        backbone = model.parts.backbone
        assert isinstance(backbone, RecurrentSeq2Seq)
        values = backbone.config.values
        vectors = model.embed(["ba be do", "do"])
        assert vectors.shape == (2, 16 + values)
        encoding, states = model.embed_tokens("ba be do")
        np.testing.assert_allclose(vectors[0], states.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(states[:, :16], backbone.tokens.weight.detach()[encoding.ids].numpy(), rtol=1e-6)
        read = [*encoding.ids[-2::-1], encoding.ids[-1]] if recipe == "luong" else encoding.ids
        wanted = backbone.encoder(backbone.tokens(torch.tensor([read]))).top[0].detach().numpy()
        wanted = wanted[[*range(len(read) - 2, -1, -1), len(read) - 1]] if recipe == "luong" else wanted
        np.testing.assert_allclose(states[:, 16:], wanted, rtol=1e-4, atol=1e-6)
        assert model.translate(["ba be"], most=3)  # and it still answers


def labelled(path: Path) -> Path:
    luck = Random(0)
    lines = [" ".join(luck.choice(["ba", "be", "do", "du"]) for _ in range(luck.randint(2, 6))) for _ in range(60)]
    path.write_text("text,label\n" + "".join(f"{line},{'yes' if 'ba' in line else 'no'}\n" for line in lines))
    return path


@pytest.mark.parametrize("strategy", ["frozen", pytest.param("full", marks=pytest.mark.slow)])
def test_a_task_on_its_vectors_and_a_crash(strategy: str, pairs: str, tmp_path: Path) -> None:
    final, data = run("cove", pairs, tmp_path / "run"), labelled(tmp_path / "rows.csv")

    def teach(out: str) -> Path:
        settings = ("task.pooling=max", "least_steps=0", "class_steps=0", "epochs=6", "batch=16")
        return finetune(
            Teaching(
                str(final), "classify", str(data), tmp_path / out, strategy=strategy, seeds=1, settings=settings,
                device="cpu", baselines=False, save_steps=5,
            )
        )  # fmt: skip

    taught = teach("calm")
    parts = load_parts(taught)
    assert isinstance(parts.backbone, CoVe)
    assert sesame.load(taught, "cpu").predict(["ba do"])[0]
    before = load_parts(final).backbone.get_parameter("encoder.layers.0.cell.weight_ih_l0")
    after = parts.backbone.get_parameter("encoder.layers.0.cell.weight_ih_l0")
    assert torch.equal(before, after) == (strategy == "frozen")
    with crash_while_saving(after=1):
        teach("broken")
    teach("broken")
    assert weights(tmp_path / "calm") == weights(tmp_path / "broken")


def test_numbers_of_the_paper() -> None:
    backbone = resolve("cove", size="paper").backbone
    assert (backbone["width"], backbone["inner"], backbone["depth"], backbone["bidirectional"]) == (300, 300, 2, True)
    for size in ("tiny", "small", "paper"):
        found = resolve("cove", size=size, budget=True, device="cuda")
        assert not found.stages["main"].reverse
