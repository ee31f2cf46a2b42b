"""Skip-thought: triples of sentences, the encoder's vector, both decoders by hand, runs, and what the vectors know."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from benchmarks.kill_resume import make_text, weights
from torch import Tensor
from typer.testing import CliRunner

import sesame
from sesame import chance
from sesame.backbones import Encoder, EncoderConfig, SkipThought, SkipThoughtConfig
from sesame.checkpoint.loading import load_parts
from sesame.cli import app
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.data.build import build_store
from sesame.data.neighbor_pack import NeighborPacker
from sesame.data.pack import Specials
from sesame.data.parts import Part, hold_out
from sesame.errors import SesameError
from sesame.expansion import expand
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.skip_thought import SkipThoughtObjective, SkipThoughtObjectiveConfig
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.taggers import words_of_tokens
from sesame.tasks.layers import LayerChoice
from sesame.text.template import framed
from sesame.text.train import train_tokenizer
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

PAD, UNK, CLS, SEP = range(4)
VOCAB = Vocab(20, {"pad": PAD, "unk": UNK, "cls": CLS, "sep": SEP}, front=0)
LINES = [[5, 6, 7, SEP], [8, SEP], [9, 10, SEP]]


def encoder(seed: int = 0, **settings: Any) -> SkipThought:
    torch.manual_seed(seed)
    return SkipThought(SkipThoughtConfig(20, **{"width": 5, "inner": 6} | settings)).double().eval()


def padded(lines: list[list[int]], fill: int = PAD) -> Tensor:
    return torch.tensor([line + [fill] * (max(map(len, lines)) - len(line)) for line in lines])


def batch_of(lines: list[list[int]], previous: list[list[int]] | None = None) -> Batch:
    batch = Batch(padded(lines), torch.tensor([len(line) for line in lines]))
    if previous is None:
        return batch
    told = Targets(padded(previous, IGNORE))
    other = Targets(padded(lines, IGNORE))  # as "next" the sentence itself
    return batch.with_targets(**{"skip-thought": other, "previous": told, "next": other})


# ---- triples -----------------------------------------------------------------------------------------------------------


def packer(tmp_path: Path, documents: list[list[str]], length: int = 16) -> tuple[NeighborPacker, Any]:
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join("\n".join(sentences) for sentences in documents) + "\n")
    tokenizer = framed(train_tokenizer([file.read_text()] * 3, "word", 400), "end")
    store = build_store([file], tokenizer=tokenizer, cache=tmp_path / "cache")
    part, _ = hold_out(store, 0, 0.0)
    return NeighborPacker(part, length, Specials(None, tokenizer.id("sep"), tokenizer.id("pad"))), tokenizer


def test_a_sentence_and_its_neighbors(tmp_path: Path) -> None:
    documents = [["Aa bb.", "Cc.", "Dd ee ff."], ["Alone here."], ["Gg.", "Hh ii."]]
    found, tokenizer = packer(tmp_path, documents)
    assert len(found) == 5  # the lone one is left out
    batch = found.draw(np.arange(5), chance.keys(1, np.arange(5)))

    def said(ids: Tensor) -> str:
        kept = [int(id) for id in ids if id not in (IGNORE, tokenizer.id("pad"))]
        assert not kept or kept[-1] == tokenizer.id("sep")
        return tokenizer.decode(kept[:-1]).replace(" .", ".").strip().lower()

    triples = [
        tuple(said(part[row]) for part in (batch.targets["previous"].labels, batch.ids, batch.targets["next"].labels))
        for row in range(5)
    ]
    one, two = ([sentence.lower() for sentence in documents[n]] for n in (0, 2))
    assert triples == [
        ("", one[0], one[1]), (one[0], one[1], one[2]), (one[1], one[2], ""), ("", two[0], two[1]), (two[0], two[1], "")
    ]  # fmt: skip
    assert found.source(3).endswith("text.txt:7")
    turned = found.draw(np.array([3, 1]), chance.keys(1, np.array([3, 1])))
    assert said(turned.ids[1]) == one[1]


def test_long_sentences_are_cut_and_fixed_widths_kept(tmp_path: Path) -> None:
    found, _ = packer(tmp_path, [["aa " * 30 + ".", "Bb."], ["Cc.", "Dd."]], length=12)
    batch = found.draw(np.arange(len(found)), chance.keys(1, np.arange(len(found))))
    assert batch.ids.shape[1] <= 12
    assert int(batch.lengths.sum()) >= 31 + 3
    fixed = NeighborPacker(found.part, 12, found.specials, fixed=True).draw(np.arange(2), chance.keys(1, np.arange(2)))
    assert {fixed.ids.shape[1], *(part.labels.shape[1] for part in fixed.targets.values())} == {12}
    only = Part(found.part.store, np.array([[0, 1]]))
    with pytest.raises(SesameError, match="no example, because no document has two sentences; put blank lines only"):
        NeighborPacker(only, 64, found.specials)


# ---- the encoder and the loss --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_the_vector_is_the_last_state(two: bool, seed: int) -> None:
    found = encoder(seed, bidirectional=two, depth=1 + seed)
    together, turned = found(batch_of(LINES)), found(batch_of(LINES[::-1]))
    for row, line in enumerate(LINES):
        x = found.tokens(torch.tensor(line))[:, None]
        for layer in found.encoder.layers:
            x, ends = layer.cell(x)  # type: ignore[operator, union-attr]
        vector = ends[:, 0].flatten()
        torch.testing.assert_close(together.last[row, len(line) - 1], vector)
        torch.testing.assert_close(turned.last[2 - row, len(line) - 1], vector)
        torch.testing.assert_close(together.last[row, : len(line) - 1], x[:-1, 0])
    only = batch_of(LINES).lengths[:, None] - 1
    torch.testing.assert_close(found(batch_of(LINES), only).last, together.take(only))


def test_layers_of_a_model_that_has_one() -> None:
    found = encoder(0)
    states = found(batch_of(LINES)).layers
    assert len(states) == 1
    for name in ("last", "first", "sum-last-4", "concat-last-4", "sum-all", "0"):
        choice = LayerChoice(name, found)
        assert choice.width == found.width
        assert torch.equal(choice(choice.stack(states)), states[0])
    with pytest.raises(SesameError, match="has one layer"):
        LayerChoice("second-to-last", found)


def by_hand(
    objective: SkipThoughtObjective, found: SkipThought, which: str, line: list[int], told: list[int]
) -> Tensor:
    """Step by step, GRU's formulas."""
    vector = found(batch_of([line])).last[0, len(line) - 1]
    cell = getattr(objective.neighbors, which).layers[0].cell
    state, loss = torch.zeros(6).double(), torch.zeros(()).double()
    for before, token in zip([CLS, *told], told, strict=False):
        x = torch.cat([found.tokens.weight[before], vector])
        read, kept = cell.weight_ih_l0 @ x + cell.bias_ih_l0, cell.weight_hh_l0 @ state + cell.bias_hh_l0
        (r, z, n), (kr, kz, kn) = read.split(6), kept.split(6)
        r, z = (r + kr).sigmoid(), (z + kz).sigmoid()
        state = (1 - z) * (n + r * kn).tanh() + z * state
        out = objective.neighbors.out
        assert out.table is not None
        loss = loss + F.cross_entropy(out.table[:20] @ state + out.bias, torch.tensor(token))
    return loss


