"""Recurrent encoder-decoders: step by step equals one pass, padding never leaks, search works, toys are learnt."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import RecurrentSeq2Seq, RecurrentSeq2SeqConfig, State
from sesame.backbones.flops import flops_per_token
from sesame.backbones.work import Work
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.generate import Settings, generate
from sesame.generate.speakers import BackboneSpeaker
from sesame.nn.attention.looking import Look
from sesame.objectives import Vocab, build
from sesame.objectives.model import Model
from sesame.objectives.seq2seq import Seq2SeqConfig
from sesame.train.step import count_targets, step_loss

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

KINDS: dict[str, dict[str, Any]] = {
    "sutskever": {"depth": 3, "readout": "state"},
    "cho": {"cell": "gru", "context": "all", "start": "tanh", "readout": "maxout", "inner": 12},
    "rnnsearch": {
        "cell": "gru", "bidirectional": True, "start": "tanh", "attention": "global", "score": "additive",
        "looks": "before", "readout": "maxout", "inner": 12,
    },
    "bahdanau": {
        "cell": "gru", "bidirectional": True, "start": "tanh", "attention": "global", "score": "additive",
        "looks": "before", "readout": "maxout", "readout_before": True, "inner": 12,
    },
    "luong dot": {"depth": 2, "attention": "global", "score": "dot"},
    "luong scaled": {"attention": "global", "score": "scaled", "residual": True, "depth": 2},
    "luong cosine": {"attention": "global", "score": "cosine", "inner": 24},
    "luong fed": {"depth": 2, "attention": "global", "score": "general", "feed": True, "tied": True},
    "luong both ends": {"attention": "global", "score": "general", "bidirectional": True, "start": "tanh"},
    "local-m": {"attention": "local-m", "window": 2, "feed": True},
    "local-p": {"depth": 2, "attention": "local-p", "window": 2},
    "hard": {"attention": "hard", "score": "additive"},
    "hard fed": {"attention": "hard", "feed": True},
    "coverage": {"cell": "gru", "attention": "global", "score": "additive", "coverage": True, "feed": True},
}  # fmt: skip
ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def made(kind: str, seed: int = 1) -> RecurrentSeq2Seq:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = RecurrentSeq2Seq(RecurrentSeq2SeqConfig(**{"vocab": 50, "width": 16, "depth": 1} | KINDS[kind]))
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0.0, 0.4)
    return model.double().eval()


def sources(seed: int = 0) -> tuple[Batch, torch.Tensor]:
    luck = torch.Generator().manual_seed(seed)
    outputs = torch.randint(50, (3, 7), generator=luck)
    ids = torch.randint(50, (3, 9), generator=luck)
    return Batch(ids, torch.tensor([9, 5, 1]), outputs=outputs), outputs


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_a_source_never_leaks(kind: str) -> None:
    model, (batch, outputs) = made(kind), sources()
    whole = model(batch).last
    for row, length in enumerate(batch.lengths.tolist()):
        alone = Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], full=True)
        alone = replace(alone, outputs=outputs[row : row + 1])
        torch.testing.assert_close(model(alone).last[0], whole[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_does_not_matter(kind: str) -> None:
    model, (batch, outputs) = made(kind), sources()
    order = torch.tensor([2, 0, 1])
    mixed = Batch(batch.ids[order], batch.lengths[order], outputs=outputs[order])
    torch.testing.assert_close(model(mixed).last, model(batch).last[order], rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_does_not_look_ahead(kind: str) -> None:
    model, (batch, outputs) = made(kind), sources()
    changed = outputs.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 50
    before, after = model(batch).last, model(replace(batch, outputs=changed)).last
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4] - after[:, 4]).abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [(1,) * 7, (3, 4)])
def test_going_on_equals_one_pass(kind: str, parts: tuple[int, ...]) -> None:
    model, (batch, outputs) = made(kind), sources()
    state, found, maps = State(), [], []
    for part in outputs.split(parts, dim=1):
        encoded = model.go_on(replace(batch, outputs=part), state, maps=True)
        assert encoded.state is not None
        state = encoded.state
        found.append(encoded.last)
        maps += encoded.maps
    assert state.length == 7
    whole = model(batch, maps=True)
    torch.testing.assert_close(torch.cat(found, 1), whole.last, rtol=0, atol=1e-12)
    if maps:
        torch.testing.assert_close(torch.cat(maps, 2), whole.maps[0], rtol=0, atol=1e-12)
    assert bool(maps) == (model.config.attention != "none")


@pytest.mark.parametrize("kind", KINDS)
def test_hypotheses_share_their_source(kind: str) -> None:
    model, (batch, outputs) = made(kind), sources()
    state = model.go_on(replace(batch, outputs=outputs[:, :3]), State()).state
    assert state is not None
    state = state.select(torch.tensor([[2, 2, 2], [0, 0, 0]]))
    assert state.source[0].shape[0] == 2
    state = state.select(torch.tensor([[4, 3], [0, 2]]))  # the sources change places
    rows = torch.tensor([0, 0, 2, 2])
    ids = outputs[rows, 3:4]
    found = model.go_on(Batch(ids, torch.ones(4).long(), full=True, outputs=ids), state)
    torch.testing.assert_close(found.last[:, 0], model(batch).last[rows, 3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "attention" in KINDS[kind]])
def test_the_map_is_that_of_the_source(kind: str) -> None:
    model, (batch, _) = made(kind), sources()
    (found,) = model(batch, maps=True).maps
    assert found.shape == (3, 1, 7, 9)
    assert found[1, :, :, 5:].abs().max() == 0
    if kind != "local-p":
        torch.testing.assert_close(found.sum(-1), torch.ones(3, 1, 7, dtype=torch.double))


@pytest.mark.parametrize("kind", KINDS)
def test_one_beam_is_greedy_and_more_find_no_less(kind: str) -> None:
    model, (batch, _) = made(kind), sources()
    table = torch.randn(50, 16, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    speaker = BackboneSpeaker(model, lambda hidden: 3 * hidden @ table.T)
    start = replace(batch, outputs=torch.full((3, 1), 2))
    greedy = generate(speaker, start, Settings(most=6), end=3)
    alone = [
        generate(speaker, replace(start, ids=start.ids[row:row + 1, :length], lengths=start.lengths[row:row + 1],
                                  outputs=start.outputs[:1], full=True), Settings(most=6), end=3)[0]  # type: ignore[index]
        for row, length in enumerate(batch.lengths.tolist())
    ]  # fmt: skip
    beams = generate(speaker, start, Settings(most=6, beams=20, alpha=0.0), end=3)
    for one, single, many in zip(greedy, alone, beams, strict=True):
        assert one[0].ids == single[0].ids
        assert many[0].logprob >= one[0].logprob - 1e-9


@pytest.mark.parametrize("kind", ["sutskever", "rnnsearch", "luong dot", "coverage"])
def test_flops_are_those_that_are_counted(kind: str) -> None:
    """In float64 PyTorch's cells are plain products, which its counter sees."""
    config = RecurrentSeq2SeqConfig(**{"vocab": 1000, "width": 64, "depth": 2} | KINDS[kind])
    backbone = RecurrentSeq2Seq(config).double()
    model = Model(backbone, build({"seq2seq": Seq2SeqConfig(smoothing=0.0)}, backbone, Vocab(1000, ROLES))).double()
    batch = Batch(torch.randint(5, 1000, (4, 32)), torch.full((4,), 32), full=True)
    batch = model.objective.corrupt(batch.with_targets(seq2seq=Targets(torch.randint(5, 1000, (4, 24)))))
    counter = FlopCounterMode(display=False)
    with counter:
        step_loss(model.train()(batch), count_targets([batch])).backward()
    counted = counter.get_total_flops() / batch.ids.numel()
    assert flops_per_token(config, Work(32, answer=24 / 32)) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("kind", ["rnnsearch", "bahdanau"])
