"""Answers by prompts: in languages whose right answer is known, and by formulas worked out by hand."""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sesame.backbones import Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech, speaker
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.evaluate.shots import draw, few_shot
from sesame.generate import Heard, judge
from sesame.objectives.decoder_head import DecoderHead
from sesame.pretraining.run import Wishes, pretrain
from sesame.tasks.prompt import Prompter, Template, answered, words_of
from sesame.tasks.speak import Voice
from tests.languages import word_tokenizer

SEP = 3
WORDS = ["sun", "rain", "fog", "good", "bad", "very", "Answer:", "It", "was", "end", "N/A"]
TOKENIZER = word_tokenizer(WORDS)
ID = {word: id for id, word in enumerate(TOKENIZER.tokens())}
Think = Callable[[list[int]], dict[str, float]]
"""What was read -> logits of some words; all others have 0."""


@dataclass(frozen=True)
class Read:
    rows: list[list[int]]

    def select(self, rows: Tensor) -> "Read":
        return Read([self.rows[row] for row in rows.flatten().tolist()])


@dataclass(frozen=True)
class Thinker:
    """A speaker whose logits are a function of all that it has read."""

    think: Think
    vocab: int = len(TOKENIZER)

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        return self._hear([row[:size] for row, size in zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)])

    def next(self, ids: Tensor, memory: Any, looks: bool = False) -> Heard:
        return self._hear([[*row, id] for row, id in zip(memory.rows, ids.tolist(), strict=True)])

    def _hear(self, rows: list[list[int]]) -> Heard:
        logits = torch.zeros(len(rows), self.vocab, dtype=torch.float64)
        for row, ids in enumerate(rows):
            for word, logit in self.think(ids).items():
                logits[row, ID[word]] = logit
        return Heard(logits, Read(rows))


def prompter(
    think: Think, template: str = "{text} Answer: {label}", by: Any = "sum", longest: int | None = None
) -> Prompter:
    voice, device = Voice(end=(SEP,)), torch.device("cpu")
    return Prompter(Thinker(think), TOKENIZER, voice, longest, device, Template(template), by)


def examples(*texts: str, labels: Sequence[str | None] = ()) -> list[Example]:
    both = zip(texts, labels or [None] * len(texts), strict=True)
    return [Example(f"row {number}", text, label=label) for number, (text, label) in enumerate(both, 1)]


def test_a_template_says_what_stands_where() -> None:
    template, row = Template("{text} / {pair}\nIt was {label}."), Example("", "a {b}", "c")
    assert template.before(row) == "a {b} / c\nIt was"
    assert template.answer("good") == " good."
    assert template.whole(row, "good") == "a {b} / c\nIt was good."
    assert template.domain() == "It was"
    assert Template("{{{text}}} {label}").before(row) == "{a {b}}"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("{text}", "must hold {label} once"),
        ("{text!r} {label}", "a field stands as it is; write {text}"),
        ("{label} {label}", "must hold {label} once"),
        ("{txt} {label}", "did you mean 'text'"),
        ("{text {label}", "double a brace"),
    ],
)
def test_a_template_that_makes_no_sense(pattern: str, why: str) -> None:
    with pytest.raises(SesameError, match=why):
        Template(pattern)


def test_the_bayes_classifier_is_found_again() -> None:
    """p(label | words) by Bayes' rule: scores are its log-probabilities, to the constant of all other tokens."""
    told = {"sun": 1.3, "rain": -0.9, "fog": -0.2}

    def think(ids: list[int]) -> dict[str, float]:
        weight = sum(told.get(TOKENIZER.token(id), 0.0) for id in ids)
        return {"good": 5 + weight / 2, "bad": 5 - weight / 2}

    rows = examples("sun sun rain", "rain fog", "fog", "sun", "rain sun sun fog fog")
    found = prompter(think).choose(rows, [["good", "bad"]] * len(rows))
    for row, (good, bad) in zip(rows, found, strict=True):
        weight = sum(told[word] for word in row.text.split())
        assert good - bad == pytest.approx(weight)
        others = len(TOKENIZER) - 2
        total = math.log(math.exp(5 + weight / 2) + math.exp(5 - weight / 2) + others)
        assert good == pytest.approx(5 + weight / 2 - total)