@pytest.mark.parametrize("train", [True, False])
def test_the_loss_is_that_of_both_neighbors(train: bool) -> None:
    found = encoder()
    objective = SkipThoughtObjective(SkipThoughtObjectiveConfig(), found, VOCAB).double().train(train)
    previous = [[11, 12, SEP], [], [13, SEP]]
    batch = batch_of(LINES, previous)
    terms = {term.name: term for term in objective(found, batch)}
    for which, told in (("previous", previous), ("next", LINES)):
        wanted = sum(by_hand(objective, found, which, line, t) for line, t in zip(LINES, told, strict=True))
        torch.testing.assert_close(terms[which].total, wanted)
        assert terms[which].count == sum(map(len, told)) == batch.targets[which].count()
        assert (terms[which].hits is None) == train


def test_parts_of_a_step_add_up() -> None:
    found, batch = [], batch_of(LINES, [[11, 12, SEP], [], [13, SEP]])
    for chosen in ([[0, 1, 2]], [[0], [1, 2]]):
        backbone = encoder(bidirectional=True)
        objective = build({"skip-thought": SkipThoughtObjectiveConfig()}, backbone, VOCAB).double()
        model = Model(backbone, objective)
        optimizer = build_optimizer(model, OptimConfig(decay=0.0, eps=1e-3))
        optimizer.set_rate(0.1)
        parts = [
            replace(
                batch, ids=batch.ids[r], lengths=batch.lengths[r],
                targets={name: Targets(one.labels[r]) for name, one in batch.targets.items()},
            )
            for r in chosen
        ]  # fmt: skip
        take_step(model, model, optimizer, parts, 1e9, choose_machine("cpu"), 0, Window())
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1])


