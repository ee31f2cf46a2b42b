"""The encoder as an ONNX graph: the same formulas as `backbones/encoder.py`, brick by brick.

    input_ids, attention_mask, token_type_ids (B, L) -> the embeddings and every layer's states (B, L, D)

Attention is written out, softmax(Q Kᵀ / √d + mask) V, where the mask adds the most negative number at padding.
"""

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from sesame.backbones import Encoder
from sesame.checkpoint.onnx.graph import Graph
from sesame.errors import SesameError
from sesame.nn.attention.multihead import SelfAttention
from sesame.nn.block import Block
from sesame.nn.feedforward import FeedForward

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"


@dataclass(frozen=True)
class Rows:
    """What the layers must know of the batch, by name."""

    bias: str  # (B, 1, 1 or L, L): 0 where one may look, the most negative number elsewhere
    rotary: tuple[str, str] | None  # cosines and sines (1, L, 1, d)


def write_encoder(graph: Graph, encoder: Encoder, ids: str, mask: str, segments: str, first: bool = False) -> list[str]:
    """The names of the embeddings and of each layer's states; with `first` the last layer is computed at [CLS] alone."""
    config = encoder.config
    if config.causal:
        raise SesameError("a model that reads from left to right has no ONNX form here yet; use its folder as it is")
    length = graph.head_slice(graph.op("Shape", ids, name="length"), 1, 2, "length")
    layers = [_embeddings(graph, encoder, ids, segments, length)]
    rows = Rows(_mask(graph, mask), _rotations(graph, encoder, length, config.rotary_base, "rotary"))
    near = _near(graph, encoder, rows, length) if config.local_layers else rows
    for number, block in enumerate(encoder.blocks):
        assert isinstance(block, Block)
        last, local = number == config.depth - 1, number in config.local_layers
        x = _block(
            graph, block, config.activation, layers[-1], near if local else rows, f"layer.{number}",
            first=first and last and not local,
        )  # fmt: skip
        layers.append(_first(graph, x, f"layer.{number}") if first and last and local else x)
    if config.order == "pre":
        layers[-1] = graph.norm(layers[-1], encoder.final_norm, "final_norm")  # type: ignore[arg-type]
    return layers


def token_table(encoder: Encoder) -> Tensor:
    """Without the rows that only pad it."""
    return encoder.token_table()[: encoder.vocab]


def _embeddings(graph: Graph, encoder: Encoder, ids: str, segments: str, length: str) -> str:
    module, name = encoder.embeddings, "embeddings"
    table = graph.weight(token_table(encoder), f"{name}.tokens")
    x = graph.op("Gather", table, ids, name=f"{name}.tokens")
    if module.kind != "rotary":
        places = module.table if module.positions is None else module.positions.weight
        at = graph.op("Slice", graph.weight(places, f"{name}.positions"), graph.ints(0), length, name=name)
        x = graph.op("Add", x, at, name=f"{name}.positions")
    if module.segments is not None:
        kinds = graph.op("Gather", graph.weight(module.segments.weight, f"{name}.segments"), segments, name=name)
        x = graph.op("Add", x, kinds, name=f"{name}.segments")
    if module.norm is not None:
        x = graph.norm(x, module.norm, f"{name}.norm")
    return x if module.project is None else graph.module(x, module.project, f"{name}.project")


def _mask(graph: Graph, mask: str) -> str:
    wide = graph.op("Unsqueeze", mask, graph.ints(1, 2), name="mask")
    real = graph.op("Cast", wide, name="mask", to=graph.onnx.TensorProto.FLOAT)
    hidden = graph.op("Sub", graph.constant(1.0, "one"), real, name="mask")
    return graph.op("Mul", hidden, graph.constant(float(np.finfo(np.float32).min), "lowest"), name="mask")


def _near(graph: Graph, encoder: Encoder, rows: Rows, length: str) -> Rows:
    """The same for layers that look at near tokens only: |i - j| <= window."""
    config, name = encoder.config, "near"
    at = _places(graph, length, name)
    down, right = (graph.op("Unsqueeze", at, graph.ints(side), name=name) for side in (1, 0))
    far = graph.op("Abs", graph.op("Sub", down, right, name=name), name=name)
    seen = graph.op("LessOrEqual", far, graph.constant(np.array(config.window, np.int64), "window"), name=name)
    lowest = graph.constant(float(np.finfo(np.float32).min), "lowest")
    bias = graph.op("Where", seen, rows.bias, lowest, name=name)
    return Rows(bias, _rotations(graph, encoder, length, config.local_base, "rotary.near"))


def _places(graph: Graph, length: str, name: str) -> str:
    """0, 1, 2 ... of a row. Shape: (L,)."""
    end = graph.op("Squeeze", length, name=name)
    zero, one = graph.constant(np.array(0, np.int64), "zero_int"), graph.constant(np.array(1, np.int64), "one_int")
    return graph.op("Range", zero, end, one, name=name)


