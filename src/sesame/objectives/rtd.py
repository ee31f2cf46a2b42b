"""Replaced-token detection: a small generator fills masks, the backbone tells which tokens are not the original ones.

Paper: Clark, Luong, Le & Manning 2020, "ELECTRA" (https://arxiv.org/abs/2003.10555); code: google-research/electra.
Idea: a masked language model a quarter as wide makes plausible mistakes; the model proper, the discriminator, learns from
every place of the row, not from 15 % of them.
    x_m = x with [MASK] at the chosen places C;  s_i ~ p_G(. | x_m) for i in C;  x' = x with s_i at C
    loss = Σ_{i in C} -log p_G(x_i | x_m) / |C|  +  50 * Σ_i BCE(D(x')_i, x'_i != x_i) / number of tokens
Needs: a mask token.
Targets: "mlm", as in `mlm`; "rtd", the original token of every place (B, L), IGNORE at padding; "draws", no target but the
chance of each sample (B, K), which travels along because it is drawn where the masks are.
Relations: the generator's half is `mlm` without random tokens. XLM-E does the same with many languages and translations.
Paper and code disagree; as in the code
- 85 % of the chosen places become [MASK] and 15 % stay (the paper masks all); all of them are asked for and sampled;
- the discriminator is asked at every token, [CLS] and [SEP] too;
- all embeddings are shared, with positions, segments and their norm; each network has a projection of its own;
- a sample that is the original token by luck counts as original (here paper and code agree).
Unusual: the chance of a sample is the example's own (`chance`), one number a place, turned into a token by the inverse of
the distribution function. It is the law that Gumbel noise gives, for a single draw instead of one for each token of the
vocabulary, and batches cut into pieces draw the same tokens. The two networks' gradients are clipped apart, see
`Replaced.apart`. No gradient flows through the sampling.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesame import chance
from sesame.backbones import Backbone, Encoded, Encoder
from sesame.backbones.smaller import smaller
from sesame.data.batch import IGNORE, Batch, Targets
from sesame.errors import SesameError
from sesame.nn.feedforward import ACTIVATIONS
from sesame.nn.init import bert_init
from sesame.objectives.base import Beside, Objective, Term, Vocab
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead


@dataclass(frozen=True)
class ReplacedConfig:
    weight: float = 50.0  # of the discriminator's loss
    mlm_weight: float = 1.0  # of the generator's
    rate: float = 0.15  # of the tokens are chosen
    mask: float = 0.85  # of the chosen ones are hidden from the generator
    generator_width: float = 0.25  # shares of the backbone's width, feed-forward and heads ...
    generator_depth: float = 1.0  # ... and of its layers
    generator_rate: float = 1.0  # its learning rate, as a multiple of the discriminator's
    clip_apart: bool = True  # False: one norm over both networks, as in the authors' code
    patience: int = 2000  # steps after the warm-up that a sick run may take, see train/health.py; 0: any number

    def __post_init__(self) -> None:
        for name in ("rate", "generator_width", "generator_depth", "mask"):
            if not 0 < getattr(self, name) <= 1:
                raise SesameError(
                    f"objectives.rtd.{name} is {getattr(self, name)}; it is a share, above 0 and at most 1"
                )
        if min(self.weight, self.mlm_weight, self.patience) < 0 or self.rate == 1:
            raise SesameError("objectives.rtd: weights and patience must not be below 0, and rate must be below 1")
        if self.generator_rate <= 0:
            raise SesameError(f"objectives.rtd.generator_rate is {self.generator_rate}; it is a factor, above 0")


class ReplacedHead(nn.Module):
    """score = out(act(dense(h))), above 0 where the token is thought to be replaced. Shape: (..., D) -> (...)."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS["gelu" if activation == "geglu" else activation]
        self.out = nn.Linear(width, 1)
        self.apply(bert_init())

    def forward(self, hidden: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(hidden))).squeeze(-1)  # type: ignore[no-any-return]


def build_generator(backbone: Encoder, config: ReplacedConfig) -> Encoder:
    """An encoder that reads the backbone's own tables: the same modules, so that no copy can drift away."""
    generator = Encoder(smaller(backbone.config, config.generator_width, config.generator_depth))
    ours, theirs = generator.embeddings, backbone.embeddings
    ours.tokens, ours.positions, ours.norm = theirs.tokens, theirs.positions, theirs.norm
    ours.segments, ours.languages = theirs.segments, theirs.languages
    return generator


def sample(logits: Tensor, draws: Tensor) -> Tensor:
    """Tokens from softmax(logits), each by one number from [0, 1). Shape: (N, V), (N,) -> (N,)."""
    exact = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
    until = torch.softmax(exact, -1).cumsum(-1)
    wanted = draws[:, None].to(until.dtype) * until[:, -1:]
    return torch.searchsorted(until, wanted, right=True)[:, 0]


