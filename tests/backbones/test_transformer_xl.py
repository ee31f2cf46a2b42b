"""Transformer-XL against its own definition: the formula, parts with memory and one long pass, forgetting, padding."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from sesame.backbones import State, TransformerXL, TransformerXLConfig
from sesame.backbones.flops import flops_per_token, kept_per_token
from sesame.backbones.transformer_xl import in_parts
from sesame.backbones.work import Work
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.multihead import take
from sesame.nn.attention.relative import RelativeAttention
from sesame.nn.positions import relative_sinusoids
from sesame.nn.relative_block import RelativeBlock

VOCAB, WIDTH, HEADS = 50, 16, 2


def model(seed: int = 0, **settings: Any) -> TransformerXL:
    torch.manual_seed(seed)
    found = TransformerXL(TransformerXLConfig(VOCAB, WIDTH, 3, HEADS, **settings))
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.3)
    return found.double().eval()


def rows(length: int, seed: int = 0) -> Batch:
    ids = torch.randint(0, VOCAB, (3, length), generator=torch.Generator().manual_seed(seed))
    return Batch(ids, torch.full((3,), length), full=True)


def near(found: Tensor, wanted: Tensor, tolerance: float = 1e-12) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < tolerance * max(1.0, float(wanted.abs().max()))


def attended(attention: RelativeAttention, x: Tensor, visible: Tensor, clamp: int) -> Tensor:
    """One score after the other, as the paper writes them. Shape: (B, L, D) -> (B, L, D)."""
    length, size, found = x.shape[1], WIDTH // HEADS, []
    for head in range(HEADS):
        part = slice(head * size, head * size + size)
        q, k = x @ attention.q.weight.T[:, part], x @ attention.kv.weight[:WIDTH].T[:, part]
        v, out = x @ attention.kv.weight[WIDTH:].T[:, part], torch.zeros(x.shape[0], length, size, dtype=x.dtype)
        for i in range(length):
            scores = torch.full((x.shape[0], length), -torch.inf, dtype=x.dtype)
            for j in visible[i].nonzero()[:, 0].tolist():
                r = relative_sinusoids(i - j, 1, WIDTH, clamp, x.device)[0].double() @ attention.far.weight.T[:, part]
                content = ((q[:, i] + attention.content_bias[part]) * k[:, j]).sum(-1)
                scores[:, j] = (content + (q[:, i] + attention.distance_bias[part]) @ r) / math.sqrt(size)
            out[:, i] = (scores.softmax(-1)[:, :, None] * v).sum(1)
        found.append(out)
    return torch.cat(found, -1) @ attention.out.weight.T


@torch.no_grad()
def reference(xl: TransformerXL, ids: Tensor, visible: Tensor) -> Tensor:
    """All of a text at once; `visible` (L, L) says who sees whom."""
    x = xl.tokens.weight[ids] * math.sqrt(WIDTH)
    for block in xl.blocks:
        assert isinstance(block, RelativeBlock)
        heads = attended(block.attention, x, visible, xl.config.clamp)
        x = F.layer_norm(x + heads, (WIDTH,), block.attention_norm.weight, block.attention_norm.bias, xl.config.eps)
        up, down = block.feedforward.up, block.feedforward.down
        inner = F.linear(F.linear(x, up.weight, up.bias).relu(), down.weight, down.bias)
        x = F.layer_norm(x + inner, (WIDTH,), block.feedforward_norm.weight, block.feedforward_norm.bias, xl.config.eps)
    return x


@torch.no_grad()
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("clamp", [0, 3])
def test_it_is_its_formula(seed: int, clamp: int) -> None:
    xl, batch = model(seed, clamp=clamp), rows(7, seed)
    near(xl(batch).last, reference(xl, batch.ids, torch.ones(7, 7).tril().bool()))
    near(xl(batch, maps=True).last, xl(batch).last)


@torch.no_grad()
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("part", [1, 4, 5, 13, 20])
def test_parts_with_memory_equal_one_long_pass(seed: int, part: int) -> None:
    xl, batch = model(seed), rows(20, seed)
    once = xl(batch)
    near(torch.cat(list(in_parts(xl, batch.ids, part)), dim=1), once.last)
    forgetful = model(seed, memory=3)  # but not if it is told otherwise
    near(torch.cat(list(in_parts(forgetful, batch.ids, part, memory=0)), dim=1), once.last)
    if part < 17:
        short = torch.cat(list(in_parts(forgetful, batch.ids, part)), dim=1)
        assert (short - once.last).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("memory", [1, 3, 6, 9])
@pytest.mark.parametrize("part", [2, 5])
def test_forgetting_is_a_mask(memory: int, part: int) -> None:
    """A token of the part that begins at b sees [b - memory, itself]; what is remembered was computed in its own part."""
    length, batch = 14, rows(14, 4)
    place = torch.arange(length)
    begin = place // part * part
    visible = (place[None, :] <= place[:, None]) & (place[None, :] >= (begin - memory)[:, None])
    xl = model(1, memory=memory)
    near(torch.cat(list(in_parts(xl, batch.ids, part)), dim=1), reference(xl, batch.ids, visible))


@torch.no_grad()
def test_nobody_looks_ahead_and_padding_never_leaks() -> None:
    xl, batch = model(), rows(9)
    whole, other = xl(batch, maps=True), batch.ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % VOCAB
    near(xl(replace(batch, ids=other)).last[:, :6], whole.last[:, :6])
    assert not torch.allclose(xl(replace(batch, ids=other)).last[:, 6:], whole.last[:, 6:])
    assert all(not seen.triu(1).any() for seen in whole.maps)
    only = torch.tensor([[8, 0], [3, 1], [0, 0]])
    near(xl(batch, only).last, take(whole.last, only))
    padded = xl(replace(batch, full=False, lengths=torch.tensor([9, 4, 1])))
    near(padded.last[1, :4], xl(Batch(batch.ids[1:2, :4], torch.tensor([4]), full=True)).last[0])


@torch.no_grad()
def test_padding_in_the_memory_is_not_looked_at() -> None:
    xl, batch = model(), rows(6)
    state = xl(replace(batch, full=False, lengths=torch.tensor([6, 4, 6]))).state
    assert state.real.tolist()[1] == [True] * 4 + [False] * 2
    layers = tuple(layer.clone() for layer in state.layers)
    for layer in layers:
        layer[1, 4:] = 7.0
    after = xl(rows(5, 1), state=replace(state, layers=layers))
    near(after.last, xl(rows(5, 1), state=state).last)
    assert after.state.real.tolist()[1] == [True] * 4 + [False] * 2 + [True] * 5
    assert not torch.allclose(xl(rows(5, 1), state=State(layers)).last, xl(rows(5, 1), state=state).last)
    kept = model(memory=4)
    assert kept(rows(5, 1), state=kept(batch).state).state.layers[0].shape == (3, 4, WIDTH)


def test_no_gradient_flows_into_the_memory() -> None:
    xl = model().train()
    xl.drop(0.0)
    first, second = rows(5), rows(4, 1)
    state = xl(first).state
    assert not any(layer.requires_grad for layer in state.layers)
    xl(second, state=state).last.square().sum().backward()
    assert xl.tokens.weight.grad is not None
    unseen = [id for id in range(VOCAB) if id not in second.ids]
    assert set(first.ids.flatten().tolist()) & set(unseen)
    assert not xl.tokens.weight.grad[unseen].any()  # tokens of the first part alone have none
    assert xl.tokens.weight.grad[second.ids.flatten()].abs().sum(1).all()


def test_training_moves_every_weight() -> None:
    xl = TransformerXL(TransformerXLConfig(VOCAB, WIDTH, 2, HEADS, attention_dropout=0.1)).train()
    xl(rows(5), state=xl(rows(4, 1)).state).last.pow(3).sum().backward()
    for name, parameter in xl.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    xl.drop(0.0)
    assert torch.equal(xl(rows(5)).last, xl(rows(5)).last)
    xl.drop(None)
    assert not torch.equal(xl(rows(5)).last, xl(rows(5)).last)


@pytest.mark.parametrize("memory", [0, 10])
@pytest.mark.parametrize("part", [0, 16, 20])
def test_the_formula_is_what_pytorch_counts(memory: int, part: int) -> None:
    """PyTorch counts what is masked too: three products of d for each key that stands ahead of a place."""
    length, size = 48, 4
    torch.manual_seed(0)
    config = TransformerXLConfig(100, 64, 3, 4, memory=memory, attention_dropout=0.1)
    xl, ids = TransformerXL(config).train(), torch.randint(0, 100, (size, length))
    counter, seen = FlopCounterMode(display=False), {}
    weights = {p.untyped_storage().data_ptr() for p in xl.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.is_floating_point():
            seen[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with counter, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.cat(list(in_parts(xl, ids, part or length)), dim=1).sum().backward()
    work = Work(length, part=part, rows=size)
    sizes = [min(part or length, length - begin) for begin in range(0, length, part or length)]
    # for the distances also the one that nobody asks for
    ahead = 6 * 3 * sum(l * ((l - 1) / 2 * 3 + 1) * 64 for l in sizes) / length  # noqa: E741
    formula = flops_per_token(config, work) + ahead
    assert counter.get_total_flops() / ids.numel() == pytest.approx(formula, rel=0.01)
    kept = sum(nbytes for nbytes, _ in seen.values()) / 4 / ids.numel()
    assert kept == pytest.approx(kept_per_token(config, work), rel=0.2)


def test_parameters_of_the_papers_model() -> None:
    """By hand for the base model without its table: 16 layers of 5 D D + 2 D F + F + D, two norms 4 D, u and v."""
    with torch.device("meta"):
        xl = TransformerXL(TransformerXLConfig(64, 410, 16, 10, inner=2100))
    layer = 5 * 410**2 + 2 * 410 * 2100 + 2100 + 410 + 4 * 410 + 2 * 410
    assert sum(parameter.numel() for parameter in xl.parameters()) == 64 * 410 + 16 * layer


def test_bad_settings_are_told() -> None:
    for settings in ({"heads": 3}, {"width": 15, "heads": 1}, {"memory": -1}, {"clamp": -1}, {"dropout": 1.0}):
        with pytest.raises(SesameError, match="backbone"):
            TransformerXLConfig(**{"vocab": 10, "width": 16, "depth": 1, "heads": 2, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_going_on_is_one_long_pass(seed: int) -> None:
    """Prompts of several lengths, then token by token, rows moved on the way: the states of each row read alone at once."""
    torch.manual_seed(seed)
    xl = TransformerXL(TransformerXLConfig(60, 16, 3, 2, memory=0, init=0.2)).double().eval()
    rows = [torch.randint(0, 60, (length + 4,)) for length in (6, 2, 5)]
    ids = torch.nn.utils.rnn.pad_sequence([row[:-4] for row in rows], batch_first=True)
    lengths = torch.tensor([len(row) - 4 for row in rows])
    with torch.no_grad():
        wanted = [xl(Batch(row[None], torch.tensor([len(row)]), full=True)).last[0] for row in rows]
        encoded = xl.go_on(Batch(ids, lengths), State())
        for row, length in enumerate(lengths.tolist()):
            assert torch.allclose(encoded.last[row, :length], wanted[row][:length], atol=1e-10)
        order = [2, 0, 1]
        state = encoded.state.select(torch.tensor(order)[:, None])
        # Two tokens at once, of which the second is padding in one row; then one after the other.
        pair = torch.stack([rows[row][-4:-2] for row in order])
        encoded = xl.go_on(Batch(pair, torch.tensor([2, 1, 2])), state)
        state, at = encoded.state, [-2, -3, -2]
        assert torch.allclose(encoded.last[:, 0], torch.stack([wanted[row][-4] for row in order]), atol=1e-10)
        for _ in range(2):
            told = torch.stack([rows[row][place] for row, place in zip(order, at, strict=True)])
            encoded = xl.go_on(Batch(told[:, None], torch.ones(3, dtype=torch.long), full=True), state)
            expected = torch.stack([wanted[row][place] for row, place in zip(order, at, strict=True)])
            assert torch.allclose(encoded.last[:, 0], expected, atol=1e-10)
            state, at = encoded.state, [place + 1 for place in at]


def test_what_is_forgotten_is_forgotten_in_any_batch() -> None:
    """With a short memory a row beside longer ones remembers as much as alone."""
    torch.manual_seed(5)
    xl = TransformerXL(TransformerXLConfig(60, 16, 2, 2, memory=4, init=0.2)).double().eval()
    ids, lengths, more = torch.randint(0, 60, (2, 7)), torch.tensor([7, 3]), torch.randint(0, 60, (2, 1))
    one = torch.ones(2, dtype=torch.long)
    with torch.no_grad():
        state = xl.go_on(Batch(ids, lengths), State()).state
        assert state.length == 4
        found = xl.go_on(Batch(more, one, full=True), state).last
        for row in range(2):
            length = int(lengths[row])
            alone = xl.go_on(Batch(ids[row : row + 1, :length], lengths[row : row + 1], full=True), State()).state
            wanted = xl.go_on(Batch(more[row : row + 1], one[:1], full=True), alone).last
            assert torch.allclose(found[row], wanted[0], atol=1e-10)
