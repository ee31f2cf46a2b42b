"""Many texts at once, sorted and side by side, are answered as each one alone; fewer bits are watched."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sesame
from sesame import fewer_bits
from sesame.backbones.fast import FastEncoder
from sesame.checkpoint.folder import Parts
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.loaded import Loaded
from sesame.objectives import MaskedLMHead
from sesame.tasks import TaskConfig, build_task
from sesame.tasks.embed_windows import windows_of
from sesame.tasks.fill import Filled
from sesame.tasks.streams import LEAST, TOKENS, even, side_by_side
from tests.tasks.toys import GOOD, PLAIN, encoder, noise, start_folder, toy_tokenizer

WORDS = [*PLAIN, *GOOD]
KINDS: dict[str, TaskConfig] = {
    "classify": TaskConfig("classify", ("a", "b", "c")),
    "classify mean": TaskConfig("classify", ("a", "b", "c"), pooling="mean", layers="sum-last-4"),
    "multi": TaskConfig("classify", ("a", "b"), multi=True, pooling="cls", layers="1"),
    "windows": TaskConfig("classify", ("a", "b"), pooling="max", length=12),
    "regress": TaskConfig("regress", layers="mix"),
    "tag": TaskConfig("tag", ("O", "B-x", "I-x")),
    "qa": TaskConfig("qa"),
    "choice": TaskConfig("choice"),
}


def texts(count: int = 30) -> list[str]:
    """Of 1 to 24 words, in no order."""
    return [" ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(1 + i * 11 % 24)) for i in range(count)]


def examples(kind: str) -> list[Example]:
    given = texts()
    if kind == "choice":
        return [Example(f"row {i}", t, options=tuple(given[i % 3 : i % 3 + 2 + i % 3])) for i, t in enumerate(given)]
    return [Example(f"row {i}", t, "who w1" if kind == "qa" else None) for i, t in enumerate(given)]


def model(config: TaskConfig | None = None, **wishes: Any) -> Loaded:
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer), width=32, depth=3, max_length=64, init=0.2)
    head = MaskedLMHead(32, 32, len(tokenizer), "gelu", 1e-12)
    noise(head, 5)
    parts = Parts(backbone.eval(), {"mlm": head.eval()}, tokenizer)
    if config is not None:
        task = build_task(config.kind, config, backbone, 0.0)
        noise(task, 3)
        parts.tasks = {config.kind: task.eval()}
    return Loaded(parts, Path("toy"), **wishes)


def flat(reply: Any) -> list[Any]:
    """All numbers and names of an answer, in order."""
    if isinstance(reply, dict):
        return [each for key in sorted(reply) for each in flat(reply[key])]
    return [each for part in reply for each in flat(part)] if isinstance(reply, list | tuple) else [reply]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", KINDS)
def test_together_as_alone_and_as_the_plain_encoder(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    loaded = model(KINDS[name])
    given = examples(KINDS[name].kind)
    together = loaded.predict(given)
    alone = [loaded.predict([example])[0] for example in given]
    loaded.fast.clear()
    monkeypatch.setattr(Loaded, "_computer", lambda self, *_: self.parts.backbone)
    plain = loaded.predict(given)
    for a, b, c in zip(together, alone, plain, strict=True):
        assert flat(a) == pytest.approx(flat(b), abs=1e-5)
        assert flat(a) == pytest.approx(flat(c), abs=1e-5)
    assert len({str(flat(each)) for each in together}) > 10, "answers that are all alike show no order"


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
@pytest.mark.parametrize("layers", ["last", "sum-last-4", "0"])
def test_vectors_together_as_alone(layers: str, pooling: str) -> None:
    loaded = model()
    given = [*texts(), " ".join(WORDS * 4)]  # the last one needs windows
    together = loaded.embed(given, layers, pooling)
    alone = np.concatenate([loaded.embed(text, layers, pooling) for text in given])
    assert np.abs(together - alone).max() < 1e-5
    whole = loaded.embed_tokens(given[5], layers)[1]
    pooled = {"mean": whole.mean(0), "max": whole.max(0), "cls": whole[0]}[pooling]
    assert np.abs(together[5] - pooled).max() < 1e-5


def test_masks_together_as_alone() -> None:
    loaded = model()
    given = [f"{text} [MASK] w1" + " [MASK]" * (i % 3) for i, text in enumerate(texts())]
    together = loaded.fill(given, 3)
    assert [len(masks) for masks in together] == [1 + i % 3 for i in range(30)]
    for masks, text in zip(together, given, strict=True):
        for a, b in zip(masks, loaded.fill(text, 3)[0], strict=True):
            assert (a.start, a.end, a.tokens) == (b.start, b.end, b.tokens)
            assert a.probabilities == pytest.approx(b.probabilities, abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fewer_bits_say_how_they_agree(precision: Any, capsys: pytest.CaptureFixture[str]) -> None:
    loaded, exact = model(precision=precision), model()
    a, b = loaded.embed(texts()), exact.embed(texts())
    assert 0 < np.abs(a - b).max() < 0.2
    assert fewer_bits.of_vectors(a, b).share > 0.99
    said = capsys.readouterr().err
    assert f"{precision} against fp32 on 30 texts: Spearman 0.99" in said or "Spearman 1.0000" in said
    loaded.embed(texts(3))
    assert not capsys.readouterr().err, "one comparison is enough"


def test_too_little_agreement_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plain = FastEncoder.__call__

    def worse(self: FastEncoder, *given: Any, **more: Any) -> Any:
        found = plain(self, *given, **more)
        if self.precision == "int8":
            noisy = torch.randn(found.last.shape, generator=torch.Generator().manual_seed(0))
            return replace(found, layers=(*found.layers[:-1], noisy))
        return found

    monkeypatch.setattr(FastEncoder, "__call__", worse)
    with pytest.raises(SesameError, match=r"int8 against fp32 on 30 texts: Spearman .*--precision fp32, or --accept"):
        model(precision="int8").embed(texts(30))
    with pytest.raises(SesameError, match=r"of labels equal, a probability changes by .*97%"):
        model(KINDS["classify"], precision="int8").predict(texts())
    assert model(precision="int8", accept=True).embed(texts()).shape == (30, 32)
    assert "int8 against fp32" in capsys.readouterr().err


@pytest.mark.parametrize("name", KINDS)
def test_every_task_can_be_compared(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two texts are too few: sentences that lie in the package join them."""
    kind = KINDS[name].kind
    loaded = model(KINDS[name], precision="int8", accept=True)
    assert len(loaded.predict(examples(kind)[:2])) == 2
    assert f"int8 against fp32 on {1 + len(fewer_bits.ENGLISH)} texts" in capsys.readouterr().err