def test_the_maxout_layer_reads_the_state_that_looked(kind: str) -> None:
    """Bahdanau et al. 2015, A.2.2: t_i = U s_{i-1} + V y_{i-1} + C c_i, of which pairs compete; by PyTorch's own cell."""
    model, (batch, outputs) = made(kind), sources()
    decoder, (source, _, memory) = model.decoder, model.read(batch)
    assert decoder.looking is not None
    assert decoder.out is not None
    cell, (state,) = decoder.stack.layers[0].cell, [part[:, 0] for part in memory[0]]
    for place, token in enumerate(model.tokens(outputs).unbind(1)):
        context = decoder.looking(state[:, None], source, torch.tensor([place])).context[:, 0]
        before, parts = state, (cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0)
        state = torch.gru_cell(torch.cat([token, context], 1), state, *parts)
        read = before if kind == "bahdanau" else state
        heard = torch.cat([context, read, token], 1) @ decoder.out.weight.T + decoder.out.bias
        wanted = torch.maximum(heard[:, 0::2], heard[:, 1::2])
        torch.testing.assert_close(model(batch).last[:, place], wanted, rtol=0, atol=1e-9)


def test_wrong_settings_are_said() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"bidirectional": True}, 'start = "tanh"'),
        ({"feed": True}, "need an attention"),
        ({"attention": "global", "coverage": True}, "additive"),
        ({"attention": "global", "feed": True, "looks": "before"}, "after"),
        ({"inner": 8, "readout": "state"}, "inner = width"),
        ({"orthogonal": True}, "above it"),
        ({"attention": "global", "readout_before": True}, 'looks = "before"'),
        ({"depth": 20_000_000_000}, "a thousand layers"),
    ]
    for change, reason in wrong:
        with pytest.raises(SesameError, match=reason):
            RecurrentSeq2SeqConfig(**{"vocab": 50, "width": 16, "depth": 1} | change)
    with pytest.raises(SesameError, match="general or additive"):
        RecurrentSeq2Seq(
            RecurrentSeq2SeqConfig(50, 16, 1, bidirectional=True, start="tanh", attention="global", score="dot")
        )


