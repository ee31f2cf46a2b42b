"""New words for a model that exists, and unlabelled text before labels: the same end, however often a run is stopped."""

import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import kill_group, make_text, start, weights
from hypothesis import given, settings
from hypothesis import strategies as st

import sesame
from sesame.backbones import BiLM, BiLMConfig, Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.run import Run
from sesame.checkpoint.saving import save_parts
from sesame.data.examples import Example
from sesame.data.readers import read_documents
from sesame.errors import SesameError
from sesame.finetuning.adaptation import corpora
from sesame.finetuning.run import Wishes as Lessons
from sesame.finetuning.run import finetune
from sesame.objectives import MaskedLMHead
from sesame.pretraining.extension import WORDS, extend, pieces_per_word
from sesame.pretraining.one_pass import CPU_SECONDS, LEAST_STEPS, MOST_PASSES, planned_steps, steps_of
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from sesame.text import Tokenizer
from sesame.text.train import train_tokenizer
from sesame.train.loop import Interrupted
from tests.test_resume import finish, new_things, wait_for

DOMAIN = ("nephrotic", "glomerular", "proteinuria", "hemodialysis")
PLAIN = ("the", "patient", "has", "a", "low", "and", "high", "with", "no", "sign", "of", "pain", "today", "in", "her")
LABELS = {"kidney": DOMAIN, "other": ("weather", "garden", "concert", "traffic")}


