"""AWD-LSTM: its formula, its dropouts, padding, parts of a text, reading from the end, and the penalties on states."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesame.backbones import BACKBONES, LSTM, LSTMConfig, State, build_backbone
from sesame.backbones.flops import flops_per_token
from sesame.backbones.transformer_xl import in_parts
from sesame.backbones.work import Work
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.clm import CausalLMConfig
from sesame.objectives.model import Model
from sesame.train.step import count_targets, step_loss

VOCAB = 40
QUIET: dict[str, Any] = dict.fromkeys(
    ("dropout", "input_dropout", "layer_dropout", "word_dropout", "weight_dropout"), 0.0
)
ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3}


def model(seed: int = 0, **settings: Any) -> LSTM:
    torch.manual_seed(seed)
    found = LSTM(LSTMConfig(VOCAB, **{"width": 6, "cell": 9, **QUIET, **settings})).double()
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.5)
    return found


def batch(*lengths: int, seed: int = 0) -> Batch:
    torch.manual_seed(seed)
    wide = max(lengths)
    return Batch(
        torch.randint(4, VOCAB, (len(lengths), wide)), torch.tensor(lengths), full=all(size == wide for size in lengths)
    )


def near(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("depth", [1, 3])
def test_layers_are_those_of_the_formula(depth: int) -> None:
    lstm, given = model(depth=depth).eval(), batch(7, 7)
    x = lstm.tokens.weight[given.ids]
    for stack in lstm.blocks:
        cell = stack.layers[0].cell  # type: ignore[union-attr, index]
        w, u, b, d = (getattr(cell, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h, c, states = x.new_zeros(2, u.shape[1]), x.new_zeros(2, u.shape[1]), []
        for step in x.unbind(1):
            i, f, g, o = (step @ w.T + b + h @ u.T + d).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        x = torch.stack(states, 1)
    encoded = lstm(given)
    near(encoded.last, x)
    assert len(encoded.layers) == lstm.depth + 1 == 2  # the inner layers are wider
    assert len(model(cell=6, depth=3)(given).layers) == 4


def test_the_paper_has_24_million_weights() -> None:
    with torch.device("meta"):
        lstm = LSTM(LSTMConfig(10_000))
    assert (
        sum(p.numel() for p in lstm.parameters()) == 24_221_600 - 10_000 + 48 * 400
    )  # what the authors' code says, no output bias, rows in 64s
    work = 2 * 3 * (4 * 1150 * 1550 + 4 * 1150 * 2300 + 4 * 400 * 1550 + 400 * 10_048)
    assert flops_per_token(lstm.config, Work(70, 1.0)) == pytest.approx(work)


@pytest.mark.parametrize("part", [1, 3, 50])
def test_parts_give_what_one_long_pass_gives(part: int) -> None:
    lstm, given = model().eval(), batch(11, 11)
    near(torch.cat(list(in_parts(lstm, given.ids, part)), 1), lstm(given).last)


@pytest.mark.parametrize("backward", [False, True])
def test_padding_is_never_seen(backward: bool) -> None:
    lstm, given = model(backward=backward).eval(), batch(9, 4, 1)
    other = given.ids.clone()
    other[1, 4:], other[2, 1:] = 1, 2
    whole, changed = lstm(given).last, lstm(Batch(other, given.lengths)).last
    for row, size in enumerate(given.lengths.tolist()):
        near(changed[row, :size], whole[row, :size])
        alone = lstm(Batch(given.ids[row : row + 1, :size], given.lengths[row : row + 1], full=True))
        near(alone.last[0], whole[row, :size])


def test_padded_rows_go_on_where_they_ended() -> None:
    lstm, first, then = model().eval(), batch(5, 2), batch(3, 3, seed=1)
    after = lstm.go_on(then, lstm.go_on(first, State()).state)  # type: ignore[arg-type]
    for row, size in enumerate(first.lengths.tolist()):
        ids = torch.cat([first.ids[row, :size], then.ids[row]])[None]
        near(after.last[row], lstm(Batch(ids, torch.tensor([ids.shape[1]]), full=True)).last[0, size:])
    swapped = lstm.go_on(Batch(then.ids.flip(0), then.lengths, full=True), after.state.select(torch.tensor([[1], [0]])))  # type: ignore[union-attr]
    near(swapped.last.flip(0), lstm.go_on(then, after.state).last)  # type: ignore[arg-type]


def test_reading_from_the_end_is_reading_the_row_turned_around() -> None:
    ahead, back, given = model().eval(), model(backward=True).eval(), batch(8, 5)
    turned = given.ids.clone()
    for row, size in enumerate(given.lengths.tolist()):
        turned[row, :size] = given.ids[row, :size].flip(0)
    wanted = ahead(Batch(turned, given.lengths)).last
    found = back(given).last
    for row, size in enumerate(given.lengths.tolist()):
        near(found[row, :size].flip(0), wanted[row, :size])
    with pytest.raises(SesameError, match="from their end"):
        back.go_on(given, State())


@pytest.mark.parametrize("seed", range(3))
def test_dropouts_are_the_same_at_all_steps(seed: int) -> None:
    given = batch(30, 30, seed=seed)
    hidden = model(seed, word_dropout=0.5).train()._look_up(given.ids).abs().sum(-1) == 0
    for token in given.ids.unique():
        assert len(hidden[given.ids == token].unique()) == 1  # a word is hidden everywhere or nowhere
    assert hidden.any()
    assert not hidden.all()
    leaving = model(seed, dropout=0.5).train()(given)
    gone = leaving.last == 0
    assert torch.equal(gone.any(1), gone.all(1))  # one mask for a row
    assert 0 < gone.double().mean() < 1
    near(leaving.last[~gone], 2 * leaving.undropped[~gone])
    weights = model(seed, weight_dropout=0.5).train()
    assert not torch.equal(weights(given).last, weights(given).last)
    weights.drop(0.0)
    near(weights(given).last, weights.eval()(given).last)
    weights.drop(None)
    near(weights(given).last, model(seed)(given).last)  # none in use


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("part", [0, 4])
def test_penalties_are_those_of_the_paper(part: int, backward: bool) -> None:
    lstm = model(dropout=0.5, backward=backward)
    if part and backward:
        with pytest.raises(SesameError, match="has no parts"):
            build({"clm": CausalLMConfig(head="lm", part=part)}, lstm, Vocab(VOCAB, ROLES))
        return
    objective = build({"clm": CausalLMConfig(head="lm", ar=2.0, tar=1.0, part=part)}, lstm, Vocab(VOCAB, ROLES))
    trained, given = Model(lstm, objective.double()).train(), objective.corrupt(batch(9, 9))
    labels = given.targets["clm"].labels
    asked = labels != IGNORE
    assert asked.sum() == 16
    if backward:
        assert torch.equal(labels[:, 1:], given.ids[:, :-1])
    torch.manual_seed(1)
    terms = {term.name: term for term in trained(given)}
    torch.manual_seed(1)
    parts = [lstm(given)] if not part else []
    for term in (terms["ar"], terms["tar"]):
        assert term.count == 16
    if parts:
        h, raw = parts[0].last, parts[0].undropped
        kept = h[:, 1:] if backward else h[:, :-1]
        assert terms["ar"].total.item() / 16 == pytest.approx(kept.square().mean().item(), rel=1e-5)
        assert terms["tar"].total.item() / 16 == pytest.approx(
            (raw[:, 1:] - raw[:, :-1]).square().mean().item(), rel=1e-5
        )
    loss = step_loss(list(terms.values()), count_targets([given]))
    wanted = terms["clm"].total / 16 + 2 * terms["ar"].total / 16 + terms["tar"].total / 16
    assert loss.item() == pytest.approx(wanted.item())
    assert [term.name for term in trained.eval()(given)] == ["clm"]


def test_what_cannot_be() -> None:
    assert BACKBONES["lstm"] == (LSTM, LSTMConfig)
    assert isinstance(build_backbone(LSTMConfig(10, 4, 1, 4)), LSTM)
    for wrong in ({"width": 0}, {"depth": 0}, {"dropout": 1.0}, {"weight_dropout": -0.1}, {"init": 0.0}):
        with pytest.raises(SesameError, match="backbone"):
            LSTMConfig(10, **wrong)  # type: ignore[arg-type]
    with pytest.raises(SesameError, match="by its table alone"):
        build({"clm": CausalLMConfig()}, model(), Vocab(VOCAB, ROLES))
    with pytest.raises(SesameError, match="ar and tar"):
        CausalLMConfig(ar=-1.0)
