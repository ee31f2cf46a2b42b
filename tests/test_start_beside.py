"""Going on from an ELECTRA: the generator that stands beside it is taken too; and a rehearsal changes nothing."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.kill_resume import make_text

from sesame.checkpoint.loading import load_parts
from sesame.errors import SesameError
from sesame.opening import load
from sesame.pretraining.run import Wishes, pretrain

SHAPE = [
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "backbone.embedding_width=16", "tokenizer.size=300",
]  # fmt: skip
TINY = ["stages.main.length=32", "stages.main.batch=4", "objectives.rtd.patience=0"]


def wishes(folder: Path, out: str, start: Path | None = None, settings: tuple[str, ...] = (), **more: object) -> Wishes:
    size = None if start else "tiny"
    return Wishes(
        "electra", [str(folder / "text.txt")], folder / out, size=size, start=str(start) if start else None,
        settings=[*(() if start else SHAPE), *TINY, *settings], device="cpu", **{"steps": 4, **more},  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("beside")
    make_text(place / "text.txt", 60)
    pretrain(wishes(place, "first", settings=("optimizer.rate=1e-2",)))
    return place


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_parts(folder, tokenizer=False).state()


def test_the_generator_goes_on(folder: Path) -> None:
    """Steps that move nothing end with the weights of the start, of both networks."""
    still = ("optimizer.rate=1e-12", "optimizer.decay=0.0")
    pretrain(wishes(folder, "second", folder / "first", still))
    for part in ("", "generator"):
        before, after = weights(folder / "first" / "final" / part), weights(folder / "second" / "final" / part)
        assert before.keys() == after.keys()
        for name, tensor in before.items():
            assert torch.allclose(tensor, after[name], atol=1e-9), (part, name)


def test_a_generator_of_another_size_is_refused(folder: Path) -> None:
    with pytest.raises(SesameError, match="does not fit the generator of this recipe"):
        pretrain(wishes(folder, "third", folder / "first", ("objectives.rtd.generator_width=0.5",)))


def test_a_model_alone_is_taken_without(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = folder / "alone"
    alone.mkdir()
    for file in (folder / "first" / "final").iterdir():
        if file.is_file():
            (alone / file.name).write_bytes(file.read_bytes())
    pretrain(wishes(folder, "fourth", alone))
    assert "has no generator beside it" in "".join(capsys.readouterr())


def test_a_rehearsal_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain(wishes(folder, "rehearsed", settings=("optimizer.rate=1e-2",), rehearse=True))
    assert "beside the budget" in "".join(capsys.readouterr())
    before, after = weights(folder / "first" / "final"), weights(folder / "rehearsed" / "final")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_a_head_of_tokens_does_not_outlive_the_training_of_the_other(folder: Path) -> None:
    """Left as it was, it would fill masks from states that have moved away from it."""
    bert = Wishes(
        "bert-no-nsp", [str(folder / "text.txt")], folder / "masks", start=str(folder / "first"), device="cpu", steps=2,
        settings=["stages.short.length=32", "stages.short.batch=4", "stages.long.length=32", "stages.long.batch=4"],
    )  # fmt: skip
    pretrain(bert)
    assert set(load_parts(folder / "masks").heads) == {"mlm"}
    assert json.loads((folder / "masks/final/config.json").read_text())["architectures"] == ["ElectraForMaskedLM"]
    pretrain(wishes(folder, "replaced", folder / "masks"))
    assert set(load_parts(folder / "replaced").heads) == {"rtd"}
    with pytest.raises(SesameError, match="the generator beside it can"):
        load(folder / "replaced").fill("a [MASK]")
