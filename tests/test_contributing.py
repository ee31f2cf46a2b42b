"""The worked example of CONTRIBUTING.md, taken out of the page: it registers, trains, resumes, and moves what it says."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from benchmarks.kill_resume import weights

from sesame.backbones import Encoder, EncoderConfig
from sesame.data.batch import IGNORE, Batch
from sesame.data.docstrings import documents
from sesame.errors import SesameError
from sesame.objectives import BUILDERS, CONFIGS, Vocab, build
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from tests.crashes import crash_while_saving

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
NAME = "sesame.objectives.sto"
TINY = [
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "backbone.inner=64", "tokenizer.size=500",
    "stages.short.length=64", "stages.short.batch=16", "stages.short.ramp=0", "stages.long.share=0", "stages.last.share=0",
    "optimizer.rate=1e-2",
]  # fmt: skip


def blocks() -> list[tuple[str, str]]:
    """Language and content of each block of the page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example, put where the page says; gives its recipe."""
    (_, code), (_, lines), (kind, text) = blocks()
    assert kind == "toml"
    module = ModuleType(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, NAME, module)
        exec(compile(code, "sto.py", "exec"), module.__dict__)
        exec(compile(lines, "__init__.py", "exec"), {})
        file = tmp_path_factory.mktemp("example") / "sto.toml"
        file.write_text(text, encoding="utf-8")
        yield file
    del CONFIGS["sto"], BUILDERS["sto"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "docs.txt"
    file.write_text("\n\n".join(text for _, text in documents(200_000)), encoding="utf-8")
    return file


def run(recipe: Path, text: Path, out: Path, seed: int = 0, save_steps: int = 0) -> Path:
    return pretrain(
        Wishes(
            str(recipe), [str(text)], out, size="tiny", steps=20, seed=seed, settings=TINY, device="cpu",
            save_steps=save_steps,
        )
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_example_learns(recipe: Path, text: Path, tmp_path: Path, seed: int) -> None:
    """Below log 2, where it starts, and on its way below that of a model which knows the share of moved tokens alone."""
    run(recipe, text, tmp_path / "run", seed)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["sto"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.05
    (held_out,) = [line["held_out"] for line in lines if line.get("step") == 20 and "held_out" in line]
    assert held_out["sto"] < 0.5
    assert held_out["sto_accuracy"] > 0.8


@pytest.mark.slow
def test_the_example_resumes(recipe: Path, text: Path, tmp_path: Path) -> None:
    """Its head, too, of which the checkpoint's own code has never heard."""
    run(recipe, text, tmp_path / "calm")
    with crash_while_saving(after=1):
        run(recipe, text, tmp_path / "broken", save_steps=8)
    run(recipe, text, tmp_path / "broken", save_steps=8)
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")


def test_the_example_moves_what_it_says(recipe: Path) -> None:
    torch.manual_seed(0)
    backbone = Encoder(EncoderConfig(5000, 16, 1, 2))
    objective = build({"sto": CONFIGS["sto"](rate=0.2)}, backbone, Vocab(5000, {}))
    lengths = torch.tensor([102, 52, 2, 1] * 8)
    real = torch.arange(102)[None] < lengths[:, None]
    ids = torch.randint(5, 5000, (32, 102)).masked_fill(~real, 0)
    batch = Batch(ids, lengths, keys=torch.arange(32) * 7919)
    found = objective.corrupt(batch)
    labels = found.targets["sto"].labels
    assert torch.equal(found.ids.sort(1).values, ids.sort(1).values)  # a permutation of each row
    assert torch.equal(labels == IGNORE, ~real)
    assert torch.equal(labels == 1, found.ids != ids)
    assert not (labels[:, 0] == 1).any()
    assert set((labels == 1).sum(1)[::4].tolist()) <= {19, 20}  # of 100; two equal tokens are rare
    again = objective.corrupt(Batch(ids[5:6], lengths[5:6], keys=batch.keys[5:6]))  # type: ignore[index]
    assert torch.equal(again.ids[0], found.ids[5])


def test_the_example_names_a_wrong_number(recipe: Path) -> None:
    assert resolve(str(recipe), size="tiny").objectives.keys() == {"sto"}
    with pytest.raises(SesameError, match=r"objectives\.sto\.rate is 2"):
        resolve(str(recipe), size="tiny", settings=["objectives.sto.rate=2.0"])
