"""Compile every kernel for an H200, which needs no GPU, and print its PTX by name as JSON; see test_compiled_kernels.py."""

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sesame.nn import add_norm, geglu, kernels, turn

HALF, FULL, WHOLE, NUMBER = "*bf16", "*fp32", "i32", "fp32"
TILE = {"R": geglu.ROWS, "C": geglu.COLUMNS}
GELU = {"R": 4, "C": 256}

# Arguments by the order of the kernel's own, those known to the compiler, warps: as the files that use them say.
CASES: list[tuple[Any, list[str], dict[str, Any], int]] = [
    (kernels.softmax_gradient_kernel, [HALF, "*i64", FULL, WHOLE, WHOLE], {"BLOCK": 8192}, 8),
    (kernels.gelu_kernel, [HALF, HALF, WHOLE], {"BLOCK": 8192}, 8),
    (kernels.gelu_gradient_kernel, [HALF, HALF, HALF, FULL, WHOLE, WHOLE, WHOLE], GELU, 2),
    (kernels.geglu_kernel, [HALF, HALF, WHOLE, WHOLE], TILE, 4),
    (kernels.geglu_gradient_kernel, [HALF, HALF, HALF, WHOLE, WHOLE], TILE, 4),
]
for turned in (True, False):
    known = {"D": 64, "TURN": turned, "R": turn.ROWS, "C": turn.COLUMNS}
    CASES.append((kernels.turn_kernel, [HALF, HALF, FULL, FULL, *[WHOLE] * 5, NUMBER], known, 4))
for width in (1, 128, 768, 4096):
    wide, at_once, warps = add_norm._tile(width)
    tile = {"R": at_once, "C": wide}
    given = [HALF, HALF, HALF, HALF, "*i64", HALF, HALF, FULL, WHOLE, WHOLE, WHOLE, NUMBER, NUMBER]
    CASES.append((kernels.add_norm_kernel, given, tile, warps))
    given = [HALF, HALF, FULL, HALF, "*i64", HALF, HALF, FULL, *[WHOLE] * 5, NUMBER]
    CASES.append((kernels.add_norm_gradient_kernel, given, tile, warps))

if __name__ == "__main__":
    found = {}
    for kernel, given, known, warps in CASES:
        names = kernel.arg_names
        signature = dict(zip(names, [*given, *["constexpr"] * len(known)], strict=True))
        source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in known.items()})
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
        found[f"{kernel.__name__} {known}"] = made.asm["ptx"]
    print(json.dumps(found))
