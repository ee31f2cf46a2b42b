"""Means of weights: of checkpoints by `sesame average`, and running ones beside the optimiser."""

from pathlib import Path

import pytest
import torch
from benchmarks.kill_resume import make_text, weights
from safetensors.torch import load_file
from torch import nn

import sesame
from sesame.averaging import average, last_checkpoints
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.errors import SesameError
from sesame.tasks import TaskConfig, build_task
from sesame.train.optim import OptimConfig, build_optimizer, load_optimizer, optimizer_tensors
from tests.answer_toys import rows, stranger, write_rows
from tests.crashes import crash_while_saving
from tests.tasks.toys import encoder, start_folder, toy_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

SETTINGS = (
    "backbone.width=16", "backbone.inner=32", "backbone.heads=2", "backbone.depth=1", "tokenizer.size=300",
    "stages.main.tokens=128", "stages.main.length=32", "optimizer.rate=3e-3",
)  # fmt: skip


def run(folder: Path, name: str, *more: str, steps: int = 20) -> Path:
    file = folder / "pairs.tsv"
    if not file.exists():  # another time of writing would be another tokenizer
        write_rows(file, rows("copy", 60, 0))
    sesame.pretrain(
        "transformer", pairs=[f"aa-bb={file}"], out=folder / name, steps=steps, size="tiny", save_steps=5, keep=3,
        settings=(*SETTINGS, *more),
    )  # fmt: skip
    return folder / name


def test_the_last_checkpoints_are_averaged(tmp_path: Path) -> None:
    made = run(tmp_path, "run")
    kept = last_checkpoints(made, 3)
    assert [folder.name for folder in kept] == ["step-10", "step-15", "step-20"]
    average(kept, tmp_path / "mean")
    each = [load_file(folder / "model.safetensors") for folder in kept]
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert set(mean) == set(each[0])
    for name, tensor in mean.items():
        wanted = torch.stack([tensors[name].double() for tensors in each]).mean(0)
        torch.testing.assert_close(tensor.double(), wanted, rtol=1e-6, atol=1e-7)
    said = [sesame.load(folder, "cpu").translate("ba be", beams=1, most=5) for folder in (tmp_path / "mean", made)]
    assert all(len(answers) == 1 for answers in said)
    with pytest.raises(
        SesameError, match=r"has 3 of the 4 checkpoints asked for.* --keep 4 and a shorter --save-minutes"
    ):
        last_checkpoints(made, 4)  # with --keep alone a run of minutes still has no more


@pytest.mark.parametrize("family", ["t5-1.1", "bart", "bert"])
def test_every_family_is_averaged(family: str, tmp_path: Path) -> None:
    if family == "bert":
        folders = [start_folder(tmp_path / f"{seed}", width=32, dropout=0.1) for seed in (0, 1)]
        parts = load_parts(folders[1])
        with torch.no_grad():
            for tensor in parts.state().values():
                tensor.mul_(3)
        folders[1] = tmp_path / "other"
        folders[1].mkdir()
        save_parts(folders[1], parts)
    else:
        folders = [stranger(tmp_path / f"{seed}", family, seed) for seed in (0, 1)]
    average(folders, tmp_path / "mean")
    one, other, mean = (load_parts(folder).state() for folder in (*folders, tmp_path / "mean"))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name].double() + other[name].double()).div(2).to(tensor.dtype))


def test_unlike_models_are_refused(tmp_path: Path) -> None:
    folders = {name: stranger(tmp_path / name, name) for name in ("t5", "bart")}
    wide = stranger(tmp_path / "wide", "t5", width=64)
    for others, why in (([folders["bart"]], "has the shape"), ([wide], "has the shape"), ([], "two models or more")):
        with pytest.raises(SesameError, match=why):
            average([folders["t5"], *others], tmp_path / "mean")
    parts = load_parts(folders["t5"])
    parts.tokenizer = load_parts(folders["bart"]).tokenizer
    (tmp_path / "other").mkdir()
    save_parts(tmp_path / "other", parts)
    with pytest.raises(SesameError, match="another tokenizer"):
        average([folders["t5"], tmp_path / "other"], tmp_path / "mean")
    with pytest.raises(SesameError, match="holds no run"):
        last_checkpoints(tmp_path / "t5", 2)
    assert not (tmp_path / "mean").exists()