def test_wrong_settings_get_one_sentence() -> None:
    with pytest.raises(SesameError, match="inner even"):
        SkipThoughtConfig(9, inner=5, bidirectional=True)
    with pytest.raises(SesameError, match="a thousand layers"):
        SkipThoughtConfig(9, depth=20_000_000_000)
    with pytest.raises(SesameError, match='template = "end"'):
        build({"skip-thought": SkipThoughtObjectiveConfig()}, encoder(), replace(VOCAB, front=1))
    with pytest.raises(SesameError, match=r"backbone\.kind"):
        build({"skip-thought": SkipThoughtObjectiveConfig()}, Encoder(EncoderConfig(20, 8, 1, 1)), VOCAB)
    with pytest.raises(SesameError, match='needs packing = "neighbors"'):
        resolve("skip-thought", settings=["stages.main.packing=documents"])
    with pytest.raises(SesameError, match=r"is for objectives\.skip-thought"):
        resolve("elmo", settings=["stages.main.packing=neighbors"])


# ---- runs ----------------------------------------------------------------------------------------------------------------

SETTINGS = ("backbone.width=12", "backbone.inner=16", "stages.main.batch=8", "tokenizer.size=400")


def run(text: Path, out: Path, *settings: str, **more: Any) -> Path:
    wanted: dict[str, Any] = {"settings": (*SETTINGS, *settings), "steps": 8, "save_steps": 3, "device": "cpu"} | more
    return pretrain(Wishes("skip-thought", [str(text)], out, **wanted))