def sentence(luck: random.Random, words: tuple[str, ...]) -> str:
    return " ".join(luck.choice(words if luck.random() < 0.3 else PLAIN) for _ in range(luck.randint(5, 9)))


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text full of words that the start model has never seen."""
    luck = random.Random(1)
    path = tmp_path_factory.mktemp("domain") / "domain.txt"
    path.write_text("\n\n".join(sentence(luck, DOMAIN) for _ in range(300)))
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    luck = random.Random(2)
    path = tmp_path_factory.mktemp("rows") / "few.csv"
    labels = [luck.choice(list(LABELS)) for _ in range(60)]
    path.write_text("text,label\n" + "".join(f"{sentence(luck, LABELS[label])},{label}\n" for label in labels))
    return path


def general_text() -> list[str]:
    """All letters at the start of a word and inside, no word of the domain."""
    luck = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = " ".join(a + b for a, b in zip(letters, letters[1:] + "a", strict=True))
    return [pairs] + [
        sentence(luck, ("quick", "brown", "fox", "jumps", "lazy", "dog", "zebra", "moving")) for _ in range(200)
    ]


def small_model(
    kind: str = "wordpiece", spare: int = 0, mlm: bool = True, tied: bool = True, longest: int = 256
) -> Parts:
    tokenizer = train_tokenizer(general_text(), kind, 330, lowercase=kind != "bpe")  # type: ignore[arg-type]
    torch.manual_seed(0)
    vocab = len(tokenizer) + spare
    backbone = Encoder(EncoderConfig(vocab, 32, 2, 2, max_length=longest))
    heads: dict[str, Any] = {"pooler": torch.nn.Linear(32, 32), "nsp": torch.nn.Linear(32, 2)}
    if mlm:
        heads["mlm"] = MaskedLMHead(32, 32, vocab, "gelu", 1e-12, tied)
        with torch.no_grad():
            for parameter in heads["mlm"].parameters():
                parameter.normal_(std=0.1)
    return Parts(backbone, heads, tokenizer)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_parts(folder, small_model())
    return folder


# ---- new words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("spare", [0, 7])
def test_extending_any_tokenizer(
    kind: str, spare: int, domain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small_model(kind, spare)
    assert before.tokenizer is not None
    first = len(before.tokenizer)
    after, tokenizer = extend(before, before.tokenizer, [domain], "text", 3, tmp_path / "tokenizer")
    words = json.loads((tmp_path / "tokenizer" / WORDS).read_text())
    assert len(words) == 3
    assert set(words) < set(DOMAIN)
    said = capsys.readouterr().err
    assert f"3 new words in the vocabulary: {', '.join(words)}" in said
    old, new = (pieces_per_word(t, [domain.read_text()]) for t in (before.tokenizer, tokenizer))
    assert new < old
    for word in words:
        (id,) = tokenizer.encode(f"a {word}").ids[1:]
        pieces = before.tokenizer.encode(f"a {word}").ids[1:]
        assert id >= first
        table = before.backbone.token_table()
        torch.testing.assert_close(after.backbone.token_table()[id], table[pieces].mean(0))
        head, grown = before.heads["mlm"], after.heads["mlm"]
        torch.testing.assert_close(grown.bias[id], head.bias[pieces].mean())
    loaded = Tokenizer.load(tmp_path / "tokenizer")
    assert loaded.fingerprint() == tokenizer.fingerprint()


def test_a_second_time_the_words_are_taken_from_the_run(domain: Path, tmp_path: Path) -> None:
    parts = small_model()
    assert parts.tokenizer is not None
    kept = tmp_path / "tokenizer"
    once, tokenizer = extend(parts, parts.tokenizer, [domain], "text", 3, kept)
    again, same = extend(parts, parts.tokenizer, [tmp_path / "gone.txt"], "text", 3, kept)
    assert same.fingerprint() == tokenizer.fingerprint()
    for name, tensor in once.state().items():
        assert torch.equal(tensor, again.state()[name])
    other = train_tokenizer(general_text(), "wordpiece", 80, lowercase=True)
    with pytest.raises(SesameError, match="has changed since this run began"):
        extend(parts, other, [domain], "text", 3, kept)


def test_models_that_do_not_grow_are_told(domain: Path, tmp_path: Path) -> None:
    parts = small_model()
    assert parts.tokenizer is not None
    parts.backbone = BiLM(BiLMConfig(len(parts.tokenizer), width=8, depth=1, cell=8, reads="tokens"))
    with pytest.raises(SesameError, match="--extend: the vocabulary of a model of this kind does not grow"):
        extend(parts, parts.tokenizer, [domain], "text", 3, tmp_path / "tokenizer")
    assert not (tmp_path / "tokenizer").exists()


def test_no_word_worth_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(general_text()))
    parts = small_model()
    assert parts.tokenizer is not None
    after, tokenizer = extend(parts, parts.tokenizer, [text], "text", 50, tmp_path / "tokenizer")
    assert len(tokenizer) == len(parts.tokenizer)
    assert after.backbone.vocab == parts.backbone.vocab
    assert "no new words" in capsys.readouterr().err


def going_on(text: Path, out: Path, model: Path, **more: Any) -> Wishes:
    common: dict[str, Any] = {
        "steps": 24,
        "save_steps": 5,
        "device": "cpu",
        "precision": "fp32",
        "start": str(model),
        "extend": 3,
    }
    changes = ["stages.short.length=32", "stages.short.batch=8"]
    return Wishes("adapt", [str(text)], out, settings=changes, **(common | more))


class Crash(Exception):
    pass


def crash_at(patch: pytest.MonkeyPatch, number: int, error: Exception | None = None) -> None:
    """The n-th checkpoint from now is not written: the process dies in its place."""
    save, saved = Run.save, []

    def saving(run: Run, *rest: Any) -> Path:
        saved.append(1)
        if len(saved) == number:
            raise error or Crash
        return save(run, *rest)

    patch.setattr(Run, "save", saving)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 3])
def test_a_crash_leaves_the_same_weights(
    lost: int, domain: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(going_on(domain, tmp_path / "calm", model))
    with monkeypatch.context() as patch:
        crash_at(patch, lost)
        with pytest.raises(Crash):
            pretrain(going_on(domain, tmp_path / "run", model))
    with pytest.raises(SesameError, match=r"run\.extend is 3 there, 2 here"):
        pretrain(going_on(domain, tmp_path / "run", model, extend=2))
    pretrain(going_on(domain, tmp_path / "run", model))
    assert weights(tmp_path / "run") == weights(tmp_path / "calm")
    before, after = load_parts(model), load_parts(tmp_path / "run" / "final")
    assert after.tokenizer is not None
    assert before.tokenizer is not None
    assert len(after.tokenizer) == len(before.tokenizer) + 3
    for head in ("pooler", "nsp"):  # not trained here, and not lost
        assert torch.equal(after.heads[head].weight, before.heads[head].weight)


def test_transformers_opens_the_extended_model(domain: Path, model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = pretrain(going_on(domain, tmp_path / "run", model))
    ours = sesame.load(folder, "cpu")
    theirs, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    text = f"the {DOMAIN[0]} patient has [MASK] {DOMAIN[1]} {DOMAIN[2]} today"
    given = tokenizer(text, return_tensors="pt")
    assert given["input_ids"][0].tolist() == ours.tokenizer.encode(text, special=True).ids
    at = given["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        best = theirs(**given).logits[0, at].topk(5).indices.tolist()
    (mask,) = ours.fill(text)[0]
    assert mask.tokens == tokenizer.convert_ids_to_tokens(best)


@pytest.mark.parametrize("parts", [small_model(mlm=False), small_model(tied=False)], ids=["no head", "untied"])
def test_heads_of_every_kind(parts: Parts, domain: Path, tmp_path: Path) -> None:
    """MiniLM has no masked-language head: a fresh one is made; one with a table of its own keeps it."""
    (tmp_path / "model").mkdir()
    save_parts(tmp_path / "model", parts)
    made = load_parts(pretrain(going_on(domain, tmp_path / "run", tmp_path / "model", steps=3)))
    assert isinstance(made.heads["mlm"], MaskedLMHead)
    was = parts.heads.get("mlm")
    assert (made.heads["mlm"].table is None) == (was is None or was.table is None)
    assert made.heads["mlm"].vocab == made.backbone.vocab == parts.backbone.vocab + 3


# ---- how long -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**9), st.integers(1, 4096))
def test_one_pass(rows: int, batch: int) -> None:
    steps = steps_of(rows, batch)
    assert steps * batch >= rows
    assert steps >= LEAST_STEPS or (steps * batch >= MOST_PASSES * rows)
    assert steps <= LEAST_STEPS or (steps - 1) * batch < rows


def test_the_plan_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "plan.json"
    assert planned_steps(kept, 100_000, 10, lambda: CPU_SECONDS / 50_000) == 5000
    assert "taking 5,000 (50 %)" in capsys.readouterr().err
    assert planned_steps(kept, 100_000, 10, lambda: 0.0) == 5000  # a faster machine changes nothing now
    assert planned_steps(tmp_path / "free.json", 100_000, 10, None) == 10_000
    assert planned_steps(tmp_path / "slow.json", 100_000, 10, lambda: 1e9) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("budget", [False, True])
def test_the_recipe_is_the_same_under_a_budget(device: str, budget: bool) -> None:
    recipe = resolve("adapt", budget=budget, device=device)
    (stage,) = recipe.stages.values()
    assert (set(recipe.objectives), stage.length, stage.batch, stage.packing) == ({"mlm"}, 128, 64, "blocks")
    assert (recipe.optimizer.rate, recipe.schedule.warmup, recipe.objectives["mlm"].static) == (1e-4, 0.06, 0)


# ---- which text -----------------------------------------------------------------------------------------------------

EXAMPLES = [Example("a:1", "one", "two"), Example("a:2", "one", options=("three", "four"))]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"])), min_size=1))
@settings(max_examples=30)
def test_training_rows_come_back_from_the_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("text")
    (file,) = corpora(["train"], [Example("a:1", "x"), *(Example("a:2", text) for text in texts)], folder)
    found = [document.text for document in read_documents([file])]
    assert found == ["x", *dict.fromkeys(text for text in texts if text and text != "x")]


@pytest.mark.parametrize(
    ("name", "content", "column", "found"),
    [
        ("a.csv", 'id,message\n1,"one, two"\n2,\n3,three\n', None, ["one, two", "three"]),
        ("a.tsv", "body\tlabel\none\tx\n", None, ["one"]),
        ("a.csv", "notes,text\none,x\n", "notes", ["one"]),
        ("a.csv", "text,label\none,x\n", "body", ["one"]),  # --text-column may be about the labelled rows only
        ("a.jsonl", '{"review": "one", "stars": 3}\n', None, ["one"]),
        ("a.jsonl", '{"text": "one"}\n', None, ["one"]),
        ("a.jsonl", '{"note": "one"}\n', None, ["one"]),  # the only one there is
        ("a.txt", "one\n", None, ["one"]),
    ],
)
def test_tables_give_their_text_column(
    name: str, content: str, column: str | None, found: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    files = corpora([str(tmp_path / name)], [], tmp_path / "text", column)
    assert [document.text for document in read_documents(files)] == found


def test_rows_that_a_line_break_parted_give_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{n}\tnumber {n}\n" for n in range(2000)]
    (tmp_path / "a.tsv").write_text("id\ttext\n" + "".join([*rows[:9], "parted\n", *rows[9:]]))
    (file,) = corpora([str(tmp_path / "a.tsv")], [], tmp_path)
    assert len(list(read_documents([Path(file)]))) == 2000
    assert f"warning: {tmp_path / 'a.tsv'}: left out 1 of 2,002 lines" in capsys.readouterr().err


def test_parquet_gives_its_text_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"stars": [1, 2], "review": ["one", "two"]}), tmp_path / "a.parquet")
    files = corpora([str(tmp_path / "a.parquet")], [], tmp_path / "text")
    assert [document.text for document in read_documents(files)] == ["one", "two"]


def test_train_means_all_texts_of_the_rows_once(tmp_path: Path) -> None:
    files = corpora(["train"], EXAMPLES, tmp_path / "text")
    assert [document.text for document in read_documents(files)] == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", "x,y\n1,2\n3,4\n", "a.csv: cannot tell which column holds the text.*'x', 'y'.*--text-column"),
        ("a.csv", "text,y\n,2\n,4\n", 'a.csv: the column "text" is empty'),
        ("a.jsonl", '{"a": "one", "b": "two"}\n', "cannot tell which column"),
    ],
)
def test_tables_without_text(name: str, content: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SesameError, match=complaint):
        corpora([str(tmp_path / name)], [], tmp_path / "text")


@pytest.mark.parametrize("content", ["[1]\n", "no json\n", "3\n"])
def test_broken_json_is_named_by_the_reader(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(SesameError, match=r"a\.jsonl"):
        list(read_documents(corpora([str(tmp_path / "a.jsonl")], [], tmp_path / "text")))


# ---- text, then labels ----------------------------------------------------------------------------------------------


def lessons(model: Path, rows: Path, text: list[str], out: Path, **more: Any) -> Lessons:
    common: dict[str, Any] = {
        "seeds": 1,
        "baselines": False,
        "device": "cpu",
        "precision": "fp32",
        "save_steps": 4,
        "text_steps": 6,
    }
    changes = ["epochs=3", "least_steps=0", "batch=16", "optimizer.rate=1e-3"]
    return Lessons(str(model), "classify", str(rows), out, settings=changes, text=text, **(common | more))


@pytest.fixture(scope="module", autouse=True)
def no_pictures() -> Iterator[None]:
    """The report has tests of its own; its pictures take longer than the training here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sesame.evaluate.report.write_report", lambda results, path: None)
        yield


