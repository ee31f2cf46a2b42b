"""A step of a task: cut into micro-batches or not, with kept features or not, it is the same step; and what trains when."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sesame.backbones import SkipThought, SkipThoughtConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.data.batch import Batch, Targets
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.finetuning.one_seed import Lesson, Recalled, keep
from sesame.objectives.base import Together
from sesame.objectives.model import Model
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.answer import logits_of
from sesame.tasks.loader import ItemLoader
from sesame.tasks.pooled import thin
from sesame.tasks.predict import predict
from sesame.tasks.windows import Inputs
from sesame.train.adapt import Adapt, prepare, unfreeze
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import choose_machine
from sesame.train.step import count_targets, step_loss
from tests.tasks.toys import encoder, examples, made, noise, toy_tokenizer

CONFIGS: dict[str, tuple[TaskConfig, dict[str, bool]]] = {
    "classify": (TaskConfig("classify", ("bad", "good")), {}),
    "pairs": (TaskConfig("classify", ("no", "yes"), pair=True), {"pair": True}),
    "multi": (TaskConfig("classify", ("alpha", "gamma"), multi=True), {"multi": True}),
    "regress": (TaskConfig("regress", scale=(3.0, 1.5)), {}),
    "tag": (TaskConfig("tag", ("O", "B-BAD", "B-GOOD")), {}),
    "qa": (TaskConfig("qa", null=True), {}),
    "choice": (TaskConfig("choice"), {}),
}
SHORT = {"length": 12, "overlap": 0.5}  # so short that longer toys are read in windows


def prepared(name: str, count: int = 24, **settings: Any) -> tuple[Task, Model, list[Any]]:
    config, wanted = CONFIGS[name]
    config = replace(config, **settings)
    task, backbone, inputs = made(config, toy_tokenizer())
    high = 24 if config.length else 8
    items = task.training_items(task.items(examples(config.kind, count, high=high, **wanted), inputs))
    return task, Model(backbone, Together({task.name: task})), items


def step(model: Model, loader: ItemLoader, number: int = 0) -> tuple[float, list[Tensor], int]:
    """Loss and gradients of one step, and in how many parts it came."""
    model.zero_grad()
    batches = loader.load(number)
    counts = count_targets(batches)
    total = 0.0
    for batch in batches:
        part = step_loss(model(batch), counts)
        part.backward()  # type: ignore[no-untyped-call]
        total += float(part.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None], len(batches)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, SHORT, {"layers": "mix"}], ids=["whole", "windows", "mix"])
@pytest.mark.parametrize("name", CONFIGS)
def test_micro_batches_do_not_change_a_step(name: str, settings: dict[str, Any]) -> None:
    task, model, items = prepared(name, **settings)
    if name not in ("tag", "qa", "choice"):
        assert any(len(item.windows) > 1 for item in items) == (settings == SHORT)
    whole = step(model, ItemLoader(task, items, 0, 16, seed=3, tokens=10**6))
    cut = step(model, ItemLoader(task, items, 0, 16, seed=3, tokens=150))
    one = step(model, ItemLoader(task, items, 0, 16, seed=3, tokens=1))
    unpadded = step(model, ItemLoader(task, items, 0, 16, seed=3, tokens=10**6, unpad=True))
    assert whole[2] == 1 < cut[2] < one[2] == 16
    for other in (cut, one, unpadded):
        assert abs(other[0] - whole[0]) < 1e-12
        assert len(other[1]) == len(whole[1])
        assert max(float((a - b).abs().max()) for a, b in zip(other[1], whole[1], strict=True)) < 1e-12


def test_choice_with_few_options_last() -> None:
    """The number of options of a batch is not that of its last example."""
    task, backbone, inputs = made(TaskConfig("choice"), toy_tokenizer())
    sizes = (5, 2, 3, 2)
    given = [
        Example("x", "w1 w2", options=tuple(f"w{n} w{size}" for n in range(size)), label=size - 1) for size in sizes
    ]
    items = task.items(given, inputs)
    both = logits_of(task, backbone, items, 0)
    for size, item, found in zip(sizes, items, both, strict=True):
        (alone,) = logits_of(task, backbone, [item], 0)
        assert torch.allclose(found[:size], alone, atol=1e-6)
        assert (found[size:] == -torch.inf).all()
    with torch.no_grad():
        batch = task.collate(items, 0)
        together = task.loss(task.answer(backbone(batch)), batch.targets["choice"])
        parts = [task.collate([item], 0) for item in items]
        alone = sum(task.loss(task.answer(backbone(part)), part.targets["choice"]) for part in parts)
    assert abs(float(together - alone)) < 1e-12
    replies = predict(task, backbone, toy_tokenizer(), given)
    assert [len(reply["probabilities"]) for reply in replies] == list(sizes)
    assert all(abs(sum(reply["probabilities"]) - 1) < 1e-6 for reply in replies)


def test_a_text_of_windows_is_the_mean_of_their_vectors() -> None:
    config = TaskConfig("classify", ("a", "b"), pooling="cls", length=12, overlap=0.0)
    task, backbone, inputs = made(config, toy_tokenizer())
    (item,) = task.items([Example("x", "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 alpha beta w1 w2 w3 w4 w5 w6 w7 w8")], inputs)
    assert len(item.windows) == 2
    (both,) = logits_of(task, backbone, [item], 0)
    each = [logits_of(task, backbone, [replace(item, windows=(w,), slots=(0,))], 0)[0] for w in item.windows]
    assert torch.allclose(both, (each[0] + each[1]) / 2, atol=1e-6)


@pytest.mark.parametrize("luck", [0.0, 0.37, 1 - 2**-53])
@pytest.mark.parametrize("count", [1, 8, 9, 17, 100])
def test_thinned_texts_keep_different_windows(count: int, luck: float) -> None:
    task, _, inputs = made(TaskConfig("classify", ("a", "b"), length=12, overlap=0.0), toy_tokenizer())
    (item,) = task.items([Example("x", "w1 " * 10 * count)], inputs)
    assert len(item.windows) == count
    kept = thin(item, luck).windows
    assert len({id(window) for window in kept}) == len(kept) == min(count, 8)


# ---- frozen ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["last", "mix", "concat-last-4"])
@pytest.mark.parametrize("name", CONFIGS)
def test_kept_features_are_the_computed_ones(name: str, layers: str, tmp_path: Path) -> None:
    config = replace(CONFIGS[name][0], layers=layers, pooling="mean", **SHORT)  # type: ignore[arg-type]
    task, model, items = prepared(name, layers=layers, pooling="mean", **SHORT)
    save_parts(tmp_path, Parts(model.backbone, tokenizer=toy_tokenizer()))
    lesson = Lesson(config, items, [], 0)
    keep(str(tmp_path), {task.name: lesson}, choose_machine("cpu", "fp32"))
    assert len(lesson.features) == len({id(w) for item in items for w in item.windows})
    model.freeze()
    computed = ItemLoader(task, items, 0, 16, 3, tokens=100)
    recalled = ItemLoader(task, items, 0, 16, 3, tokens=100, numbers=lesson.numbers)
    stand_in = Recalled({task.name: lesson})
    for number in range(3):
        for plain, known in zip(computed.load(number), recalled.load(number), strict=True):
            (a,) = model(plain)
            (b,) = model.objective(stand_in, known)
            assert b.total.dtype == a.total.dtype
            assert abs(float((a.total - b.total).detach())) < 1e-12 * max(1.0, float(a.total.detach()))


# ---- what trains, and how fast --------------------------------------------------------------------------------------


def small_model(depth: int = 3, **settings: Any) -> Model:
    backbone = encoder(len(toy_tokenizer()), depth=depth, **settings)
    return Model(backbone, Together({"classify": build_task("classify", CONFIGS["classify"][0], backbone)}))


def changed(model: Model, before: dict[str, Tensor]) -> set[str]:
    """The parts that have moved: "embeddings", "blocks.2", "head" ..."""
    found = set()
    for name, now in model.named_parameters():
        if not torch.equal(now, before[name]):
            parts = name.removeprefix("backbone.").split(".")
            found.add("head" if name.startswith("objective") else ".".join(parts[: 2 if parts[0] == "blocks" else 1]))
    return found


def remembered(model: Model) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_gradual_opens_from_the_top() -> None:
    adapt = Adapt("gradual", unfreeze=0.5)
    model = small_model()
    prepare(model, adapt)
    optimizer = build_optimizer(model, OptimConfig(rate=1e-2))
    _, _, items = prepared("classify")
    loader = ItemLoader(model.objective.all()[0], items, 0, 8, 1, 10**6)  # type: ignore[arg-type]
    seen = []
    for number, progress in enumerate([0.0, 0.1, 0.13, 0.24, 0.26, 0.37, 0.38, 0.49, 0.5, 0.9]):
        before = remembered(model)
        unfreeze(model, adapt, progress)
        step(model, loader, number)
        optimizer.step()
        seen.append(changed(model, before))
    head, two = {"head"}, {"head", "blocks.2"}
    three, four = two | {"blocks.1"}, two | {"blocks.1", "blocks.0"}
    assert seen == [head, head, two, two, three, three, four, four, four | {"embeddings"}, four | {"embeddings"}]


@pytest.mark.parametrize("order", ["post", "pre"])
def test_lower_layers_learn_slower(order: str) -> None:
    model = small_model(order=order)
    scales = prepare(model, Adapt(layer_decay=0.5))
    optimizer = build_optimizer(model, OptimConfig(rate=1e-3), scales)
    optimizer.set_rate(1e-3)
    rates = {id(p): group["lr"] for part in optimizer.parts for group in part.param_groups for p in group["params"]}
    above = 1 if order == "pre" else 0  # the norm at the end of the stack is a group of its own
    for name, p in model.named_parameters():
        if name.startswith("objective"):
            distance = 0
        elif ".blocks." in name:
            distance = 3 - int(name.split(".")[2]) + above
        else:
            distance = 1 if "final_norm" in name else 4 + above
        assert rates[id(p)] == pytest.approx(1e-3 * 0.5**distance), name


def test_reinit_makes_only_the_top_layers_anew() -> None:
    model = small_model()
    noise(model)
    before = remembered(model)
    prepare(model, Adapt(reinit=2))
    assert changed(model, before) == {"blocks.1", "blocks.2"}
    for name, p in model.named_parameters():
        if "blocks.1" in name or "blocks.2" in name:
            assert not torch.equal(p, before[name]), name
            if "norm" in name:
                assert torch.equal(p, torch.ones_like(p) if name.endswith("weight") else torch.zeros_like(p))
    with pytest.raises(SesameError, match="has 3 layers"):
        prepare(small_model(), Adapt(reinit=4))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_reinit_knows_both_cells(cell: Any) -> None:
    model = Model(SkipThought(SkipThoughtConfig(20, 4, 6, depth=2, cell=cell)), Together({}))
    before = remembered(model)
    prepare(model, Adapt(reinit=1))
    told = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert told == {name for name in before if "encoder.layers.1" in name}


def test_settings_that_contradict_each_other() -> None:
    for wrong in ({"layer_decay": 0.0}, {"unfreeze": 1.5}, {"reinit": -1}):
        with pytest.raises(SesameError, match="adapt"):
            Adapt(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SesameError, match=r"adapt\.reinit.*frozen"):
        Adapt("frozen", reinit=1)


@pytest.mark.slow
@pytest.mark.parametrize(("middle", "spread"), [(0.0, 1e-4), (3.0, 1.5), (5e6, 1e6), (-1e9, 1e8)])
def test_scores_of_any_size_train_alike(middle: float, spread: float) -> None:
    """Stars from 1 to 5 or prices in millions: the same training, and the answers differ by scale alone."""

    def trained(scale: tuple[float, float]) -> list[float]:
        backbone = encoder(len(toy_tokenizer())).double()
        torch.manual_seed(0)
        task = build_task("regress", TaskConfig("regress", scale=scale), backbone, 0.0).double()
        model = Model(backbone, Together({"regress": task}))
        scales = prepare(model, Adapt())
        optimizer = build_optimizer(model, OptimConfig(rate=3e-3, eps=1e-8, decay=0.01), scales)
        given = [replace(e, label=scale[0] + scale[1] * (1 if e.label > 3 else -1)) for e in examples("regress", 24)]
        items = task.items(given, Inputs(toy_tokenizer(), 32))
        loader = ItemLoader(task, items, 0, 8, 1, 10**6)
        for number in range(30):
            step(model, loader, number)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.set_rate(3e-3)
            optimizer.step()
        before = predict(task, backbone, toy_tokenizer(), given)
        task.settle()
        assert task.config.scale == (0.0, 1.0)
        replies = predict(task, backbone, toy_tokenizer(), given)
        assert all(abs(a["value"] - b["value"]) < 1e-6 * scale[1] for a, b in zip(before, replies, strict=True))
        return [(reply["value"] - scale[0]) / scale[1] for reply in replies]

    plain, scaled = trained((0.0, 1.0)), trained((middle, spread))
    assert max(abs(a - b) for a, b in zip(plain, scaled, strict=True)) < 1e-4
    assert max(plain) - min(plain) > 0.2


def test_a_pair_for_a_model_with_one_segment() -> None:
    """Models with a single segment read pairs too."""
    for segments in (0, 1):
        task, backbone, _ = made(TaskConfig("classify", ("a", "b")), toy_tokenizer(), segments=segments)
        (found,) = predict(task, backbone, toy_tokenizer(), [Example("x", "alpha", "beta w1")])
        assert found["label"] in ("a", "b")


def test_standardized_features_fold_into_the_head() -> None:
    """What a head learnt on features of mean 0 and spread 1 it answers on plain features, to rounding."""
    task, _, _ = made(TaskConfig("classify", ("a", "b", "c"), pooling="mean"), toy_tokenizer())
    features = torch.randn(1, 9, task.out.in_features, dtype=torch.float64) * 7 + 3
    task.center = features[0].mean(0), features[0].std(0)
    batch = Batch(torch.zeros(9, 1, dtype=torch.long), torch.ones(9, dtype=torch.long)).with_targets(
        **{task.name: Targets(torch.zeros(9, dtype=torch.long), rows=torch.arange(9))}
    )
    task.eval()
    before = task.logits(features, batch).detach()
    assert float((before - task.out(features[0]).detach()).abs().max()) > 0.01
    task.settle()
    assert torch.allclose(before, task.logits(features, batch), atol=1e-12)
