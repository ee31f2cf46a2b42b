"""Several models that answer as one: classifiers by the mean of their probabilities, translators token by token."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import sesame
from sesame.backbones import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.speech import Speech
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.judge import judge
from sesame.evaluate.spoken import judge_answers
from sesame.objectives.decoder_head import DecoderHead
from sesame.tasks import TaskConfig, build_task
from sesame.text.template import framed
from tests.cli.calling import Cli
from tests.languages import word_tokenizer
from tests.tasks.toys import encoder, toy_tokenizer, write_csv

TEXTS = ["w1 alpha", "w2 w3", "w5 alpha alpha w1", "w4", "alpha", "w3 w3 w3 w2"]
END = 3


def classifier(place: Path, seed: int, labels: tuple[str, ...] = ("good", "bad", "so"), kind: str = "classify") -> str:
    """With weights of its own, so that models disagree."""
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer), seed)
    task = build_task("mood", TaskConfig(kind, labels if kind == "classify" else (), pooling="mean"), backbone)
    with torch.no_grad():
        backbone.token_table().normal_(0.0, 3.0)
        for weight in task.parameters():
            weight.normal_(0.0, 0.6)
    place.mkdir()
    save_parts(place, Parts(backbone, task.heads(), tokenizer, tasks={"mood": task}))
    return str(place)


def test_classifiers_answer_by_the_mean_of_their_probabilities(cli: Cli, tmp_path: Path) -> None:
    folders = [classifier(tmp_path / name, seed, labels) for name, seed, labels in (
        ("a", 1, ("good", "bad", "so")), ("b", 2, ("so", "good", "bad")), ("c", 3, ("good", "bad", "so")),
    )]  # fmt: skip
    models = [sesame.load(folder, "cpu") for folder in folders]
    each = [model.predict(TEXTS) for model in models]
    found = models[0].predict(TEXTS, beside=models[1:])
    names = ("good", "bad", "so")
    means = np.mean([[[reply["probabilities"][name] for name in names] for reply in one] for one in each], axis=0)
    assert [reply["label"] for reply in found] == [names[row.argmax()] for row in means]
    np.testing.assert_allclose([[reply["probabilities"][name] for name in names] for reply in found], means, rtol=1e-12)
    np.testing.assert_allclose([reply["probability"] for reply in found], means.max(1), rtol=1e-12)
    assert [reply["label"] for reply in found] != [reply["label"] for reply in each[0]], (
        "the toys agree too much to tell"
    )
    sure = float(np.median(means.max(1)))
    assert [reply["label"] is None for reply in models[0].predict(TEXTS, abstain=sure, beside=models[1:])] == [
        row.max() < sure for row in means
    ]
    said = cli("predict", folders[0], "--with", folders[1], "--with", folders[2], "--json", *TEXTS).out.splitlines()
    assert [json.loads(line)["label"] for line in said] == [reply["label"] for reply in found]
    rows = [("text", "label"), *((text, reply["label"]) for text, reply in zip(TEXTS, found, strict=True))]
    data = str(write_csv(tmp_path / "rows.csv", rows))
    assert judge(folders[0], data, beside=folders[1:], device="cpu")["scores"]["accuracy"] == 1.0
    assert judge(folders[0], data, device="cpu")["scores"]["accuracy"] < 1.0


def test_classifiers_that_have_no_mean(cli: Cli, tmp_path: Path) -> None:
    one, other = classifier(tmp_path / "a", 1), classifier(tmp_path / "b", 2, ("good", "bad"))
    number = classifier(tmp_path / "c", 3, kind="regress")
    cli("predict", one, "--with", other, "w1").refused("knows the label 'so'")
    cli("predict", one, "--with", number, "w1").refused("was taught regress")
    with pytest.raises(SesameError, match="a probability, from 0 to 1"):
        sesame.load(one, "cpu").predict("w1", abstain=2, beside=[sesame.load(one, "cpu")])


def translator(place: Path, seed: int, words: int = 20, **more: bool) -> Path:
    torch.manual_seed(seed)
    tokenizer = framed(word_tokenizer([f"w{chr(97 + i)}" for i in range(words)]), "end")
    size = len(tokenizer)
    backbone = RecurrentSeq2Seq(RecurrentSeq2SeqConfig(size, 8, 1, attention="global", looks="after", feed=True))
    head = DecoderHead(8, size, tied=False, bias="fixed")
    with torch.no_grad():
        for weight in (*backbone.parameters(), *head.parameters()):
            weight.normal_(0.0, 0.9)
    place.mkdir()
    save_parts(place, Parts(backbone, {"seq2seq": head}, tokenizer, speech=Speech((2,), (END,), 0, **more)))
    return place


def greedy(folders: list[Path], text: str, most: int) -> list[int]:
    """The likeliest token of the mean of all probabilities, from whole passes over what was said so far."""
    models = [sesame.load(folder, "cpu") for folder in folders]
    ids = torch.tensor([models[0].tokenizer.encode(text, special=True).ids])
    said = [2]
    while len(said) <= most and said[-1] != END:
        chances = []
        for model in models:
            backbone, head = model.parts.backbone, model.parts.heads["seq2seq"]
            with torch.no_grad():
                batch = Batch(ids, torch.tensor([ids.shape[1]]), outputs=torch.tensor([said]), full=True)
                logits = head(backbone(batch).last[0, -1:], backbone.token_table())[0, : backbone.vocab]
            chances.append(logits.softmax(-1))
        said.append(int(torch.stack(chances).mean(0).argmax()))
    return [token for token in said[1:] if token != END]


def test_translators_speak_as_one(cli: Cli, tmp_path: Path) -> None:
    folders = [translator(tmp_path / str(seed), seed) for seed in range(3)]
    models, sources = [sesame.load(folder, "cpu") for folder in folders], ["wa wb", "wc", "wd we wf wg"]
    found = [said[0].ids for said in models[0].translate(sources, beside=models[1:], beams=1, most=8)]
    assert found == [greedy(folders, text, 8) for text in sources]
    assert found != [said[0].ids for said in models[0].translate(sources, beams=1, most=8)]
    options = ("--with", folders[1], "--with", folders[2], "--most", 8)
    said = cli("translate", folders[0], *options, "--beams", 1, *sources).out.splitlines()
    assert said == [models[0].tokenizer.decode(ids) for ids in found]
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{source}\t{answer}\n" for source, answer in zip(sources, said, strict=True)))
    others = [str(folder) for folder in folders[1:]]
    whole = judge_answers(str(folders[0]), str(data), beside=others, device="cpu", beams=1, most=8)
    assert whole["scores"]["exact"] == 1.0


def test_translators_that_cannot_speak_as_one(cli: Cli, tmp_path: Path) -> None:
    one, fewer, turned = (
        translator(tmp_path / "a", 1), translator(tmp_path / "b", 2, words=19), translator(tmp_path / "c", 3, reverse=True),
    )  # fmt: skip
    cli("translate", one, "--with", fewer, "wa").refused("different tokenizers")
    cli("translate", one, "--with", turned, "wa").refused("one from the end")
    cli("translate", one, "--with", classifier(tmp_path / "d", 4), "wa").refused("no encoder and decoder")
    cli("evaluate", one, "--with", one, "--text", one / "config.json").refused("does not go with --text")
