"""Taggers that read a frozen language model: who reads what, padding and order, folders, and what is learnt."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kill_resume import weights
from torch import Tensor
from typer.testing import CliRunner

import sesame
from sesame.backbones import BiLM, BiLMConfig, Tagger, TaggerConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.cli import app
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.finetuning.run import Wishes, finetune
from sesame.objectives.base import Together
from sesame.objectives.model import Model
from sesame.taggers import make_tagger, words_of_tokens
from sesame.tasks import TaskConfig, build_task
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from tests.crashes import crash_while_saving
from tests.tasks.toys import examples, write_examples

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

TEXTS = ["the dog sees the cat .", "the cat sees a dog .", "a dog and a cat", "the hedgehogs"]
LINES = ["the doggy sees the xylophone", "a cat", "ёжик sees the dog and a cat ."]
LM: dict[str, Any] = {"width": 12, "cell": 10, "letter_width": 5, "filters": ((1, 3), (3, 4))}
SMALL: dict[str, Any] = {"width": 8, "table_width": 6, "letter_width": 5, "filters": ((3, 5),), "unknown": 0.0}
PLACES = [None, "first", "second"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 3, "word", 285)


def tagger(tokenizer: Tokenizer, at: str | None, seed: int = 0, **settings: Any) -> Tagger:
    torch.manual_seed(seed)
    lm = None if at is None else BiLMConfig(len(tokenizer), **LM)
    found = Tagger(TaggerConfig(len(tokenizer), lm=lm, **SMALL | {"lm_at": at or "first"} | settings)).double().eval()
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    found.spell(tokenizer)
    return found


def batch_of(tokenizer: Tokenizer, lines: list[str]) -> Batch:
    rows = [tokenizer.encode(line, special=True).ids for line in lines]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), tokenizer.id("pad"))
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = torch.tensor(found)
    return Batch(ids, lengths)


def lstm(found: Tagger, layer: int, x: Tensor) -> Tensor:
    """One bidirectional layer by PyTorch's own module. Shape: (W, inputs) -> (W, D)."""
    return found.blocks[layer].layers[0].cell(x[:, None])[0][:, 0]  # type: ignore[index, union-attr, operator]


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("seed", range(2))
def test_it_is_its_formula(at: str | None, seed: int, tokenizer: Tokenizer) -> None:
    found = tagger(tokenizer, at, seed)
    line = "the cat sees xylophone"
    batch = batch_of(tokenizer, [line])
    words = tokenizer.encode(line, special=True).words
    first = [n for n, word in enumerate(words) if word is None or words[n - 1] != word]
    ids = [int(batch.ids[0, n]) for n in first]
    ids[4] = tokenizer.id("unk")  # spelled in several tokens
    assert found.spelled is not None
    assert found.letters is not None
    spelled = found.letters(
        found.spelled.spell(batch.ids, batch.lengths, found.spelled.words(batch.ids, batch.lengths))[0]
    )
    x = torch.cat([found.tokens.weight[ids], spelled], -1)
    told = [] if found.lm is None else [layer[0, first] for layer in found.lm(batch).layers]
    if at == "first":
        assert found.mix is not None
        share = found.mix.scores.softmax(0)
        mixed = found.mix.scale * sum(share[n] * layer for n, layer in enumerate(told))
        x = torch.cat([x, mixed], -1)
    one = lstm(found, 0, x)
    two = lstm(found, 1, torch.cat([one, told[-1]], -1) if at == "second" else one)
    encoded = found(batch)
    torch.testing.assert_close(encoded.layers[0][0, first], one)
    torch.testing.assert_close(encoded.last[0, first], two)
    torch.testing.assert_close(encoded.last[0, first[4] + 1], two[4])  # every token of a word has its state


@pytest.mark.parametrize("reads", ["words", "tokens"])
@pytest.mark.parametrize("at", PLACES)
def test_padding_and_order_change_nothing(at: str | None, reads: str, tokenizer: Tokenizer) -> None:
    found = tagger(tokenizer, at, reads=reads)
    together = found(batch_of(tokenizer, LINES))
    turned = found(batch_of(tokenizer, LINES[::-1]))
    for row, line in enumerate(LINES):
        alone = found(batch_of(tokenizer, [line]))
        length = alone.last.shape[1]
        for x, y, z in zip(alone.layers, together.layers, turned.layers, strict=True):
            torch.testing.assert_close(x[0], y[row, :length])
            torch.testing.assert_close(x[0], z[len(LINES) - 1 - row, :length])
    only = torch.tensor([[0], [1], [2]])
    torch.testing.assert_close(found(batch_of(tokenizer, LINES), only).last, together.take(only))


