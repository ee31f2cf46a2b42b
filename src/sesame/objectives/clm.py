"""Left-to-right language modelling: tell the next token.

Paper: Devlin et al. 2018, "BERT", section 5.1, the ablation "LTR & No NSP"; the objective of GPT (Radford et al. 2018).
Idea: every place, which sees only what stands before it and itself, tells the token that follows.
    loss = - sum over i of log p(x_{i+1} | x_1 ... x_i)
Needs: a backbone with `causal = true`; any other would look the answer up; or an LSTM that reads from the end, which tells
the token before. `part` needs one that remembers: a row is then read in parts of so many tokens, the states of the earlier
ones being the memory of the next, without gradient (Dai et al. 2019, Transformer-XL; backpropagation through time that is
cut off, for an LSTM).
`ar` and `tar` (Merity, McCann & Socher 2017, https://arxiv.org/abs/1708.01009; AWD-LSTM) keep states small and slow, h being
the last layer and m its dropout; they are means over places and columns, in training only:
    loss + ar mean((m h_t)^2) + tar mean((h_t - h_{t+1})^2)
Targets: "clm", labels (B, L): the next token of the row, separators too; none at the last real place and behind it. "ar" and
"tar" are the same, to be counted.
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

from sesame.backbones import Backbone, Encoded
from sesame.backbones.transformer_xl import read_parts
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
    ar: float = 0.0  # weight of the states' squares (AWD-LSTM: 2)
    tar: float = 0.0  # weight of the squares of their changes (AWD-LSTM: 1)

    def __post_init__(self) -> None:
        if self.part < 0:
            raise SesameError(f"objectives.clm.part is {self.part}; it is a number of tokens, or 0 for whole rows")
        if min(self.ar, self.tar) < 0:
            raise SesameError("objectives.clm: ar and tar are weights of penalties, not below 0")
        if self.plain and self.head == "lm":
            raise SesameError(
                'objectives.clm.plain is for head = "mlm"; head = "lm" is plain as it is, leave plain out'
            )


class CausalLM(Objective):
    def __init__(self, config: CausalLMConfig, head: MaskedLMHead | DecoderHead, backward: bool = False) -> None:
        super().__init__()
        self.config, self.head, self.weight, self.backward = config, head, config.weight, backward
        self.own_pass = config.part > 0

    def heads(self) -> dict[str, nn.Module]:
        return {"lm" if isinstance(self.head, DecoderHead) else "mlm": self.head}

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        places = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :]
        if self.backward:
            asked, wanted = (places > 0) & (places < batch.lengths[:, None]), batch.ids.roll(1, 1)
        else:
            asked, wanted = places < batch.lengths[:, None] - 1, batch.ids.roll(-1, 1)
        labels = torch.where(asked, wanted, IGNORE)
        found = Targets(labels, places.expand_as(labels).contiguous())
        return batch.with_targets(**dict.fromkeys(("clm", *self._penalties()), found))

    def looks_at(self, batch: Batch) -> Tensor | None:
        return None

    def forward(self, backbone: Backbone, batch: Batch) -> list[Term]:
        if not self.own_pass:
            return super().forward(backbone, batch)
        parts = list(read_parts(backbone, batch.ids, self.config.part))
        return self._terms(_joined([part.last for part in parts]), _raw(parts), batch, backbone)

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        return self._terms(encoded.last, _raw([encoded]), encoded.batch, backbone)

    def _terms(self, hidden: Tensor, raw: Tensor | None, batch: Batch, backbone: Backbone) -> list[Term]:
        labels = batch.targets["clm"].labels
        found = [token_term("clm", self.head, backbone.token_table(), hidden.flatten(0, 1), labels.flatten())]
        if not self.training:
            return found
        asked, raw = labels != IGNORE, hidden if raw is None else raw
        for name, weight in self._penalties().items():
            # A place that is asked for has a neighbor in its row, on the side that the model reads towards.
            change = hidden if name == "ar" else raw - raw.roll(1 if self.backward else -1, 1)
            sizes = change.to(torch.promote_types(change.dtype, torch.float32)).square().mean(-1)
            found.append(Term(name, torch.where(asked, sizes, 0.0).sum(), asked.sum(), weight))
        return found

    def _penalties(self) -> dict[str, float]:
        return {name: weight for name, weight in (("ar", self.config.ar), ("tar", self.config.tar)) if weight}


def _raw(parts: list[Encoded]) -> Tensor | None:
    """States before their dropout, where a backbone tells them."""
    found = [part.undropped for part in parts if part.undropped is not None]
    return _joined(found) if found else None


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