def test_long_words_are_not_punished_by_the_mean() -> None:
    def think(ids: list[int]) -> dict[str, float]:
        return {"good": 9.0} if ids[-1] == ID["very"] else {"very": 2.0, "bad": 2.0}

    [by_sum] = prompter(think).choose(examples("sun"), [["very good", "bad"]])
    [by_mean] = prompter(think, by="mean").choose(examples("sun"), [["very good", "bad"]])
    assert by_sum[0] < by_sum[1]
    assert by_mean == pytest.approx([by_sum[0] / 2, by_sum[1]])
    assert by_mean[0] > by_mean[1]


def test_calibration_takes_a_bias_away() -> None:
    """q(w | x) / mean of q(w | no content): by hand, and what is right wins though the model prefers "bad"."""

    def logits(ids: list[int]) -> dict[str, float]:
        empty = 0.3 if ID["N/A"] in ids else 0.0
        return {"bad": 4.0 + empty, "good": 2.0 + (1.5 if ID["sun"] in ids else 0.0)}

    rows = examples("sun", "rain")
    plain = prompter(logits).choose(rows, [["good", "bad"]] * 2)
    assert [row[0] > row[1] for row in plain] == [False, False]
    found = prompter(logits, by="calibrated").choose(rows, [["good", "bad"]] * 2)
    assert found[0][0] > found[0][1]

    def q(good: float, bad: float) -> list[float]:
        return [math.exp(x) / (math.exp(good) + math.exp(bad)) for x in (good, bad)]

    base = [sum(shares) / 3 for shares in zip(q(2.0, 4.3), q(2.0, 4.0), q(2.0, 4.0), strict=True)]
    for row, own in zip(found, (q(3.5, 4.0), q(2.0, 4.0)), strict=True):
        assert row == pytest.approx([math.log(a / b) for a, b in zip(own, base, strict=True)])


def test_pmi_asks_what_the_template_says_by_itself() -> None:
    def logits(ids: list[int]) -> dict[str, float]:
        return {"bad": 4.0, "good": 2.0 + (1.0 if ID["sun"] in ids else 0.0)}

    found = prompter(logits, "{text} It was {label}", "pmi").choose(examples("sun", "rain"), [["good", "bad"]] * 2)
    bare = [
        prompter(logits, "{text} It was {label}").choose(examples(text), [["good", "bad"]])[0] for text in ("sun", "")
    ]
    assert found[0] == pytest.approx([a - b for a, b in zip(*bare, strict=True)])
    assert found[0][0] > found[0][1]
    assert found[1] == pytest.approx([0.0, 0.0])
    with pytest.raises(SesameError, match="pmi needs words before"):
        prompter(logits, "{text} {label}", "pmi")


def in_context(ids: list[int]) -> dict[str, float]:
    """Says what followed the same first word before, and knows nothing else."""
    sentences, here = [], list[int]()
    for id in ids:
        here.append(id)
        if id in (ID["good"], ID["bad"]):
            sentences.append(here)
            here = []
    known = {sentence[0]: TOKENIZER.token(sentence[-1]) for sentence in sentences}
    return {known[here[0]]: 5.0} if here and here[0] in known else {}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shots_show_what_is_wanted(seed: int) -> None:
    """A model that only copies from its shots answers by chance without them, and always right with one of each kind."""
    luck = torch.Generator().manual_seed(seed)
    texts = ["sun" if bit else "rain" for bit in torch.randint(0, 2, (30,), generator=luck).tolist()]
    rows = examples(*texts, labels=["bad" if text == "sun" else "good" for text in texts])
    asked = prompter(in_context)
    shots = [answered(asked.template, rows[row], rows[row].label) for row in draw(rows, 2, seed)]
    assert len(shots) == 2
    options = [["good", "bad"]] * len(rows)
    assert all(good == bad for good, bad in asked.choose(rows, options))
    for row, (good, bad) in zip(rows, asked.choose(rows, options, shots), strict=True):
        assert ("good" if good > bad else "bad") == row.label


def test_shots_are_drawn_evenly_and_grow() -> None:
    rows = examples(*"abcdefghijkl", labels=["x"] * 8 + ["y"] * 3 + ["z"])
    orders = set()
    for seed in range(6):
        for k in (0, 1, 2, 3, 6, 12):
            chosen = draw(rows, k, seed)
            assert len(set(chosen)) == len(chosen) == k
            counts = Counter(rows[row].label for row in chosen)
            if k == 6:
                assert counts == {"x": 3, "y": 2, "z": 1} or counts == {"x": 2, "y": 3, "z": 1}
            if k == 3:
                assert set(counts.values()) == {1}
                assert set(chosen) <= set(draw(rows, 6, seed))
                orders.add(tuple(chosen))
        assert draw(rows, 6, seed) == draw(rows, 6, seed)
    assert len(orders) > 1
    with pytest.raises(SesameError, match="only 12 rows"):
        draw(rows, 13, 0)


