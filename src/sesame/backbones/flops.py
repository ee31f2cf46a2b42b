"""What a training step costs, by formula: arithmetic and memory of a token.

    FLOPs a token = 3 * 2 * (multiply-adds of the forward pass of a row) / length

A multiply-add is two FLOPs; the backward pass of a product is two products of its size, so forward and backward make three.
Matrices and attention scores are counted as they must be computed: norms, activations and look-ups are left out (under one
percent), and so is what a kernel computes twice to save memory (fused attention makes its scores again in the backward pass).
So dividing by the peak of a device gives the share of it that was useful, MFU (Chowdhery et al. 2022, appendix B).

A backbone of a new kind brings a formula of its own (`flops_attention.py`, `flops_recurrent.py`) and one line in `FORMULAS`.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from sesame.backbones import flops_attention as attention
from sesame.backbones import flops_recurrent as recurrent
from sesame.backbones.bilm import BiLMConfig
from sesame.backbones.cove import CoVeConfig
from sesame.backbones.decoded import DecodedConfig
from sesame.backbones.encoder import EncoderConfig
from sesame.backbones.encoder_decoder import EncoderDecoderConfig
from sesame.backbones.encoder_half import EncoderHalfConfig
from sesame.backbones.lstm import LSTMConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2SeqConfig
from sesame.backbones.skip_thought import SkipThoughtConfig
from sesame.backbones.smaller import smaller
from sesame.backbones.tagger import TaggerConfig
from sesame.backbones.transformer_xl import TransformerXLConfig
from sesame.backbones.work import PASSES, Cost, Work
from sesame.backbones.xlnet import XLNetConfig

FP32 = 4  # bytes


def flops_per_token(config: Any, work: Work) -> float:
    """FLOPs of forward and backward pass, for each place of a row."""
    return PASSES * 2 * multiply_adds(config, work)


def multiply_adds(config: Any, work: Work) -> float:
    """Of the forward pass alone, for each place of a row."""
    return _cost(config, work).products / work.length


def kept_per_token(config: Any, work: Work) -> float:
    """Numbers that the forward pass keeps for the backward pass, for each place of a row: an estimate of activations.

    Counted are the inputs of products, norms and activations, and dropout masks as numbers, each once: what a plain PyTorch
    pass saves. A compiler that recomputes keeps less; autocast, which keeps norms in fp32, more.
    """
    return _cost(config, work).kept / work.length


def weights_memory(model: nn.Module) -> int:
    """Bytes that do not depend on the batch: 4 each for a weight, its gradient, AdamW's two means, and the copy of weight and
    means that a broken step is undone from."""
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    fixed = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    return FP32 * (7 * trained + fixed)


def step_memory(model: nn.Module, config: Any, work: Work, rows: int, size: int = FP32) -> int:
    """Bytes of training with `rows` rows at a time whose activations have `size` bytes each: an estimate."""
    return weights_memory(model) + round(rows * work.length * kept_per_token(config, work) * size)


def _cost(config: Any, work: Work) -> Cost:
    cost = FORMULAS[type(config)](config, work)
    cost = Cost(cost.products * work.times, cost.kept * work.times)
    if work.generator is None:
        return cost
    made = _cost(smaller(config, work.generator.width, work.generator.depth), Work(work.length, work.generator.masked))
    told = work.length * (config.width * config.width + config.width)  # the backbone's head: D D + D at every place
    return Cost(cost.products + told + made.products, cost.kept + made.kept + 2 * work.length * config.width)


FORMULAS: dict[type, Callable[[Any, Work], Cost]] = {
    EncoderConfig: attention.encoder,
    EncoderDecoderConfig: attention.encoder_decoder,
    EncoderHalfConfig: attention.encoder_half,
    DecodedConfig: attention.encoder_decoder,
    RecurrentSeq2SeqConfig: recurrent.recurrent_seq2seq,
    XLNetConfig: attention.xlnet,
    TransformerXLConfig: attention.transformer_xl,
    BiLMConfig: recurrent.bilm,
    LSTMConfig: recurrent.lstm,
    CoVeConfig: recurrent.cove,
    SkipThoughtConfig: recurrent.skip_thought,
    TaggerConfig: recurrent.tagger,
}