class Replaced(Objective):
    def __init__(self, config: ReplacedConfig, backbone: Encoder, vocab: Vocab) -> None:
        super().__init__()
        self.config = config
        self.generator = build_generator(backbone, config)
        c = self.generator.config
        activation = "gelu" if c.activation == "geglu" else c.activation
        head = MaskedLMHead(c.width, c.embedding_width, c.vocab, activation, c.eps, bias=c.bias)
        self.mlm = MaskedLM(MaskedLMConfig(rate=config.rate, mask=config.mask, random=0.0), head, vocab)
        self.head = ReplacedHead(backbone.width, c.activation)

    def heads(self) -> dict[str, nn.Module]:
        return {"rtd": self.head}

    def beside(self) -> dict[str, Beside]:
        return {"generator": (self.generator, {"mlm": self.mlm.head})}

    def apart(self) -> list[nn.Module]:
        """The generator.

        Weighted 50, the discriminator's gradient makes up nearly all of the common norm, and one clip then scales the
        generator by the other network's noise. Adam forgives a constant factor, but neither one that changes faster than
        its memory of squares (1 / (1 - beta2) steps) nor one that pushes gradients below its eps. Clipped by itself, the
        generator takes the steps that it would take alone. The shared tables stay with the discriminator: their gradient
        is a sum, and there is one Adam for it whatever is clipped.
        """
        return [self.generator, self.mlm.head] if self.config.clip_apart else []

    def paces(self) -> list[tuple[nn.Module, float]]:
        """A generator bears a higher rate than a discriminator of twelve layers does, and leaves its plateau earlier."""
        rate = self.config.generator_rate
        return [(self.generator, rate), (self.mlm.head, rate)] if rate != 1.0 else []

    def corrupt(self, batch: Batch, progress: float = 1.0) -> Batch:
        real = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None, :] < batch.lengths[:, None]
        original = torch.where(real, batch.ids, IGNORE)
        batch = self.mlm.corrupt(batch, progress)
        keys, at = batch.keys, batch.targets["mlm"].at
        assert keys is not None
        assert at is not None
        draws = chance.uniform_at(keys, "rtd.sample", at)
        return batch.with_targets(rtd=Targets(original), draws=Targets(draws))

    def before(self, batch: Batch) -> tuple[Batch, list[Term]]:
        """Let the generator fill the chosen places; its loss."""
        targets, draws = batch.targets["mlm"], batch.targets["draws"].labels
        assert targets.at is not None
        encoded = self.generator(batch, targets.at)
        logits = self.mlm.head(encoded.take(targets.at).flatten(0, 1), self.generator.token_table())
        labels = targets.labels.flatten()
        total = F.cross_entropy(_exact(logits), labels, reduction="sum", ignore_index=IGNORE)
        hits = (logits.detach().argmax(-1) == labels).sum()
        found = sample(logits, draws.flatten()).clamp(max=self.mlm.vocab.size - 1).view_as(targets.labels)
        # A place that was not chosen points at position 0, whose token is written back as it was.
        found = torch.where(targets.labels == IGNORE, torch.gather(batch.ids, 1, targets.at), found)
        term = Term(
            "mlm",
            total,
            targets.count(),
            self.config.mlm_weight,
            hits=None if self.training else hits,
            figures={"mlm_accuracy": torch.stack([hits, targets.count()])} if self.training else {},
        )
        return replace(batch, ids=batch.ids.scatter(1, targets.at, found)), [term]

    def terms(self, encoded: Encoded, backbone: Backbone) -> list[Term]:
        """The discriminator's loss, on the batch that the generator wrote into."""
        targets = encoded.batch.targets["rtd"]
        real = targets.labels != IGNORE
        replaced = real & (encoded.batch.ids != targets.labels)
        scores = _exact(self.head(encoded.last))
        losses = F.binary_cross_entropy_with_logits(scores, replaced.to(scores.dtype), reduction="none")
        claimed = real & (scores.detach() > 0)
        found, count = (claimed & replaced).sum(), targets.count()
        figures = {
            "replaced": torch.stack([replaced.sum(), count]),
            "rtd_recall": torch.stack([found, replaced.sum()]),
            "rtd_precision": torch.stack([found, claimed.sum()]),
        }
        term = Term("rtd", torch.where(real, losses, 0.0).sum(), count, self.config.weight, figures=figures)
        if self.training:
            return [term]
        right = (real & (claimed == replaced)).sum()
        return [replace(term, hits=right, ranking=(scores[real], replaced[real]))]


def _exact(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x
