"""One head, step by step, as a lecture would show it.

q, k, v = x W_q, x W_k, x W_v      scores = q kᵀ · scale      weights = softmax(scores)      output = weights v
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sesame.backbones import Encoder
from sesame.checkpoint.folder import Parts
from sesame.errors import SesameError
from sesame.explain.attention import read
from sesame.nn.attention.core import band
from sesame.nn.block import Block
from sesame.nn.positions import rotate, rotations


@dataclass(frozen=True)
class Steps:
    tokens: list[str]
    q: Tensor  # (n, d), as are k, v and output
    k: Tensor
    v: Tensor
    scores: Tensor  # (n, n), -inf where one may not look (a causal model's future, what is far from a local layer)
    weights: Tensor
    output: Tensor
    scale: float


def steps_of(parts: Parts, text: str, pair: str | None, layer: int, head: int) -> Steps:
    """All that one head computes; layers and heads count from 0."""
    backbone = parts.backbone
    if not isinstance(backbone, Encoder):
        raise SesameError("the steps of a head can be shown for encoders and decoders of Transformer blocks only")
    if not (0 <= layer < backbone.depth and 0 <= head < backbone.config.heads):
        raise SesameError(
            f"there are layers 0 to {backbone.depth - 1} and heads 0 to {backbone.config.heads - 1}; choose among them"
        )
    tokens, batch = read(parts, text, pair)
    backbone.eval()
    with torch.inference_mode():
        x = backbone(batch).layers[layer][0]
        block = backbone.blocks[layer]
        assert isinstance(block, Block)
        local = layer in backbone.config.local_layers
        q, k, v = _projected(backbone, block, x, head, local)
        scale = block.attention.scale or 1 / math.sqrt(block.attention.size)
        scores = (q * scale) @ k.T
        if backbone.config.causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
        if local:
            scores = scores.masked_fill(~band(len(x), backbone.config.window, x.device), -torch.inf)
        weights = scores.softmax(-1)
    return Steps(tokens, q, k, v, scores, weights, weights @ v, scale)


def _projected(backbone: Encoder, block: Block, x: Tensor, head: int, local: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of every token in one head. Shape: (n, D) -> (n, d) each."""
    attention, config = block.attention, backbone.config
    if block.order == "pre":
        x = block.attention_norm(x)
    mine = slice(head * attention.size, (head + 1) * attention.size)
    q, k, v = (part[:, mine] for part in attention.qkv(x).chunk(3, dim=-1))
    if config.positions == "rotary":
        base = config.local_base if local else config.rotary_base
        turns = rotations(torch.arange(len(x), device=x.device), attention.size, base, x.dtype)
        q, k = rotate(q, *turns), rotate(k, *turns)
    return q, k, v
