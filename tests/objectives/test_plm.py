"""Permutation LM: who is asked, who sees whom, and that it learns what can be learnt."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sesame import chance
from sesame.backbones import XLNet, XLNetConfig
from sesame.data.batch import IGNORE, Batch
from sesame.data.loader import Loader
from sesame.data.pack import Packer, Specials
from sesame.data.parts import hold_out
from sesame.errors import SesameError
from sesame.objectives import Vocab, build, orders
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.objectives.plm import PermutationLM, PermutationLMConfig, TableHead
from sesame.train.held_out import held_out
from sesame.train.loop import Clock, Hooks, fit
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.schedule import Schedule
from sesame.train.state import State
from tests.languages import SPECIALS, Chain, store_of, word_tokenizer

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SIZE = 60
CPU = Machine(torch.device("cpu"), "fp32")


def objective(width: int = 16, size: int = SIZE, **settings: object) -> PermutationLM:
    return PermutationLM(PermutationLMConfig(**settings), TableHead(width, size), Vocab(size, ROLES))  # type: ignore[arg-type]


def backbone(**settings: object) -> XLNet:
    return XLNet(XLNetConfig(SIZE, 16, 2, 2, dropout=0.0, attention_dropout=0.0, init=0.3, **settings)).double().eval()  # type: ignore[arg-type]


def rows(count: int, length: int, ragged: bool = False, seed: int = 0, pairs: bool = True) -> Batch:
    """As they are packed: [CLS] A [SEP] B [SEP]."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, SIZE, (count, length), generator=generator)
    lengths = torch.randint(9, length + 1, (count,), generator=generator) if ragged else torch.full((count,), length)
    middle = 2 + (torch.rand(count, generator=generator) * (lengths - 5)).long()
    ids[:, 0] = ROLES["cls"]
    ids[torch.arange(count), lengths - 1] = ROLES["sep"]
    place = torch.arange(length)[None]
    segments = None
    if pairs:
        ids[torch.arange(count), middle] = ROLES["sep"]
        segments = ((place > middle[:, None]) & (place < lengths[:, None])).long()
    ids[place >= lengths[:, None]] = ROLES["pad"]
    keys = torch.tensor([chance.key(seed, row) >> 1 for row in range(count)])
    return Batch(ids, lengths, keys=keys, segments=segments, full=not ragged)


def part_of(place: int, size: int) -> int:
    return place // size


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_rows_end_in_cls_and_some_are_turned() -> None:
    batch = rows(200, 21, ragged=True)
    after = objective(part=12).corrupt(batch)
    backward = after.targets["plm_backward"].labels.bool()
    assert 60 < int(backward.sum()) < 140
    assert after.segments is not None
    for row in range(200):
        size = int(batch.lengths[row])
        packed = batch.ids[row, 1 : size - 1].tolist()  # A [SEP] B
        text = packed[::-1] if backward[row] else packed
        assert after.ids[row, :size].tolist() == [*text, ROLES["sep"], ROLES["cls"]]
        middle = text.index(ROLES["sep"])
        assert after.segments[row, :size].tolist() == [0] * (middle + 1) + [1] * (size - middle - 2) + [2]
        assert torch.equal(after.ids[row, size:], batch.ids[row, size:])
    again = objective(part=12).corrupt(replace(after, targets={}))  # [CLS] is last already
    assert torch.equal(again.ids[~backward], after.ids[~backward])
    one = objective(part=12, backward=0.0).corrupt(rows(20, 21, pairs=False))
    assert one.segments is not None
    assert one.segments.tolist() == [[0] * 20 + [2]] * 20


# ---- targets ---------------------------------------------------------------------------------------------------------


def choose_one_by_one(starts: list[bool], size: int, goal: int, luck: dict[str, list[float]], every: int) -> list[bool]:
    """The authors' way: a span after the other, then single places."""
    chosen, at, have, number = [False] * len(starts), 0, 0, 0
    shares = np.cumsum([1 / n for n in range(1, 6)]) / sum(1 / n for n in range(1, 6))
    while at < size and have < goal:
        span = min(1 + int(np.searchsorted(shares[:-1], luck["length"][number], side="right")), goal - have)
        left = int(luck["left"][number] * span * every)
        begin = at + left
        while begin < size and not starts[begin]:
            begin += 1
        if begin + span >= size:
            break
        chosen[begin : begin + span] = [True] * span
        at, have, number = begin + span + span * every - left, have + span, number + 1
    for place in np.argsort(np.where(chosen, 2.0, luck["fill"])[:size], kind="stable")[: max(0, goal - have)]:
        chosen[place] = True
    return chosen


