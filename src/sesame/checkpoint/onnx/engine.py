"""Answers through ONNX Runtime: takes the place of backbone and head, the rest of a task stays as it is.

    engine = OnnxEngine(folder)                # what `sesame convert --to onnx` wrote, or a model folder
    engine.logits(batch)                       # as task.logits(task.features(backbone(batch)), batch)
    OnnxEngines(folder).get("embed")           # all heads of a folder, each opened when it is first asked

An exported folder holds no weights for PyTorch. Its config.json says which encoder and which task it was, so that texts
become windows and logits become answers as ever; `parts` is that model, with empty weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sesame.backbones import Encoder, EncoderConfig
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.onnx.encoder import IDS, MASK, SEGMENTS
from sesame.checkpoint.onnx.heads import EMBED, FILL, Head, build_model, choose_head
from sesame.checkpoint.onnx.int8 import quantized
from sesame.checkpoint.tasks import read_tasks
from sesame.config import build
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.files import read_json
from sesame.objectives import MaskedLMHead
from sesame.tasks import Task
from sesame.text import Tokenizer

FILE = "model.onnx"
PRECISIONS = ("fp32", "int8")
TOKENS = 8192  # places in one run: one very long text must not fill the memory


class OnnxEngine:
    """One head of one model. A model folder of ours is written as a graph in memory, which takes a moment."""

    def __init__(
        self,
        folder: str | Path,
        task: str | None = None,
        *,
        precision: str | None = None,
        threads: int | None = None,
        layers: str | None = None,
        pooling: str | None = None,
        parts: Parts | None = None,
    ) -> None:
        """`layers` and `pooling` are for vectors; an exported folder has its own, which they must not contradict.

        `parts` is what the folder holds, if it is open already.
        """
        folder = Path(folder)
        check_precision(precision)
        graph: str | bytes
        if exported(folder):
            self.parts, self.head, self.precision = read_exported(folder)
            _check_wish(folder, self.head, task, layers, pooling)
            if precision not in (None, self.precision):
                raise SesameError(
                    f"{folder}: was exported in {self.precision}, not in {precision}; "
                    f"export it again with --precision {precision}"
                )
            graph = str(folder / FILE)
        else:
            self.parts = parts or load_parts(folder)
            self.head = choose_head(self.parts, task, str(folder), layers or "last", pooling or "mean")
            self.precision = precision or "fp32"
            model = build_model(self.parts, self.head)
            graph = (quantized(model) if self.precision == "int8" else model).SerializeToString()
        self._open(graph, str(folder / FILE), threads)

    @classmethod
    def of(cls, parts: Parts, head: Head, graph: str | bytes, threads: int | None = None) -> "OnnxEngine":
        """An engine for a graph that was just written."""
        engine = cls.__new__(cls)
        engine.parts, engine.head, engine.precision = parts, head, "fp32"
        engine._open(graph, FILE, threads)
        return engine

    def _open(self, graph: str | bytes, place: str, threads: int | None) -> None:
        runtime, errors = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self.session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except errors as error:
            raise SesameError(f"{place}: not a graph that ONNX Runtime opens; export it again") from error
        self.inputs = {found.name for found in self.session.get_inputs()}

    @property
    def task(self) -> Task | None:
        """The task whose logits these are; none for fill and embed."""
        return self.parts.tasks.get(self.head.name)

    # ---- numbers -------------------------------------------------------------------------------------------------

    def logits(self, batch: Batch) -> Tensor:
        """What the task's own `logits` gives for this batch of windows; for fill (B, L, V), for embed vectors (B, D)."""
        found = self.run(batch)
        if self.head.kind == "qa":
            return torch.stack(found, -1).masked_fill(~_real(batch)[..., None], -torch.inf)
        if self.head.each_token or self.head.kind == EMBED:
            return found[0]
        return self._joined(found[0], batch)

    def _joined(self, rows: Tensor, batch: Batch) -> Tensor:
        """The mean over the windows of each text, or of each option of a choice."""
        targets = batch.targets[self.head.name]
        assert targets.rows is not None
        items = len(targets.labels)
        most = 1 if targets.at is None else targets.at.shape[1]
        where = targets.rows.cpu()
        count = torch.zeros(items * most).index_add(0, where, torch.ones(len(rows)))
        total = torch.zeros(items * most, rows.shape[1]).index_add(0, where, rows)
        mean = total / count.clamp(min=1)[:, None]
        if targets.at is None:
            return mean
        return mean.view(items, most).masked_fill(~targets.at.cpu(), -torch.inf)

    @property
    def tokens(self) -> "OnnxStates":
        """Of vectors those of every token, before they are pooled."""
        if self.head.kind != EMBED:
            raise SesameError(f"this ONNX file answers {self.head.kind}; export vectors with --task {EMBED}")
        return OnnxStates(self)

    def run(self, batch: Batch) -> list[Tensor]:
        """The outputs of the graph, row by row of a padded batch."""
        parts = [[torch.from_numpy(array) for array in self.session.run(None, feed)] for feed in self._feeds(batch)]
        return [torch.cat(found) if len(found) > 1 else found[0] for found in zip(*parts, strict=True)]

    def _feeds(self, batch: Batch) -> Iterator[dict[str, Any]]:
        assert batch.ids.ndim == 2, "graphs take padded batches"
        config, width = self.parts.backbone.config, batch.ids.shape[1]
        if width > config.max_length and config.positions != "rotary":
            raise SesameError(f"{width} tokens do not fit: this model was built for {config.max_length}")
        segments = torch.zeros_like(batch.ids) if batch.segments is None else batch.segments
        tensors = {IDS: batch.ids, MASK: _real(batch), SEGMENTS: segments}
        given = {name: tensor.cpu().long() for name, tensor in tensors.items() if name in self.inputs}
        if self.head.kind == "choice":
            given = {name: tensor[:, None] for name, tensor in given.items()}
        most = max(1, TOKENS // max(width, 1))
        for start in range(0, batch.size, most):
            yield {name: tensor[start : start + most].contiguous().numpy() for name, tensor in given.items()}


@dataclass(frozen=True)
class OnnxStates:
    """An engine whose numbers are the states of the exported layers at every token (B, L, D)."""

    engine: OnnxEngine

    def logits(self, batch: Batch) -> Tensor:
        return self.engine.run(batch)[1]


class OnnxEngines:
    """All heads of a folder, each opened when it is first asked; an exported folder has one."""

    def __init__(self, folder: str | Path, precision: str | None = None, threads: int | None = None) -> None:
        check_precision(precision)
        self.folder, self.precision, self.threads = Path(folder), precision, threads
        self.parts = read_exported(self.folder)[0] if exported(folder) else load_parts(folder)
        self._open: dict[tuple[str | None, ...], OnnxEngine] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For another process: sessions cannot travel, and are opened again there."""
        return {**self.__dict__, "_open": {}}

    def get(self, task: str | None = None, layers: str | None = None, pooling: str | None = None) -> OnnxEngine:
        key = (task, layers, pooling)
        if key not in self._open:
            self._open[key] = OnnxEngine(
                self.folder, task, precision=self.precision, threads=self.threads,
                layers=layers, pooling=pooling, parts=self.parts,
            )  # fmt: skip
        return self._open[key]


def _real(batch: Batch) -> Tensor:
    lengths = batch.lengths.cpu()
    return torch.arange(batch.ids.shape[1])[None] < lengths[:, None]


def _runtime() -> tuple[Any, tuple[type[Exception], ...]]:
    """ONNX Runtime, and what it raises for a graph that it cannot open."""
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        raise SesameError(
            "the ONNX engine needs the package onnxruntime; install it with: pip install 'sesame-nlp[onnx]'"
        ) from None
    return onnxruntime, (state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NoSuchFile)


# ---- exported folders -----------------------------------------------------------------------------------------------


def exported(folder: str | Path) -> bool:
    return (Path(folder) / FILE).is_file()


def check_precision(precision: str | None) -> None:
    if precision not in (None, *PRECISIONS):
        raise SesameError(f"--precision {precision}: ONNX knows {' and '.join(PRECISIONS)}; choose one of them")


def read_exported(folder: Path) -> tuple[Parts, Head, str]:
    """The model without weights (on the device "meta"), its head, and the precision of the graph."""
    place = folder / "config.json"
    found = read_json(place)
    own = found.get("sesame") if isinstance(found, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("onnx"), dict):
        raise SesameError(f"{place}: does not say how {FILE} was made; export it with `sesame convert --to onnx`")
    said = own["onnx"]
    config = build(EncoderConfig, said.get("encoder", {}), f"{place}: encoder")
    head = build(Head, said.get("head", {}), f"{place}: head")
    with torch.device("meta"):
        backbone = Encoder(config).eval()
        tasks = read_tasks({"sesame": {"tasks": own.get("tasks", {})}}, backbone, str(place))
        heads = _heads(head, config) | {
            name: module for task in tasks.values() for name, module in task.heads().items()
        }
    for task in tasks.values():
        task.eval()
    return Parts(backbone, heads, _tokenizer(folder), tasks=tasks), head, str(said.get("precision", "fp32"))


def _heads(head: Head, config: EncoderConfig) -> dict[str, nn.Module]:
    """What a folder must hold to be asked for masks, or for vectors through a pooler; nothing is in them."""
    if head.kind == FILL:
        narrow = config.embedding_width or config.width
        return {"mlm": MaskedLMHead(config.width, narrow, config.vocab, "gelu", config.eps, bias=config.bias)}
    return {"pooler": nn.Linear(config.width, config.width)} if head.pooling == "pooler" and head.kind == EMBED else {}


def _tokenizer(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder) if (folder / "tokenizer.json").is_file() else None


def _check_wish(folder: Path, head: Head, task: str | None, layers: str | None, pooling: str | None) -> None:
    if task not in (None, head.name):
        raise SesameError(f"{folder}: was exported for {head.name!r}, not for {task!r}; export that one too")
    for what, has, wanted in (("layers", head.layers, layers), ("pooling", head.pooling, pooling)):
        if head.kind == EMBED and wanted not in (None, has):
            raise SesameError(f"{folder}: was exported with --{what} {has}; ask for that, or export {wanted} too")
