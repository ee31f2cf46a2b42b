"""GPT in use: tasks as inputs between start, delimiter and extract tokens; pairs in both orders."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import processors

import sesame
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.finetuning.framing import framed, open_start
from sesame.finetuning.run import Wishes, finetune
from sesame.loaded import Loaded
from sesame.tasks import TaskConfig, build_task
from sesame.tasks.answer import logits_of
from sesame.tasks.predict import predict
from sesame.tasks.windows import Inputs
from sesame.text import Tokenizer
from sesame.text.template import GPT_TOKENS
from tests.tasks.toys import (
    GOOD,
    PLAIN,
    double,
    encoder,
    examples,
    start_folder,
    toy_tokenizer,
    trained,
    write_csv,
    write_examples,
)

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ["batch=16", "least_steps=0", "rate_width=0", "optimizer.rate=3e-3", "schedule.warmup=0.1"]
START, DELIMITER, EXTRACT = GPT_TOKENS


def bare(tokenizer: Tokenizer) -> Tokenizer:
    """As GPT-2 has it: one special token, and none around texts."""
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:0", special_tokens=[])
    return Tokenizer(backend, {"eos": "[SEP]", "unk": "[UNK]"})


def gpt_folder(folder: Path, seed: int = 0, **more: Any) -> Path:
    tokenizer = bare(toy_tokenizer())
    folder.mkdir(parents=True, exist_ok=True)
    shape: dict[str, Any] = {"causal": True, "order": "pre", "segments": 0, "width": 32, "init": 0.2} | more
    save_parts(folder, Parts(encoder(len(tokenizer), seed, **shape), tokenizer=tokenizer, family="gpt2"))
    assert json.loads((folder / "config.json").read_text())["model_type"] == "gpt2"
    return folder


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt_folder(tmp_path_factory.mktemp("gpt") / "model")


# ---- tokens ---------------------------------------------------------------------------------------------------------


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    return " ".join(tokenizer.token(id) for id in ids)


def test_inputs_stand_between_the_three_tokens(begin: Path) -> None:
    parts = open_start(str(begin))
    assert parts.tokenizer is not None
    inputs = Inputs(parts.tokenizer, 32, segments=0)
    for kind, labels in (("classify", ("no", "yes")), ("regress", ()), ("choice", ())):
        task = build_task(kind, TaskConfig(kind, labels, pooling="cls"), parts.backbone)  # type: ignore[arg-type]
        if kind == "choice":
            rows = [Example("x", "w1 w2", options=("w3", "w4 w5"))]
            wanted = [f"{START} w1 w2 {DELIMITER} {option} {EXTRACT}" for option in rows[0].options]
        else:
            rows = [Example("x", "w1 w2"), Example("y", "w1 w2", "w3"), Example("z", "")]
            wanted = [f"{START} w1 w2 {EXTRACT}", f"{START} w1 w2 {DELIMITER} w3 {EXTRACT}", f"{START} {EXTRACT}"]
        windows = [window for item in task.items(rows, inputs) for window in item.windows]
        assert [shown(parts.tokenizer, window.ids) for window in windows] == wanted
        places = task.looks_at(task.collate(task.items(rows, inputs), inputs.pad))
        assert places is not None
        assert places.flatten().tolist() == [len(window.ids) - 1 for window in windows]  # the extract token


def test_what_a_user_writes_is_no_token() -> None:
    tokenizer = bare(trained("bpe"))
    parts = framed_parts(tokenizer)
    assert parts.tokenizer is not None
    (encoding,) = Inputs(parts.tokenizer, 32).encode([f"a {EXTRACT} b"])
    assert not {parts.tokenizer.backend.token_to_id(token) for token in GPT_TOKENS} & set(encoding.ids)
    assert encoding.ids == tokenizer.encode(f"a {EXTRACT} b").ids


def framed_parts(tokenizer: Tokenizer) -> Parts:
    return framed(Parts(encoder(len(tokenizer), causal=True, order="pre", segments=0), tokenizer=tokenizer))


def test_old_tokens_are_read_as_before(begin: Path) -> None:
    before, after = load_parts(begin), open_start(str(begin))
    assert before.tokenizer is not None
    assert after.tokenizer is not None
    assert len(after.tokenizer) == len(before.tokenizer) + 3 == after.backbone.vocab
    ids = torch.randint(len(before.tokenizer), (3, 9))
    batch = Batch(ids, torch.tensor([9, 4, 7]))
    with torch.no_grad():
        ours, theirs = (parts.backbone.eval()(batch).last for parts in (after, before))
    assert torch.equal(ours, theirs)
    table = after.backbone.token_table()[len(before.tokenizer) : len(after.tokenizer)]
    assert len({tuple(row.tolist()) for row in table}) == 3
    again = open_start(str(begin)).backbone.token_table()
    assert torch.equal(again, after.backbone.token_table())  # kept features and all seeds see the same rows


def test_who_gets_them(begin: Path, tmp_path: Path) -> None:
    bert, own = start_folder(tmp_path / "bert"), start_folder(tmp_path / "ltr", causal=True, order="pre")
    for folder, frame, wanted in (
        (begin, "auto", True), (begin, "own", False), (begin, "gpt", True),
        (own, "auto", False), (own, "gpt", True), (bert, "auto", False),
    ):  # fmt: skip
        tokenizer = open_start(str(folder), frame).tokenizer  # type: ignore[arg-type]
        assert tokenizer is not None
        assert (START in shown(tokenizer, tokenizer.encode("w1", special=True).ids)) == wanted
    with pytest.raises(SesameError, match="from left to right"):
        open_start(str(bert), "gpt")
    once = open_start(str(begin))
    save_parts(tmp_path, once)
    for frame in ("auto", "gpt"):  # a model that has them keeps them
        again = open_start(str(tmp_path), frame)  # type: ignore[arg-type]
        assert again.backbone.vocab == once.backbone.vocab
        assert torch.equal(again.backbone.token_table(), once.backbone.token_table())


# ---- numbers --------------------------------------------------------------------------------------------------------


def text(luck: random.Random) -> str:
    return " ".join(luck.choices(PLAIN, k=luck.randint(1, 8)))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean"])
def test_rows_do_not_meet(begin: Path, pooling: Any, both: bool, seed: int) -> None:
    """Padding, company and order of a batch change nothing; with `both` the order of a pair does not either."""
    parts, luck = open_start(str(begin)), random.Random(seed)
    assert parts.tokenizer is not None
    config = TaskConfig("classify", ("no", "yes"), pair=True, both=both, pooling=pooling, length=16)
    task, backbone = double(build_task("classify", config, parts.backbone), parts.backbone, seed)  # type: ignore[arg-type]
    inputs = Inputs(parts.tokenizer, 16, segments=0)
    rows = [
        Example(str(n), " ".join(luck.choices(PLAIN, k=30)) if n == 0 else text(luck), text(luck)) for n in range(12)
    ]
    items = task.items(rows, inputs)
    assert len(items[0].windows) > 2  # one is long
    together = torch.stack(logits_of(task, backbone, items, inputs.pad))
    alone = torch.stack([logits_of(task, backbone, [item], inputs.pad)[0] for item in items])
    order = luck.sample(range(12), 12)
    mixed = torch.stack(logits_of(task, backbone, [items[n] for n in order], 7))  # and another token as padding
    assert torch.allclose(alone, together, atol=1e-6)
    assert torch.allclose(mixed, together[order], atol=1e-6)
    turned = task.items([Example(row.place, row.pair or "", row.text) for row in rows], inputs)
    found = torch.stack(logits_of(task, backbone, turned, inputs.pad))
    assert torch.allclose(found, together, atol=1e-6) == both


def test_the_two_states_are_added(begin: Path) -> None:
    parts = open_start(str(begin))
    assert parts.tokenizer is not None
    config = TaskConfig("regress", pair=True, both=True, pooling="cls")
    task, backbone = double(build_task("regress", config, parts.backbone), parts.backbone)  # type: ignore[arg-type]
    inputs = Inputs(parts.tokenizer, 32, segments=0)
    (found,) = logits_of(task, backbone, task.items([Example("x", "w1 w2 w3", "w4")], inputs), 0)
    states = []
    for a, b in (("w1 w2 w3", "w4"), ("w4", "w1 w2 w3")):
        ids = torch.tensor([parts.tokenizer.encode_pair(a, b).ids])
        with torch.no_grad():
            states.append(backbone(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last[0, -1])
    with torch.no_grad():
        wanted = task.out(states[0] + states[1])
    assert float(found[0]) == pytest.approx(float(wanted[0]), abs=1e-6)


def test_both_orders_need_pairs(begin: Path, tmp_path: Path) -> None:
    single = write_csv(tmp_path / "rows.csv", [("text", "label"), *((f"w{n % 9}", "ab"[n % 2]) for n in range(40))])
    with pytest.raises(SesameError, match=r"task\.both is for pairs"):
        finetune(
            Wishes(str(begin), "classify", str(single), tmp_path / "run", settings=["task.both=true"], device="cpu")
        )
    parts = open_start(str(begin))
    assert parts.tokenizer is not None
    task = build_task("c", TaskConfig("classify", ("a", "b"), pair=True, both=True), parts.backbone)
    with pytest.raises(SesameError, match="trained on pairs"):
        predict(task, parts.backbone, parts.tokenizer, [Example("x", "w1")])


@pytest.mark.parametrize("both", [False, True])
def test_transformers_reads_the_same(begin: Path, tmp_path: Path, both: bool) -> None:
    """A folder as fine-tuning writes it: equal ids, equal states; and the same answers after saving and opening."""
    from transformers import AutoModel, AutoTokenizer

    parts = open_start(str(begin))
    assert parts.tokenizer is not None
    config = TaskConfig("classify", ("no", "yes"), pair=True, both=both, pooling="cls")
    task, backbone = double(build_task("classify", config, parts.backbone), parts.backbone)  # type: ignore[arg-type]
    task, backbone = task.float(), backbone.float()
    parts.heads, parts.tasks = task.heads(), {"classify": task}
    save_parts(tmp_path, parts)
    row = Example("x", "w1 w2", "w3 alpha")
    (before,) = predict(task, backbone, parts.tokenizer, [row])
    ((after,),) = (sesame.load(tmp_path, "cpu").predict([("w1 w2", "w3 alpha")]),)
    assert after["probabilities"] == pytest.approx(before["probabilities"], abs=1e-6)
    reader, model = AutoTokenizer.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path).eval()
    given = reader("w1 w2", "w3 alpha", return_tensors="pt")
    assert given["input_ids"][0].tolist() == parts.tokenizer.encode_pair("w1 w2", "w3 alpha").ids
    with torch.no_grad():
        theirs = model(**given).last_hidden_state
        ours = backbone(Batch(given["input_ids"], torch.tensor([theirs.shape[1]]), full=True)).last
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_bert_may_read_both_orders_too(tmp_path: Path) -> None:
    """Kept beside transformers' own head; not as a graph, which has one input."""
    from sesame.checkpoint.onnx.heads import choose_head

    parts = load_parts(start_folder(tmp_path / "bert"))
    assert parts.tokenizer is not None
    for both in (False, True):
        task = build_task("classify", TaskConfig("classify", ("a", "b"), pair=True, both=both), parts.backbone)
        parts.heads, parts.tasks = task.heads(), {"classify": task}
        save_parts(tmp_path, parts)
        said = json.loads((tmp_path / "config.json").read_text())
        assert ("id2label" in said) == (not both)
        again = sesame.load(tmp_path, "cpu")
        wanted = predict(task, parts.backbone, parts.tokenizer, [Example("x", "w1 w2", "w3")])
        assert again.predict([("w1 w2", "w3")])[0]["probabilities"] == pytest.approx(
            wanted[0]["probabilities"], abs=1e-6
        )
        if both:
            with pytest.raises(SesameError, match=r"reads pairs in both orders.*without --to onnx or --engine onnx"):
                choose_head(parts, None, "here")
        else:
            assert choose_head(parts, None, "here").name == "classify"