def test_spans_are_those_of_the_loop_over_each_row() -> None:
    generator = torch.Generator().manual_seed(3)
    count, width = 300, 64
    starts = torch.rand(count, width, generator=generator) < 0.6
    sizes = torch.randint(1, width + 1, (count,), generator=generator)
    goal = torch.minimum(torch.randint(0, 16, (count,), generator=generator), sizes - 1)
    luck = {
        n: torch.rand(count, width, generator=generator, dtype=torch.float64)
        for n in ("length", "left", "fill", "order")
    }
    real = torch.arange(width)[None] < sizes[:, None]
    draws = {name: value.numpy() for name, value in luck.items()}
    found = torch.from_numpy(orders.choose(starts.numpy(), real.numpy(), goal.numpy(), 6, 5, draws))
    for row in range(count):
        drawn = {name: value[row].tolist() for name, value in luck.items()}
        wanted = choose_one_by_one(starts[row].tolist(), int(sizes[row]), int(goal[row]), drawn, 6)
        assert found[row].tolist() == wanted
    assert torch.equal(found.sum(1), goal)


def test_one_sixth_in_spans_by_their_law() -> None:
    plm = objective(backward=0.0)
    batch = rows(400, 512, pairs=False)
    after = plm.corrupt(batch)
    targets = after.targets["plm"]
    assert targets.labels.shape == (400, 85)  # num_predict of the authors
    assert [(p.begin, p.end, p.last - p.first) for p in plm.parts(512)] == [(0, 256, 43), (256, 512, 42)]
    share = (targets.labels != IGNORE).double().mean()
    assert 0.985 < share < 1.0  # now and then a [SEP] or [CLS] was drawn
    assert targets.at is not None
    lengths: Counter[int] = Counter()
    for row in range(400):
        places = targets.at[row][targets.labels[row] != IGNORE].tolist()
        assert len(places) == len(set(places))
        run = 1
        for a, b in zip(places, [*places[1:], 10**6], strict=True):
            run, done = (run + 1, 0) if b == a + 1 else (1, run)
            lengths[done] += 1
    runs = np.array([lengths[n] for n in range(1, 6)], dtype=float)
    assert runs[1:] / runs[1] == pytest.approx([1, 2 / 3, 1 / 2, 2 / 5], rel=0.2)  # 1 / n; 1 has the single places too
    assert runs[0] > 2 * runs[1]
    assert sum(lengths[n] for n in range(6, 30)) < 0.03 * runs.sum()
    real = targets.labels != IGNORE
    assert torch.equal(torch.gather(after.ids, 1, targets.at)[real], targets.labels[real])
    assert int(targets.labels[real].min()) >= 5


def test_spans_begin_at_words() -> None:
    batch = rows(200, 64, pairs=False)
    words = torch.cumsum((torch.rand(200, 64, generator=torch.Generator().manual_seed(1)) < 0.4).long(), 1) + 1
    words[:, 0] = words[:, -1] = 0
    plm = objective(part=64, backward=0.0)
    firsts = []
    for given in (replace(batch, words=words), batch):
        after = plm.corrupt(given)
        at = after.targets["plm"].at
        assert at is not None
        asked = torch.zeros_like(batch.ids).scatter(1, at, (after.targets["plm"].labels != IGNORE).long())
        spans = asked[:, 1:-2] & asked[:, 2:-1] & asked[:, 3:] & ~asked[:, :-3] > 0  # three in a row are a span
        moved = torch.cat([words[:, 1:], words[:, :1]], dim=1)
        firsts.append(float((moved[:, 1:-2] != moved[:, :-3])[spans].double().mean()))
    assert firsts[0] > 0.8 > 0.6 > firsts[1]


def test_corruption_depends_on_the_example_alone() -> None:
    plm = objective(part=12, every=4)
    batch = rows(12, 30, ragged=True)
    after = plm.corrupt(batch)
    wide = plm.corrupt(replace(batch, ids=torch.nn.functional.pad(batch.ids, (0, 9)), segments=None))
    assert batch.keys is not None
    assert batch.segments is not None
    rank, other = after.targets["plm_order"].labels, wide.targets["plm_order"].labels
    assert torch.equal(wide.ids[:, :30], after.ids)
    alone = plm.corrupt(Batch(batch.ids[3:4], batch.lengths[3:4], keys=batch.keys[3:4], segments=batch.segments[3:4]))
    for name in ("plm", "plm_order", "plm_backward"):
        assert torch.equal(alone.targets[name].labels[0], after.targets[name].labels[3])
    for row in range(12):
        first, second = (t.targets["plm"] for t in (after, wide))
        assert first.at is not None
        assert second.at is not None
        assert (
            first.at[row][first.labels[row] != IGNORE].tolist() == second.at[row][second.labels[row] != IGNORE].tolist()
        )
        size = int(batch.lengths[row])
        given = rank[row, :size] == -1
        assert torch.equal(given, other[row, :size] == -1)
    changed = plm.corrupt(replace(batch, keys=batch.keys + 1))
    assert not torch.equal(changed.targets["plm_order"].labels, rank)