def test_who_wants_states_of_a_text_is_told() -> None:
    batch, _ = sources()
    with pytest.raises(SesameError, match="take an encoder"):
        made("rnnsearch")(replace(batch, outputs=None))


# ---- learning --------------------------------------------------------------------------------------------------------


def toy(kind: str, count: int, seed: int, longest: int = 5) -> Batch:
    """Sources of some of eight tokens; the answer is the source, or the source from its end."""
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (count,), generator=luck)
    ids = torch.randint(5, 13, (count, longest), generator=luck)
    at = torch.arange(longest)
    back = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    answers = ids if kind == "copy" else ids.gather(1, back)
    labels = torch.cat([answers, answers[:, :1]], 1)
    labels = torch.where(torch.arange(longest + 1) < lengths[:, None], labels, IGNORE)
    labels = labels.scatter(1, lengths[:, None], 3)
    ids = torch.where(at < lengths[:, None], ids, 0)
    return Batch(ids, lengths).with_targets(seq2seq=Targets(labels))


def taught(kind: str, task: str, steps: int, seed: int, **more: Any) -> tuple[Model, list[float]]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = RecurrentSeq2SeqConfig(**{"vocab": 16, "width": 32, "depth": 1} | KINDS[kind] | {"inner": 32} | more)
        backbone = RecurrentSeq2Seq(config)
        model = Model(backbone, build({"seq2seq": Seq2SeqConfig(smoothing=0.0)}, backbone, Vocab(16, ROLES))).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for step in range(steps):
            batch = model.objective.corrupt(toy(task, 64, seed * 100_000 + step))
            loss = step_loss(model(batch), count_targets([batch]))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
    return model.eval(), losses


def right(model: Model, task: str) -> float:
    """Share of answers that greedy search gets right."""
    batch = toy(task, 200, 7_777)
    head, backbone = model.objective.heads()["seq2seq"], model.backbone
    speaker = BackboneSpeaker(backbone, lambda hidden: head(hidden, backbone.token_table()))
    said = generate(speaker, replace(batch, outputs=torch.full((200, 1), 2)), Settings(most=8), end=3)
    wanted = [[id for id in row if id > 3] for row in batch.targets["seq2seq"].labels.tolist()]
    return sum(found[0].ids == want for found, want in zip(said, wanted, strict=True)) / 200


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "task"), [("luong fed", "copy"), pytest.param("rnnsearch", "reverse", marks=pytest.mark.slow)]
)
def test_learns_a_toy_and_looks_where_it_should(kind: str, task: str, seed: int) -> None:
    model, _ = taught(kind, task, 200, seed, depth=1, tied=False)
    assert right(model, task) > 0.9
    batch = model.objective.corrupt(toy(task, 200, 7_777))
    with torch.no_grad():
        (looks,) = model.backbone(batch, maps=True).maps
    at, lengths = torch.arange(looks.shape[2]), batch.lengths[:, None]
    wanted = at.expand(200, -1) if task == "copy" else lengths - 1 - at
    found = looks[:, 0].argmax(-1) == wanted
    assert float(found[at < lengths].double().mean()) > 0.9