# ---- learning -------------------------------------------------------------------------------------------------------


def pairs(count: int, seed: int, ordered: bool) -> list[tuple[str, str, str]]:
    """ordered: "yes" where alpha comes in the first text and beta in the second, "no" the other way round; else "yes" where
    both texts have the same of the two. In the second kind, the training rows never have beta first."""
    luck, found = random.Random(f"{seed} {ordered}"), []
    for _ in range(count):
        yes = luck.random() < 0.5
        if ordered:
            keys = GOOD if yes else GOOD[::-1]
        else:
            keys = [luck.choice(GOOD)] * 2 if yes else GOOD
        sides = [luck.choices(PLAIN, k=luck.randint(1, 3)) for _ in range(2)]
        for side, key in zip(sides, keys, strict=True):
            side.insert(luck.randint(0, len(side)), key)
        found.append((" ".join(sides[0]), " ".join(sides[1]), "yes" if yes else "no"))
    return found


def taught(begin: Path, folder: Path, rows: list[tuple[str, str, str]], both: bool, seed: int) -> Loaded:
    folder.mkdir(exist_ok=True)
    train = write_csv(folder / "train.csv", [("text", "pair", "label"), *rows])
    settings = [*QUICK, "epochs=8", f"task.both={str(both).lower()}"]
    wishes: dict[str, Any] = {"strategy": "gpt", "settings": settings, "seeds": 1, "seed": seed, "baselines": False}
    finetune(Wishes(str(begin), "classify", str(train), folder / "run", device="cpu", precision="fp32", **wishes))
    return sesame.load(folder / "run", "cpu")


