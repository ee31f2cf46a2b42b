"""Recurrent stacks against PyTorch's own, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sesame.errors import SesameError
from sesame.nn.recurrent import Memory, RecurrentStack, reverse

LENGTHS = torch.tensor([3, 7, 1, 5])
BIG = (1e9, 1e9)  # clips that never bite


def stack(seed: int, kind: Any, widths: list[int], **options: Any) -> RecurrentStack:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return RecurrentStack(kind, 6, widths, **options).double().eval()


def rows(seed: int, lengths: Tensor = LENGTHS, width: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), 7, width, dtype=torch.float64, generator=generator)


def oracle(ours: RecurrentStack, kind: str, both: bool, projection: int) -> nn.LSTM | nn.GRU:
    depth, first = len(ours.layers), ours.layers[0].cell
    extra = {"proj_size": projection} if projection else {}
    theirs = (nn.LSTM if kind == "lstm" else nn.GRU)(
        6, first.hidden_size, depth, bidirectional=both, batch_first=True, **extra
    ).double()
    names = {}
    for number, layer in enumerate(ours.layers):
        for name, value in layer.cell.named_parameters():
            names[name.replace("_l0", f"_l{number}")] = value
    theirs.load_state_dict(names)
    return theirs


CASES = [
    ("lstm", False, 0),
    ("lstm", True, 0),
    ("lstm", True, 3),
    ("lstm", False, 3),
    ("gru", False, 0),
    ("gru", True, 0),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("clips", [None, BIG])
@pytest.mark.parametrize(("kind", "both", "projection"), CASES)
def test_equals_torch_on_packed_rows(kind: str, both: bool, projection: int, clips: Any, seed: int) -> None:
    if kind == "gru" and clips:
        with pytest.raises(SesameError):
            stack(seed, kind, [5], clips=clips)
        return
    ours = stack(seed, kind, [5, 5], bidirectional=both, projection=projection, clips=clips)
    theirs = oracle(ours, kind, both, projection)
    x = rows(seed)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    states, after = theirs(packed)
    states = pad_packed_sequence(states, batch_first=True, total_length=7)[0]
    walked = ours(x, LENGTHS)
    torch.testing.assert_close(walked.top, states, rtol=0, atol=1e-14)
    for place, part in enumerate(after if kind == "lstm" else [after]):
        mine = torch.cat([layer[place] for layer in walked.memory], 1).transpose(0, 1)
        torch.testing.assert_close(mine, part, rtol=0, atol=1e-14)
    assert torch.equal(walked.layers[-1], walked.top)


@pytest.mark.parametrize("options", [{}, {"projection": 3, "clips": (0.3, 0.2)}, {"bidirectional": True}])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_padding_never_leaks(kind: str, options: dict[str, Any]) -> None:
    """What stands at padding changes nothing; each row alone and unpadded says the same; states at padding are 0."""
    if kind == "gru" and "clips" in options:
        options = {}
    ours = stack(3, kind, [5, 4, 5], **options)
    x = rows(3)
    at_padding = torch.arange(7) >= LENGTHS[:, None]
    walked, other = ours(x, LENGTHS), ours(x.masked_fill(at_padding[..., None], 1e6), LENGTHS)
    assert torch.equal(walked.top, other.top)
    assert bool((walked.top[at_padding] == 0).all())
    for row, length in enumerate(LENGTHS.tolist()):
        alone = ours(x[row : row + 1, :length])
        torch.testing.assert_close(walked.top[row : row + 1, :length], alone.top, rtol=0, atol=1e-14)
        for layer, single in zip(walked.memory, alone.memory, strict=True):
            for part, one in zip(layer, single, strict=True):
                torch.testing.assert_close(part[row : row + 1], one, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"projection": 3, "residual": True}, {"clips": (0.3, 0.2)}])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_segments_equal_one_pass(kind: str, options: dict[str, Any]) -> None:
    options = {} if kind == "gru" else options
    ours = stack(4, kind, [4, 5, 5], **options)
    x = rows(4)
    whole, parts = ours(x), []
    memory: Memory | None = None
    for piece in x.split(3, dim=1):
        walked = ours(piece, memory=memory)
        memory = walked.memory
        parts.append(walked.top)
    torch.testing.assert_close(torch.cat(parts, 1), whole.top, rtol=0, atol=1e-14)
    assert memory is not None
    for a, b in zip(memory, whole.memory, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_rows_that_have_ended_keep_their_memory() -> None:
    ours = stack(5, "lstm", [4, 4])
    x = rows(5)
    first = ours(x, LENGTHS)
    after = ours(x, torch.tensor([0, 7, 0, 2]), first.memory)
    for a, b in zip(after.memory, first.memory, strict=True):
        for new, old in zip(a, b, strict=True):
            assert torch.equal(new[[0, 2]], old[[0, 2]])
            assert not torch.equal(new[[1, 3]], old[[1, 3]])
    assert bool((after.top[[0, 2]] == 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True])
def test_clips_bite_and_have_the_right_gradient(back: bool) -> None:
    ours = stack(6, "lstm", [4], projection=3, clips=(0.2, 0.05), bidirectional=back)
    free = stack(6, "lstm", [4], projection=3, bidirectional=back)
    x = rows(6).mul(2).requires_grad_()
    walked = ours(x, LENGTHS)
    assert walked.top.abs().max() <= 0.05
    assert walked.memory[0][1].abs().max() <= 0.2
    assert not torch.equal(walked.top, free(x, LENGTHS).top)
    wide = stack(6, "lstm", [4], projection=3, clips=(0.4, 0.3), bidirectional=back)
    weights = list(wide.parameters())

    def states(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        walked = wide(x, LENGTHS)
        return (walked.top, *walked.memory[0])

    assert torch.autograd.gradcheck(states, (x, *weights))


@pytest.mark.parametrize("packed", [False, True])
def test_one_mask_a_sequence(packed: bool) -> None:
    """Variational dropout: what is dropped at one step of a row is dropped at all its steps, and rows differ."""
    lengths = LENGTHS if packed else None
    ours = stack(7, "lstm", [40], dropouts=(0.0, 0.0, 0.5)).train()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        walked = ours(rows(7), lengths)
    kept = walked.top / walked.layers[-1]
    masks = []
    for row, length in enumerate(LENGTHS.tolist() if packed else [7] * 4):
        assert torch.allclose(kept[row, :length], kept[row, :1].expand(length, -1))
        masks.append(kept[row, 0] > 0)
        assert torch.allclose(kept[row, 0][masks[-1]], torch.tensor(2.0, dtype=torch.float64), atol=1e-3)
    assert len({tuple(mask.tolist()) for mask in masks}) == 4
    plain = stack(7, "lstm", [40], dropouts=(0.0, 0.0, 0.5), variational=False).train()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        walked = plain(rows(7))
    kept = walked.top / walked.layers[-1]
    assert not torch.allclose(kept[0], kept[0, :1].expand(7, -1))


@pytest.mark.parametrize("place", [0, 1])
def test_input_and_middle_dropout(place: int) -> None:
    rates = [0.0, 0.0, 0.0]
    rates[place] = 0.5
    ours = stack(8, "gru", [4, 4], dropouts=(rates[0], rates[1], rates[2]))
    x = rows(8)
    quiet, loud = ours(x), ours.train()(x)
    assert torch.equal(quiet.layers[0], loud.layers[0]) == (place == 1)
    assert not torch.equal(quiet.top, loud.top)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_weight_dropout_drops_state_to_state_only(kind: str) -> None:
    """A first step from an empty memory sees nothing of it; later steps do; its gradient reaches the raw weights."""
    ours = stack(9, kind, [8], weight_dropout=0.5)
    x = rows(9)
    quiet, loud = ours(x), ours.train()(x)
    if kind == "lstm":
        assert torch.equal(quiet.top[:, 0], loud.top[:, 0])
    assert not torch.equal(quiet.top[:, 1:], loud.top[:, 1:])
    loud.top.sum().backward()
    grad = ours.layers[0].cell.weight_hh_l0.grad
    share = float((grad == 0).double().mean())
    assert 0.3 < share < 0.7  # a dropped weight has no gradient, and one mask held for all steps
    assert bool((ours.layers[0].cell.weight_ih_l0.grad != 0).all())


def test_residual_adds_what_a_layer_has_read() -> None:
    with_it, without = stack(10, "lstm", [6, 6], residual=True), stack(10, "lstm", [6, 6])
    x = rows(10)
    a, b = with_it(x, LENGTHS), without(x, LENGTHS)
    assert torch.equal(a.layers[0], b.layers[0])
    torch.testing.assert_close(a.top, b.top + b.layers[0], rtol=0, atol=1e-15)


def test_a_backward_stack_by_reversal_equals_the_backward_half() -> None:
    both = stack(11, "lstm", [5], bidirectional=True)
    one = stack(11, "lstm", [5])
    theirs = dict(both.layers[0].cell.named_parameters())
    one.layers[0].cell.load_state_dict(
        {name: theirs[f"{name}_reverse"] for name in dict(one.layers[0].cell.named_parameters())}
    )
    x = rows(11)
    back = reverse(one(reverse(x, LENGTHS), LENGTHS).top, LENGTHS)
    torch.testing.assert_close(back, both(x, LENGTHS).top[..., 5:], rtol=0, atol=1e-14)
    assert torch.equal(reverse(reverse(x, LENGTHS), LENGTHS), x)


@pytest.mark.parametrize("options", [{}, {"projection": 3}, {"residual": True}, {"clips": (0.3, 0.2)}])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_step_by_step_equals_one_pass(kind: str, options: dict[str, Any]) -> None:
    options = options if kind == "lstm" else {}
    ours = stack(12, kind, [5, 5], **options)
    x = rows(12)
    whole, memory = ours(x), ours.start(x, 4)
    for at in range(7):
        top, memory = ours.step(x[:, at], memory)
        torch.testing.assert_close(top, whole.top[:, at], rtol=0, atol=1e-14)
    for a, b in zip(memory, whole.memory, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gradients_through_padded_rows_equal_those_of_rows_alone(kind: str) -> None:
    ours = stack(13, kind, [5, 5], bidirectional=True)
    x = rows(13).requires_grad_()
    walked = ours(x, LENGTHS)
    ends = sum(part.square().sum() for layer in walked.memory for part in layer)
    (walked.top.sin().sum() + ends).backward()
    padded = [p.grad.clone() for p in ours.parameters()]
    at_padding = torch.arange(7) >= LENGTHS[:, None]
    assert bool((x.grad[at_padding] == 0).all())
    ours.zero_grad()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = ours(x.detach()[row : row + 1, :length])
        ends = sum(part.square().sum() for layer in alone.memory for part in layer)
        (alone.top.sin().sum() + ends).backward()
    for mine, p in zip(padded, ours.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad, rtol=0, atol=1e-13)


def test_memory_does_not_enter_a_padded_row_from_behind() -> None:
    ours = stack(14, "lstm", [4], bidirectional=True)
    with pytest.raises(ValueError, match="begins empty"):
        ours(rows(14), LENGTHS, ours.start(rows(14), 4))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sixteen_bits_on_a_cpu_leave_the_kernels_alone(kind: str) -> None:
    ours = stack(15, kind, [5, 5]).float()
    x = rows(15).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ours(x.bfloat16().float(), LENGTHS).top
        step, _ = ours.step(x[:, 0].bfloat16(), ours.start(x.bfloat16(), 4))
    assert torch.equal(found, ours(x.bfloat16().float(), LENGTHS).top)
    torch.testing.assert_close(step, found[:, 0])


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_long_padding_moves_nothing_in_32_bits(kind: str, both: bool) -> None:
    """Gates that are shut by numbers are shut in oneDNN's kernels too, for as long as it takes."""
    ours = stack(16, kind, [32, 32], bidirectional=both).float()
    x = torch.randn(3, 300, 6, generator=torch.Generator().manual_seed(16))
    padded, alone = ours(x, torch.tensor([5, 300, 20])), ours(x[:1, :5])
    torch.testing.assert_close(padded.top[:1, :5], alone.top, rtol=0, atol=1e-6)
    for layer, single in zip(padded.memory, alone.memory, strict=True):
        for part, one in zip(layer, single, strict=True):
            torch.testing.assert_close(part[:1], one, rtol=0, atol=1e-6)