def test_agreement_counts() -> None:
    replies = [{"label": name, "probabilities": {"a": p, "b": 1 - p}} for name, p in (("a", 0.9), ("b", 0.2))]
    others = [
        {"label": "a", "probabilities": {"a": 0.8, "b": 0.2}},
        {"label": "a", "probabilities": {"a": 0.6, "b": 0.4}},
    ]
    found = fewer_bits.of_replies(replies, others)
    assert (found.share, round(found.change or 0, 6)) == (0.5, 0.4)
    masks = [[Filled(0, 1, ["x", "y"], [0.6, 0.3])]]
    assert fewer_bits.of_masks(masks, [[Filled(0, 1, ["y", "x"], [0.5, 0.4])]]).share == 0.0
    assert fewer_bits.of_replies([{"value": v} for v in (1, 2, 3)], [{"value": v} for v in (1, 5, 9)]).share == 1.0
    assert fewer_bits.spread(range(1000), 4) == [0, 250, 500, 750]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=200), st.integers(1, 8))
def test_groups_hold_all_texts_in_even_shares(lengths: list[int], cores: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: cores)
        groups = even(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    assert len(groups) == 1 or sum(lengths) >= LEAST * len(groups)
    sizes = [sum(lengths[index] for index in group) for group in groups]
    assert max(sizes) <= min(TOKENS, sum(lengths)) + max(lengths) or len(groups) == len(lengths)
    inside = [[lengths[index] for index in group] for group in groups]
    assert [length for group in inside for length in group] == sorted(lengths), "rows of one length stand together"


def test_streams_do_all_and_tell_what_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert even([10]) == [[0]]
    assert [len(group) for group in even([200] * 4)] == [1] * 4
    done: list[int] = []
    side_by_side(done.append, range(50))
    assert sorted(done) == list(range(50))
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda part: done.append(1 // part), range(3))
    monkeypatch.undo()
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [
        ({"precision": "int9"}, "int8"),
        ({"engine": "troch"}, "torch"),
    ],
)
def test_bad_wishes_are_one_sentence(tmp_path: Path, wishes: dict[str, str], parts: str) -> None:
    folder = start_folder(tmp_path / "start")
    with pytest.raises(SesameError, match=parts):
        sesame.load(folder, "cpu", **wishes)  # type: ignore[arg-type]


def test_a_slow_wish_is_granted_but_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sesame.opening.cpu_has", lambda what: False)
    loaded = sesame.load(start_folder(tmp_path / "start"), "cpu", precision="bf16", accept=True)
    assert "fp32 is faster here" in capsys.readouterr().err
    assert loaded.embed("w1 w2").shape == (1, 16)


def test_windows_of_a_text_that_begins_like_the_template() -> None:
    """The class token of the text was taken for the template's: no window had its own, and each had a word too many."""
    loaded = model()
    text = "[CLS] " + " ".join(WORDS[at % len(WORDS)] for at in range(200))
    (windows,) = windows_of(loaded.tokenizer, [text], loaded.limit)
    cls, sep = loaded.tokenizer.id("cls"), loaded.tokenizer.id("sep")
    assert len(windows) > 2
    assert all((window.ids[0], window.ids[-1]) == (cls, sep) for window in windows)
    assert [id for window in windows for id in window.ids[1:-1]] == loaded.tokenizer.encode(text).ids
