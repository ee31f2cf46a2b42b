"""From a language model of LSTMs to a classifier: ULMFiT's stages, Dai & Le's states, tags, the same after a crash."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sesame
from sesame.backbones import LSTM, CoVe, CoVeConfig, Encoded, LSTMConfig, RecurrentSeq2Seq
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch, Targets
from sesame.errors import SesameError
from sesame.finetuning.framing import open_start
from sesame.finetuning.run import Wishes as Teaching
from sesame.finetuning.run import finetune
from sesame.finetuning.transfer import resolve_transfer
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.tasks import TaskConfig, build_task
from sesame.train.schedule import Schedule
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = {"fruit": ("apple", "pear", "plum", "fig"), "metal": ("iron", "zinc", "lead", "tin")}
VERBS = {"fruit": ("ripens", "falls"), "metal": ("rusts", "melts")}
PLAIN = ("we", "have", "seen", "some", "old")
SMALL = (
    "backbone.width=24", "backbone.cell=32", "backbone.depth=2", "stages.main.length=24", "stages.main.batch=16",
    "stages.main.dropout=0.0", "optimizer.rate=2e-2", "optimizer.clip=1.0",
    "tokenizer.size=330",
)  # fmt: skip
QUICK = ("batch=16", "epochs=8", "least_steps=0", "rate_width=0", "optimizer.rate=2e-2")
OPEN = ("adapt.unfreeze=0.2", "adapt.layer_decay=0.9")  # 50 steps are too few for the paper's


def sentence(luck: random.Random, kind: str) -> str:
    """What a text is about is told by two words of it, and each tells the other: so a language model learns it."""
    words = [luck.choice(PLAIN) for _ in range(luck.randint(1, 4))]
    at = luck.randrange(len(words))
    return " ".join([*words[:at], luck.choice(KINDS[kind]), luck.choice(VERBS[kind]), *words[at:]])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, luck = tmp_path_factory.mktemp("texts"), random.Random(0)
    kinds = [luck.choice(list(KINDS)) for _ in range(700)]
    texts = [sentence(luck, kind) for kind in kinds]
    (folder / "text.txt").write_text("\n\n".join(texts[:500]))
    for name, part in (("train", slice(500, 600)), ("valid", slice(600, 700))):
        rows = [f"{text},{kind}\n" for text, kind in zip(texts[part], kinds[part], strict=True)]
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(rows))
    tagged = [
        "\n".join(f"{word} {'O' if word in PLAIN else 'B-X'}" for word in text.split()) for text in texts[500:600]
    ]
    (folder / "train.conll").write_text("\n\n".join(tagged) + "\n")
    return folder


def language_model(files: Path, out: Path, recipe: str = "ulmfit", *settings: str, **more: Any) -> Path:
    wanted = {
        "settings": (*SMALL, "tokenizer.kind=word", *settings),
        "steps": 200,
        "device": "cpu",
        "budget": None,
    } | more
    return pretrain(Wishes(recipe, [str(files / "text.txt")], out, size="tiny", **wanted))


@pytest.fixture(scope="module")
def start(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model(files, tmp_path_factory.mktemp("start") / "run")


def taught(start: Path, files: Path, out: Path, strategy: str, *settings: str, **more: Any) -> float:
    wanted = {"seeds": 1, "device": "cpu", "baselines": False, "settings": (*QUICK, *settings)} | more
    train, valid = str(files / "train.csv"), str(files / "valid.csv")
    finetune(Teaching(str(start), "classify", train, out, valid=valid, strategy=strategy, **wanted))
    results = json.loads((out / "results.json").read_text())
    return float(results["scores"]["valid"][results["metric"]]["mean"])


@pytest.mark.slow
def test_three_stages_and_a_crash_changes_nothing(start: Path, files: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"text": ["train"], "text_steps": 20, "save_steps": 20}
    assert taught(start, files, tmp_path / "calm", "ulmfit", *OPEN, **more) > 0.9
    with crash_while_saving(after=2):
        taught(start, files, tmp_path / "broken", "ulmfit", *OPEN, **more)
    taught(start, files, tmp_path / "broken", "ulmfit", *OPEN, **more)
    calm, broken = (load_parts(tmp_path / name / "final") for name in ("calm", "broken"))
    for name, tensor in calm.state().items():
        assert torch.equal(tensor, broken.state()[name]), name
    assert calm.tasks["classify"].config.pooling == "concat"
    adapted = load_parts(tmp_path / "calm" / "adapted" / "final")
    assert not torch.equal(adapted.backbone.token_table(), load_parts(start).backbone.token_table())
    assert set(adapted.heads) == {"lm"}


@pytest.mark.slow
def test_answers_do_not_depend_on_those_beside_them(start: Path, files: Path, tmp_path: Path) -> None:
    for strategy in ("ulmfit", "dai-le"):
        out = tmp_path / strategy
        assert taught(start, files, out, strategy, *(OPEN if strategy == "ulmfit" else ())) > 0.9
        model = sesame.load(out / "final")
        texts = [
            "some old iron rusts",
            "we have seen some old fig ripens we have seen some old old plum falls we have seen",
            "tin",
        ]
        together = [reply["probabilities"]["fruit"] for reply in model.predict(texts)]
        alone = [model.predict([text])[0]["probabilities"]["fruit"] for text in texts]
        np.testing.assert_allclose(together, alone, atol=1e-6)
        assert together[1] > 0.5 > together[0]


@pytest.mark.slow
def test_a_model_that_reads_from_the_end_learns_too(files: Path, tmp_path: Path) -> None:
    back = language_model(files, tmp_path / "run", "ulmfit-backward")
    parts = load_parts(back)
    assert isinstance(parts.backbone, LSTM)
    assert parts.backbone.config.backward
    assert taught(back, files, tmp_path / "taught", "ulmfit", *OPEN) > 0.9
    with pytest.raises(SesameError, match="left to right"):
        sesame.load(back).generate(["we have"])


def test_a_model_that_reads_forward_is_not_turned_around(files: Path, tmp_path: Path) -> None:
    """It went on forward, under a recipe's name that says otherwise."""
    forward = language_model(files, tmp_path / "forward", steps=1)
    wishes = Wishes("ulmfit-backward", [str(files / "text.txt")], tmp_path / "run", start=str(forward), device="cpu")
    with pytest.raises(SesameError, match="does not read from the end"):
        pretrain(wishes)