def test_what_does_not_fit_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[list[int]] = []

    def think(ids: list[int]) -> dict[str, float]:
        seen.append(ids)
        return {}

    asked = prompter(think, longest=8)
    asked.choose(examples("sun", "rain " * 9), [["good"]] * 2, ["fog Answer: bad", "sun Answer: good"])
    said = capsys.readouterr().err
    assert "2 of 2 prompts do not fit the model's 8 tokens with 2 shots" in said
    assert "1 of 2 texts do not fit" in said
    wanted = ["sun Answer: good sun Answer:", "rain rain rain rain rain rain Answer:"]
    assert sorted(seen) == sorted([ID[word] for word in text.split()] for text in wanted)
    with pytest.raises(SesameError, match="leaves no room"):
        prompter(think, longest=1).choose(examples("sun"), [["good"]])


@pytest.mark.parametrize("reverse", [False, True])
def test_sources_keep_their_first_token_and_are_read_as_in_training(reverse: bool) -> None:
    seen: list[list[int]] = []
    voice, template = Voice((SEP,), (SEP,), reverse=reverse), Template("{text} Answer: {label}")
    thinker = Thinker(lambda ids: seen.append(ids) or {})  # type: ignore[func-returns-value]
    asked = Prompter(thinker, TOKENIZER, voice, 6, torch.device("cpu"), template)
    asked.choose(examples("sun rain", "fog fog fog rain sun"), [["good"]] * 2)
    for text in ("sun rain Answer:", "fog rain sun Answer:"):
        ids = [ID[word] for word in text.split()]
        assert [ID["[CLS]"], *(ids[::-1] if reverse else ids), SEP] in seen


def test_an_answer_is_told_up_to_its_line() -> None:
    def think(ids: list[int]) -> dict[str, float]:
        return {"fog": 3.0} if ids[-1] == ID["Answer:"] else {"rain": 3.0} if ids[-1] == ID["fog"] else {}

    found = prompter(lambda ids: think(ids) or {"[SEP]": 3.0}).tell(examples("sun", "sun sun"), [], 5)
    assert found == ["fog rain", "fog rain"]