# ---- who sees whom ---------------------------------------------------------------------------------------------------


def allowed(after: Batch, row: int, place: int, target: int, part: int) -> bool:
    """May the prediction at `target` depend on the token at `place`?"""
    rank = after.targets["plm_order"].labels[row]
    here, there = part_of(place, part), part_of(target, part)
    return here < there or (here == there and int(rank[place]) < int(rank[target]))


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("memory", [0, 5])
def test_a_token_matters_only_where_the_order_allows_it(memory: int) -> None:
    """Change every token in turn and see which predictions change; in many orders, forwards and backwards."""
    part, length, seen = 12, 30, Counter[bool]()
    for seed in range(8):
        torch.manual_seed(seed)
        plm, model = objective(part=part, every=4).double().eval(), backbone(memory=memory)
        after = plm.corrupt(rows(3, length, ragged=seed % 2 == 0, seed=seed))
        targets = after.targets["plm"]
        assert targets.at is not None
        before = plm.predictions(model, after)
        for place in range(length):
            ids = after.ids.clone()
            ids[:, place] = torch.where(ids[:, place] == 7, 8, 7)
            moved = (plm.predictions(model, replace(after, ids=ids)) - before).abs().amax(-1)
            for row in range(3):
                for slot, target in enumerate(targets.at[row].tolist()):
                    if targets.labels[row, slot] == IGNORE:
                        continue
                    free = place < int(after.lengths[row]) and allowed(after, row, place, target, part)
                    assert place != target or not free
                    if memory and part_of(place, part) < part_of(target, part):
                        continue  # it may be forgotten, or known by way of one that is not
                    assert (float(moved[row, slot]) > 1e-9) == free, (seed, place, target)
                    seen[free] += 1
    assert seen[True] > 1000
    assert seen[False] > 1000


def test_masks_are_those_of_the_authors() -> None:
    """`_local_perm`, with its own words: perm_mask of the query stream, and without the diagonal of the content stream."""
    plm, model = objective(part=24, every=4), backbone()
    after = plm.corrupt(rows(20, 24))
    targets, rank = after.targets["plm"], after.targets["plm_order"].labels
    assert targets.at is not None
    from sesame.backbones.xlnet import Order

    content = model._content_sight(after, None, Order(rank, targets.at))
    query = model._query_sight(after, None, Order(rank, targets.at), content)
    assert content.visible is not None
    assert query.visible is not None
    for row in range(20):
        asked = targets.at[row][targets.labels[row] != IGNORE].tolist()
        functional = after.ids[row] <= 3
        target = torch.zeros(24, dtype=torch.bool)
        target[asked] = True
        chosen = rank[row] >= 0
        assert torch.equal(chosen, target | functional)
        self_rank = torch.where(target, rank[row], rank[row] + 1)
        blocked = (self_rank[:, None] <= rank[row][None, :]) & chosen[None, :]
        assert torch.equal(content.visible[row], ~(blocked & ~torch.eye(24, dtype=torch.bool)))
        for slot, place in enumerate(asked):
            assert torch.equal(query.visible[row, slot], ~blocked[place])
            assert not query.visible[row, slot, place]


@torch.no_grad()
def test_loss_is_the_sum_of_negative_log_probabilities() -> None:
    torch.manual_seed(0)
    plm, model = objective(part=12, every=4).double().eval(), backbone()
    torch.nn.init.normal_(plm.head.bias)
    after = plm.corrupt(rows(6, 30, ragged=True))
    (term,) = plm(model, after)
    logits = plm.predictions(model, after) @ model.tokens.weight[:SIZE].T + plm.head.bias
    labels = after.targets["plm"].labels
    wanted = -torch.gather(logits.log_softmax(-1), 2, labels.clamp(min=0)[..., None])[..., 0][labels != IGNORE].sum()
    assert float(term.total) == pytest.approx(float(wanted), abs=1e-10)
    assert int(term.count) == int((labels != IGNORE).sum())
    assert term.hits is not None
    halves = [after.map(lambda x, here=here: x[here]) for here in (slice(0, 2), slice(2, 6))]  # type: ignore[misc]
    assert float(sum(plm(model, half)[0].total for half in halves)) == pytest.approx(float(wanted), abs=1e-10)
    (training,) = plm.train()(model, after)
    assert float(training.total) == pytest.approx(float(wanted), abs=1e-10)