def test_the_language_model_never_trains_and_drops_nothing(tokenizer: Tokenizer) -> None:
    found = tagger(tokenizer, "second", dropout=0.0)
    assert found.lm is not None
    before = found(batch_of(tokenizer, LINES)).last
    found.train()
    torch.testing.assert_close(found(batch_of(tokenizer, LINES)).last, before)
    found.requires_grad_(True)  # even so
    found(batch_of(tokenizer, LINES)).last.sum().backward()
    assert all(p.grad is None for p in found.lm.parameters())
    assert all(p.grad is not None for block in found.blocks for p in block.parameters())
    inside = {p for group in found.groups() for p in group.parameters()}
    assert inside.isdisjoint(found.lm.parameters())
    assert inside | set(found.lm.parameters()) == set(found.parameters())
    fresh = Tagger(found.config)
    assert {name.split(".")[0] for name, p in fresh.named_parameters() if not p.requires_grad} == {"lm"}


def test_training_reads_some_words_as_unknown(tokenizer: Tokenizer) -> None:
    found = tagger(tokenizer, None, dropout=0.0, unknown=0.5)
    batch = batch_of(tokenizer, ["the cat sees a dog"])
    calm = found(batch).last
    found.train()
    torch.manual_seed(0)
    assert not torch.allclose(found(batch).last, calm)
    all_unknown = Batch(torch.full_like(batch.ids, tokenizer.id("unk")), batch.lengths)
    found.unknown = 10**6  # whoever reads it, is told
    with pytest.raises(IndexError):
        found(all_unknown)


def test_parts_of_a_step_add_up(tokenizer: Tokenizer) -> None:
    machine = choose_machine("cpu")
    batch = batch_of(tokenizer, LINES)
    labels = torch.where(batch.mask(), batch.ids % 3, IGNORE)  # type: ignore[arg-type]
    found = []
    for rows in ([[0, 1, 2]], [[0], [1, 2]]):
        backbone = tagger(tokenizer, "first", dropout=0.0)
        backbone.lm.requires_grad_(False)  # type: ignore[union-attr]
        torch.manual_seed(1)
        task = build_task("tag", TaskConfig("tag", ("a", "b", "c")), backbone, 0.0).double()
        model = Model(backbone, Together({"tag": task}))
        optimizer = build_optimizer(model, OptimConfig(decay=0.0, eps=1e-3))
        optimizer.set_rate(0.1)
        parts = [replace(batch, ids=batch.ids[r], lengths=batch.lengths[r]) for r in rows]
        parts = [part.with_targets(tag=Targets(labels[r])) for part, r in zip(parts, rows, strict=True)]
        take_step(model, model, optimizer, parts, 1e9, machine, 0, Window())
        found.append({name: p.detach().clone() for name, p in model.named_parameters()})
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], msg=name)


@pytest.mark.parametrize("at", PLACES)
def test_a_folder_gives_equal_states(at: str | None, tokenizer: Tokenizer, tmp_path: Path) -> None:
    found = tagger(tokenizer, at)
    save_parts(tmp_path, Parts(found, {}, tokenizer))
    parts = load_parts(tmp_path)
    assert parts.unused == []
    assert parts.backbone.config == found.config
    batch = batch_of(tokenizer, LINES)
    assert torch.equal(parts.backbone.eval()(batch).last, found(batch).last)


# ---- from files ------------------------------------------------------------------------------------------------------


def write_rows(path: Path, count: int, seed: int) -> Path:
    """A word is an entity if it stands behind "in", and a number is one by its letters."""
    luck, rows = Random(seed), []
    for _ in range(count):
        words = [
            luck.choice(["in", "ba", "de", "lo", "ki", str(luck.randint(10, 999))]) for _ in range(luck.randint(3, 8))
        ]
        before = ["", *words]
        tags = [
            "B-P" if last == "in" else "B-N" if word.isdigit() else "O"
            for last, word in zip(before, words, strict=False)
        ]
        rows.append("\n".join(f"{word} {tag}" for word, tag in zip(words, tags, strict=True)))
    path.write_text("\n\n".join(rows) + "\n", encoding="utf-8")
    return path


