"""Left-to-right language modelling: tell the next token.

Paper: Devlin et al. 2018, "BERT", section 5.1, the ablation "LTR & No NSP"; the objective of GPT (Radford et al. 2018).
Idea: every place, which sees only what stands before it and itself, tells the token that follows.
    loss = - sum over i of log p(x_{i+1} | x_1 ... x_i)
Needs: a backbone with `causal = true`; any other would look the answer up.
Targets: "clm", labels (B, L): the next token of the row, separators too; none at the last real place and behind it.
Relations: `mlm` sees both sides but learns from 15 % of the places; this learns from all of them. The head is that of `mlm`,
and the checkpoint keeps it under that name, so that one can go on from the other.
Unusual: nothing is corrupted, so an epoch repeats its inputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.objectives.base import Objective, Term
from sesame.objectives.mlm import MaskedLMHead, token_term


@dataclass(frozen=True)
class CausalLMConfig:
    weight: float = 1.0
    plain: bool = False  # as in `mlm`


class CausalLM(Objective):
    def __init__(self, config: CausalLMConfig, head: MaskedLMHead) -> None:
        super().__init__()
        self.config, self.head, self.weight = config, head, config.weight

    def heads(self) -> dict[str, nn.Module]:
        return {"mlm": self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        places = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :]
        following = batch.ids.roll(-1, 1)
        labels = torch.where(places < batch.lengths[:, None] - 1, following, IGNORE)
        return batch.with_targets(clm=Targets(labels, places.expand_as(labels).contiguous()))

    def looks_at(self, batch: Batch) -> Tensor | None:
        return None

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        labels = encoded.batch.targets["clm"].labels
        return [token_term("clm", self.head, backbone.token_table(), encoded.last.flatten(0, 1), labels.flatten())]