def test_no_gradient_flows_into_the_memory() -> None:
    """With a loss on the second part alone, tokens that stand in the first part only get no gradient."""
    torch.manual_seed(0)
    plm, model = objective(part=12, every=4, backward=0.0).double(), backbone()
    batch = rows(1, 24)
    batch = replace(batch, ids=torch.where(batch.ids > 4, torch.arange(24)[None] + 10, batch.ids))
    after = plm.corrupt(batch)
    second = plm.parts(24)[1]
    plm.predictions(model, after)[:, second.first : second.last].square().sum().backward()
    grads = model.tokens.weight.grad
    assert grads is not None
    first = [id for id in after.ids[0, :12].tolist() if id > 4]
    assert not grads[first].any()
    assert grads[after.ids[0, 12:]].any()


# ---- settings, and learning ----------------------------------------------------------------------------------------


def test_wrong_settings_get_one_sentence() -> None:
    model = XLNet(XLNetConfig(100, 16, 1, 2))
    with pytest.raises(SesameError, match="leave the other"):
        build({"plm": PermutationLMConfig(), "mlm": MaskedLMConfig()}, model, Vocab(100, ROLES))
    for settings in ({"every": 1}, {"part": 5}, {"backward": 2.0}, {"span": 0}):
        with pytest.raises(SesameError, match="plm"):
            PermutationLMConfig(**settings)


def best_loss(chain: Chain, batches: list[Batch], part: int) -> float:
    """The loss of a reader who knows the chain: for each target, forward-backward over what the order lets it see."""
    first, total, count = len(SPECIALS), 0.0, 0
    for batch in batches:
        targets = batch.targets["plm"]
        assert targets.at is not None
        for row in range(batch.size):
            text = int(batch.lengths[row]) - 2  # then [SEP] [CLS]
            ids = batch.ids[row, :text].numpy() - first
            turned = bool(batch.targets["plm_backward"].labels[row])
            for at, label in zip(targets.at[row].tolist(), targets.labels[row].tolist(), strict=True):
                if label == IGNORE:
                    continue
                seen = np.ones((text, len(chain.words)))
                for place in range(text):
                    if allowed(batch, row, place, at, part):
                        seen[place] = np.arange(len(chain.words)) == ids[place]
                here = text - 1 - at if turned else at
                seen = seen[::-1] if turned else seen
                ahead, back = chain.start, np.ones(len(chain.words))
                for place in range(here):
                    ahead = (ahead * seen[place]) @ chain.step
                    ahead = ahead / ahead.sum()
                for place in range(text - 1, here, -1):
                    back = chain.step @ (seen[place] * back)
                    back = back / back.sum()
                belief = ahead * back
                total -= float(np.log(belief[label - first] / belief.sum()))
                count += 1
    return total / count


def trained(tmp_path: Path, steps: int, part: int, documents: int = 1500) -> tuple[Model, list[Batch], Chain]:
    chain = Chain(8, seed=3)
    tokenizer = word_tokenizer(chain.words)
    store = store_of(chain.text(documents, 20, 14, seed=4), tokenizer, tmp_path)
    torch.manual_seed(0)
    model = XLNet(XLNetConfig(len(tokenizer), 64, 2, 4, dropout=0.0, attention_dropout=0.0, init=0.2))
    plm = objective(64, len(tokenizer), part=part, every=4)
    whole = Model(model, plm)  # type: ignore[arg-type]
    train, valid = hold_out(store, 0, 0.05)
    specials = Specials(tokenizer.id("cls"), tokenizer.id("sep"), tokenizer.id("pad"))
    packer, kept = (Packer(piece, "documents", 30, specials, words=True) for piece in (train, valid))
    loader = Loader(packer, 64, 64, 0, plm.corrupt)
    numbers = np.arange(min(len(kept), 600))
    batches = [plm.corrupt(kept.draw(numbers, chance.keys(1, numbers)))]
    fit(
        whole, whole, build_optimizer(whole, OptimConfig(rate=5e-3, decay=0.01)),
        lambda step: loader.load(step, 0.0),
        rate=5e-3, schedule=Schedule(warmup=0.1), clip=1.0, clock=Clock(steps=steps), state=State(), machine=CPU,
        seed=0, hooks=Hooks(),
    )  # fmt: skip
    return whole, batches, chain


@pytest.mark.slow
def test_it_trains_in_the_one_loop(tmp_path: Path) -> None:
    model, batches, _ = trained(tmp_path, 30, 16, documents=60)
    figures = held_out(model, model, batches, CPU)
    assert figures["plm"] < np.log(13) * 0.9
    assert 0 < figures["plm_accuracy"] < 1


@pytest.mark.slow
def test_loss_comes_within_3_percent_of_the_optimum(tmp_path: Path) -> None:
    model, batches, chain = trained(tmp_path, 600, 16)
    best = best_loss(chain, batches, 16)
    found = held_out(model, model, batches, CPU)["plm"]
    assert 0.3 < best < 1.5  # there is something to know, and something that nobody can know
    assert found > best * 0.985  # below the optimum something leaks
    assert found < best * 1.03, f"{found:.4f} against the optimum {best:.4f}"