def elmo(folder: Path) -> Path:
    tokenizer = train_tokenizer(["in ba de lo ki 1 2"] * 3, "word", 290)
    torch.manual_seed(3)
    folder.mkdir()
    save_parts(folder, Parts(BiLM(BiLMConfig(len(tokenizer), **LM)), {}, tokenizer))
    return folder


LONG = "விஸ்வவித்தியாலயங்களின்"  # of 66 bytes; a char-CNN reads 48 of them
TINY = ("width=16", "table_width=8", "filters=[[3, 8]]")


def test_a_tagger_from_files_starts_with_vectors_and_the_language_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_rows(tmp_path / "train.conll", 20, 0)
    (tmp_path / "vectors.txt").write_text(f"4 4\nba 1 2 3 4\nlo 5 6 7 8\nunheard -1 -1 -1 -1\n{LONG} 9 9 9 9\n")
    lm = elmo(tmp_path / "elmo")
    made = make_tagger(
        tmp_path / "tagger",
        train=str(rows),
        lm=str(lm),
        vectors=str(tmp_path / "vectors.txt"),
        settings=("lm_at=second",),
    )
    parts = load_parts(made)
    assert isinstance(parts.backbone, Tagger)
    assert parts.tokenizer is not None
    words = {word: id for id, word in words_of_tokens(parts.tokenizer).items()}
    assert {"in", "ba", "unheard", "Unheard"} <= set(words)
    table = parts.backbone.tokens.weight
    assert table[words["ba"]].tolist() == [1, 2, 3, 4]
    assert table[words["Unheard"]].tolist() == [-1, -1, -1, -1]
    assert table[words[LONG]].tolist() == [9, 9, 9, 9]
    assert table[words["in"]].abs().max() <= 0.1
    assert "words have a vector" in capsys.readouterr().err
    theirs, ours = load_parts(lm), parts.backbone.lm  # letters are read alike, whatever the tokenizer
    assert ours is not None
    assert theirs.tokenizer is not None
    one = theirs.backbone.eval()(batch_of(theirs.tokenizer, ["in ba"])).last
    other = ours.eval()(batch_of(parts.tokenizer, ["in ba"])).last
    torch.testing.assert_close(one, other)


def test_the_command_makes_the_same(tmp_path: Path) -> None:
    rows, lm = write_rows(tmp_path / "train.conll", 10, 0), elmo(tmp_path / "elmo")
    given = ["tagger", "--train", str(rows), "--lm", str(lm), "--at", "second", "--seed", "3"]
    settings = [word for setting in TINY for word in ("--set", setting)]
    assert CliRunner().invoke(app, [*given, *settings, "--out", str(tmp_path / "a")]).exit_code == 0
    make_tagger(tmp_path / "b", train=str(rows), lm=str(lm), settings=(*TINY, "lm_at=second"), seed=3)
    make_tagger(tmp_path / "c", train=str(rows), lm=str(lm), settings=(*TINY, "lm_at=second"), seed=4)
    one, two, three = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert one == two != three
    said = [*given[:5], *settings, "--set", "lm_at=second", "--seed", "3", "--out", str(tmp_path / "d")]
    assert CliRunner().invoke(app, said).exit_code == 0
    assert (tmp_path / "d" / "model.safetensors").read_bytes() == two
    refused = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "a")])
    assert isinstance(refused.exception, SesameError)


