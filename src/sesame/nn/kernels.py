"""GPU kernels of our own in Triton, which comes with PyTorch for CUDA: `cross_entropy`, `gelu`, `geglu`, `turn`, `add_norm`.

Each is tested against the definition in plain PyTorch that stands in the file that uses it.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_gradient_kernel(logits, labels, losses, stride, columns, BLOCK: tl.constexpr):
    """One row: its largest logit and the sum of exponentials, block by block; then the gradient in its place."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    start = logits + row * stride
    # Read ahead of the sums, where threads wait for each other: later a slow one might find a fast one's gradient here.
    right = tl.load(start + tl.maximum(label, 0)).to(tl.float32)
    lanes = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for at in range(0, columns, BLOCK):
        x = tl.load(start + at + lanes, mask=at + lanes < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
    norm = top + tl.log(total)
    real = label >= 0
    tl.store(losses + row, tl.where(real, norm - right, 0.0))
    for at in range(0, columns, BLOCK):
        inside = at + lanes < columns
        x = tl.load(start + at + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        found = tl.exp(x - norm) - tl.where(at + lanes == label, 1.0, 0.0)
        tl.store(start + at + lanes, tl.where(real, found, 0.0).to(logits.dtype.element_ty), mask=inside)


@triton.jit
def _normal(x):
    """The normal distribution function at x, and its density without the factor 1/sqrt(2 pi).

    Abramowitz & Stegun 7.1.26: erf to 1.5e-7 with one exponential, which the density shares; the exact one costs twice.
    """
    z = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * z)
    bell = tl.exp(-z * z)
    poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    tail = 0.5 * poly * bell
    return tl.where(x >= 0, 1.0 - tail, tail), bell


@triton.jit
def gelu_kernel(inputs, outputs, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(inputs + at, mask=at < count, other=0.0).to(tl.float32)
    below, _ = _normal(x)
    tl.store(outputs + at, (x * below).to(outputs.dtype.element_ty), mask=at < count)


@triton.jit
def gelu_gradient_kernel(inputs, grads, outputs, sums, rows, columns, span, R: tl.constexpr, C: tl.constexpr):
    """`span` rows of C columns, R at a time: the gradient, and its sum over these rows."""
    at = tl.program_id(1) * C + tl.arange(0, C)
    inside = at < columns
    total = tl.zeros((R, C), dtype=tl.float32)  # summed over its rows once, at the end: sums across threads are slow
    first = tl.program_id(0) * span
    for start in range(first, first + span, R):
        row = start + tl.arange(0, R)
        where = row.to(tl.int64)[:, None] * columns + at[None, :]
        real = (row < rows)[:, None] & inside[None, :]
        x = tl.load(inputs + where, mask=real, other=0.0).to(tl.float32)
        grad = tl.load(grads + where, mask=real, other=0.0).to(tl.float32)
        below, bell = _normal(x)
        found = grad * (below + x * bell * 0.3989422804014327)
        tl.store(outputs + where, found.to(outputs.dtype.element_ty), mask=real)
        total += found
    tl.store(sums + tl.program_id(0).to(tl.int64) * columns + at, tl.sum(total, 0), mask=inside)


@triton.jit
def geglu_kernel(inputs, outputs, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """R rows of C columns: gelu of the left half of a row of inputs, times the right half."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.program_id(1) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    left = row.to(tl.int64)[:, None] * (2 * columns) + at[None, :]
    gate = tl.load(inputs + left, mask=real, other=0.0).to(tl.float32)
    value = tl.load(inputs + left + columns, mask=real, other=0.0).to(tl.float32)
    below, _ = _normal(gate)
    where = row.to(tl.int64)[:, None] * columns + at[None, :]
    tl.store(outputs + where, (gate * below * value).to(outputs.dtype.element_ty), mask=real)


@triton.jit
def geglu_gradient_kernel(inputs, grads, outputs, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """The gradient to both halves, laid out as the inputs."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.program_id(1) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    left = row.to(tl.int64)[:, None] * (2 * columns) + at[None, :]
    gate = tl.load(inputs + left, mask=real, other=0.0).to(tl.float32)
    value = tl.load(inputs + left + columns, mask=real, other=0.0).to(tl.float32)
    where = row.to(tl.int64)[:, None] * columns + at[None, :]
    grad = tl.load(grads + where, mask=real, other=0.0).to(tl.float32)
    below, bell = _normal(gate)
    to_gate = grad * value * (below + gate * bell * 0.3989422804014327)
    tl.store(outputs + left, to_gate.to(outputs.dtype.element_ty), mask=real)
    tl.store(outputs + left + columns, (grad * gate * below).to(outputs.dtype.element_ty), mask=real)


@triton.jit
def turn_kernel(
    inputs, outputs, cos, sin, rows, columns, angles, from_stride, to_stride, sign,
    D: tl.constexpr, TURN: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """R rows of C columns, in heads of D: each pair (i, i + D/2) turned by the row's angle, or copied."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.program_id(1) * C + tl.arange(0, C)
    real = (row < rows)[:, None] & (at < columns)[None, :]
    start = row.to(tl.int64)[:, None] * from_stride
    x = tl.load(inputs + start + at[None, :], mask=real, other=0.0)
    if TURN:
        place = at % D
        left = place < D // 2
        other = tl.where(left, at + D // 2, at - D // 2)
        partner = tl.load(inputs + start + other[None, :], mask=real, other=0.0).to(tl.float32)
        angle = (row % angles)[:, None] * D + place[None, :]
        by_cos = tl.load(cos + angle, mask=real, other=0.0).to(tl.float32)
        by_sin = tl.load(sin + angle, mask=real, other=0.0).to(tl.float32) * tl.where(left, -sign, sign)[None, :]
        x = (x.to(tl.float32) * by_cos + partner * by_sin).to(x.dtype)
    tl.store(outputs + row.to(tl.int64)[:, None] * to_stride + at[None, :], x, mask=real)


@triton.jit
def _mix(h, salt):
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = ((h ^ (h >> 15)) ^ salt) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _lucky(seed, where, threshold):
    """Whether places are kept, see `lucky` in add_norm.py."""
    both = tl.load(seed)
    none = tl.zeros((), dtype=tl.uint32)
    low = _mix(both.to(tl.uint32), none)
    high = _mix((both >> 32).to(tl.uint32) ^ low, none)
    h = _mix(where.to(tl.uint32) * 0x9E3779B1 + low, high)
    return (h >> 8).to(tl.int32) >= threshold


@triton.jit
def add_norm_kernel(
    inputs, kept, gain, shift, seed, outputs, sums, stats, rows, columns, threshold, scale, eps,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """R rows: their sum with what dropout leaves of the inputs, and its norm."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.arange(0, C)
    inside = (at < columns)[None, :]
    real = (row < rows)[:, None] & inside
    where = row.to(tl.int64)[:, None] * columns + at[None, :]
    x = tl.load(inputs + where, mask=real, other=0.0).to(tl.float32)
    z = tl.load(kept + where, mask=real, other=0.0).to(tl.float32)
    z += tl.where(_lucky(seed, where, threshold), x * scale, 0.0)
    z = tl.where(inside, z.to(sums.dtype.element_ty).to(tl.float32), 0.0)
    tl.store(sums + where, z.to(sums.dtype.element_ty), mask=real)
    mean = tl.sum(z, 1) / columns
    centred = tl.where(inside, z - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / columns + eps)
    g = tl.load(gain + at, mask=at < columns, other=0.0).to(tl.float32)
    s = tl.load(shift + at, mask=at < columns, other=0.0).to(tl.float32)
    y = centred * inverse[:, None] * g[None, :] + s[None, :]
    tl.store(outputs + where, y.to(outputs.dtype.element_ty), mask=real)
    tl.store(stats + row * 2, mean, mask=row < rows)
    tl.store(stats + row * 2 + 1, inverse, mask=row < rows)


@triton.jit
def add_norm_gradient_kernel(
    grads, sums, stats, gain, seed, dx, dz, partial, rows, columns, parts, span, threshold, scale,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """`span` rows, R at a time: the gradients, and three sums over these rows."""
    at = tl.arange(0, C)
    inside = (at < columns)[None, :]
    g = tl.load(gain + at, mask=at < columns, other=0.0).to(tl.float32)
    by_bias = tl.zeros((R, C), dtype=tl.float32)
    by_gain = tl.zeros((R, C), dtype=tl.float32)
    by_shift = tl.zeros((R, C), dtype=tl.float32)
    first = tl.program_id(0) * span
    for start in range(first, first + span, R):
        row = start + tl.arange(0, R)
        real = (row < rows)[:, None] & inside
        where = row.to(tl.int64)[:, None] * columns + at[None, :]
        dy = tl.load(grads + where, mask=real, other=0.0).to(tl.float32)
        z = tl.load(sums + where, mask=real, other=0.0).to(tl.float32)
        mean = tl.load(stats + row * 2, mask=row < rows, other=0.0)
        inverse = tl.load(stats + row * 2 + 1, mask=row < rows, other=0.0)
        unit = tl.where(real, (z - mean[:, None]) * inverse[:, None], 0.0)
        pull = dy * g[None, :]
        bent = tl.sum(unit * pull, 1) / columns
        moved = tl.sum(pull, 1) / columns
        back = (pull - moved[:, None] - unit * bent[:, None]) * inverse[:, None]
        tl.store(dz + where, back.to(dz.dtype.element_ty), mask=real)
        kept = tl.where(_lucky(seed, where, threshold) & real, back * scale, 0.0)
        tl.store(dx + where, kept.to(dx.dtype.element_ty), mask=real)
        by_bias += kept
        by_gain += unit * dy
        by_shift += dy
    here = partial + tl.program_id(0).to(tl.int64) * columns + at
    apart = parts * columns
    tl.store(here, tl.sum(by_bias, 0), mask=at < columns)
    tl.store(here + apart, tl.sum(by_gain, 0), mask=at < columns)
    tl.store(here + 2 * apart, tl.sum(by_shift, 0), mask=at < columns)