LEARNT = {  # what the quick test above does not show; each learns the other task as well
    "sutskever": "reverse", "cho": "copy", "luong cosine": "reverse", "luong both ends": "copy", "local-m": "copy",
    "local-p": "reverse", "hard": "copy", "coverage": "reverse",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "task"), LEARNT.items())
def test_learns_copy_or_reverse(kind: str, task: str) -> None:
    steps = {"sutskever": 600, "cho": 600, "hard": 1000}.get(kind, 400)
    model, _ = taught(kind, task, steps, 1, depth=1)
    assert right(model, task) > (0.8 if kind == "coverage" else 0.9)  # its last look has nowhere new to go, and pays


def test_coverage_is_paid_for() -> None:
    """The loss of a training pass holds the overlap with earlier looks; that of an evaluation does not."""
    model, _ = taught("coverage", "copy", 1, seed=3)
    batch = model.objective.corrupt(toy("copy", 8, 1))
    with torch.no_grad():
        quiet = step_loss(model(batch), count_targets([batch]))
        paid = step_loss(model.train()(batch), count_targets([batch]))
        looked = model.backbone(batch).looked
    told = batch.targets["seq2seq"].labels != IGNORE
    assert float((looked.repeated * told).sum() / told.sum()) == pytest.approx(float(paid - quiet), abs=1e-4)
    assert float(paid) > float(quiet) + 0.01


def test_draws_teach_where_to_look() -> None:
    """Hard attention: without the estimated gradient the score's weights would have none at all."""
    model, _ = taught("hard", "copy", 1, seed=4)
    batch = model.objective.corrupt(toy("copy", 16, 1))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        loss = step_loss(model.train()(batch), count_targets([batch]))
    model.zero_grad()
    loss.backward()
    grads = [p.grad for p in model.backbone.decoder.looking.parameters()]
    assert all(grad is not None and float(grad.abs().sum()) > 0 for grad in grads)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("coverage", "smoothing"), [(True, 0.0), (False, 0.2), (True, 0.1)])
def test_draws_answer_for_smoothing_and_coverage(
    coverage: bool, smoothing: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps, two places: the mean of the estimates over all 8 paths is the gradient of the mean loss."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = RecurrentSeq2SeqConfig(11, 6, 1, attention="hard", score="additive", coverage=coverage, init=0.7)
        backbone = RecurrentSeq2Seq(config)
        objective = build({"seq2seq": Seq2SeqConfig(smoothing=smoothing)}, backbone, Vocab(11, ROLES))
        model = Model(backbone, objective).double().train()
    labels = torch.tensor([[7, 5, 3]])
    batch = Batch(torch.tensor([[5, 7]]), torch.tensor([2])).with_targets(seq2seq=Targets(labels))
    batch = model.objective.corrupt(batch)
    looking = backbone.decoder.looking
    assert looking is not None
    weights = list(looking.parameters())
    places: list[int] = []

    def forced(scores: torch.Tensor, source: Any) -> Look:
        logs = scores.log_softmax(-1)
        place = torch.tensor([places.pop(0) for _ in range(logs.shape[1])])[None, :, None]
        found = torch.zeros_like(logs).scatter(-1, place, 1.0)
        return Look(found @ source.values, found, logs.gather(-1, place)[..., 0])

    monkeypatch.setattr(looking, "_one", forced)
    estimate, mean = [torch.zeros_like(weight) for weight in weights], torch.zeros((), dtype=torch.float64)
    for path in product((0, 1), repeat=3):
        places[:] = path
        loss = step_loss(model(batch), count_targets([batch]))
        places[:] = path
        looked = backbone(batch).looked
        share = looked.chosen.sum().exp()
        for kept, grad in zip(estimate, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            kept += share.detach() * (0.0 if grad is None else grad)
        mean = mean + share * loss.detach()
    truth = torch.autograd.grad(mean, weights)
    for found, wanted in zip(estimate, truth, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