def test_weights_of_one_shape_that_mean_other_things_are_refused(tmp_path: Path) -> None:
    """Heads, activations and labels have no shape of their own: the mean had those of the first model."""
    tokenizer = start_folder(tmp_path / "start", width=32)
    for name, heads, labels in (("one", 2, ("no", "yes")), ("wide", 4, ("no", "yes")), ("turned", 2, ("yes", "no"))):
        backbone = encoder(len(toy_tokenizer()), width=32, heads=heads, dropout=0.1 * (name == "turned"))
        task = build_task("label", TaskConfig("classify", labels), backbone)
        (tmp_path / name).mkdir()
        save_parts(
            tmp_path / name, Parts(backbone, task.heads(), load_parts(tokenizer).tokenizer, tasks={"label": task})
        )
    average([tmp_path / "one", tmp_path / "one"], tmp_path / "mean")
    for other, why in (("wide", r"backbone\.heads: 4 here, 2 in "), ("turned", r"labels of the task label")):
        with pytest.raises(SesameError, match=why):
            average([tmp_path / "one", tmp_path / other], tmp_path / "other")


@pytest.mark.parametrize("kind", ["adamw", "lamb", "adafactor"])
def test_the_running_mean_is_its_formula(kind: str) -> None:
    torch.manual_seed(0)
    model, wanted = nn.Linear(3, 2).double(), {}
    optimizer = build_optimizer(model, OptimConfig(kind=kind, rate=0.1, ema=0.5))  # type: ignore[arg-type]
    for step in range(1, 30):
        optimizer.zero_grad()
        model(torch.randn(4, 3, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        decay = min(0.5, (1 + step) / (10 + step))
        for name, p in model.named_parameters():
            now = p.detach().clone()
            wanted[name] = now if step == 1 else decay * wanted[name] + (1 - decay) * now
    assert not torch.equal(model.weight, wanted["weight"])
    kept = optimizer_tensors(model, optimizer)
    again = nn.Linear(3, 2).double()
    other = build_optimizer(again, OptimConfig(kind=kind, rate=0.1, ema=0.5))  # type: ignore[arg-type]
    load_optimizer(again, other, kept)
    for trained, used in ((model, optimizer), (again, other)):
        used.take_means()
        for name, p in trained.named_parameters():
            torch.testing.assert_close(p.detach(), wanted[name], rtol=1e-6, atol=1e-8)


def test_a_run_ends_with_its_running_mean(tmp_path: Path) -> None:
    plain, mean = run(tmp_path, "plain"), run(tmp_path, "mean", "optimizer.ema=0.9")
    newest = mean / "checkpoints" / "step-20" / "model.safetensors"
    last = load_file(plain / "checkpoints" / "step-20" / "model.safetensors")
    assert all(torch.equal(tensor, last[name]) for name, tensor in load_file(newest).items())  # they train alike
    assert weights(plain) != weights(mean)
    beside = load_file(mean / "checkpoints" / "step-20" / "train" / "optimizer.safetensors")
    ours = load_parts(mean / "final").state()
    for name, tensor in ours.items():
        kept = beside.get(f"{name}|mean")
        assert kept is None or torch.equal(tensor, kept)
    assert sum(f"{name}|mean" in beside for name in ours) > 10


def test_a_crash_does_not_touch_the_running_mean(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole", "optimizer.ema=0.9", steps=13)
    with crash_while_saving(after=1):
        run(tmp_path, "crashed", "optimizer.ema=0.9", steps=13)
    assert weights(run(tmp_path, "crashed", "optimizer.ema=0.9", steps=13)) == weights(whole)


def test_other_recipes_have_running_means_too(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt", 30)
    found = []
    for name, ema in (("plain", 0.0), ("mean", 0.9)):
        sesame.pretrain(
            "bert", text, tmp_path / name, steps=4, size="tiny",
            settings=(f"optimizer.ema={ema}", "backbone.width=16", "backbone.heads=2", "tokenizer.size=300",
                      "stages.short.batch=4", "stages.short.length=32", "stages.long.share=0"),
        )  # fmt: skip
        found.append(weights(tmp_path / name))
    assert found[0] != found[1]
