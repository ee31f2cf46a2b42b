"""How weights start: BERT's truncated normal for matrices and tables, zeros for biases, ones for norms."""

from collections.abc import Callable

from torch import nn

STD = 0.02  # Devlin et al. 2018, `initializer_range` in the authors' code


def bert_init(std: float = STD) -> Callable[[nn.Module], None]:
    """For `module.apply`: truncated at two standard deviations, as in the authors' code."""

    def start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    return start
