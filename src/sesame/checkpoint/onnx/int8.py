"""8-bit weights for a graph: dynamic quantization, a scale for each output column.

    W ≈ s_c W8;   x ≈ s_x (x8 - z), found anew for each input;   x W ≈ s_x s_c (x8 - z) W8, summed in 32 bits

Only the products of the encoder's blocks are quantized: embeddings, norms, softmax and heads stay in 32 bits. Weights use
7 of the 8 bits: processors without VNNI add pairs of products in 16 bits, which would overflow and give other answers there.
"""

import tempfile
from pathlib import Path
from typing import Any

from sesame.checkpoint.onnx.graph import onnx_package
from sesame.errors import SesameError

BLOCKS = "layer."  # how the names of the encoder's products start
PREPARED = {"onnx.quant.pre_process": "onnxruntime.quant"}  # else it advises steps that do nothing for a graph of ours


def quantized(model: Any) -> Any:
    """The same graph with 8-bit weights, as an onnx.ModelProto; `model` itself is not to be used any more."""
    onnx = onnx_package()
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise SesameError(
            "8-bit ONNX needs the package onnxruntime; install it with: pip install 'sesame-nlp[onnx]'"
        ) from None
    onnx.helper.set_model_props(model, PREPARED)
    _apart(onnx, model.graph)
    products = [node.name for node in model.graph.node if node.op_type == "MatMul"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.onnx"
        quantize_dynamic(
            model,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[name for name in products if not name.startswith(BLOCKS)],
        )
        return onnx.load(target)


def _apart(onnx: Any, graph: Any) -> None:
    """Gemm as the operations it joins: the quantizer would turn its table in place, which the embeddings read too."""
    nodes = []
    for node in graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        x, table, bias = node.input
        turned, product = f"{node.name}/Transpose", f"{node.name}/MatMul"
        nodes += [
            onnx.helper.make_node("Transpose", [table], [turned], name=turned),
            onnx.helper.make_node("MatMul", [x, turned], [product], name=product),
            onnx.helper.make_node("Add", [product, bias], list(node.output), name=node.name),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