def right(model: Loaded, rows: list[tuple[str, str, str]], turned: bool = False) -> float:
    asked = [(b, a) if turned else (a, b) for a, b, _ in rows]
    said = model.predict(asked)
    return sum(reply["label"] == wanted for reply, (_, _, wanted) in zip(said, rows, strict=True)) / len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_similarity_is_learnt_in_both_orders(begin: Path, tmp_path: Path, seed: int) -> None:
    rows, held = pairs(400, seed, False), pairs(200, seed + 50, False)
    model = taught(begin, tmp_path / "both", rows, True, seed)
    assert right(model, held) > 0.95
    assert right(model, held, turned=True) > 0.95  # orders that no training row has
    one = taught(begin, tmp_path / "one", rows, False, seed)
    assert right(one, held) > 0.95
    assert right(one, held, turned=True) < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_entailment_has_an_order(begin: Path, tmp_path: Path, seed: int) -> None:
    """It is learnt, the folder answers as the run did, and who adds both orders cannot know it."""
    rows, held = pairs(300, seed, True), pairs(200, seed + 50, True)
    model = taught(begin, tmp_path / "one", rows, False, seed)
    assert right(model, held) > 0.95
    assert right(model, held, turned=True) < 0.05
    kept = [json.loads(line) for line in (tmp_path / "one" / "run" / "predictions.jsonl").read_text().splitlines()]
    asked = [rows[int(line["place"].rpartition(":")[2]) - 2] for line in kept]  # after the heading
    said = model.predict([(a, b) for a, b, _ in asked])
    assert len(kept) == 30
    for reply, line in zip(said, kept, strict=True):
        assert reply["probabilities"]["yes"] == pytest.approx(line["probabilities"]["yes"], abs=1e-5)
    blind = taught(begin, tmp_path / "both", rows[:100], True, seed)
    assert right(blind, held) == right(blind, held, turned=True) < 0.7


