"""GPU kernels of our own, for `cross_entropy.py` and `gelu.py`, in Triton, which comes with PyTorch for CUDA.

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
    right = tl.load(start + tl.maximum(label, 0)).to(tl.float32)
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
def gelu_gradient_kernel(
    inputs, grads, outputs, sums, rows, columns, SPAN: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    """SPAN rows of C columns, R at a time: the gradient, and its sum over these rows."""
    at = tl.program_id(1) * C + tl.arange(0, C)
    inside = at < columns
    total = tl.zeros((R, C), dtype=tl.float32)  # summed over its rows once, at the end: sums across threads are slow
    first = tl.program_id(0) * SPAN
    for start in range(first, first + SPAN, R):
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