def test_wrong_wishes_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="needs words"):
        make_tagger(tmp_path / "a")
    with pytest.raises(SesameError, match="one of them"):
        make_tagger(tmp_path / "a", train="x", tokenizer="y")
    rows = write_rows(tmp_path / "train.conll", 5, 0)
    with pytest.raises(SesameError, match="named by --lm"):
        make_tagger(tmp_path / "a", train=str(rows), settings=("lm=3",))
    with pytest.raises(SesameError, match="comes from the tokenizer"):
        make_tagger(tmp_path / "a", train=str(rows), settings=("vocab=5",))
    with pytest.raises(SesameError, match="name one with --lm"):
        make_tagger(tmp_path / "a", train=str(rows), settings=("lm_at=second",))
    with pytest.raises(SesameError, match="--unknown letters"):
        make_tagger(tmp_path / "a", train=str(rows), unknown="letters")
    with pytest.raises(SesameError, match="did you mean 'width'"):
        make_tagger(tmp_path / "a", train=str(rows), settings=("widht=3",))
    with pytest.raises(SesameError, match="no bidirectional language model"):
        make_tagger(tmp_path / "a", lm=str(make_tagger(tmp_path / "bare", train=str(rows), settings=TINY)))
    with pytest.raises(SesameError, match="depth = 2"):
        TaggerConfig(9, depth=1, lm_at="second", lm=BiLMConfig(9))
    with pytest.raises(SesameError, match="a thousand layers"):
        TaggerConfig(9, depth=20_000_000_000)
    for count in (0, -5):
        with pytest.raises(SesameError, match="filters is a list"):
            make_tagger(tmp_path / "a", train=str(rows), settings=(f"filters=[[3,{count}]]",))


def teach(model: Path, rows: Path, out: Path, *settings: str, **more: Any) -> Path:
    wanted: dict[str, Any] = {"strategy": "tagger", "seeds": 1, "device": "cpu", "baselines": False} | more
    return finetune(Wishes(str(model), "tag", str(rows), out, settings=settings, **wanted))


@pytest.mark.slow
def test_a_tagger_learns_context_and_letters(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "train.conll", 250, 0)
    made = make_tagger(tmp_path / "bare", train=str(rows), settings=TINY)
    taught = teach(made, rows, tmp_path / "run", "least_steps=250", "epochs=1", "optimizer.rate=1e-2")
    said = sesame.load(taught, "cpu").predict(["in de ba 7341 lo", "ba in 12 lo"])  # a number that nobody has seen
    assert [one["tags"] for one in said] == [["O", "B-P", "O", "B-N", "O"], ["O", "O", "B-P", "O"]]


@pytest.mark.slow
def test_a_crash_changes_no_bit(tmp_path: Path) -> None:
    rows, lm = write_rows(tmp_path / "train.conll", 40, 0), elmo(tmp_path / "elmo")
    made = make_tagger(tmp_path / "taglm", train=str(rows), lm=str(lm), settings=(*TINY, "lm_at=second"))
    wanted = ("least_steps=0", "epochs=4")
    taught = teach(made, rows, tmp_path / "calm", *wanted, save_steps=2)
    with crash_while_saving(after=1):
        teach(made, rows, tmp_path / "broken", *wanted, save_steps=2)
    teach(made, rows, tmp_path / "broken", *wanted, save_steps=2)
    assert weights(tmp_path / "calm") == weights(tmp_path / "broken")
    before, after = load_parts(made).state(), load_parts(taught).state()
    same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
    frozen = {name for name in before if ".lm." in name}
    assert frozen
    assert same == frozen  # all else has learnt
    np.testing.assert_allclose(
        *(sesame.load(folder, "cpu").embed(["in ba 12"]) for folder in (taught, tmp_path / "broken"))
    )


def test_vectors_may_stay_and_other_words_get_what_is_asked(tmp_path: Path) -> None:
    rows = write_examples(tmp_path / "train.conll", "tag", examples("tag", 12, 1))
    known = [word for example in examples("tag", 12, 1) for word in example.text.split()][:3]
    (tmp_path / "v.txt").write_text("".join(f"{word} {n}.5 1.0 -2.0\n" for n, word in enumerate(dict.fromkeys(known))))
    given = {"train": str(rows), "vectors": str(tmp_path / "v.txt")}
    make_tagger(tmp_path / "a", settings=["width=8", "frozen=true"], unknown="random", **given)
    make_tagger(tmp_path / "b", settings=["width=8", "frozen=true"], unknown="random", seed=5, **given)
    a, b = (load_parts(tmp_path / name).backbone for name in "ab")
    assert not any(p.requires_grad for p in a.tokens.parameters())
    assert a.tokens not in a.groups()[0]
    tokenizer = load_parts(tmp_path / "a").tokenizer
    assert tokenizer is not None
    words = list(words_of_tokens(tokenizer))
    assert torch.equal(a.token_table()[words], b.token_table()[words])  # by the word, not by the seed
    with pytest.raises(SesameError, match="--vectors"):
        make_tagger(tmp_path / "c", train=str(rows), settings=["frozen=true"])
