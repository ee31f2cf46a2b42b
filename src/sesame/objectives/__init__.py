"""Objectives: what a backbone learns from. A new one is one file, one line in each table here, one recipe.

`CONFIGS` holds what a recipe may set, `BUILDERS` makes the objective for a backbone.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sesame.backbones import Backbone, Encoder
from sesame.errors import SesameError
from sesame.objectives.base import Objective, Term, Together, Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead
from sesame.objectives.pair import NextSentence, NextSentenceConfig, PairHead

CONFIGS: dict[str, type[Any]] = {"mlm": MaskedLMConfig, "nsp": NextSentenceConfig}


def _mlm(config: MaskedLMConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if "mask" not in vocab.roles:
        raise SesameError(
            "masked language modelling needs a mask token, and this tokenizer has none; train another one"
        )
    assert isinstance(backbone, Encoder)
    c = backbone.config
    activation = "gelu" if c.activation == "geglu" else c.activation
    return MaskedLM(config, MaskedLMHead(c.width, c.embedding_width or c.width, c.vocab, activation, c.eps), vocab)


def _nsp(config: NextSentenceConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    return NextSentence(config, PairHead(backbone.width))


BUILDERS: dict[str, Callable[..., Objective]] = {"mlm": _mlm, "nsp": _nsp}


def build(configs: Mapping[str, Any], backbone: Backbone, vocab: Vocab) -> Together:
    """The objectives of a recipe, together."""
    return Together({name: BUILDERS[name](config, backbone, vocab) for name, config in configs.items()})


__all__ = ["BUILDERS", "CONFIGS", "MaskedLMHead", "Objective", "PairHead", "Term", "Together", "Vocab", "build"]
