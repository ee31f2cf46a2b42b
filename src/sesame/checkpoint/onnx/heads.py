"""What a graph answers: an encoder with one head, under the names that transformers and optimum use.

| head | outputs |
|---|---|
| classify, regress | `logits` (B, labels) |
| choice | `logits` (B, options), from ids (B, options, L) |
| tag, fill | `logits` (B, L, tags or vocabulary) |
| qa | `start_logits`, `end_logits` (B, L) |
| embed | `sentence_embedding` (B, D), `last_hidden_state` (B, L, D) |

Unusual: one row is one window. Logits are linear in the pooled vector, so the mean of the windows' logits is what a task
computes from the mean of their vectors; averaging them is left to the one who runs the graph. So is the temperature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sesame import __version__
from sesame.backbones import Encoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.onnx.encoder import IDS, MASK, SEGMENTS, token_table, write_encoder
from sesame.checkpoint.onnx.graph import Graph
from sesame.config import unknown
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead
from sesame.tasks import Task
from sesame.tasks.embed import POOLS
from sesame.tasks.layers import choose_layers
from sesame.tasks.pooled import PooledTask

FILL, EMBED = "fill", "embed"
AS_IT_IS = "use this model as it is, without --to onnx or --engine onnx"


@dataclass(frozen=True)
class Head:
    """Which answer a graph gives."""

    kind: str  # a task's kind, or fill, or embed
    name: str  # the task's own name, or the kind again
    layers: str = "last"
    pooling: str = "mean"

    @property
    def each_token(self) -> bool:
        return self.kind in ("tag", "qa", FILL)


def choose_head(parts: Parts, task: str | None, place: str, layers: str = "last", pooling: str = "mean") -> Head:
    """A task by name, "fill" or "embed"; without a name the only task, else fill, else embed."""
    tasks = parts.tasks
    if task is None and len(tasks) > 1:
        raise SesameError(f"{place}: was taught several tasks ({', '.join(tasks)}); choose one with --task")
    name = task or next(iter(tasks), FILL if "mlm" in parts.heads else EMBED)
    if name in tasks:
        config = tasks[name].config
        if config.both:
            raise SesameError(f"{place}: task {name} reads pairs in both orders, a graph in one; {AS_IT_IS}")
        if config.pooling in ("concat", "rising"):
            raise SesameError(f"{place}: task {name} pools by {config.pooling}, a graph does not; {AS_IT_IS}")
        return Head(config.kind, name, config.layers, config.pooling)
    if name == FILL:
        if "mlm" not in parts.heads:
            raise SesameError(f"{place}: has no trained masked-language head, so it cannot fill masks")
        return Head(FILL, FILL)
    if name != EMBED:
        raise SesameError(unknown(name, dict.fromkeys([*tasks, FILL, EMBED]), place, "task"))
    if pooling not in (*POOLS, "pooler"):
        raise SesameError(unknown(pooling, dict.fromkeys([*POOLS, "pooler"]), "--pooling", "choice"))
    if pooling == "pooler" and ("pooler" not in parts.heads or layers == "concat-last-4"):
        raise SesameError("this model has no trained pooler for these layers; choose --pooling mean or cls")
    choose_layers(layers, [torch.empty(1)] * (parts.backbone.depth + 1))  # a wrong name is told at once
    return Head(EMBED, EMBED, layers, pooling)


def build_model(parts: Parts, head: Head) -> Any:
    """The encoder and one head as an onnx.ModelProto."""
    graph, encoder = Graph(), parts.backbone
    if not isinstance(encoder, Encoder):
        raise SesameError(f"only encoders like BERT's can be written as ONNX; {AS_IT_IS}")
    options = head.kind == "choice"
    shape = ["batch_size", *(["num_choices"] if options else []), "sequence_length"]
    inputs = {name: shape for name in (IDS, MASK, SEGMENTS) if name != SEGMENTS or encoder.config.segments}
    ids, mask, segments = (_flat(graph, name) if options and name in inputs else name for name in (IDS, MASK, SEGMENTS))
    pooled = head.kind in ("classify", "regress", "choice")
    first = pooled and head.layers == "last" and head.pooling in ("pooler", "cls")
    layers = write_encoder(graph, encoder, ids, mask, segments, first)
    if head.kind == FILL:
        outputs = _fill(graph, parts, layers[-1], ids)
    elif head.kind == EMBED:
        outputs = _embed(graph, parts, head, layers, mask)
    elif pooled:
        outputs = _pooled(graph, parts.tasks[head.name], layers, mask, options)
    else:
        outputs = _tokens(graph, parts.tasks[head.name], layers)
    return graph.model(inputs, outputs, f"{head.kind}, written by Sesame {__version__}")


def _flat(graph: Graph, name: str) -> str:
    """(B, options, L) -> (B * options, L)."""
    length = graph.head_slice(graph.op("Shape", name, name="options"), 2, 3, "options")
    shape = graph.op("Concat", graph.ints(-1), length, name="options", axis=0)
    return graph.op("Reshape", name, shape, name="options")


# ---- layers and pooling ---------------------------------------------------------------------------------------------


def _choose(graph: Graph, name: str, layers: Sequence[str]) -> str:
    """As `tasks.layers.choose_layers`, on names."""
    above = layers[1:]
    if name == "concat-last-4":
        return graph.op("Concat", *above[-4:], name="layers", axis=-1)
    if name in ("sum-last-4", "sum-all"):
        return graph.op("Sum", *(above[-4:] if name == "sum-last-4" else above), name="layers")
    at = {"last": -1, "second-to-last": -2, "first": 0}
    return layers[at[name] if name in at else int(name)]


def _pool(graph: Graph, x: str, pooling: str, mask: str) -> str:
    """(B, L, D) -> (B, D)."""
    kinds = graph.onnx.TensorProto
    if pooling in ("pooler", "cls"):
        first = graph.op("Slice", x, graph.ints(0), graph.ints(1), graph.ints(1), name="pool")
        return graph.op("Squeeze", first, graph.ints(1), name="pool")
    wide = graph.op("Unsqueeze", mask, graph.ints(2), name="pool")
    if pooling == "max":
        real = graph.op("Cast", wide, name="pool", to=kinds.BOOL)
        seen = graph.op("Where", real, x, graph.constant(-float("inf"), "minus_infinity"), name="pool")
        return graph.op("ReduceMax", seen, name="pool", axes=[1], keepdims=0)
    real = graph.op("Cast", wide, name="pool", to=kinds.FLOAT)
    total = graph.op("ReduceSum", graph.op("Mul", x, real, name="pool"), graph.ints(1), name="pool", keepdims=0)
    count = graph.op("ReduceSum", real, graph.ints(1), name="pool", keepdims=0)
    return graph.op("Div", total, count, name="pool")


def _mixed(graph: Graph, task: Task, found: Sequence[str]) -> str:
    """γ Σ softmax(s)_j h_j; a task without a mix has one h."""
    mix = task.choice.mix
    if mix is None:
        return found[0]
    weights = (mix.scale * mix.scores.softmax(0)).detach().tolist()
    parts = [
        graph.op("Mul", x, graph.constant(weight, f"mix.{number}"), name="mix")
        for number, (x, weight) in enumerate(zip(found, weights, strict=True))
    ]
    return graph.op("Sum", *parts, name="mix")


# ---- heads ----------------------------------------------------------------------------------------------------------

Outputs = dict[str, list[str | int]]


def _pooled(graph: Graph, task: Task, layers: Sequence[str], mask: str, options: bool) -> Outputs:
    assert isinstance(task, PooledTask)
    config = task.config
    chosen = layers if task.choice.mix is not None else [_choose(graph, config.layers, layers)]
    x = _mixed(graph, task, [_pool(graph, layer, config.pooling, mask) for layer in chosen])
    x = _transformed(graph, task, x)
    if task.pooler is not None:
        x = graph.activate(graph.module(x, task.pooler, "head.pooler"), config.squeeze, "head.pooler")
    weight, bias = _scaled(task.out, config.scale if config.kind == "regress" else (0.0, 1.0))
    x = graph.linear(x, weight, bias, "head.out")
    if options:
        both = graph.head_slice(graph.op("Shape", IDS, name="head"), 0, 2, "head")
        graph.name_output(graph.op("Reshape", x, both, name="head"), "logits")
        return {"logits": ["batch_size", "num_choices"]}
    graph.name_output(x, "logits")
    return {"logits": ["batch_size", task.out.out_features]}


def _transformed(graph: Graph, task: Task, x: str) -> str:
    """norm(gelu(W h)), where a task has it."""
    if task.transform is None:
        return x
    name = "head.transform"
    x = graph.activate(graph.module(x, task.transform.dense, f"{name}.dense"), "gelu", f"{name}.dense")
    return graph.norm(x, task.transform.norm, f"{name}.norm")


def _scaled(out: nn.Linear, scale: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """A regression that is not settled yet keeps mean and spread of its scores aside: here they are weights."""
    middle, spread = scale
    return out.weight.detach() * spread, out.bias.detach() * spread + middle


def _tokens(graph: Graph, task: Task, layers: Sequence[str]) -> Outputs:
    chosen = layers if task.choice.mix is not None else [_choose(graph, task.config.layers, layers)]
    x = graph.module(_transformed(graph, task, _mixed(graph, task, chosen)), task.out, "head.out")
    if task.config.kind == "tag":
        graph.name_output(x, "logits")
        return {"logits": ["batch_size", "sequence_length", task.out.out_features]}
    for number, name in enumerate(("start_logits", "end_logits")):
        one = graph.op("Slice", x, graph.ints(number), graph.ints(number + 1), graph.ints(2), name=f"head.{name}")
        graph.name_output(graph.op("Squeeze", one, graph.ints(2), name=f"head.{name}"), name)
    return {name: ["batch_size", "sequence_length"] for name in ("start_logits", "end_logits")}


def _fill(graph: Graph, parts: Parts, x: str, ids: str) -> Outputs:
    """The product with the token table reads it as it lies: a tied table is written once."""
    head, encoder, name = parts.heads["mlm"], parts.backbone, "head.mlm"
    assert isinstance(head, MaskedLMHead)
    assert isinstance(encoder, Encoder)
    kind = "gelu" if encoder.config.activation == "geglu" else encoder.config.activation
    if head.dense is not None and head.norm is not None:
        x = graph.activate(graph.module(x, head.dense, f"{name}.dense"), kind, f"{name}.dense")
        x = graph.norm(x, head.norm, f"{name}.norm")
    table = token_table(encoder) if head.table is None else head.table[: encoder.vocab]
    flat = graph.op("Reshape", x, graph.ints(-1, table.shape[1]), name=name)
    bias = graph.weight(head.bias, f"{name}.bias")
    scores = graph.op("Gemm", flat, graph.weight(table, f"{name}.table"), bias, name=name, transB=1)
    shape = graph.op("Concat", graph.op("Shape", ids, name=name), graph.ints(encoder.vocab), name=name, axis=0)
    graph.name_output(graph.op("Reshape", scores, shape, name=name), "logits")
    return {"logits": ["batch_size", "sequence_length", encoder.vocab]}


def _embed(graph: Graph, parts: Parts, head: Head, layers: Sequence[str], mask: str) -> Outputs:
    """States of other layers than the last are called `token_embeddings`, as sentence-transformers does."""
    states = _choose(graph, head.layers, layers)
    x = _pool(graph, states, head.pooling, mask)
    if head.pooling == "pooler":
        pooler = parts.heads["pooler"]
        assert isinstance(pooler, nn.Linear)
        x = graph.op("Tanh", graph.module(x, pooler, "head.pooler"), name="head.pooler")
    width = parts.backbone.width * (min(4, parts.backbone.depth) if head.layers == "concat-last-4" else 1)
    named = "last_hidden_state" if head.layers == "last" else "token_embeddings"
    graph.name_output(x, "sentence_embedding")
    graph.name_output(states, named)
    return {"sentence_embedding": ["batch_size", width], named: ["batch_size", "sequence_length", width]}
