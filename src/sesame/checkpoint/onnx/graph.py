"""A pen for ONNX graphs: operators by name, weights once, and the few bricks that every encoder is made of.

Unusual: the graph is written by hand, not traced. It has plain operators only (opset 17, no contributed ones), in the shapes
that ONNX Runtime fuses by itself (bias and GELU, products of transposed matrices); its contributed attention operators
were measured and gain nothing on a CPU. So names are stable, and any runtime reads it.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sesame.errors import SesameError

OPSET, IR = 17, 8  # the first with LayerNormalization: read by every runtime since 2022


def onnx_package() -> Any:
    """The package `onnx`, which writes graphs; running them does not need it."""
    try:
        import onnx
    except ImportError:
        raise SesameError(
            "writing ONNX needs the package onnx; install it with: pip install 'sesame-nlp[onnx]'"
        ) from None
    return onnx


class Graph:
    """Operators in order, and the weights that they use; tensors are known by their names."""

    def __init__(self) -> None:
        self.onnx = onnx_package()
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self._shared: dict[tuple[Any, ...], tuple[str, Tensor]] = {}  # by its place in memory, which it must not leave
        self._used: dict[str, int] = {}

    def op(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, **settings: Any) -> str:
        """Add an operator; give the name of its (first) output."""
        stem = f"{name}/{kind}" if name else kind
        count = self._used[stem] = self._used.get(stem, 0) + 1
        unique = stem if count == 1 else f"{stem}_{count}"
        given = [unique] if outputs == 1 else [f"{unique}.{number}" for number in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), given, name=unique, **settings))
        return given[0]

    def name_output(self, made: str, wanted: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [made], [wanted], name=wanted))

    # ---- numbers -------------------------------------------------------------------------------------------------

    def weight(self, tensor: Tensor, name: str) -> str:
        """A parameter in 32 bits; one that stands in several places (shared layers, tied tables) is written once."""
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if key not in self._shared:
            array = tensor.detach().cpu().float().contiguous().numpy()
            self.weights[name] = self.onnx.numpy_helper.from_array(array, name)
            self._shared[key] = name, tensor
        return self._shared[key][0]

    def constant(self, value: npt.NDArray[Any] | float, name: str) -> str:
        array = value if isinstance(value, np.ndarray) else np.float32(value)
        self.weights.setdefault(name, self.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(str(value).replace("-", "minus") for value in values)
        return self.constant(np.array(values, np.int64), name)

    # ---- bricks --------------------------------------------------------------------------------------------------

    def linear(self, x: str, weight: Tensor, bias: Tensor | None, name: str) -> str:
        """x Wᵀ + b."""
        found = self.op("MatMul", x, self.weight(weight.T, f"{name}.weight"), name=name)
        return found if bias is None else self.op("Add", found, self.weight(bias, f"{name}.bias"), name=name)

    def module(self, x: str, linear: nn.Linear, name: str) -> str:
        return self.linear(x, linear.weight, linear.bias, name)

    def norm(self, x: str, norm: nn.LayerNorm, name: str) -> str:
        both = [self.weight(norm.weight, f"{name}.weight")]
        if norm.bias is not None:
            both.append(self.weight(norm.bias, f"{name}.bias"))
        return self.op("LayerNormalization", x, *both, name=name, axis=-1, epsilon=norm.eps)

    def activate(self, x: str, kind: str, name: str) -> str:
        """gelu(x) = x (1 + erf(x / √2)) / 2;  gelu_tanh(x) = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
        if kind in ("relu", "tanh"):
            return self.op(kind.capitalize(), x, name=name)
        one, half = self.constant(1.0, "one"), self.constant(0.5, "half")
        if kind == "gelu":
            inside = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2), "sqrt2"), name=name), name=name)
            return self.op("Mul", self.op("Mul", x, self.op("Add", inside, one, name=name), name=name), half, name=name)
        if kind != "gelu_tanh":
            raise SesameError(f"the activation {kind!r} cannot be written as ONNX; use relu, tanh, gelu or gelu_tanh")
        cube = self.op("Mul", self.op("Mul", x, x, name=name), x, name=name)
        bent = self.op("Add", x, self.op("Mul", cube, self.constant(0.044715, "cubic"), name=name), name=name)
        angle = self.op("Mul", bent, self.constant(math.sqrt(2 / math.pi), "sqrt2pi"), name=name)
        up = self.op("Add", self.op("Tanh", angle, name=name), one, name=name)
        return self.op("Mul", self.op("Mul", x, up, name=name), half, name=name)

    def head_slice(self, x: str, start: int, end: int, name: str) -> str:
        """x[start:end] of a one-dimensional tensor (a shape)."""
        return self.op("Slice", x, self.ints(start), self.ints(end), name=name)

    # ---- the whole -----------------------------------------------------------------------------------------------

    def model(self, inputs: dict[str, list[str]], outputs: dict[str, list[str | int]], note: str) -> Any:
        """The finished ModelProto: inputs are 64-bit ids, outputs 32-bit numbers, names stand for dynamic sizes."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        size = sum(len(weight.raw_data) for weight in self.weights.values())
        if size > 2_000_000_000:
            raise SesameError(
                f"the weights take {size / 1e9:.1f} GB but an ONNX file holds 2 GB; export a smaller model"
            )
        graph = helper.make_graph(
            self.nodes,
            "sesame",
            [helper.make_tensor_value_info(name, kinds.INT64, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kinds.FLOAT, shape) for name, shape in outputs.items()],
            list(self.weights.values()),
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="sesame"
        )
        model.doc_string = note
        return model
