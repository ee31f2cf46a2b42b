"""What holds for every training holds for recurrent ones: kill -9, accumulated gradients, the order of a batch's rows."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import command, kill_group, make_text, start, weights
from safetensors.torch import load_file

from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.pretraining.run import Wishes, pretrain
from tests.test_resume import finish, new_things, wait_for

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

SHAPES = {
    "awd-lstm": ("backbone.width=16", "backbone.cell=24", "backbone.depth=2"),
    "elmo": ("backbone.width=16", "backbone.cell=16", "backbone.filters=[[1, 8], [3, 8]]", "backbone.highways=1"),
}
ROWS = ("stages.main.length=32", "stages.main.batch=8", "tokenizer.size=400")
NO_LUCK = {  # masks of dropout differ between a batch and its parts
    "awd-lstm": tuple(f"backbone.{part}dropout=0" for part in ("", "input_", "layer_", "word_", "weight_")),
    "elmo": ("backbone.dropout=0",),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("recurrent") / "text.txt", 60)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["awd-lstm"])  # of ELMo a crash while saving is tested, in `test_elmo_recipe.py`
def test_killed_again_and_again_it_ends_with_the_weights_of_a_calm_run(recipe: str, text: Path, tmp_path: Path) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"

    def asked(out: Path) -> list[str]:
        return command(text, out, 24, 6, recipe, (*SHAPES[recipe], *ROWS))

    finish(asked(tmp_path / "calm"), cache, log)
    out, kills = tmp_path / "run", 0
    for moment in ("metrics.jsonl", "checkpoints/step-*", "checkpoints/.*.part"):
        happened = new_things(out, [moment, "final"])
        process = start(asked(out), cache, log)
        if wait_for(happened, process) and process.poll() is None:
            kill_group(process)
            kills += 1
    assert kills >= 2
    finish(asked(out), cache, log)
    assert weights(out) == weights(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SHAPES)
def test_accumulated_gradients_are_those_of_the_whole_batch(recipe: str, text: Path, tmp_path: Path) -> None:
    plain = ("optimizer.kind=sgd", "optimizer.rate=0.5", "optimizer.ema=0", "optimizer.clip=0.1")
    found = []
    for micro in (8, 2):
        settings = (*SHAPES[recipe], *ROWS, *NO_LUCK[recipe], *plain, f"stages.main.micro={micro}")
        more: dict[str, Any] = {"steps": 5, "device": "cpu", "precision": "fp32", "settings": settings}
        final = pretrain(Wishes(recipe, [str(text)], tmp_path / f"{micro}", **more))
        found.append(load_file(final / "model.safetensors"))
    whole, parts = found
    for name, tensor in whole.items():
        torch.testing.assert_close(
            parts[name], tensor, rtol=0, atol=2e-6, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.mark.parametrize("recipe", SHAPES)
def test_neither_order_nor_company_changes_an_answer(recipe: str, text: Path, tmp_path: Path) -> None:
    settings = (*SHAPES[recipe], *ROWS)
    final = pretrain(Wishes(recipe, [str(text)], tmp_path / "run", steps=1, device="cpu", settings=settings))
    model = load_parts(final).backbone.double().eval()
    lengths = torch.tensor([7, 3, 5, 1])
    ids = torch.randint(10, model.vocab, (4, 7), generator=torch.Generator().manual_seed(0))
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        whole, mixed = model(Batch(ids, lengths)).last, model(Batch(ids[order], lengths[order])).last
        for row, length in enumerate(lengths.tolist()):
            alone = model(Batch(ids[row : row + 1, :length], lengths[row : row + 1])).last
            torch.testing.assert_close(alone[0], whole[row, :length], rtol=0, atol=1e-12)
    for row, source in enumerate(order.tolist()):
        length = int(lengths[source])
        torch.testing.assert_close(mixed[row, :length], whole[source, :length], rtol=0, atol=1e-12)