@pytest.mark.slow
def test_a_crash_changes_no_bit_and_the_folder_opens(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt", 40)
    final = run(text, tmp_path / "calm", "backbone.bidirectional=true")
    with crash_while_saving(after=1):
        run(text, tmp_path / "broken", "backbone.bidirectional=true")
    run(text, tmp_path / "broken", "backbone.bidirectional=true")
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
    parts = load_parts(final)
    assert isinstance(parts.backbone, SkipThought)
    assert set(parts.heads) == {"neighbors"}
    assert parts.unused == []
    model = sesame.load(final, "cpu")
    vectors = model.embed(["Bado nulu.", "Nulu"])
    encoding, states = model.embed_tokens("Bado nulu.")
    np.testing.assert_allclose(vectors[0], states[len(encoding.ids) - 1], rtol=1e-5, atol=1e-7)
    assert not np.allclose(vectors, model.embed(["Bado nulu.", "Nulu"], pooling="mean"))
    run(text, tmp_path / "further", start=str(final), steps=3)


def test_text_of_a_language_has_neighbors_too(tmp_path: Path) -> None:
    """It was drawn as stretches of text, of which nobody was asked anything."""
    text = make_text(tmp_path / "text.txt", 40)
    final = run(Path(f"en={text}"), tmp_path / "run")
    assert set(load_parts(final).heads) == {"neighbors"}


def test_what_is_kept_aside_may_have_no_two_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last of 19 sentences of each document is; that ended the run with a sentence about all of the text."""
    luck = Random(0)
    documents = ["\n".join(luck.choice(["Bado nulu gefi.", "Gefi bado."]) for _ in range(19)) for _ in range(6)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    run(tmp_path / "text.txt", tmp_path / "run", steps=1)
    assert "nothing is held out; name a text with --valid" in capsys.readouterr().err
    (tmp_path / "lone.txt").write_text("Gefi bado.")
    with pytest.raises(SesameError, match=r"lone\.txt: has no example"):
        run(tmp_path / "text.txt", tmp_path / "other", steps=1, valid=[str(tmp_path / "lone.txt")])


def story(luck: Random, sentences: int) -> list[str]:
    """Sentences of one subject follow each other; no two of them share words but by chance."""
    subject = luck.randrange(2)
    words = [["ba", "be", "bi", "bo", "bu"], ["da", "de", "di", "do", "du"]][subject]
    return [" ".join(luck.choices(words, k=4)) + "." for _ in range(sentences)]


@pytest.mark.slow
@pytest.mark.parametrize("two", ["false", "true"])
def test_it_comes_near_the_optimum_and_vectors_know_the_subject(two: str, tmp_path: Path) -> None:
    luck = Random(0)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(story(luck, 4)) for _ in range(150)) + "\n")
    settings = ("backbone.width=16", "backbone.inner=32", "stages.main.batch=16", "optimizer.rate=1e-2")
    final = run(text, tmp_path / "run", *settings, f"backbone.bidirectional={two}", steps=400, save_steps=0)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = next(line["held_out"] for line in reversed(lines) if "held_out" in line)
    blind, best = (
        4 / 6 * np.log(count) for count in (10, 5)
    )  # four words of six tokens; the subject is worth ln 2 each
    for which in ("previous", "next"):
        assert best - 0.1 < last[which] < best + 0.4 * (blind - best)
    vectors = sesame.load(final, "cpu").embed(["ba be bi bo.", "bu bo be ba.", "da de di do.", "du do de da."])
    vectors -= vectors.mean(0)  # what all have in common depends on the start
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T
    assert min(near[0, 1], near[2, 3]) > 0.9
    assert near[:2, 2:].max() < -0.9


def test_numbers_of_the_paper() -> None:
    backbone = resolve("skip-thought", size="paper").backbone
    assert (backbone["width"], backbone["inner"], backbone["cell"]) == (620, 2400, "gru")
    assert resolve("skip-thought", size="paper").optimizer.rate == 2e-4
    assert resolve("skip-thought", size="paper", budget=True, device="cuda").optimizer.rate == 2e-3
    for size in ("tiny", "mini", "small", "paper"):
        for device in ("cpu", "cuda"):
            assert resolve("skip-thought", size=size, budget=True, device=device).stages["main"].packing == "neighbors"


# ---- words that it has not seen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_new_words_are_mapped_from_static_vectors(seed: int, tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt", 20)
    final = run(text, tmp_path / "run", steps=2, save_steps=0)
    parts = load_parts(final)
    assert parts.tokenizer is not None
    known = words_of_tokens(parts.tokenizer)
    luck = np.random.default_rng(seed)
    table = parts.backbone.token_table().detach().numpy()
    back, shift = luck.normal(size=(12, 12)), luck.normal(size=12)  # the file's vectors: another basis, another origin
    rows = {word: table[id] @ back + shift for id, word in known.items()}
    wanted = luck.normal(size=(2, 12)).astype(np.float32) * 0.1
    rows |= {"zyxwv": wanted[0] @ back + shift, "Quorx": wanted[1] @ back + shift}
    lines = [f"{word} {' '.join(map(str, vector.tolist()))}" for word, vector in rows.items()]
    (tmp_path / "vectors.txt").write_text("\n".join([f"{len(rows)} 12", *lines]) + "\n")
    out = tmp_path / "wide"
    given = ["expand", str(final), "--vectors", str(tmp_path / "vectors.txt"), "--out", str(out)]
    assert CliRunner().invoke(app, given).exit_code == 0
    wide = load_parts(out)
    assert wide.tokenizer is not None
    assert wide.heads == {}  # its decoders tell none of the new words
    for word, vector in zip(("zyxwv", "quorx"), wanted, strict=True):  # the tokenizer lower-cases
        (id,) = wide.tokenizer.encode(word).ids
        assert id >= len(parts.tokenizer)
        np.testing.assert_allclose(wide.backbone.token_table()[id].detach().numpy(), vector, rtol=0, atol=1e-3)
    old = [word for word in known.values() if word.isalpha()][:5]
    one, two = (sesame.load(folder, "cpu").embed(old) for folder in (final, out))
    np.testing.assert_array_equal(one, two)  # what it knew, it reads as before
    assert not np.allclose(*(sesame.load(folder, "cpu").embed(["zyxwv"]) for folder in (final, out)))


def test_an_expansion_needs_words_in_common(tmp_path: Path) -> None:
    final = run(make_text(tmp_path / "text.txt", 20), tmp_path / "run", steps=2, save_steps=0)
    (tmp_path / "vectors.txt").write_text("2 2\nzyxwv 1 2\nquorx 3 4\n")
    with pytest.raises(SesameError, match="in common"):
        expand(str(final), str(tmp_path / "vectors.txt"), tmp_path / "wide")
