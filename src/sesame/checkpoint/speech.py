"""What generation must know of a model besides its weights: with which tokens an answer begins and ends.

Hugging Face keeps it in generation_config.json, and older folders in config.json. As in transformers 5, the former alone
decides what is forced or banned, where it exists; the tokens at the beginning and the end are looked for in both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sesame.backbones import Backbone, EncoderDecoder
from sesame.backbones.fast_decoder import FastDecoder
from sesame.data.answer_pack import Frame
from sesame.errors import SesameError
from sesame.files import read_json, write_json
from sesame.generate import Ensemble, Settings, Speaker
from sesame.generate.speakers import BackboneSpeaker, FastSpeaker, Head
from sesame.nn.packed import Precision, pack
from sesame.objectives.decoder_head import DecoderHead
from sesame.progress import Bar
from sesame.tasks.speak import Said, Voice, speak
from sesame.text import Tokenizer
from sesame.text.template import around, before_prompts

if TYPE_CHECKING:
    from sesame.checkpoint.folder import Parts

FILE = "generation_config.json"
OURS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
FORCED = ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens")
SETTINGS = (  # of a search, as old config.json files hold them
    "bos_token_id",
    "num_beams",
    "max_length",
    "min_length",
    "length_penalty",
    "no_repeat_ngram_size",
    "early_stopping",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
)

SEARCH: dict[str, tuple[str, Any]] = {  # their settings of a search, ours ("": we have none), what changes nothing
    "num_beams": ("beams", 1),
    "length_penalty": ("alpha", 1.0),
    "no_repeat_ngram_size": ("no_repeat", 0),
    "min_new_tokens": ("fewest", 0),
    "min_length": ("", 0),  # which counts what the decoder was given
    "repetition_penalty": ("", 1.0),
    "encoder_repetition_penalty": ("", 1.0),
    "encoder_no_repeat_ngram_size": ("", 0),
    "exponential_decay_length_penalty": ("", None),
    "num_beam_groups": ("", 1),
    "diversity_penalty": ("", 0.0),
    "sequence_bias": ("", None),
    "begin_suppress_tokens": ("", None),
    "guidance_scale": ("", 1.0),
    "stop_strings": ("", None),
}


@dataclass(frozen=True)
class Speech:
    start: tuple[int, ...] = ()  # what the decoder reads first; () where there is no source
    end: tuple[int, ...] = ()  # any of these ends an answer
    pad: int | None = None
    first: int | None = None  # an answer must begin with it (the language in mBART)
    last: int | None = None  # an answer that grew too long must end with it
    banned: tuple[tuple[int, ...], ...] = ()  # never said (Marian's padding); an end never is among them, as there
    suppressed: tuple[int, ...] = ()  # never said either, not even where it would end an answer
    more: Mapping[str, Any] = field(default_factory=dict)  # settings of the search under their names, kept as they are
    reverse: bool = False  # sources are read from their end, as in training
    plain: bool = False  # runs of white space in a source are one space, as in training


def read_speech(folder: Path, config: Mapping[str, Any], answers: bool, silent: Mapping[str, Any]) -> Speech:
    """From a folder's files. `answers`: there is a source; `silent`: what the family means when the files say nothing."""
    beside = read_json(folder / FILE) if (folder / FILE).is_file() else None
    if beside is not None and not isinstance(beside, dict):
        raise SesameError(f"{folder / FILE}: holds no table of settings; copy the file again")
    said = {**silent, **_told(config), **_told(beside or {})}
    forced = config if beside is None else beside
    place = str(folder / (FILE if beside is not None else "config.json"))
    try:
        start = _one(said, "decoder_start_token_id" if "decoder_start_token_id" in said else "bos_token_id", place)
        end = _numbers(said.get("eos_token_id"))
        banned = (_numbers(words) for words in forced.get("bad_words_ids") or ())
        return Speech(
            start=_own_start(config) or _numbers(start) if answers else (),
            end=end,
            pad=None if said.get("pad_token_id") is None else int(said["pad_token_id"]),
            first=_one(forced, "forced_bos_token_id", place),
            last=_one(forced, "forced_eos_token_id", place),
            banned=tuple(words for words in banned if not (len(words) == 1 and words[0] in end)),
            suppressed=_numbers(forced.get("suppress_tokens")),
            more=_more(config, beside),
            reverse=bool(_own(config).get("reverse")),
            plain=bool(_own(config).get("plain")),
        )
    except (TypeError, ValueError) as error:
        raise SesameError(f"{place}: a token is no number ({error}); copy the file again") from error


