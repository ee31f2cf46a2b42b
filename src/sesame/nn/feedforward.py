"""The feed-forward half of a block: FFN(x) = act(x W1 + b1) W2 + b2, or its gated forms (GeGLU and its kin, Shazeer 2020)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from sesame.nn.dropout import Dropout, dropout
from sesame.nn.geglu import geglu
from sesame.nn.gelu import linear_gelu


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": F.silu,
    "tanh": Tensor.tanh,
}
GATED = {  # with a gate -> what the gate passes through
    "geglu": "gelu",
    "geglu_tanh": "gelu_tanh",
    "reglu": "relu",
    "swiglu": "silu",
}


class FeedForward(nn.Module):
    """Shape: (..., D) -> (..., D). A gate doubles the inner projection: act(left) * right."""

    def __init__(
        self, width: int, inner: int, activation: str, bias: bool, dropout: float, inner_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.name, self.gated = activation, activation in GATED
        self.activation = ACTIVATIONS[GATED.get(activation, activation)]
        self.up = nn.Linear(width, 2 * inner if self.gated else inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)
        self.dropout = Dropout(dropout)
        self.inner_dropout = inner_dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.inner(x)))  # type: ignore[no-any-return]

    def inner(self, x: Tensor) -> Tensor:
        """The wide middle, before W2."""
        if self.name == "geglu":
            wide = geglu(self.up(x))
        elif self.gated:
            left, right = self.up(x).chunk(2, dim=-1)
            wide = self.activation(left) * right
        elif self.activation is F.gelu:
            wide = linear_gelu(self.up, x)
        else:
            wide = self.activation(self.up(x))
        return dropout(wide, self.inner_dropout, self.training)
