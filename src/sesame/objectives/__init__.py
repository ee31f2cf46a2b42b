"""Objectives: what a backbone learns from. A new one is one file, one line in each table here, one recipe.

`CONFIGS` holds what a recipe may set, `BUILDERS` makes the objective for a backbone.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sesame.backbones import (
    LSTM,
    Backbone,
    BiLM,
    Encoder,
    EncoderDecoder,
    RecurrentSeq2Seq,
    SkipThought,
    TransformerXL,
    XLNet,
)
from sesame.errors import SesameError
from sesame.objectives.base import Objective, Term, Together, Vocab
from sesame.objectives.bilm import BiLMObjective, BiLMObjectiveConfig
from sesame.objectives.clm import CausalLM, CausalLMConfig
from sesame.objectives.decoder_head import DecoderHead
from sesame.objectives.denoise import DenoiseConfig, Denoising
from sesame.objectives.mass import MaskedSpan, MassConfig
from sesame.objectives.mlm import MaskedLM, MaskedLMConfig, MaskedLMHead
from sesame.objectives.pair import DialogueConfig, NextSentenceConfig, PairHead, PairLabel, SentenceOrderConfig
from sesame.objectives.plm import PermutationLM, PermutationLMConfig, TableHead
from sesame.objectives.rtd import Replaced, ReplacedConfig, ReplacedHead
from sesame.objectives.seq2seq import Seq2Seq, Seq2SeqConfig
from sesame.objectives.skip_thought import SkipThoughtObjective, SkipThoughtObjectiveConfig
from sesame.objectives.span import SpanConfig, SpanCorruption

CONFIGS: dict[str, type[Any]] = {
    "mlm": MaskedLMConfig,
    "clm": CausalLMConfig,
    "bilm": BiLMObjectiveConfig,
    "nsp": NextSentenceConfig,
    "sop": SentenceOrderConfig,
    "dialogue": DialogueConfig,
    "rtd": ReplacedConfig,
    "plm": PermutationLMConfig,
    "seq2seq": Seq2SeqConfig,
    "skip-thought": SkipThoughtObjectiveConfig,
    "span": SpanConfig,
    "denoise": DenoiseConfig,
    "mass": MassConfig,
}


def _mlm(config: MaskedLMConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if "mask" not in vocab.roles:
        raise SesameError(
            "masked language modelling needs a mask token, and this tokenizer has none; train another one"
        )
    return MaskedLM(config, _token_head(_both_ways("mlm", backbone), config.plain), vocab)


def _clm(config: CausalLMConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if isinstance(backbone, LSTM):
        return _recurrent_clm(config, backbone)
    if isinstance(backbone, TransformerXL):
        c = backbone.config
        if config.head == "lm":
            return CausalLM(config, DecoderHead(c.width, c.vocab))
        return CausalLM(config, MaskedLMHead(c.width, c.width, c.vocab, c.activation, c.eps, plain=config.plain))
    if config.part:
        raise SesameError(
            "objectives.clm.part needs a backbone that remembers; set backbone.kind to transformer-xl or lstm, or leave "
            "part out"
        )
    if not (isinstance(backbone, Encoder) and backbone.config.causal):
        raise SesameError(
            "left-to-right language modelling needs a backbone that does not look ahead; set backbone.causal=true, or "
            "--start from a model that reads from left to right"
        )
    if config.head == "mlm":
        return CausalLM(config, _token_head(backbone, config.plain))
    if backbone.config.embedding_width not in (0, backbone.width):
        raise SesameError('objectives.clm.head = "lm" needs a table as wide as the states; leave embedding_width out')
    return CausalLM(config, DecoderHead(backbone.width, backbone.vocab))


def _recurrent_clm(config: CausalLMConfig, backbone: LSTM) -> Objective:
    if config.head != "lm":
        raise SesameError('objectives.clm: an LSTM tells tokens by its table alone; set objectives.clm.head = "lm"')
    if config.part and backbone.config.backward:
        raise SesameError("objectives.clm.part: a row that is read from its end has no parts; leave part out")
    head = DecoderHead(backbone.width, backbone.vocab, bias="trained")
    return CausalLM(config, head, backbone.config.backward)


def _bilm(config: BiLMObjectiveConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if not isinstance(backbone, BiLM):
        raise SesameError(
            'objectives.bilm needs two stacks that never meet; set backbone.kind = "bilm", as recipe elmo does, or --start '
            "from such a model"
        )
    return BiLMObjective(config, backbone, vocab)


def _only_encoder(name: str, backbone: Backbone) -> Encoder:
    if not isinstance(backbone, Encoder):
        raise SesameError(
            f'objectives.{name} needs backbone.kind = "encoder"; an XLNet learns by objectives.plm (recipe xlnet), '
            "a Transformer-XL by objectives.clm (recipe transformer-xl)"
        )
    return backbone


def _both_ways(name: str, backbone: Backbone) -> Encoder:
    """Masks are told from both sides. Whoever reads from left to right is asked for the next token by the same head: taught
    to tell the token of its own place, it would repeat itself."""
    encoder = _only_encoder(name, backbone)
    if encoder.config.causal:
        raise SesameError(
            f"objectives.{name} hides tokens from a model that reads both ways, and this one reads from left to right; set "
            f"objectives.{name}=false and objectives.clm.weight=1, or take another model"
        )
    return encoder


def _pair(name: str, weight: float, backbone: Backbone) -> Objective:
    encoder = _only_encoder(name, backbone)
    if encoder.config.causal:
        raise SesameError(
            f"objectives.{name} is told from the first token of a row, which sees nothing but itself in a model that reads "
            f"from left to right; set objectives.{name}=false, or take one that reads both ways"
        )
    return PairLabel(name, weight, PairHead(encoder.width))


def _token_head(backbone: Encoder, plain: bool) -> MaskedLMHead:
    c = backbone.config
    activation = "gelu" if c.activation == "geglu" else c.activation
    return MaskedLMHead(c.width, c.embedding_width or c.width, c.vocab, activation, c.eps, plain=plain, bias=c.bias)


def _nsp(config: NextSentenceConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    return _pair("nsp", config.weight, backbone)


def _sop(config: SentenceOrderConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    return _pair("sop", config.weight, backbone)


def _dialogue(config: DialogueConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if not (isinstance(backbone, Encoder) and backbone.config.segments >= 2):
        raise SesameError("dialogues need a segment for each of the two roles; set backbone.segments=2")
    return _pair("dialogue", config.weight, backbone)


def _rtd(config: ReplacedConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if "mask" not in vocab.roles:
        raise SesameError("replaced-token detection needs a mask token, and this tokenizer has none; train another one")
    return Replaced(config, _both_ways("rtd", backbone), vocab)


def _plm(config: PermutationLMConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if not isinstance(backbone, XLNet):
        raise SesameError(
            'permutation language modelling needs the XLNet backbone; set backbone.kind = "xlnet", as recipe xlnet does'
        )
    return PermutationLM(config, TableHead(backbone.width, backbone.vocab), vocab)


def _seq2seq(config: Seq2SeqConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    head, roles = _decoder_head("seq2seq", backbone), vocab.roles
    if vocab.start is None and "cls" not in roles:
        raise SesameError(
            "objectives.seq2seq: a decoder starts with the cls token, and this tokenizer has none; train another one"
        )
    start = roles["cls"] if vocab.start is None else vocab.start
    return Seq2Seq("seq2seq", head, start, roles["pad"], config.smoothing, config.weight, agreement=config.agreement)


def _skip_thought(config: SkipThoughtObjectiveConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    if not isinstance(backbone, SkipThought):
        raise SesameError(
            'objectives.skip-thought needs backbone.kind = "skip-thought"; take the recipe of that name, and no --start of '
            "another kind"
        )
    if "cls" not in vocab.roles or vocab.front:
        raise SesameError(
            "objectives.skip-thought: sentences begin with no token of their own, and their decoders with the cls token; "
            'set tokenizer.template = "end" and take a tokenizer that has a cls token'
        )
    return SkipThoughtObjective(config, backbone, vocab)


def _span(config: SpanConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    pad = vocab.roles["pad"]  # T5's decoder begins with it
    corruption = SpanCorruption(config, vocab.sentinels, pad, vocab.front, backbone.longest)
    return Seq2Seq("span", _decoder_head("span", backbone), pad, pad, weight=config.weight, corruption=corruption)


def _denoise(config: DenoiseConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    head, roles = _decoder_head("denoise", backbone), vocab.roles
    corruption = Denoising(config, vocab, vocab.stops, vocab.front)
    return Seq2Seq("denoise", head, roles["sep"], roles["pad"], weight=config.weight, corruption=corruption)


def _mass(config: MassConfig, backbone: Backbone, vocab: Vocab) -> Objective:
    head, roles = _decoder_head("mass", backbone), vocab.roles
    corruption = MaskedSpan(config, vocab)
    return Seq2Seq("mass", head, roles["cls"], roles["pad"], weight=config.weight, corruption=corruption)


def _decoder_head(name: str, backbone: Backbone) -> DecoderHead:
    if isinstance(backbone, RecurrentSeq2Seq):
        return DecoderHead(backbone.width, backbone.vocab, backbone.config.tied, bias="trained")
    if not isinstance(backbone, EncoderDecoder):
        raise SesameError(
            f'objectives.{name} needs backbone.kind = "encoder-decoder"; take a recipe such as transformer, and no --start '
            "of another kind"
        )
    c = backbone.config
    if c.positions == "relative":  # T5: a tied table starts large, and has no bias
        return DecoderHead(c.width, c.vocab, scale=c.width**-0.5)
    return DecoderHead(c.width, c.vocab, bias="fixed")


BUILDERS: dict[str, Callable[..., Objective]] = {
    "mlm": _mlm,
    "clm": _clm,
    "bilm": _bilm,
    "nsp": _nsp,
    "sop": _sop,
    "dialogue": _dialogue,
    "rtd": _rtd,
    "plm": _plm,
    "seq2seq": _seq2seq,
    "skip-thought": _skip_thought,
    "span": _span,
    "denoise": _denoise,
    "mass": _mass,
}


def check_together(configs: Mapping[str, Any]) -> None:
    """Some objectives leave no room for others."""
    if {"mlm", "rtd"} <= set(configs):
        raise SesameError("objectives.rtd masks and restores tokens by itself; leave objectives.mlm out")
    if "plm" in configs and len(configs) > 1:
        raise SesameError("objectives.plm runs the model in its own way; leave the other objectives out")
    if getattr(configs.get("seq2seq"), "agreement", 0) and len(configs) > 1:
        raise SesameError("objectives.seq2seq.agreement passes rows twice; leave the other objectives or agreement out")
    if getattr(configs.get("clm"), "part", 0) and len(configs) > 1:
        raise SesameError("objectives.clm.part reads rows in its own way; leave the other objectives or part out")


def build(configs: Mapping[str, Any], backbone: Backbone, vocab: Vocab) -> Together:
    """The objectives of a recipe, together."""
    check_together(configs)
    return Together({name: BUILDERS[name](config, backbone, vocab) for name, config in configs.items()})


__all__ = [
    "BUILDERS",
    "CONFIGS",
    "MaskedLMHead",
    "Objective",
    "PairHead",
    "ReplacedHead",
    "Term",
    "Together",
    "Vocab",
    "build",
    "check_together",
]
