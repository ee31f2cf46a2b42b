"""Many processes, as `torchrun` starts them, are equal to one; killed ones are in tests/test_many_kills.py."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kill_resume import make_text, weights
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining

from sesame.finetuning.run import Wishes as Lesson
from sesame.finetuning.run import finetune
from sesame.pretraining.run import Wishes, pretrain
from tests.many import EXACT, together, wish
from tests.tasks.toys import examples, start_folder, write_examples

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def furthest(one: Path, other: Path) -> float:
    """The largest difference of any weight."""
    ours, theirs = (load_file(run / "final" / "model.safetensors") for run in (one, other))
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def rewind(run: Path, to: Path, step: int) -> Path:
    """A copy of a finished run as it was after `step`."""
    shutil.copytree(run, to)
    shutil.rmtree(to / "final")
    for folder in (to / "checkpoints").iterdir():
        if int(folder.name[5:]) > step:
            shutil.rmtree(folder)
    assert (to / "checkpoints" / f"step-{step}").is_dir()
    return to


def test_2_and_4_processes_equal_one_and_any_number_goes_on(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt")

    def one(out: str, **more: Any) -> Path:
        pretrain(Wishes(**wish(text, tmp_path / out, **more)))
        return tmp_path / out

    alone, short = one("one"), one("short", steps=10)
    assert furthest(alone, short) > 1e-3  # so that what follows says something
    for processes in (4, 2):
        runs = [wish(text, tmp_path / f"{how}-{processes}", parallel=how) for how in ("ddp", "fsdp")]
        if processes == 2:
            part = rewind(tmp_path / "fsdp-4", tmp_path / "from-4-to-2", 10)
            runs.append(wish(text, part, parallel="fsdp", save_steps=5))
        said = together(processes, tmp_path, "pretrain", runs)
        assert said.count("done after 20 steps") == len(runs)  # rank 0 only
        assert f"{processes} processes, all weights on each" in said
        assert f"{processes} processes, a share of weights on each" in said
    assert "going on from step 10" in said
    for shares in ("fsdp-4", "from-4-to-2"):
        kept = tmp_path / shares / "checkpoints" / "step-20" / "train"
        assert (kept / "shards" / ".metadata").is_file()
        assert not (kept / "optimizer.safetensors").exists()
    assert (tmp_path / "ddp-4" / "checkpoints" / "step-20" / "model.safetensors").is_file()
    last = rewind(tmp_path / "from-4-to-2", tmp_path / "from-4-to-2-to-1", 15)
    pretrain(Wishes(**wish(text, last)))
    for other in ("ddp-2", "ddp-4", "fsdp-2", "fsdp-4", "from-4-to-2", "from-4-to-2-to-1"):
        assert furthest(alone, tmp_path / other) < 1e-5, other
        logged = [(run / "metrics.jsonl").read_text().splitlines() for run in (alone, tmp_path / other)]
        ours, theirs = ([json.loads(line) for line in lines] for lines in logged)
        assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], abs=1e-5)
        assert theirs[-2]["tokens"] == ours[-2]["tokens"]
    assert AutoModelForPreTraining.from_pretrained(tmp_path / "fsdp-4" / "final").config.num_hidden_layers == 1


def test_3_processes_share_batches_of_tokens(tmp_path: Path) -> None:
    """Some of these batches have fewer than three pairs, and three does not divide the recipe's rows, which are not used."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join("\t".join([" ".join("abcdefghij"[: 1 + row % 10])] * 2) + "\n" for row in range(40)))
    shape = ("backbone.width=16", "backbone.heads=2", "backbone.depth=1", "tokenizer.size=300", "stages.main.tokens=24")
    settings = [*shape, *EXACT, "optimizer.kind=sgd", "optimizer.rate=0.1"]
    more = {"recipe": "transformer", "text": [], "pairs": [f"en-xx={pairs}"], "size": "tiny", "settings": settings}
    runs = [wish(pairs, tmp_path / out, steps=12) | more for out in ("one", "three")]
    pretrain(Wishes(**runs[0]))
    assert "done after 12 steps" in together(3, tmp_path, "pretrain", runs[1:])
    assert furthest(tmp_path / "one", tmp_path / "three") < 1e-6


# ---- fine-tuning ------------------------------------------------------------------------------------------------------


def test_seeds_are_shared_and_come_out_as_in_one_process(tmp_path: Path) -> None:
    model = start_folder(tmp_path / "model", width=32, dropout=0.1)
    train, valid = (
        str(write_examples(tmp_path / f"{part}.csv", "classify", examples("classify", count, seed)))
        for part, count, seed in (("train", 48, 1), ("valid", 24, 2))
    )
    text = make_text(tmp_path / "text.txt", 40)
    settings = ["batch=8", "epochs=2", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3"]
    wishes = {
        "model": str(model), "task": "classify", "train": train, "valid": valid, "seeds": 3, "settings": settings,
        "device": "cpu", "precision": "fp32", "baselines": False,
    }  # fmt: skip
    finetune(Lesson(**wishes, out=tmp_path / "one"))  # type: ignore[arg-type]
    adapted = {**wishes, "out": tmp_path / "adapted", "seeds": 1, "text": [str(text)], "text_steps": 4}
    said = together(2, tmp_path, "finetune", [{**wishes, "out": tmp_path / "two"}, adapted])
    assert all(f"\nseed {seed}: valid accuracy" in said for seed in (0, 1, 2))
    assert said.count("the report;") == 2
    for place in ("seed-0", "seed-1", "seed-2", ""):
        assert weights(tmp_path / "one" / place) == weights(tmp_path / "two" / place)
    one, two = (json.loads((tmp_path / run / "results.json").read_text()) for run in ("one", "two"))
    assert one["scores"] == two["scores"]
    assert "2 processes, but 1 seeds" in said
    assert (tmp_path / "adapted" / "adapted" / "final" / "config.json").is_file()
    assert (tmp_path / "adapted" / "final" / "config.json").is_file()