@pytest.mark.slow
def test_tags_and_frozen_features(start: Path, files: Path, tmp_path: Path) -> None:
    final = finetune(
        Teaching(
            str(start), "tag", str(files / "train.conll"), tmp_path / "tags", seeds=1, device="cpu", baselines=False,
            settings=QUICK,
        )
    )  # fmt: skip
    assert sesame.load(final).predict(["we have seen iron"])[0]["tags"] == ["O", "O", "O", "B-X"]
    learnt = language_model(files, tmp_path / "lm", steps=600)  # after 200 its states know little
    score = taught(learnt, files, tmp_path / "frozen", "frozen", "task.pooling=concat", "epochs=30")
    model, parts = sesame.load(tmp_path / "frozen" / "final"), load_parts(tmp_path / "frozen" / "final")
    rows = [line.rsplit(",", 1) for line in (files / "valid.csv").read_text().splitlines()[1:]]
    found = model.predict([text for text, _ in rows])
    right = [reply["label"] == label for reply, (_, label) in zip(found, rows, strict=True)]
    assert np.mean(right) == pytest.approx(score)  # the folder says what the training saw
    assert score > 0.9
    assert parts.unused == []
    for name, tensor in load_parts(learnt).backbone.state_dict().items():
        assert torch.equal(tensor, parts.backbone.state_dict()[name])


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_the_encoder_of_an_autoencoder_learns_a_task(reverse: str, files: Path, tmp_path: Path) -> None:
    settings = ("backbone.width=16", "tokenizer.size=300", "stages.main.length=32", f"stages.main.reverse={reverse}")
    lines = (files / "text.txt").read_text().split("\n\n")[:100]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    pairs = [f"aa-bb={tmp_path / 'lines.txt'}"] * 2
    again = pretrain(
        Wishes(
            "dai-le-autoencoder",
            [],
            tmp_path / "run",
            pairs=pairs,
            settings=settings,
            steps=4,
            device="cpu",
            size="tiny",
        )
    )
    parts, reader = load_parts(again), open_start(str(again))
    assert isinstance(parts.backbone, RecurrentSeq2Seq)
    assert reader.tokenizer is not None
    ids = torch.tensor([reader.tokenizer.encode("we have seen some iron", special=True).ids])
    assert isinstance(reader.backbone, CoVe if reverse == "true" else LSTM)  # as it was taught, [SEP] is read last
    order = [*range(ids.shape[1] - 2, -1, -1), ids.shape[1] - 1] if reverse == "true" else [*range(ids.shape[1])]
    batch = Batch(ids[:, order], torch.tensor([ids.shape[1]]), full=True)
    walked = parts.backbone.encoder.eval()(parts.backbone.tokens(batch.ids))
    states = reader.backbone.eval()(Batch(ids, batch.lengths, full=True)).last
    torch.testing.assert_close(states[0, :, -16:], walked.top[0, order])
    taught(again, files, tmp_path / "taught", "dai-le", "epochs=1")
    assert isinstance(load_parts(tmp_path / "taught" / "final").backbone, type(reader.backbone))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_poolings_are_their_formulas(seed: int, backward: bool) -> None:
    torch.manual_seed(seed)
    lstm = LSTM(LSTMConfig(50, 6, 1, 6, backward=backward))
    states, lengths = torch.randn(2, 5, 6), torch.tensor([5, 3])
    batch = Batch(torch.zeros(2, 5, dtype=torch.long), lengths).with_targets(
        classify=Targets(torch.zeros(2, dtype=torch.long), rows=torch.arange(2))
    )
    found = {
        pooling: build_task("classify", TaskConfig("classify", ("a", "b"), pooling=pooling), lstm).features(
            Encoded(batch, [states, states])
        )[0]
        for pooling in ("concat", "rising")
    }
    for row, size in enumerate(lengths.tolist()):
        here = states[row, :size]
        last = here[0] if backward else here[-1]
        torch.testing.assert_close(found["concat"][row], torch.cat([last, here.amax(0), here.mean(0)]))
        shares = torch.arange(1.0, size + 1) / size
        shares = shares.flip(0) if backward else shares
        torch.testing.assert_close(found["rising"][row], (shares[:, None] * here).sum(0) / shares.sum())


