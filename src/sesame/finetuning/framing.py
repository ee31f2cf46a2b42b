"""GPT in use: tasks as inputs that a model which reads from left to right can answer at their end.

Paper: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.3.
Idea: a model of texts has seen no pairs and no [CLS]. Three new tokens make one text of every input, and the head reads the
state of the last one, which alone has seen everything:
    a text          <start> text <extract>
    entailment      <start> premise <delimiter> hypothesis <extract>
    similarity      the same in both orders, the two states added: `task.both = true`, see `tasks/pooled.py`
    choice          <start> stem <delimiter> option <extract>, softmax over the options
Relations: the template is `with_gpt_tokens` of `text/template.py`; the tokenizer keeps it, so nothing else has to know.
Unusual: the paper's new rows are N(0, 0.02). Here they stand so far from the row of the token that ended texts in
pre-training (from the mean of all rows where there was none): a frozen model, too, gives states that say something there.
"""

from typing import Literal

import numpy as np
import torch

from sesame import chance
from sesame.backbones.grow import grow
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.checkpoint.reading import reading
from sesame.errors import SesameError
from sesame.text import Tokenizer
from sesame.text.template import GPT_TOKENS, with_gpt_tokens

Frame = Literal["auto", "own", "gpt"]


def open_start(model: str, frame: Frame = "auto") -> Parts:
    """The model that a fine-tuning starts from, with the tokens that its texts will stand between.

    Of a recurrent encoder-decoder it is the encoder. `auto`: the tokenizer's own tokens; GPT's for a model that reads from
    left to right if there is no token between two texts.
    """
    parts = reading(load_parts(model))
    if parts.tokenizer is not None:
        parts.tokenizer = parts.tokenizer.padding_as_usual()
    tokenizer, causal = parts.tokenizer, bool(getattr(parts.backbone.config, "causal", False))
    if frame == "gpt" and not causal:
        raise SesameError(
            f"{model}: task.frame=gpt is for models that read from left to right, such as gpt2; leave it out"
        )
    if tokenizer is None or not causal or not (frame == "gpt" or (frame == "auto" and _bare(tokenizer))):
        return parts
    return framed(parts)


def _bare(tokenizer: Tokenizer) -> bool:
    """Whether two texts run into each other."""
    words = tokenizer.encode_pair(tokenizer.sample, tokenizer.sample).words
    places = [at for at, word in enumerate(words) if word is not None]
    return None not in words[places[0] : places[-1]]


def framed(parts: Parts) -> Parts:
    """The model with GPT's three tokens; heads that tell tokens are left out, because tasks have their own."""
    assert parts.tokenizer is not None
    tokenizer, first = with_gpt_tokens(parts.tokenizer), len(parts.tokenizer)
    if len(tokenizer) == first:
        return Parts(parts.backbone, {}, tokenizer, family=parts.family)
    near = next((parts.tokenizer.id(role) for role in ("eos", "sep", "bos") if parts.tokenizer.has(role)), None)
    pieces = [list(range(first)) if near is None else [near]] * len(GPT_TOKENS)
    backbone = grow(parts.backbone, pieces, first=first)
    keys = chance.keys(chance.stream("framing.tokens"), np.arange(len(GPT_TOKENS)))
    luck = torch.from_numpy(chance.uniform(keys, "framing.rows", backbone.width)).clamp(1e-6, 1 - 1e-6)
    rows = backbone.token_table().data[first : first + len(GPT_TOKENS)]
    rows += (torch.special.ndtri(luck) * backbone.config.init).to(rows.dtype)
    return Parts(backbone, {}, tokenizer, family=parts.family)