def test_words_stand_for_labels() -> None:
    assert words_of(["a", "b"], {"b": "bad"}) == {"a": "a", "b": "bad"}
    for given, why in (({"c": "x"}, "unknown label 'c'"), ({"a": "b"}, "two labels")):
        with pytest.raises(SesameError, match=why):
            words_of(["a", "b"], given)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_encoder_decoder_answers_its_source(seed: int) -> None:
    """The prompt is its source, the word and the end token what it would say."""
    torch.manual_seed(seed)
    backbone = EncoderDecoder(EncoderDecoderConfig(len(TOKENIZER), 16, 1, 2, init=0.3)).double().eval()
    parts = Parts(
        backbone, {"seq2seq": DecoderHead(16, len(TOKENIZER)).double()}, TOKENIZER, speech=Speech((2,), (SEP,), 0)
    )
    voice, template = Voice((SEP,), (2,)), Template("{text} Answer: {label}")
    asked = Prompter(speaker(parts), TOKENIZER, voice, 64, torch.device("cpu"), template, "sum")
    rows = examples("sun", "rain fog fog")
    found = asked.choose(rows, [["good", "very bad"], ["bad", "good"]])
    for row, scores, words in zip(rows, found, (["good", "very bad"], ["bad", "good"]), strict=True):
        ids = torch.tensor([TOKENIZER.encode(f"{row.text} Answer:", special=True).ids])
        source = Batch(ids, torch.tensor([ids.shape[1]]), outputs=torch.tensor([[2]]), full=True)
        [wanted] = judge(speaker(parts), source, [[TOKENIZER.encode(word).ids for word in words]], SEP)
        assert scores == pytest.approx([one.logprob for one in wanted])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A GPT of random weights."""
    torch.manual_seed(0)
    config = EncoderConfig(len(TOKENIZER), 16, 1, 2, max_length=40, causal=True, segments=0, order="pre", eps=1e-5)
    folder = tmp_path / "model"
    folder.mkdir()
    parts = Parts(Encoder(config), {"lm": DecoderHead(16, len(TOKENIZER))}, TOKENIZER, speech=Speech((), (SEP,), 0))
    save_parts(folder, parts)
    return folder


def labelled(path: Path, rows: int) -> Path:
    lines = ["text,label"] + [f"{('sun', 'rain', 'fog')[n % 3]} {'very ' * (n % 4)},{'ab'[n % 2]}" for n in range(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_scores_over_seeds(model: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "rows.csv", 40)
    more: dict[str, Any] = {"template": "{text} Answer: {label}", "words": {"a": "good", "b": "bad"}, "device": "cpu"}
    found = few_shot(str(model), str(data), shots=[0, 4], seeds=3, **more)
    zero, four = found["results"]
    assert (zero["seeds"], zero["std"], four["seeds"], four["shots"]) == (1, None, 3, 4)
    assert found["rows"] == 40 - len({row for seed in range(3) for row in draw_of(data, 4, seed)})
    assert four["least"] <= four["mean"] <= four["most"]
    apart = few_shot(str(model), str(data), shots=[4], seeds=2, train=str(labelled(tmp_path / "train.csv", 12)), **more)
    assert apart["rows"] == 40
    assert json.dumps(apart)
    for by in ("mean", "calibrated", "pmi"):
        assert few_shot(str(model), str(data), by=by, **more)["rows"] == 40


def draw_of(data: Path, k: int, seed: int) -> list[int]:
    rows = [line.rsplit(",", 1) for line in data.read_text(encoding="utf-8").splitlines()[1:]]
    return draw([Example("", text, label=label) for text, label in rows], k, seed)


def test_questions_and_choices(model: Path, tmp_path: Path) -> None:
    asked = {"context": "sun was good", "question": "very", "answers": {"text": ["sun"], "answer_start": [0]}}
    (tmp_path / "qa.jsonl").write_text((json.dumps(asked) + "\n") * 3, encoding="utf-8")
    found = few_shot(str(model), str(tmp_path / "qa.jsonl"), kind="qa", shots=[0, 1], seeds=2, device="cpu")
    assert 0 <= found["results"][0]["mean"] <= 1
    choice = {"text": "sun was", "options": ["good", "bad"], "label": 1}
    (tmp_path / "choice.jsonl").write_text((json.dumps(choice) + "\n") * 3, encoding="utf-8")
    found = few_shot(str(model), str(tmp_path / "choice.jsonl"), kind="choice", by="mean", device="cpu")
    assert found["results"][0]["mean"] in (0.0, 1.0)
    for kind, more, why in (
        ("tag", {}, "prompts are for"),
        ("choice", {"words": {"a": "b"}}, "no labels to put into words"),
        ("choice", {"shots": [-1]}, "numbers from 0 on"),
        ("choice", {"shots": [3]}, "none is left to score"),
    ):
        with pytest.raises(SesameError, match=why):
            few_shot(str(model), str(tmp_path / "choice.jsonl"), kind=kind, **more, device="cpu")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_read_is_answered_without_teaching(seed: int, tmp_path: Path) -> None:
    """Each document names two things of one kind and then the kind. Whoever has read many knows unseen pairs."""
    luck = torch.Generator().manual_seed(seed)
    kinds = {"fruit": [f"f{a}" for a in "abcdefgh"], "stone": [f"s{a}" for a in "abcdefgh"]}

    def row(kind: str) -> str:
        one, other = torch.randint(0, 8, (2,), generator=luck).tolist()
        return f"{kinds[kind][one]} and {kinds[kind][other]}"

    documents = [f"{row(kind)} are {kind}" for _ in range(1500) for kind in kinds]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    wishes = Wishes(
        "gpt2", [str(tmp_path / "text.txt")], tmp_path / "run", steps=130, seed=seed, device="cpu",
        settings=(
            "backbone.width=64", "backbone.depth=2", "backbone.heads=2", "backbone.max_length=64", "backbone.dropout=0.0",
            "backbone.attention_dropout=0.0", "stages.main.length=64", "stages.main.batch=8", "tokenizer.size=330",
            "optimizer.kind=muon", "optimizer.rate=5e-3", "schedule.warmup=0.1",
        ),
    )  # fmt: skip
    final = pretrain(wishes)
    lines = [f"{row(kind)},{number}" for _ in range(20) for number, kind in enumerate(kinds)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    more: dict[str, Any] = {"template": "{text} are {label}", "words": dict(zip("01", kinds, strict=True))}
    for by in ("sum", "calibrated"):
        found = few_shot(str(final), str(tmp_path / "rows.csv"), by=by, device="cpu", **more)
        assert found["results"][0]["mean"] > 0.9
