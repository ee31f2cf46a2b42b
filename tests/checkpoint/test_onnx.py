"""ONNX graphs answer as our models do: every head, every kind of encoder, whole folders."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig

from sesame.checkpoint import onnx as exporter
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.onnx import export
from sesame.checkpoint.onnx.check import agreement, ask, random_batch, sample_batches, spearman
from sesame.checkpoint.onnx.engine import FILE, OnnxEngine, OnnxEngines, exported
from sesame.checkpoint.onnx.heads import build_model, choose_head
from sesame.checkpoint.onnx.int8 import quantized
from sesame.checkpoint.tasks import share_pooler
from sesame.data.batch import Batch
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.files import whole_folder
from sesame.objectives import MaskedLMHead
from sesame.tasks import Task, TaskConfig, build_task
from sesame.tasks.answer import answer
from sesame.tasks.windows import Inputs
from tests.tasks.toys import encoder, examples, toy_tokenizer

onnx = pytest.importorskip("onnx", reason="the package onnx writes graphs")
pytest.importorskip("onnxruntime", reason="the package onnxruntime computes them")

NAMES = ("ärger", "b 2", "日本")
CONFIGS = {
    "classify": TaskConfig("classify", NAMES, temperature=1.7),
    "several labels": TaskConfig("classify", NAMES, multi=True),
    "pairs": TaskConfig("classify", ("yes", "no"), pair=True),
    "regress": TaskConfig("regress", scale=(3.0, 2.0)),
    "tag": TaskConfig("tag", ("O", "B-GOOD", "B-BAD")),
    "qa": TaskConfig("qa", null=True, threshold=0.5),
    "choice": TaskConfig("choice"),
    "gelu": TaskConfig("classify", NAMES, squeeze="gelu"),
    "relu": TaskConfig("choice", squeeze="relu"),
    "mean": TaskConfig("classify", NAMES, pooling="mean"),
    "max": TaskConfig("classify", NAMES, pooling="max"),
    "cls": TaskConfig("regress", pooling="cls"),
    "mix": TaskConfig("classify", NAMES, layers="mix", pooling="max"),
    "mixed tags": TaskConfig("tag", NAMES, layers="mix"),
    "concat": TaskConfig("classify", NAMES, layers="concat-last-4"),
    "sum": TaskConfig("qa", layers="sum-last-4"),
    "sum all": TaskConfig("choice", layers="sum-all", pooling="mean"),
    "first": TaskConfig("tag", NAMES, layers="first"),
    "second": TaskConfig("classify", NAMES, layers="second-to-last"),
    "numbered": TaskConfig("classify", NAMES, layers="1", pooling="cls"),
    "from the end": TaskConfig("tag", NAMES, layers="-2"),
}
BACKBONES: dict[str, dict[str, Any]] = {
    "bert": {},
    "pre": {"order": "pre", "positions": "rotary", "segments": 0, "depth": 1},
    "branch": {"order": "branch", "positions": "sinusoidal", "activation": "geglu", "bias": False, "segments": 3},
    "albert": {"share": "all", "embedding_width": 8, "activation": "gelu_tanh", "depth": 5},
    "windows": {
        "order": "pre", "positions": "rotary", "segments": 0, "depth": 3,
        "local_layers": (0, 2), "window": 3, "local_base": 50.0,
    },
}  # fmt: skip


def shaken(parts: Parts) -> Parts:
    """Weights that hide nothing: no zeros and ones of the start, and tokens that stay apart through all layers."""
    luck = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in parts.state().items():
            drawn = torch.randn(parameter.shape, generator=luck)
            if parameter.ndim > 1:
                parameter.copy_(drawn * 1.5 * parameter.shape[-1] ** -0.5)
            else:
                parameter.copy_(0.3 * drawn + name.endswith(("norm.weight", "scale")))
    for module in (parts.backbone, *parts.heads.values()):
        module.eval()
    return parts


def taught(tasks: dict[str, TaskConfig], **options: Any) -> Parts:
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer), **options)
    built = {name: build_task(name, config, backbone) for name, config in tasks.items()}
    share_pooler(built)
    heads: dict[str, Any] = {}
    for task in built.values():
        heads |= task.eval().heads()
    return shaken(Parts(backbone, heads, tokenizer, tasks=built))


def untaught(tied: bool = True, **options: Any) -> Parts:
    """With a head for masks, and a pooler."""
    tokenizer = toy_tokenizer()
    backbone = encoder(len(tokenizer), **options)
    config = backbone.config
    kind = "gelu" if config.activation == "geglu" else config.activation
    narrow = config.embedding_width or config.width
    mlm = MaskedLMHead(config.width, narrow, config.vocab, kind, config.eps, tied)
    return shaken(Parts(backbone, {"mlm": mlm, "pooler": torch.nn.Linear(config.width, config.width)}, tokenizer))


def engine_of(parts: Parts, task: str | None = None, **options: Any) -> OnnxEngine:
    head = choose_head(parts, task, "here", **options)
    model = build_model(parts, head)
    onnx.checker.check_model(model, full_check=True)
    return OnnxEngine.of(parts, head, model.SerializeToString())


def difference(parts: Parts, task: str | None = None, **options: Any) -> float:
    engine = engine_of(parts, task, **options)
    return ask(parts, engine, [random_batch(parts), *sample_batches(parts)]).difference()


# ---- parity ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_task(name: str, backbone: str) -> None:
    assert difference(taught({name: CONFIGS[name]}, **BACKBONES[backbone])) < 5e-5


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("tied", [True, False])
def test_masks(backbone: str, tied: bool) -> None:
    assert difference(untaught(tied, **BACKBONES[backbone]), "fill") < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooler"])
@pytest.mark.parametrize("layers", ["last", "concat-last-4", "sum-all", "0"])
def test_vectors(layers: str, pooling: str, backbone: str) -> None:
    parts = untaught(**BACKBONES[backbone])
    if layers == "concat-last-4" and pooling == "pooler":
        with pytest.raises(SesameError, match="no trained pooler for these layers"):
            choose_head(parts, "embed", "here", layers, pooling)
        return
    assert difference(parts, "embed", layers=layers, pooling=pooling) < 5e-5


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    options=st.fixed_dictionaries(
        {
            "positions": st.sampled_from(["learned", "sinusoidal", "rotary"]),
            "order": st.sampled_from(["post", "pre", "branch"]),
            "activation": st.sampled_from(["relu", "gelu", "gelu_tanh", "geglu"]),
            "share": st.sampled_from(["none", "all", "attention", "feedforward"]),
            "bias": st.booleans(),
            "segments": st.integers(0, 3),
            "embedding_width": st.sampled_from([0, 6, 7]),
            "inner": st.sampled_from([0, 10]),
            "heads": st.sampled_from([1, 2, 4]),
            "depth": st.integers(1, 5),
            "max_length": st.sampled_from([1, 2, 40]),
            "rotary_base": st.sampled_from([100.0, 10000.0]),
            "eps": st.sampled_from([1e-12, 1e-5]),
        }
    ),
    layers=st.sampled_from(["last", "mix", "concat-last-4", "first"]),
    pooling=st.sampled_from(["pooler", "cls", "mean", "max"]),
)
def test_any_encoder(options: dict[str, Any], layers: str, pooling: Any) -> None:
    parts = taught({"t": TaskConfig("classify", NAMES, layers=layers, pooling=pooling)}, **options)
    assert difference(parts) < 1e-4


def test_a_wrong_graph_is_seen() -> None:
    """The comparison itself: a single changed weight must show."""
    parts = taught({"t": CONFIGS["tag"]})
    engine = engine_of(parts)
    with torch.no_grad():
        parts.backbone.blocks[1].attention.out.weight[0, 0] += 0.5  # type: ignore[union-attr, index]
    assert ask(parts, engine, [random_batch(parts)]).difference() > 1e-3


def test_double_weights_are_written_in_32_bits() -> None:
    parts = taught({"t": CONFIGS["classify"]})
    for module in (parts.backbone, *parts.tasks.values()):
        module.double()
    assert difference(parts) < 5e-5


@pytest.mark.parametrize("name", ["classify", "mean", "max", "tag", "qa", "mix"])
def test_padding_never_leaks(name: str) -> None:
    for options in BACKBONES.values():
        engine = engine_of(taught({name: CONFIGS[name]}, **options))
        batch = random_batch(engine.parts)
        together = engine.run(batch)
        for row, length in enumerate(batch.lengths.tolist()):
            assert batch.segments is not None
            one = slice(row, row + 1)
            alone = Batch(batch.ids[one, :length], batch.lengths[one], segments=batch.segments[one, :length])
            for a, b in zip(engine.run(alone), together, strict=True):
                whole = b[row, :length] if engine.head.each_token else b[row]
                assert (a[0] - whole).abs().max() < 5e-5


def test_no_answer_starts_at_padding() -> None:
    engine = engine_of(taught({"q": CONFIGS["qa"]}))
    batch = random_batch(engine.parts)
    padding = torch.arange(batch.ids.shape[1])[None] >= batch.lengths[:, None]
    logits = engine.logits(batch)
    assert (logits[padding] == -torch.inf).all()
    assert logits[~padding].isfinite().all()


# ---- what is in the graph -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "outputs"),
    [("classify", ["logits"]), ("tag", ["logits"]), ("qa", ["start_logits", "end_logits"]), ("choice", ["logits"])],
)
def test_names_are_those_of_others(name: str, outputs: list[str]) -> None:
    session = engine_of(taught({name: CONFIGS[name]})).session
    assert [found.name for found in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [found.name for found in session.get_outputs()] == outputs
    options = ["num_choices"] if name == "choice" else []
    for found in session.get_inputs():
        assert found.shape == ["batch_size", *options, "sequence_length"]
        assert found.type == "tensor(int64)"


def test_names_of_vectors_and_masks() -> None:
    parts = untaught()
    names = [found.name for found in engine_of(parts, "embed").session.get_outputs()]
    assert names == ["sentence_embedding", "last_hidden_state"]
    names = [found.name for found in engine_of(parts, "embed", layers="first").session.get_outputs()]
    assert names == ["sentence_embedding", "token_embeddings"]
    assert engine_of(parts, "fill").session.get_outputs()[0].shape[-1] == len(toy_tokenizer())
    assert engine_of(untaught(segments=0)).inputs == {"input_ids", "attention_mask"}


def test_options_side_by_side() -> None:
    """The graph of a choice takes (B, options, L), as others feed it."""
    engine = engine_of(taught({"c": CONFIGS["choice"]}))
    batch = random_batch(engine.parts, rows=6)
    flat = next(engine._feeds(batch))
    (apart,) = engine.session.run(None, flat)
    (beside,) = engine.session.run(None, {name: array.reshape(2, 3, -1) for name, array in flat.items()})
    assert beside.shape == (2, 3)
    assert np.abs(beside.flatten() - apart.flatten()).max() < 1e-6


def test_shared_weights_are_written_once() -> None:
    def weights(**options: Any) -> dict[str, int]:
        model = build_model(parts := untaught(**options), choose_head(parts, "fill", ""))
        return {weight.name: len(weight.raw_data) for weight in model.graph.initializer if len(weight.raw_data) > 64}

    assert len(weights(depth=5, share="all")) == len(weights(depth=1))
    assert len(weights(depth=5)) > len(weights(depth=1))
    table = len(toy_tokenizer()) * 16 * 4  # without the rows that only pad it
    assert list(weights().values()).count(table) == 1
    assert list(weights(tied=False).values()).count(table) == 2


def test_plain_operators_only() -> None:
    model = build_model(parts := taught({"t": CONFIGS["classify"]}), choose_head(parts, None, ""))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]
    assert all(not node.domain for node in model.graph.node)
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


@pytest.mark.parametrize(("name", "alone"), [("classify", True), ("mean", False), ("second", False)])
def test_the_last_layer_is_computed_where_it_is_read(name: str, alone: bool) -> None:
    parts = taught({name: CONFIGS[name]})
    model = build_model(parts, head := choose_head(parts, None, ""))
    last = "layer.1.feedforward.up/MatMul"
    model.graph.output.append(onnx.helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None))
    batch = random_batch(parts)
    states = OnnxEngine.of(parts, head, model.SerializeToString()).run(batch)[1]
    assert states.shape[1] == (1 if alone else batch.ids.shape[1])


# ---- folders --------------------------------------------------------------------------------------------------------


def written(parts: Parts, folder: Path, task: str | None = None, precision: str = "fp32") -> Path:
    with whole_folder(folder) as aside:
        export(aside, parts, choose_head(parts, task, "here"), precision)
    return folder


def replies(task: Task, logits: Any, found: list[Example], inputs: Inputs) -> list[Any]:
    items = task.items([replace(example, label=None) for example in found], inputs)
    batch = task.collate(items, inputs.pad)
    return answer(task, found, items, task.split(logits(batch), items))


@pytest.mark.parametrize("name", ["classify", "several labels", "pairs", "regress", "tag", "qa", "choice"])
def test_answers_from_a_folder(name: str, tmp_path: Path) -> None:
    """Without weights of PyTorch: long texts in windows, options of several numbers, names, offsets, probabilities."""
    config = CONFIGS[name]
    parts = taught({"mine": config})
    engine = OnnxEngine(written(parts, tmp_path / "out"))
    assert exported(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.safetensors"))
    assert engine.task is not None
    assert engine.task.name == "mine"
    assert engine.task.config == replace(config, scale=(0.0, 1.0))
    assert next(engine.parts.backbone.parameters()).device.type == "meta"
    multi, pair = config.multi, config.pair
    asked = examples(config.kind, 6, multi=multi, pair=pair) + examples(
        config.kind, 3, 1, multi=multi, pair=pair, high=90
    )
    assert engine.parts.tokenizer is not None
    inputs = Inputs(engine.parts.tokenizer, 24, config.overlap)
    assert len({len(item.windows) for item in engine.task.items([replace(e, label=None) for e in asked], inputs)}) > 1
    task = parts.tasks["mine"]

    @torch.no_grad()
    def ours(batch: Batch) -> Tensor:
        return task.logits(task.features(parts.backbone(batch, task.looks_at(batch))), batch)

    found, wanted = replies(engine.task, engine.logits, asked, inputs), replies(task, ours, asked, inputs)
    assert flat(found) == pytest.approx(flat(wanted), abs=1e-4)


def flat(value: Any) -> Any:
    """Nested answers as one list, so that numbers can be compared nearly and all else exactly."""
    if isinstance(value, dict):
        return [inner for key, entry in value.items() for inner in (key, *flat(entry))]
    if isinstance(value, list | tuple):
        return [inner for entry in value for inner in flat(entry)]
    return [value]


def test_others_read_the_folder(tmp_path: Path) -> None:
    folder = written(taught({"topic": CONFIGS["classify"]}), tmp_path / "out")
    config = AutoConfig.from_pretrained(folder)
    assert config.model_type == "bert"
    assert config.architectures == ["BertForSequenceClassification"]
    assert config.id2label == dict(enumerate(NAMES))
    onnx.checker.check_model(folder / FILE)
    assert "calibrated" in (folder / "README.md").read_text(encoding="utf-8")
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert said["sesame"]["tasks"]["topic"]["temperature"] == 1.7
    own = written(taught({"t": CONFIGS["mean"]}, share="all"), tmp_path / "own")
    said = json.loads((own / "config.json").read_text(encoding="utf-8"))
    assert said["model_type"] == "sesame"
    assert list(said["id2label"].values()) == list(NAMES)


def test_a_model_folder_is_exported_on_the_fly(tmp_path: Path) -> None:
    from sesame.checkpoint.saving import save_parts

    parts = taught({"a": CONFIGS["tag"], "b": CONFIGS["mean"]})
    save_parts(tmp_path, parts)
    engine = OnnxEngine(tmp_path, "b", threads=1)
    assert not exported(tmp_path)
    assert ask(parts, engine, [random_batch(parts)]).difference() < 5e-5


def test_long_batches_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(taught({"t": CONFIGS["tag"]}))
    batch = random_batch(engine.parts)
    whole = engine.logits(batch)
    monkeypatch.setattr("sesame.checkpoint.onnx.engine.TOKENS", 3 * batch.ids.shape[1])
    assert len(list(engine._feeds(batch))) == 3
    assert (engine.logits(batch) - whole).abs().max() < 1e-5


def test_a_difference_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = taught({"t": CONFIGS["classify"]})

    def spoilt(given: Parts, head: Any) -> Any:
        with torch.no_grad():
            given.tasks["t"].out.bias.add_(1e-3)
        model = build_model(given, head)
        with torch.no_grad():
            given.tasks["t"].out.bias.sub_(1e-3)
        return model

    monkeypatch.setattr(exporter, "build_model", spoilt)
    with pytest.raises(SesameError, match=r"differs from the model by .*, more than 0.0001, and was not kept"):
        written(parts, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    parts = taught({"t": CONFIGS["classify"]})
    with torch.no_grad():
        parts.tasks["t"].out.bias[0] = torch.nan
    with pytest.raises(SesameError, match="differs from the model by nan"):
        written(parts, tmp_path / "out")


# ---- 8 bits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classify", "several labels", "regress", "tag", "qa", "choice"])
def test_int8_agrees(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts = taught({"t": CONFIGS[name]}, width=64, heads=4)
    head = choose_head(parts, None, "")
    engine = OnnxEngine.of(parts, head, quantized(build_model(parts, head)).SerializeToString())
    pairs = ask(parts, engine, sample_batches(parts))
    assert agreement(head, CONFIGS[name].multi, pairs)[0] > 0.9
    assert pairs.difference() > 1e-4  # it is another graph indeed
    assert capfd.readouterr() == ("", "")


def test_int8_weights(tmp_path: Path) -> None:
    parts = taught({"t": CONFIGS["tag"]}, width=64, heads=4, depth=2)
    written(parts, tmp_path / "small", precision="int8")
    graph = onnx.load(tmp_path / "small" / FILE).graph
    small = [weight for weight in graph.initializer if weight.data_type == onnx.TensorProto.INT8 and weight.dims]
    matrices = [weight for weight in small if len(weight.dims) == 2]
    assert len(matrices) == 2 * 6  # queries, keys, values, out, up, down
    assert all(np.abs(onnx.numpy_helper.to_array(weight)).max() <= 64 for weight in matrices)  # 7 bits
    assert "head.out.weight" in {weight.name for weight in graph.initializer}  # heads stay as they are
    engine = OnnxEngine(tmp_path / "small")
    assert engine.precision == "int8"
    with pytest.raises(SesameError, match=r"was exported in int8, not in fp32; export it again with --precision fp32"):
        OnnxEngine(tmp_path / "small", precision="fp32")


def test_int8_below_the_bar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BAR", 1.01)
    parts = taught({"t": CONFIGS["classify"]})
    with pytest.raises(SesameError, match=r"too differently: share of equal labels .* take --precision fp32"):
        written(parts, tmp_path / "out", precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_spearman() -> None:
    from scipy.stats import spearmanr

    luck = torch.Generator().manual_seed(0)
    a = torch.randn(50, generator=luck)
    b = a + torch.randn(50, generator=luck)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b)[0])


# ---- complaints -----------------------------------------------------------------------------------------------------


def test_which_head() -> None:
    parts = untaught()
    assert choose_head(parts, None, "").kind == "fill"
    assert choose_head(Parts(parts.backbone), None, "").kind == "embed"
    assert choose_head(taught({"fill": CONFIGS["tag"]}), "fill", "").kind == "tag"  # a task's own name comes first
    for wanted, sentence in {
        "fil": "unknown task 'fil'; did you mean 'fill'",
        "classify": "unknown task 'classify'; known are embed, fill",
    }.items():
        with pytest.raises(SesameError, match=sentence):
            choose_head(parts, wanted, "here")
    with pytest.raises(SesameError, match="here: has no trained masked-language head"):
        choose_head(Parts(parts.backbone), "fill", "here")
    with pytest.raises(SesameError, match=r"several tasks \(a, b\); choose one with --task"):
        choose_head(taught({"a": CONFIGS["tag"], "b": CONFIGS["qa"]}), None, "here")
    with pytest.raises(SesameError, match="unknown choice 'men'; did you mean 'mean'"):
        choose_head(parts, "embed", "here", pooling="men")
    with pytest.raises(SesameError, match="layer 9: the model has layers 0"):
        choose_head(parts, "embed", "here", layers="9")


def test_wrong_folders(tmp_path: Path) -> None:
    folder = written(taught({"t": CONFIGS["tag"]}), tmp_path / "out")
    with pytest.raises(SesameError, match="was exported for 't', not for 'x'"):
        OnnxEngine(folder, "x")
    with pytest.raises(SesameError, match="--precision bf16: ONNX knows fp32 and int8"):
        OnnxEngine(folder, precision="bf16")
    engine = OnnxEngine(folder)
    with pytest.raises(SesameError, match="answers tag; export vectors with --task embed"):
        _ = engine.tokens
    with pytest.raises(SesameError, match="33 tokens do not fit: this model was built for 32"):
        engine.logits(Batch(torch.zeros(1, 33, dtype=torch.long), torch.tensor([33])))
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-100])
    with pytest.raises(SesameError, match=r"model.onnx: not a graph that ONNX Runtime opens"):
        OnnxEngine(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(SesameError, match=r"config.json: does not say how model.onnx was made"):
        OnnxEngine(folder)


def test_vectors_from_a_folder(tmp_path: Path) -> None:
    parts = untaught()
    batch = random_batch(parts)
    with whole_folder(tmp_path / "out") as aside:
        export(aside, parts, choose_head(parts, "embed", "", "first", "pooler"))
    engine = OnnxEngine(tmp_path / "out", "embed", layers="first")
    assert engine.logits(batch).shape == (batch.size, 16)
    assert engine.tokens.logits(batch).shape == (*batch.ids.shape, 16)
    assert set(engine.parts.heads) == {"pooler"}
    with pytest.raises(SesameError, match="was exported with --layers first; ask for that, or export last too"):
        OnnxEngine(tmp_path / "out", layers="last")
    with pytest.raises(SesameError, match="was exported with --pooling pooler; ask for that, or export mean too"):
        OnnxEngine(tmp_path / "out", layers="first", pooling="mean")


def test_all_heads_of_a_folder(tmp_path: Path) -> None:
    from sesame.checkpoint.saving import save_parts

    parts = untaught()
    save_parts(tmp_path, parts)
    engines = OnnxEngines(tmp_path, threads=1)
    masks, means, firsts = engines.get("fill"), engines.get("embed"), engines.get("embed", "last", "cls")
    batch = random_batch(parts)
    assert masks.logits(batch).shape[-1] == parts.backbone.vocab
    assert (means.logits(batch) - firsts.logits(batch)).abs().max() > 0.1
    assert engines.get("fill") is masks
    assert masks.parts is means.parts is engines.parts
    one = OnnxEngines(written(parts, tmp_path / "out", "fill"))
    assert "mlm" in one.parts.heads
    assert (one.get("fill").logits(batch) - masks.logits(batch)).abs().max() < 1e-5
    with pytest.raises(SesameError, match="was exported for 'fill', not for 'embed'"):
        one.get("embed")


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = untaught()
    model = build_model(parts, head := choose_head(parts, "embed", "")).SerializeToString()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SesameError, match="needs the package onnx; install it with: pip install 'sesame-nlp"):
        build_model(parts, head)
    OnnxEngine.of(parts, head, model)  # running needs no onnx
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SesameError, match="needs the package onnxruntime"):
        OnnxEngine.of(parts, head, model)
