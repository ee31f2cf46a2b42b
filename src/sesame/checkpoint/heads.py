"""The heads that pre-training leaves in a checkpoint: which ones a file may hold, and how they are built again."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sesame.backbones import BiLMConfig, EncoderConfig, SkipThoughtConfig, TransformerXLConfig, XLNetConfig
from sesame.errors import SesameError
from sesame.objectives import MaskedLMHead, PairHead, ReplacedHead
from sesame.objectives.bilm import SOFTMAXES
from sesame.objectives.decoder_head import Bias, DecoderHead
from sesame.objectives.plm import TableHead
from sesame.objectives.skip_thought import Neighbors

SPEAKING = ("seq2seq", "lm")  # names of output layers of decoders


def bias_of(head: DecoderHead) -> Bias:
    """What kind of bias an output layer has."""
    if isinstance(head.bias, nn.Parameter):
        return "trained"
    return "fixed" if "bias" in head.state_dict() else "none"


def speaking(heads: Mapping[str, nn.Module]) -> dict[str, DecoderHead]:
    """Those among the heads that are output layers of decoders."""
    return {name: head for name, head in heads.items() if name in SPEAKING and isinstance(head, DecoderHead)}


def describe_speaking(heads: Mapping[str, nn.Module]) -> dict[str, Any]:
    """What config.json of our own format says of output layers; an output that is tied is in no weights."""
    return {
        name: {"tied": head.table is None, "scale": head.scale, "bias": bias_of(head)}
        for name, head in speaking(heads).items()
    }


def read_speaking(found: Any, config: Any, place: str) -> dict[str, nn.Module]:
    """The way back."""
    if not isinstance(found, Mapping):
        return {}
    heads: dict[str, nn.Module] = {}
    for name, said in found.items():
        try:
            tied, scale, bias = bool(said["tied"]), float(said["scale"]), said["bias"]
        except (TypeError, KeyError, ValueError) as error:
            raise SesameError(f"{place}: heads.{name} is malformed; copy the file again") from error
        heads[name] = DecoderHead(config.width, config.vocab, tied, scale, bias)
    return heads


def pretrained_heads(config: Any, own_table: bool, plain: bool) -> dict[str, nn.Module]:
    """Every other head that pre-training may leave behind; those that a file does not hold are dropped later."""
    if isinstance(config, XLNetConfig):
        return {
            "plm": TableHead(config.width, config.vocab, tied=not own_table),
            "pooler": PairHead(config.width).pooler,
        }
    if isinstance(config, BiLMConfig):
        return {name: softmax(config.width // 2, config.vocab) for name, softmax in SOFTMAXES.items()}
    if isinstance(config, SkipThoughtConfig):
        return {"neighbors": Neighbors(config)}
    if isinstance(config, TransformerXLConfig):
        width, vocab = config.width, config.vocab
        return {"mlm": MaskedLMHead(width, width, vocab, config.activation, config.eps, not own_table, plain)}
    if not isinstance(config, EncoderConfig):
        return {}
    activation = "gelu" if config.activation == "geglu" else config.activation
    narrow = config.embedding_width or config.width
    pair = PairHead(config.width)
    plain = plain and (own_table or narrow == config.width)  # a file without any head of this kind says nothing
    return {
        "mlm": MaskedLMHead(
            config.width, narrow, config.vocab, activation, config.eps, not own_table, plain, bias=config.bias
        ),
        "pooler": pair.pooler,
        "nsp": pair.out,
        "sop": PairHead(config.width).out,
        "dialogue": PairHead(config.width).out,
        "rtd": ReplacedHead(config.width, activation),
    }


def kept(module: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint keeps of a module: its parameters, shared ones once, and buffers that are no mere constants."""
    found = {name: parameter.detach() for name, parameter in module.named_parameters()}
    lasting = module.state_dict()
    return found | {name: buffer for name, buffer in module.named_buffers() if name in lasting}


def belongs(name: str, heads: set[str]) -> bool:
    """Whether a parameter is one of these heads."""
    return any(name.startswith(f"{head}.") for head in heads)