@pytest.fixture(scope="module")
def calm(model: Path, rows: Path, domain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finetune(lessons(model, rows, [str(domain), "train"], out, extend=2))
    return out


@pytest.mark.parametrize("name", ["domain.txt", "model/model.safetensors"])
def test_other_text_or_model_is_no_finished_run(
    name: str, model: Path, rows: Path, domain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "model")
    text = [shutil.copy(domain, tmp_path / "domain.txt"), "train"]
    wishes = lessons(tmp_path / "model", rows, text, tmp_path / "run", text_steps=1)
    finetune(wishes)
    finetune(wishes)
    assert "finished already" in capsys.readouterr().err
    held = bytearray((tmp_path / name).read_bytes())
    held[-2] ^= 1
    (tmp_path / name).write_bytes(held)
    with pytest.raises(SesameError, match=f"{name}: has changed since this run began"):
        finetune(wishes)


@pytest.mark.slow
def test_text_then_labels(calm: Path, model: Path) -> None:
    adapted, final = load_parts(calm / "adapted" / "final"), load_parts(calm / "final")
    base = load_parts(model)
    assert final.tokenizer is not None
    assert base.tokenizer is not None
    assert len(final.tokenizer) == len(base.tokenizer) + 2
    assert adapted.backbone.config == final.backbone.config
    old, new = base.backbone.token_table(), adapted.backbone.token_table()
    assert 0 < (new[: len(base.tokenizer)] - old[: len(base.tokenizer)]).abs().max() < 0.05
    results = json.loads((calm / "results.json").read_text())
    assert any("first adapted to unlabelled text: domain.txt, train" in note for note in results["data"]["notes"])
    assert not (calm / "text").exists()
    assert not (calm / "adapted" / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "error"),  # the first checkpoint is of the text, the second and the third of the labels
    [
        (1, Crash()),
        *(
            pytest.param(*stop, marks=pytest.mark.slow)
            for stop in ((1, Interrupted("SIGTERM", 4)), (3, Crash()), (2, Interrupted("SIGTERM", 4)))
        ),
    ],
)
def test_stopped_anywhere(
    lost: int, error: Exception, calm: Path, model: Path, rows: Path, domain: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wishes = lessons(model, rows, [str(domain), "train"], tmp_path / "run", extend=2)
    with monkeypatch.context() as patch:
        crash_at(patch, lost, error)
        with pytest.raises(type(error)):
            finetune(wishes)
    finetune(wishes)
    assert weights(tmp_path / "run") == weights(calm)
    assert weights(tmp_path / "run" / "adapted") == weights(calm / "adapted")


@pytest.mark.slow
def test_the_default_is_one_pass(rows: Path, tmp_path: Path) -> None:
    """Here on a model that takes less than the recipe's 128 tokens."""
    model, out = tmp_path / "model", tmp_path / "run"
    model.mkdir()
    save_parts(model, small_model(longest=48))
    finetune(lessons(model, rows, ["train"], out, text_steps=None))
    assert "length = 48\n" in (out / "adapted" / "recipe.toml").read_text()
    steps = json.loads((out / "adapted" / "plan.json").read_text())["steps"]
    lines = [json.loads(line) for line in (out / "adapted" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == steps <= LEAST_STEPS
    losses = [line["held_out"]["mlm"] for line in lines if "held_out" in line]
    assert losses[-1] < losses[0]


def test_a_mistake_leaves_nothing_behind(model: Path, rows: Path, domain: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n3,4\n")
    for text in ("nowhere.txt", str(tmp_path / "bad.csv")):
        with pytest.raises(SesameError, match=r"no such file|cannot tell"):
            finetune(lessons(model, rows, [str(domain), text], out))
        assert [item.name for item in out.iterdir()] == [".lock"]
    with pytest.raises(SesameError, match="--metric"):  # told before the text is read
        finetune(lessons(model, rows, [str(domain)], out, metric="beauty"))
    assert [item.name for item in out.iterdir()] == [".lock"]


@pytest.mark.parametrize("wish", [{"extend": 3}, {"text_budget": 60.0}, {"text_steps": 5}])
def test_wishes_about_text_need_text(wish: dict[str, Any], model: Path, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="name it with --text"):
        finetune(lessons(model, rows, [], tmp_path / "run", **({"text_steps": None} | wish)))


def test_extending_nothing(domain: Path, tmp_path: Path) -> None:
    with pytest.raises(SesameError, match="name it with --start MODEL"):
        pretrain(Wishes("bert", [str(domain)], tmp_path / "run", extend=3))


# ---- real processes -------------------------------------------------------------------------------------------------

MOMENTS = (
    ("adapted/recipe.toml", 0.3),  # while words are chosen
    ("adapted/tokenizer", 0.2),
    ("adapted/metrics.jsonl", 0.1),
    ("adapted/checkpoints/.*.part", 0.0),
    ("adapted/final", 0.0),  # between text and labels
    ("seed-0/metrics.jsonl", 0.1),
    ("seed-0/checkpoints/step-*", 0.1),
)


@pytest.mark.slow
def test_kills_from_start_to_end(model: Path, rows: Path, tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt", 200)
    log, luck = tmp_path / "log", random.Random(0)

    def command(out: Path) -> list[str]:
        begin = [sys.executable, "-m", "sesame", "finetune", str(model), "--task", "classify", "--train", str(rows)]
        about = ["--text", str(text), "--text-steps", "60", "--extend", "50", "--seeds", "1", "--epochs", "30"]
        rest = ["--no-baselines", "--device", "cpu", "--precision", "fp32", "--save-steps", "10", "--out", str(out)]
        return [*begin, *about, *rest]

    finish(command(tmp_path / "calm"), tmp_path / "cache", log)
    out, kills = tmp_path / "run", 0
    for number, (_, longest) in enumerate(MOMENTS):
        happened = new_things(out, [name for name, _ in MOMENTS[number:]])
        process = start(command(out), tmp_path / "fresh", log)
        if wait_for(happened, process):
            time.sleep(luck.uniform(0, longest))
        if process.poll() is None:
            kill_group(process)
            kills += 1
        else:
            assert process.returncode == 0, log.read_text()
    assert kills >= 4
    finish(command(out), tmp_path / "fresh", log)
    assert weights(out) == weights(tmp_path / "calm")