def not_followed(speech: Speech, asked: Settings) -> list[str]:
    """What the folder says of the search, under Hugging Face's names, and this search does not do."""
    odd: list[str] = []
    for key, (ours, neutral) in SEARCH.items():
        value = speech.more.get(key)
        if value not in (None, neutral, getattr(asked, ours) if ours else neutral):
            odd.append(f"{key} = {value}")
    return odd


def _told(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


def _numbers(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(number) for number in value) if isinstance(value, list | tuple) else (int(value),)


def _one(found: Mapping[str, Any], key: str, place: str) -> int | None:
    numbers = _numbers(found.get(key))
    if len(numbers) > 1:
        raise SesameError(f"{place}: {key} names {len(numbers)} tokens, which is not supported; name one")
    return numbers[0] if numbers else None


def _own_start(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Several first tokens have no place in Hugging Face's files."""
    return _numbers(_own(config).get("start"))


def _own(config: Mapping[str, Any]) -> Mapping[str, Any]:
    own = config.get("sesame")
    return own if isinstance(own, Mapping) else {}


def _more(config: Mapping[str, Any], beside: Mapping[str, Any] | None) -> dict[str, Any]:
    if beside is None:
        return {key: config[key] for key in SETTINGS if config.get(key) is not None}
    known = (*OURS, *FORCED, "transformers_version", "_from_model_config")
    return {key: value for key, value in beside.items() if key not in known}


def describe_speech(speech: Speech, sesame: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says of it; `sesame` is what it says of ours already."""
    found = _tokens(speech)
    own: dict[str, Any] = {"start": list(speech.start)} if len(speech.start) > 1 else {}
    own |= {name: True for name in ("reverse", "plain") if getattr(speech, name)}
    return found | ({"sesame": {**sesame, **own}} if own else {})


def write_speech(folder: Path, speech: Speech) -> None:
    """generation_config.json."""
    never: dict[str, Any] = {"bad_words_ids": [list(words) for words in speech.banned]} if speech.banned else {}
    never |= {"suppress_tokens": list(speech.suppressed)} if speech.suppressed else {}
    write_json(folder / FILE, {**speech.more, **_tokens(speech), **never})


def _tokens(speech: Speech) -> dict[str, Any]:
    found: dict[str, Any] = {
        "decoder_start_token_id": speech.start[0] if speech.start else None,
        "eos_token_id": (list(speech.end) if len(speech.end) > 1 else speech.end[0]) if speech.end else None,
        "pad_token_id": speech.pad,
        "forced_bos_token_id": speech.first,
        "forced_eos_token_id": speech.last,
    }
    return {key: value for key, value in found.items() if value is not None}


def fast_speaker(parts: "Parts", precision: Precision = "fp32") -> FastSpeaker | None:
    """The same for answers on a CPU, with packed weights; None where that is not to be had. Making it takes a moment."""
    backbone, plain = parts.backbone, speaker(parts)
    table = backbone.token_table()
    if not isinstance(backbone, EncoderDecoder) or table.device.type != "cpu" or table.dtype != torch.float32:
        return None
    return FastSpeaker(plain, FastDecoder(backbone, precision), _packed(parts.heads["seq2seq"], backbone, precision))


def _packed(head: nn.Module, backbone: Backbone, precision: Precision) -> Head:
    """The output layer without the table's padding."""
    assert isinstance(head, DecoderHead)
    table = backbone.token_table() if head.table is None else head.table
    linear = nn.Linear(table.shape[1], head.vocab, device="meta")  # weights follow
    linear.weight = nn.Parameter(table.detach()[: head.vocab], requires_grad=False)
    linear.bias = nn.Parameter(head.bias.detach(), requires_grad=False)
    product, scale = pack(linear, precision), head.scale
    return product if scale == 1 else lambda hidden: product(hidden * scale)


def speaker(parts: "Parts") -> BackboneSpeaker:
    """The model of a folder as search wants it."""
    backbone, heads = parts.backbone, parts.heads
    if backbone.answers:
        names = ["seq2seq"]
    else:
        names = ["lm", "mlm"] if getattr(backbone.config, "causal", False) else []
    name = next((name for name in names if name in heads), None)
    if name is None:
        reason = "it has no output layer for tokens" if names else "it does not read from left to right"
        raise SesameError(
            f"this model cannot continue a text: {reason}; take one that was trained to (gpt, gpt2, transformer-xl ...)"
        )
    return BackboneSpeaker(backbone, partial(_logits, heads[name], backbone))


def voice_of(parts: "Parts") -> Voice:
    """With which tokens its texts begin and end: what the folder says, or else what its tokenizer does."""
    speech, tokenizer = parts.speech or Speech(), parts.tokenizer
    if tokenizer is None:
        raise SesameError("this model has no tokenizer; put tokenizer.json beside the weights")
    end = speech.end or tuple(tokenizer.id(role) for role in ("eos", "sep") if tokenizer.has(role))[:1]
    first = () if speech.first is None else (speech.first,)
    if parts.backbone.answers:
        return Voice(end, speech.start, first, reverse=speech.reverse, last=speech.last, plain=speech.plain)
    return Voice(end, before=before_prompts(tokenizer), last=speech.last)


def answer_frame(tokenizer: Tokenizer, speech: Speech | None) -> Frame:
    """The tokens around sources and answers of a model that is taught pairs; `speech` None: a new one.

    An answer begins as the model's answers do: with the token that is forced, or with the template's where the decoder
    starts with another one (BART's own training: </s> is read first, <s> told first).
    """
    before, after = around(tokenizer)
    end = tuple(tokenizer.id(role) for role in ("sep", "eos") if tokenizer.has(role))[:1] or after[-1:]
    if speech is None:
        return Frame(before, after, (), end)
    begin = before if speech.start[:1] != before[:1] else ()
    if speech.first is not None:
        begin = (speech.first,)
    return Frame(before, after, (*speech.start[1:], *begin), speech.end[:1] or end)


def quickest(parts: "Parts") -> Speaker:
    """The model as it speaks fastest here; packed weights are a copy, so keep it while it is needed."""
    return fast_speaker(parts) or speaker(parts)


def together(parts: "Parts", beside: Sequence["Parts"]) -> Speaker:
    """Several models that speak as one (Sutskever et al. 2014). What the first one is given, all must read and end alike."""
    for other in beside:
        if not other.backbone.answers:
            raise SesameError(
                "--with: one of the models has no encoder and decoder, so it does not answer; leave it out"
            )
        tokens = [one.tokenizer.tokens() if one.tokenizer is not None else None for one in (parts, other)]
        if tokens[0] != tokens[1]:
            raise SesameError(
                "--with: the models have different tokenizers; train them with one, by --tokenizer of `sesame pretrain`"
            )
        if voice_of(parts) != voice_of(other):
            raise SesameError(
                "--with: the models read sources or begin answers in different ways, as one from the end and one from the "
                "beginning; take models of one recipe"
            )
        if (other.backbone.longest or math.inf) < (parts.backbone.longest or math.inf):
            raise SesameError(
                f"--with: one of the models reads {other.backbone.longest} tokens, fewer than the first; name it first"
            )
    return Ensemble([quickest(one) for one in (parts, *beside)])


def answers(
    parts: "Parts", texts: list[str], settings: Mapping[str, Any], *, speaks: Speaker | None = None,
    voice: Voice | None = None, batch: int | None = None, shown: Bar | None = None, places: Sequence[str] | None = None,
) -> list[list[Said]]:  # fmt: skip
    """What a model says to texts; `settings` are those of `generate.Settings`, over what its folder forbids or forces.

    `places`: where the texts come from, for what people are told about them.
    """
    if parts.tokenizer is None:
        raise SesameError("this model has no tokenizer; put tokenizer.json beside the weights")
    speech = parts.speech or Speech()
    never = (*speech.banned, *speech.suppressed)
    asked = Settings(**{"never": never, "force_end": speech.last is not None, **settings})
    device = parts.backbone.token_table().device
    longest = None if parts.backbone.reads_on else parts.backbone.longest  # its memory has no end
    voice = voice or voice_of(parts)
    chosen = speaks or quickest(parts)
    return speak(chosen, parts.tokenizer, texts, voice, asked, longest, device, batch=batch, shown=shown, places=places)


def _logits(head: nn.Module, backbone: Backbone, hidden: Tensor) -> Tensor:
    return head(hidden, backbone.token_table())  # type: ignore[no-any-return]
