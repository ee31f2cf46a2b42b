"""`sesame pretrain elmo`: a crash changes nothing, the folder opens again, its layers are features of a tagger."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.kill_resume import make_text, weights

import sesame
from sesame.backbones import BiLM
from sesame.checkpoint.loading import load_parts
from sesame.finetuning.run import Wishes as Teaching
from sesame.finetuning.run import finetune
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from tests.crashes import crash_while_saving

SETTINGS = (
    "backbone.width=16", "backbone.cell=16", "backbone.filters=[[1, 8], [3, 8]]", "backbone.highways=1",
    "stages.main.length=32", "stages.main.batch=8", "tokenizer.size=400",
)  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text(tmp_path_factory.mktemp("elmo") / "text.txt", 40)


def run(text: Path, out: Path, *settings: str, **more: Any) -> Path:
    wanted: dict[str, Any] = {"settings": (*SETTINGS, *settings), "steps": 8, "save_steps": 3, "device": "cpu"} | more
    return pretrain(Wishes("elmo", [str(text)], out, **wanted))


@pytest.mark.slow
@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_a_run_that_crashed_goes_on_to_the_same_weights(softmax: str, text: Path, tmp_path: Path) -> None:
    setting = f"objectives.bilm.softmax={softmax}"
    final = run(text, tmp_path / "calm", setting)
    with crash_while_saving(after=1):
        run(text, tmp_path / "broken", setting)
    run(text, tmp_path / "broken", setting)
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
    parts = load_parts(final)
    assert isinstance(parts.backbone, BiLM)
    assert set(parts.heads) == {"bilm" if softmax == "full" else "bilm_adaptive"}
    assert parts.unused == []
    run(text, tmp_path / "further", setting, start=str(final), steps=4)


@pytest.mark.slow
def test_vectors_of_all_layers_and_a_tagger_on_their_mix(text: Path, tmp_path: Path) -> None:
    final = run(text, tmp_path / "run")
    model = sesame.load(final)
    first, last = (model.embed(["Bado nulu xyzzy.", "Nulu"], layers=layers) for layers in ("first", "last"))
    assert first.shape == last.shape == (2, 16)
    assert not np.allclose(first, last)
    encoding, states = model.embed_tokens("xyzzy", "0")
    assert len(encoding.ids) > 4  # nobody knows the word: it is spelled
    np.testing.assert_allclose(states[0, :8], states[0, 8:])  # the char-CNN twice
    _, other = model.embed_tokens("xyzza", "0")
    assert not np.allclose(states[1], other[1])
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines()[:60] if line]
    tagged = ["\n".join(f"{word} {'B-N' if word[0] == 'b' else 'O'}" for word in line) for line in lines]
    (tmp_path / "train.conll").write_text("\n\n".join(tagged) + "\n", encoding="utf-8")
    taught = finetune(
        Teaching(
            str(final), "tag", str(tmp_path / "train.conll"), tmp_path / "tags", strategy="frozen", seeds=1,
            settings=("task.layers=mix", "least_steps=40", "class_steps=0", "epochs=1"), device="cpu",
        )
    )  # fmt: skip
    mix = load_parts(taught).heads["tag.mix"]
    assert {name: tuple(p.shape) for name, p in mix.named_parameters()} == {"scores": (3,), "scale": (1,)}
    assert mix.get_parameter("scale").item() != 1.0  # γ was learnt
    assert sesame.load(taught).predict(["bado nulu"])[0]["tags"]


def test_sizes_resolve() -> None:
    for size in ("tiny", "mini", "small", "medium", "base"):
        for budget in (False, True):
            found = resolve("elmo", size=size, budget=budget, device="cuda")
            assert found.backbone["kind"] == "bilm"
    base = resolve("elmo", size="base")
    assert sum(count for _, count in base.backbone["filters"]) == 2048
    assert (base.backbone["cell"], base.backbone["width"]) == (4096, 1024)
