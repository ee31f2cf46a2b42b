"""Which tokens stand around a text: BERT's [CLS] a [SEP] b [SEP], XLNet's a <sep> b <sep> <cls>, the end alone, or GPT's.

XLNet (Yang et al. 2019, https://arxiv.org/abs/1906.08237) has its class token last and as a segment of its own. The template
is no part of a vocabulary: a tokenizer can be given the other one, and two methods can be compared on the same pieces.
"""

from typing import Literal

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from sesame.text.families import bert_template, end_template, xlnet_template
from sesame.text.tokenizer import Tokenizer

Template = Literal["bert", "xlnet", "end"]
TEMPLATES = {"bert": bert_template, "xlnet": xlnet_template, "end": end_template}
SENTINEL = "<extra_id_{}>"
SENTINELS = 100
GPT_TOKENS = ("<|start|>", "<|delimiter|>", "<|extract|>")


def put_around(backend: Backend, template: Template, cls: str, sep: str) -> None:
    """Set the template."""
    _place(backend, TEMPLATES[template](backend, cls, sep))


def _place(backend: Backend, chosen: processors.TemplateProcessing) -> None:
    """Byte-level BPE keeps its offsets without the leading space."""
    if type(backend.pre_tokenizer).__name__ == "ByteLevel":
        backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), chosen])
    else:
        backend.post_processor = chosen


def around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the template puts before and behind a text."""
    text = tokenizer.sample
    bare, whole = tokenizer.encode(text).ids, tokenizer.encode(text, special=True).ids
    front = next(at for at in range(len(whole) + 1) if whole[at : at + len(bare)] == bare)
    return tuple(whole[:front]), tuple(whole[front + len(bare) :])


def before_prompts(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What stands before a prompt: all that the template puts before a text, if it puts nothing behind; else the class token,
    or the one that texts begin with. (GPT's tokens of tasks are for whole texts.)"""
    front, behind = around(tokenizer)
    known = {tokenizer.id(role) for role in ("cls", "bos") if tokenizer.has(role)}
    return front if not behind or set(front) <= known else ()


def with_cls(tokenizer: Tokenizer, last: bool) -> Tokenizer:
    """The tokenizer with its class token at the end or at the beginning; as it is, if that is where it stands."""
    return tokenizer if tokenizer.cls_last == last else framed(tokenizer, "xlnet" if last else "bert")


def framed(tokenizer: Tokenizer, template: Template) -> Tokenizer:
    """The tokenizer with another template."""
    tokenizer.id("cls"), tokenizer.id("sep")  # one sentence if there are none
    backend = Backend.from_str(tokenizer.backend.to_str())
    put_around(backend, template, tokenizer.roles["cls"], tokenizer.roles["sep"])
    return tokenizer.changed(backend=backend, inputs=None, sides={})


def with_sentinels(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with T5's tokens for hidden spans behind its pieces, if it has none yet."""
    if tokenizer.backend.token_to_id(SENTINEL.format(0)) is not None:
        return tokenizer
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([SENTINEL.format(number) for number in range(SENTINELS)])
    return tokenizer.changed(backend=backend, inputs=None, sides={})


def with_gpt_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with GPT's tokens for tasks behind its pieces and around its texts (Radford et al. 2018, section 3.3).

    <start> a <extract>, and for a pair <start> a <delimiter> b <extract>.
    """
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens(list(GPT_TOKENS))
    start, delimiter, extract = GPT_TOKENS
    template = processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {extract}:0",
        pair=f"{start}:0 $A:0 {delimiter}:0 $B:0 {extract}:0",
        special_tokens=[(token, backend.token_to_id(token)) for token in GPT_TOKENS],
    )
    _place(backend, template)
    return tokenizer.changed(backend=backend, inputs=None, sides={})
