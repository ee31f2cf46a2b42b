"""Export of encoder-decoders to CTranslate2 (https://opennmt.net/CTranslate2), an engine for translation on CPUs.

    model.bin  config.json  shared_vocabulary.json  tokenizer.json  tokenizer_config.json  special_tokens_map.json  README.md

Its format is written by its own `TransformerSpec`, filled with our weights. What is computed there: the Transformer, Marian,
BART and mBART. Nothing is kept that was not checked: the engine scores our model's answers to sample texts first.
    int8   weights with one scale for each output, tokens quantized as they come (its own rule)
Unusual: a token that is never said (Marian's padding) gets a bias that forbids it, so that no caller has to remember it. The
vocabulary must have as many tokens as the table; rows without a piece are called <unused N>. That sources are read from their
end no file of theirs can say: whoever calls it must turn them, and is told so.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from sesame import __version__
from sesame.backbones import EncoderDecoder
from sesame.backbones.encoder_decoder import Side
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import Speech, fast_speaker, speaker, voice_of
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.files import write_whole
from sesame.generate import Settings, generate, judge
from sesame.nn.block import Block, CrossBlock
from sesame.objectives.decoder_head import DecoderHead
from sesame.progress import say
from sesame.text import Tokenizer
from sesame.text.samples import ENGLISH
from sesame.text.template import around

PRECISIONS = ("fp32", "int8")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
FORBIDDEN = -1e4  # a bias that no logit outweighs, and that 16 bits hold
LIMITS = {"fp32": 1e-3, "int8": 0.5}  # how far a token's log-probability may be off, in the mean
LONGEST, MOST = 128, 32  # tokens of a sample and of its answer


@dataclass(frozen=True)
class Report:
    difference: float  # of a token's log-probability, in the mean
    tokens: int

    def sentence(self) -> str:
        return f"log-probabilities of {self.tokens} tokens differ by {self.difference:.1e} in the mean"


def export(folder: Path, parts: Parts, precision: str = "fp32", texts: Sequence[str] = ENGLISH) -> Report:
    """Write the files into `folder`, which exists; the caller makes it appear in one piece."""
    if precision not in PRECISIONS:
        raise SesameError(
            f"--precision {precision}: CTranslate2 is written in {' and '.join(PRECISIONS)}; choose one of them"
        )
    _library()
    tokenizer = _check(parts)
    parts = _forbidding(parts)
    spec = _spec(parts, tokenizer)
    spec.validate()
    spec.optimize(quantization=None if precision == "fp32" else precision)
    spec.save(str(folder))
    report = check(folder, parts, texts)
    if not report.difference <= LIMITS[precision]:  # also when it is not a number
        raise SesameError(
            f"CTranslate2 in {precision} answers differently: {report.sentence()}, at most {LIMITS[precision]:g} is taken; "
            "take --precision fp32, or check it on texts of your own with --check FILE"
        )
    tokenizer.save(folder)
    write_whole(folder / "README.md", _card(parts, precision, report))
    if parts.speech is not None and parts.speech.reverse:
        say("this model reads sources from their end, and CTranslate2 does not turn them: README.md shows how to")
    return report


def _library() -> Any:
    try:
        import ctranslate2  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise SesameError(
            "this export needs the package ctranslate2, which is not installed: pip install ctranslate2"
        ) from error
    return ctranslate2


def _check(parts: Parts) -> Tokenizer:
    """What cannot be said there is refused."""
    backbone, head = parts.backbone, parts.heads.get("seq2seq")
    if not isinstance(backbone, EncoderDecoder) or not isinstance(head, DecoderHead):
        raise SesameError(
            "CTranslate2 is written for encoder-decoders with an output layer; for encoders see --to onnx"
        )
    c = backbone.config
    known = c.activation in ACTIVATIONS and c.positions != "relative" and c.norm == "layer" and c.scaled
    known = known and c.order != "branch" and c.half(False)[1:] == c.half(True)[1:]
    if not known or head.scale != 1 or c.head_size not in (0, c.width // c.heads) or not c.bias:
        raise SesameError("CTranslate2 is written for models like Marian, BART and mBART; this one computes otherwise")
    if len((parts.speech or Speech()).start) != 1:
        raise SesameError("CTranslate2 wants one token that the decoder reads first; name it in generation_config.json")
    if parts.tokenizer is None:
        raise SesameError("the folder has no tokenizer, so the vocabulary has no names; give one with --tokenizer")
    return parts.tokenizer


def _forbidding(parts: Parts) -> Parts:
    """The same model, ready to answer, with a bias against what is never said."""
    parts.backbone.eval()
    head = deepcopy(parts.heads["seq2seq"])
    assert isinstance(head, DecoderHead)
    speech = parts.speech or Speech()
    banned = [*(words[0] for words in speech.banned if len(words) == 1), *speech.suppressed]
    with torch.no_grad():
        head.bias[banned] = FORBIDDEN
    return replace(parts, heads={**parts.heads, "seq2seq": head})


# ---- our weights under its names -----------------------------------------------------------------------------------


def _spec(parts: Parts, tokenizer: Tokenizer) -> Any:
    library = _library()
    backbone, head = parts.backbone, parts.heads["seq2seq"]
    assert isinstance(backbone, EncoderDecoder)
    assert isinstance(head, DecoderHead)
    c = backbone.config
    spec = library.specs.TransformerSpec.from_config(
        (c.depth, c.decoder_depth or c.depth),
        c.heads,
        pre_norm=c.order == "pre",
        activation=getattr(library.specs.Activation, ACTIVATIONS[c.activation]),
        layernorm_embedding=c.embedding_norm,
    )
    tokens = _numbers(backbone.tokens.weight[: c.vocab])
    _side(spec.encoder, backbone, backbone.encoder, spec.encoder.embeddings[0], tokens)
    _side(spec.decoder, backbone, backbone.decoder, spec.decoder.embeddings, tokens)
    spec.decoder.projection.weight = tokens if head.table is None else _numbers(head.table[: c.vocab])
    if bool(head.bias.any()):
        spec.decoder.projection.bias = _numbers(head.bias)
    names = vocabulary(tokenizer, c.vocab)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    voice = voice_of(parts)
    end, start = voice.end[0], voice.start[0]
    unknown = tokenizer.id("unk") if tokenizer.has("unk") else end
    spec.config.eos_token = spec.config.bos_token = names[end]
    spec.config.unk_token, spec.config.decoder_start_token = names[unknown], names[start]
    return spec


def vocabulary(tokenizer: Tokenizer, size: int) -> list[str]:
    """The name of every row of the table."""
    named = {id: token for token, id in tokenizer.backend.get_vocab(with_added_tokens=True).items()}
    return [named.get(id, f"<unused {id}>") for id in range(size)]


def _side(spec: Any, backbone: EncoderDecoder, side: Side, embeddings: Any, tokens: npt.NDArray[Any]) -> None:
    c = backbone.config
    spec.scale_embeddings = math.sqrt(c.width) if c.grow else 1.0
    embeddings.weight = tokens
    places = side.positions.weight if side.positions is not None else backbone.table
    assert places is not None
    spec.position_encodings.encodings = _numbers(places)
    if side.norm is not None:
        _both(spec.layernorm_embedding, side.norm, "gamma", "beta")
    if c.order == "pre":
        _both(spec.layer_norm, side.final_norm, "gamma", "beta")
    for layer, block in zip(spec.layer, side.blocks, strict=True):
        assert isinstance(block, Block)
        _layer(layer, block)


def _layer(spec: Any, block: Block) -> None:
    own = spec.self_attention
    _both(own.linear[0], block.attention.qkv)
    _both(own.linear[1], block.attention.out)
    _both(own.layer_norm, block.attention_norm, "gamma", "beta")
    if isinstance(block, CrossBlock):
        for part, linear in zip(spec.attention.linear, (block.cross.q, block.cross.kv, block.cross.out), strict=True):
            _both(part, linear)
        _both(spec.attention.layer_norm, block.cross_norm, "gamma", "beta")
    _both(spec.ffn.linear_0, block.feedforward.up)
    _both(spec.ffn.linear_1, block.feedforward.down)
    _both(spec.ffn.layer_norm, block.feedforward_norm, "gamma", "beta")


def _both(spec: Any, module: nn.Module, weight: str = "weight", bias: str = "bias") -> None:
    for name, value in ((weight, module.weight), (bias, module.bias)):
        assert isinstance(value, Tensor)
        setattr(spec, name, _numbers(value))


def _numbers(tensor: Tensor) -> npt.NDArray[Any]:
    """A copy: its quantizer works in place."""
    found: npt.NDArray[Any] = tensor.detach().cpu().float().numpy().copy()
    return found


# ---- does it answer alike? -----------------------------------------------------------------------------------------


def check(folder: Path, parts: Parts, texts: Sequence[str]) -> Report:
    """Our greedy answers, scored by both."""
    tokenizer, voice = parts.tokenizer, voice_of(parts)
    assert tokenizer is not None
    longest = min(LONGEST, parts.backbone.config.max_length)
    rows = [encoding.ids[:longest] for encoding in tokenizer.encode_batch(list(texts), special=True) if encoding.ids]
    lengths = torch.tensor([len(row) for row in rows])
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True)
    batch = Batch(ids, lengths, outputs=torch.tensor([voice.start] * len(rows)))
    mine, most = fast_speaker(parts) or speaker(parts), min(MOST, longest - 1)
    answers = [found[0].ids for found in generate(mine, batch, Settings(most=most), voice.end)]
    wanted = [found[0].tokens for found in judge(mine, batch, [[ids] for ids in answers], voice.end[0])]
    names = vocabulary(tokenizer, parts.backbone.vocab)
    engine = _library().Translator(str(folder), device="cpu")
    given = [[[names[id] for id in row] for row in side] for side in (rows, answers)]
    found = [scored.log_probs for scored in engine.score_batch(*given)]
    gaps = [abs(a - b) for one, two in zip(wanted, found, strict=True) for a, b in zip(one, two, strict=True)]
    return Report(sum(gaps) / len(gaps), len(gaps))


def _card(parts: Parts, precision: str, report: Report) -> str:
    speech, tokenizer = parts.speech or Speech(), parts.tokenizer
    assert tokenizer is not None
    first = "" if speech.first is None else vocabulary(tokenizer, parts.backbone.vocab)[speech.first]
    prefix = f", target_prefix=[[{first!r}]]" if first else ""
    joined = '\n    text = " ".join(text.split())  # runs of white space are one space, as in training'
    front, back = map(len, around(tokenizer))
    inside = f"tokens[{front} : len(tokens) - {back}]"
    turned = f"\n    {inside} = {inside}[::-1]  # sources are read from their end" if speech.reverse else ""
    return f"""---
library_name: ctranslate2
tags: [sesame, ctranslate2, translation]
---
# An encoder-decoder for CTranslate2 ({precision}), written by Sesame {__version__}

Checked when it was written: {report.sentence()}.

    tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
    translator = ctranslate2.Translator(folder, device="cpu"){joined if speech.plain else ""}
    tokens = tokenizer.encode(text).tokens{turned}
    found = translator.translate_batch([tokens], beam_size=5{prefix})
    tokenizer.decode([tokenizer.token_to_id(token) for token in found[0].hypotheses[0]])
"""