def test_what_was_read_last_counts_most_where_sources_are_turned() -> None:
    cove = CoVe(CoVeConfig(9, 3, 3, 1, bidirectional=False, reverse=True, front=1, back=1))
    states, lengths = torch.randn(2, 5, 6), torch.tensor([5, 4])
    batch = Batch(torch.zeros(2, 5, dtype=torch.long), lengths)
    task = build_task("classify", TaskConfig("classify", ("a", "b"), pooling="rising"), cove)
    found = task.features(Encoded(batch, [states, states]))[0]
    for row, read in enumerate(
        ([1, 4, 3, 2, 5], [1, 3, 2, 4])
    ):  # the ends stay, what is between them comes from behind
        shares = torch.tensor(read) / sum(read)
        torch.testing.assert_close(found[row], (shares[:, None] * states[row, : len(read)]).sum(0))


def test_the_numbers_of_the_paper() -> None:
    transfer = resolve_transfer("ulmfit")
    assert transfer.adapt.layer_decay == pytest.approx(1 / 2.6, abs=1e-4)
    steps, cut = 1000, 100

    def wanted(step: int) -> float:  # equation 3: cut_frac 0.1, ratio 32
        share = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / 0.1 - 1))
        return (1 + share * 31) / 32

    schedule: Schedule = transfer.schedule
    for step in (0, 50, 100, 250, 600, 999):
        assert schedule.factor(step / steps, step) == pytest.approx(wanted(step), abs=1e-9)
    for name in ("ulmfit", "ulmfit-backward", "dai-le", "adapt-lstm"):
        for budget in (False, True):
            assert resolve(name, size="base", budget=budget, device="cuda").backbone["kind"] == "lstm"
