"""Left-to-right language modelling: tell the next token.

Paper: Devlin et al. 2018, "BERT", section 5.1, the ablation "LTR & No NSP"; the objective of GPT (Radford et al. 2018).
Idea: every place, which sees only what stands before it and itself, tells the token that follows.
    loss = - sum over i of log p(x_{i+1} | x_1 ... x_i)
Needs: a backbone with `causal = true`; any other would look the answer up. `part` needs one that remembers: a row is then
read in parts of so many tokens, the states of the earlier ones being the memory of the next, without gradient (Dai et al.
2019, Transformer-XL).
Targets: "clm", labels (B, L): the next token of the row, separators too; none at the last real place and behind it.
Relations: `mlm` sees both sides but learns from 15 % of the places; this learns from all of them. The head is that of `mlm`,
and the checkpoint keeps it under that name, so that one can go on from the other; or GPT's, the tied token table alone, kept
as "lm", which transformers' GPT classes open. A run that starts from a model goes on with the head which that model has.
Unusual: nothing is corrupted, so an epoch repeats its inputs. Memory lives within a row and not, as the authors have it, from
batch to batch: each step stays a pure function of its number, see `plm`. For a longer memory take longer rows.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, Encoded, TransformerXL
from sesame.backbones.transformer_xl import in_parts
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.objectives.base import Objective, Term
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.mlm import MaskedLMHead, token_term


@dataclass(frozen=True)
class CausalLMConfig:
    weight: float = 1.0
    head: Literal["mlm", "lm"] = "mlm"  # that of `mlm`, or the tied token table alone, without a bias (GPT)
    plain: bool = False  # as in `mlm`
    part: int = 0  # tokens at a time, with a memory of those before; 0: a row at once

    def __post_init__(self) -> None:
        if self.part < 0:
            raise SesameError(f"objectives.clm.part is {self.part}; it is a number of tokens, or 0 for whole rows")
        if self.plain and self.head == "lm":
            raise SesameError(
                'objectives.clm.plain is for head = "mlm"; head = "lm" is plain as it is, leave plain out'
            )


class CausalLM(Objective):
    def __init__(self, config: CausalLMConfig, head: MaskedLMHead | DecoderHead) -> None:
        super().__init__()
        self.config, self.head, self.weight = config, head, config.weight
        self.own_pass = config.part > 0

    def heads(self) -> dict[str, nn.Module]:
        return {"lm" if isinstance(self.head, DecoderHead) else "mlm": self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        places = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :]
        following = batch.ids.roll(-1, 1)
        labels = torch.where(places < batch.lengths[:, None] - 1, following, IGNORE)
        return batch.with_targets(clm=Targets(labels, places.expand_as(labels).contiguous()))

    def looks_at(self, batch: Batch) -> Tensor | None:
        return None

    def forward(self, backbone: Backbone, batch: Batch) -> list[Term]:
        if not self.own_pass:
            return super().forward(backbone, batch)
        assert isinstance(backbone, TransformerXL)
        return [self._term(torch.cat(list(in_parts(backbone, batch.ids, self.config.part)), dim=1), batch, backbone)]

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        return [self._term(encoded.last, encoded.batch, backbone)]

    def _term(self, hidden: Tensor, batch: Batch, backbone: Backbone) -> Term:
        labels = batch.targets["clm"].labels
        return token_term("clm", self.head, backbone.token_table(), hidden.flatten(0, 1), labels.flatten())