def _rotations(graph: Graph, encoder: Encoder, length: str, base: float, name: str) -> tuple[str, str] | None:
    """cos and sin of t / base^(2i/d), in 64 bits until the end: angles grow with the length, roundings with them."""
    if encoder.config.positions != "rotary":
        return None
    size = encoder.width // encoder.config.heads
    rates = base ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    both = graph.constant(np.concatenate([rates, rates])[None, None, None], f"{name}.rates")
    at = _places(graph, length, name)
    kinds = graph.onnx.TensorProto
    wide = graph.op("Unsqueeze", graph.op("Cast", at, name=name, to=kinds.DOUBLE), graph.ints(0, 2, 3), name=name)
    angles = graph.op("Mul", wide, both, name=name)
    cos, sin = (
        graph.op("Cast", graph.op(kind, angles, name=name), name=name, to=kinds.FLOAT) for kind in ("Cos", "Sin")
    )
    return cos, sin


def _block(graph: Graph, block: Block, kind: str, x: str, rows: Rows, name: str, first: bool) -> str:
    attention, feedforward = f"{name}.attention", f"{name}.feedforward"

    def attend(given: str) -> str:
        return _attention(graph, block.attention, given, rows, attention, first)

    def feed(given: str) -> str:
        return _feedforward(graph, block.feedforward, kind, given, feedforward)

    def attention_norm(given: str) -> str:
        if isinstance(block.attention_norm, nn.Identity):
            return given
        assert isinstance(block.attention_norm, nn.LayerNorm)
        return graph.norm(given, block.attention_norm, f"{name}.attention_norm")

    def feedforward_norm(given: str) -> str:
        assert isinstance(block.feedforward_norm, nn.LayerNorm)
        return graph.norm(given, block.feedforward_norm, f"{name}.feedforward_norm")

    def add(left: str, right: str, where: str) -> str:
        return graph.op("Add", left, right, name=f"{where}.residual")

    kept = _first(graph, x, name) if first else x
    if block.order == "pre":
        kept = add(kept, attend(attention_norm(x)), attention)
        return add(kept, feed(feedforward_norm(kept)), feedforward)
    if block.order == "branch":
        kept = add(kept, attention_norm(attend(x)), attention)
        return add(kept, feedforward_norm(feed(kept)), feedforward)
    kept = attention_norm(add(attend(x), kept, attention))
    return feedforward_norm(add(feed(kept), kept, feedforward))


def _first(graph: Graph, x: str, name: str) -> str:
    """x[:, :1]."""
    return graph.op("Slice", x, graph.ints(0), graph.ints(1), graph.ints(1), name=f"{name}.first")


def _attention(graph: Graph, module: SelfAttention, x: str, rows: Rows, name: str, first: bool) -> str:
    heads = graph.ints(0, 0, module.heads, module.size)
    asked = _first(graph, x, name) if first else x
    parts = []
    for number, part in enumerate(("query", "key", "value")):
        weight = module.qkv.weight.chunk(3)[number]
        bias = None if module.qkv.bias is None else module.qkv.bias.chunk(3)[number]
        made = graph.linear(asked if part == "query" else x, weight, bias, f"{name}.{part}")
        parts.append(graph.op("Reshape", made, heads, name=f"{name}.{part}"))
    q, k, v = parts
    if rows.rotary is not None:
        q = _turn(graph, q, rows.rotary, module.size, f"{name}.query", first)
        k = _turn(graph, k, rows.rotary, module.size, f"{name}.key", False)
    q = graph.op("Transpose", q, name=f"{name}.query", perm=[0, 2, 1, 3])
    k = graph.op("Transpose", k, name=f"{name}.key", perm=[0, 2, 3, 1])
    v = graph.op("Transpose", v, name=f"{name}.value", perm=[0, 2, 1, 3])
    root = graph.constant(math.sqrt(module.size), "sqrt_size")
    scores = graph.op("Div", graph.op("MatMul", q, k, name=f"{name}.scores"), root, name=f"{name}.scores")
    maps = graph.op("Softmax", graph.op("Add", scores, rows.bias, name=f"{name}.scores"), name=name, axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", maps, v, name=f"{name}.mixed"), name=name, perm=[0, 2, 1, 3])
    flat = graph.op("Reshape", mixed, graph.ints(0, 0, module.heads * module.size), name=name)
    return graph.module(flat, module.out, f"{name}.out")


def _turn(graph: Graph, x: str, rotary: tuple[str, str], size: int, name: str, first: bool) -> str:
    """x cos + (-right, left) sin; position 0 alone is turned by nothing."""
    if first:
        return x
    middle, end, last = graph.ints(size // 2), graph.ints(size), graph.ints(3)
    left = graph.op("Slice", x, graph.ints(0), middle, last, name=name)
    right = graph.op("Neg", graph.op("Slice", x, middle, end, last, name=name), name=name)
    crossed = graph.op("Concat", right, left, name=name, axis=-1)
    cos, sin = rotary
    straight = graph.op("Mul", x, cos, name=name)
    return graph.op("Add", straight, graph.op("Mul", crossed, sin, name=name), name=name)


def _feedforward(graph: Graph, module: FeedForward, kind: str, x: str, name: str) -> str:
    up = module.up
    if module.gated:
        left, right = (
            graph.linear(x, weight, bias, f"{name}.{part}")
            for part, weight, bias in zip(
                ("gate", "up"), up.weight.chunk(2), (None, None) if up.bias is None else up.bias.chunk(2), strict=True
            )
        )
        x = graph.op("Mul", graph.activate(left, "gelu", f"{name}.gate"), right, name=name)
    else:
        x = graph.activate(graph.module(x, up, f"{name}.up"), kind, f"{name}.up")
    return graph.module(x, module.down, f"{name}.down")