@pytest.mark.slow
def test_frozen_features_and_choices(begin: Path, tmp_path: Path) -> None:
    """Features are kept of the same rows that every seed starts with; a choice is made among options of any number."""
    luck = random.Random(0)
    rows = [(text(luck), text(luck), round(luck.random(), 2)) for _ in range(60)]
    train = write_csv(tmp_path / "train.csv", [("text", "pair", "score"), *rows])
    more: dict[str, Any] = {"seeds": 2, "baselines": False, "device": "cpu", "precision": "fp32"}
    settings = ["epochs=1", "least_steps=0", "task.both=true", "task.frame=gpt"]
    finetune(
        Wishes(str(begin), "regress", str(train), tmp_path / "frozen", strategy="frozen", settings=settings, **more)
    )
    tables = [load_parts(tmp_path / "frozen" / f"seed-{seed}").backbone.token_table() for seed in (0, 1)]
    assert torch.equal(tables[0], tables[1])
    stems = write_examples(tmp_path / "train.jsonl", "choice", examples("choice", 200, 1))
    settings = [*QUICK, "epochs=4"]
    finetune(Wishes(str(begin), "choice", str(stems), tmp_path / "choice", strategy="gpt", settings=settings, **more))
    scores = json.loads((tmp_path / "choice" / "results.json").read_text())["scores"]["valid"]
    assert scores["accuracy"]["mean"] > 0.8
