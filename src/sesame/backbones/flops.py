"""What a training step costs, by formula: arithmetic and memory of a token.

    FLOPs a token = 3 * 2 * (multiply-adds of the forward pass of a row) / length

A multiply-add is two FLOPs; the backward pass of a product is two products of its size, so forward and backward make three.
Matrices and attention scores are counted as they must be computed: norms, activations and look-ups are left out (under one
percent), and so is what a kernel computes twice to save memory (fused attention makes its scores again in the backward pass).
So dividing by the peak of a device gives the share of it that was useful, MFU (Chowdhery et al. 2022, appendix B).

A backbone of a new kind brings a formula of its own and one line in `FORMULAS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from sesame.backbones.bilm import BiLMConfig
from sesame.backbones.cove import CoVeConfig
from sesame.backbones.decoded import DecodedConfig
from sesame.backbones.encoder import EncoderConfig
from sesame.backbones.encoder_decoder import EncoderDecoderConfig
from sesame.backbones.encoder_half import EncoderHalfConfig
from sesame.backbones.lstm import LSTMConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2SeqConfig
from sesame.backbones.skip_thought import SkipThoughtConfig
from sesame.backbones.smaller import smaller
from sesame.backbones.tagger import TaggerConfig
from sesame.backbones.transformer_xl import TransformerXLConfig
from sesame.backbones.xlnet import XLNetConfig
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import GATED
from sesame.text.characters import LETTERS

PASSES = 3  # forward once, backward twice as much
FP32 = 4  # bytes


@dataclass(frozen=True)
class Generator:
    """The smaller encoder of replaced-token detection, as shares of the backbone's `width` and `depth` (`smaller.py`)."""

    width: float
    depth: float
    masked: float  # share of the places that it restores


@dataclass(frozen=True)
class Work:
    """What is done with a row of `length` tokens."""

    length: int
    masked: float | None = (
        None  # share of the places whose token is restored; None: no such head, and all states are read
    )
    pair: bool = False  # the head on [CLS] of next-sentence prediction
    generator: Generator | None = None  # runs before; then a head tells at every place whether the token was replaced
    part: int = 0  # XLNet, Transformer-XL: the row is passed in parts of so many tokens; 0: whole
    both: bool = False  # XLNet: some rows are read from their end
    answer: float = 1.0  # an encoder-decoder: places of the decoder for each of the source
    rows: int = 0  # that are passed together; 0: so many that what is done once for all of them does not count
    times: int = 1  # that each row is passed

    @property
    def restored(self) -> int:
        """Places at which the head restores a token."""
        return max(1, round(self.masked * self.length)) if self.masked else 0

    @property
    def read(self) -> int:
        """Places at which the last layer is computed."""
        return self.length if self.masked is None else self.restored + self.pair


@dataclass(frozen=True)
class Cost:
    """One row: multiply-adds of its forward pass, and numbers that it keeps for the backward pass."""

    products: float
    kept: float


def flops_per_token(config: Any, work: Work) -> float:
    """FLOPs of forward and backward pass, for each place of a row."""
    return PASSES * 2 * multiply_adds(config, work)


def multiply_adds(config: Any, work: Work) -> float:
    """Of the forward pass alone, for each place of a row."""
    return _cost(config, work).products / work.length


def kept_per_token(config: Any, work: Work) -> float:
    """Numbers that the forward pass keeps for the backward pass, for each place of a row: an estimate of activations.

    Counted are the inputs of products, norms and activations, and dropout masks as numbers, each once: what a plain PyTorch
    pass saves. A compiler that recomputes keeps less; autocast, which keeps norms in fp32, more.
    """
    return _cost(config, work).kept / work.length


def weights_memory(model: nn.Module) -> int:
    """Bytes that do not depend on the batch: 4 each for a weight, its gradient, AdamW's two means, and the copy of weight and
    means that a broken step is undone from."""
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    fixed = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    return FP32 * (7 * trained + fixed)


def step_memory(model: nn.Module, config: Any, work: Work, rows: int, size: int = FP32) -> int:
    """Bytes of training with `rows` rows at a time whose activations have `size` bytes each: an estimate."""
    return weights_memory(model) + round(rows * work.length * kept_per_token(config, work) * size)


def _cost(config: Any, work: Work) -> Cost:
    cost = FORMULAS[type(config)](config, work)
    cost = Cost(cost.products * work.times, cost.kept * work.times)
    if work.generator is None:
        return cost
    made = _cost(smaller(config, work.generator.width, work.generator.depth), Work(work.length, work.generator.masked))
    told = work.length * (config.width * config.width + config.width)  # the backbone's head: D D + D at every place
    return Cost(cost.products + told + made.products, cost.kept + made.kept + 2 * work.length * config.width)


def _encoder(c: EncoderConfig, work: Work) -> Cost:
    """Shared layers share weights, not work: each counts. The last layer asks only where it is read, but all places are keys:

    products = L E D  +  (depth - 1) block(L)  +  block(read)  +  restored (D E + E V)  +  D D + 2 D
    block(n) = 2 L D D  +  n (2 D D + 2 S D + m D F)        m = 2, or 3 with a gate

    S is how many places one place looks at on average: L, from left to right (L + 1) / 2, in a layer with a window w
    about 2 w + 1. From left to right, and where the last layer has a window, read = L.
    """
    length, width, inner, narrow = work.length, c.width, c.inner or 4 * c.width, c.embedding_width or c.width
    gated = c.activation == "geglu"
    rows = padded_vocab(c.vocab)
    widen = length * narrow * width if c.square or narrow != width else 0

    looked = (length + 1) / 2 if c.causal else length
    read = length if c.asks_everywhere else work.read

    def block(asked: int, looked: float = looked) -> float:
        per_place = 2 * width * width + 2 * looked * width + (3 if gated else 2) * width * inner
        return 2 * length * width * width + asked * per_place

    head = work.restored * (width * narrow + narrow * rows)
    pair = width * width + 2 * width if work.pair else 0
    products = widen + (c.depth - 1) * block(length) + block(read) + head + pair
    products -= len(c.local_layers) * (block(length) - block(length, _near(length, c.window)))
    return Cost(products, _encoder_kept(c, work, inner, narrow, rows, gated))


def _near(length: int, window: int) -> float:
    """Places within a window to both sides, on average over a row: the ends have fewer."""
    side = min(window, length - 1)
    return (length * (2 * side + 1) - side * (side + 1)) / length


def _encoder_kept(c: EncoderConfig, work: Work, inner: int, narrow: int, rows: int, gated: bool) -> float:
    """Per place of a block: keys and values 2 D and the input D; where asked: query, attention's answer, two inputs of norms
    and the input of the feed-forward 5 D, its inside 2 F (4 F with a gate), dropout masks 2 D, and with attention dropout the
    map, its mask and their product 3 H L. Once: the embeddings 2 E (their mask E); a restored token 3 E + D and twice V, the
    probabilities and their gradient."""
    length, width = work.length, c.width
    drops = c.dropout > 0
    read = length if c.asks_everywhere else work.read
    maps = 3 * c.heads * length if c.attention_dropout > 0 else 0

    def block(asked: int) -> float:
        return 3 * length * width + asked * ((5 + 2 * drops) * width + (4 if gated else 2) * inner + maps)

    head = work.restored * (width + 3 * narrow + 2 * rows)
    return length * narrow * (2 + drops) + (c.depth - 1) * block(length) + block(read) + head


def _xlnet(c: XLNetConfig, work: Work) -> Cost:
    """A row goes through in parts of l tokens, each with the M remembered before it; the query stream asks at k places.
    Both streams read the same keys; a score needs two products, with the key and with the distance (M + 2 l of them):

    products = sum over parts of  depth (2 (M + l) D D + far)  +  (depth - 1) stream(l)  +  depth stream(k)  +  k D V
    stream(n) = n (2 D D + 2 (M + l) D + (M + 2 l) D + 2 D + 2 D F)         far = (M + 2 l) D D, once for all rows

    Its own last layer the content stream does not need. The encodings of distances are constant, so W_R costs one product
    less in the backward pass. Without targets there is no query stream, and the last layer asks where it is read.
    """
    width, inner, query = c.width, c.inner or 4 * c.width, work.masked is not None
    products, kept, memory = 0.0, 0.0, 0
    for begin in range(0, work.length, work.part or work.length):
        length = min(work.part or work.length, work.length - begin)
        asked = _targets(work, begin + length) - _targets(work, begin) if query else work.read
        keys, far = memory + length, memory + 2 * length
        stream = 2 * width * width + 2 * keys * width + far * width + 2 * width + 2 * width * inner
        once = (1 + work.both) * far * width * width * 2 / PASSES / work.rows if work.rows else 0
        products += c.depth * (2 * keys * width * width + once)
        products += stream * ((c.depth - 1) * length + (c.depth if query else 1) * asked)
        kept += _xlnet_kept(c, length, keys, asked, query) + work.both * c.depth * far * width
        memory += min(length, c.reuse or length)
        memory = min(memory, c.memory or memory)
    rows = padded_vocab(c.vocab)
    return Cost(products + work.restored * width * rows, kept + work.restored * (width + 2 * rows))


def _targets(work: Work, end: int) -> int:
    """How many of the first tokens of a row are asked for."""
    return round((work.masked or 0.0) * end)


def _xlnet_kept(c: XLNetConfig, length: int, keys: int, asked: int, query: bool) -> float:
    """Per key and layer its input and keys and values, 3 D; per question what a block of an encoder keeps, with the query
    three times (it has three biases), and a row of scores: with attention dropout as an encoder, else bias and softmax.
    Where rows are read in both directions, each also has its choice of the distances, (M + 2 l) D in a layer."""
    width, inner, drops = c.width, c.inner or 4 * c.width, c.dropout > 0
    maps = c.heads * keys * (3 if c.attention_dropout > 0 else 2)
    each = (7 + 2 * drops) * width + (2 + 2 * drops) * inner + maps
    asks = (c.depth - 1) * length + (c.depth if query else 1) * asked
    return c.depth * 3 * keys * width + each * asks + length * width * (1 + drops)


def _encoder_decoder(c: EncoderDecoderConfig, work: Work) -> Cost:
    """A source of L tokens and an answer of K, each place of which is told; W = heads * head size:

    products = encoder depth * L (4 D W + 2 L W + m D F)
             + decoder depth * (K (6 D W + (K + 1) W + 2 L W + m D F) + 2 L D W)  +  K D V

    W and F are those of each side.

    Kept for the backward pass: as in an encoder, with a third part in the decoder's blocks.
    """
    length, answer = work.length, work.answer * work.length
    width, rows = c.width, padded_vocab(c.vocab)
    gated, drops = c.activation in GATED, c.dropout > 0
    (_, heads, inner), (depth, decoder_heads, decoder_inner) = c.half(False), c.half(True)
    wide, decoder_wide = (count * (c.head_size or width // count) for count in (heads, decoder_heads))
    feed, decoder_feed = ((3 if gated else 2) * width * size for size in (inner, decoder_inner))
    reading = length * (4 * width * wide + 2 * length * wide + feed)
    looks = 6 * width * decoder_wide + (answer + 1) * decoder_wide + 2 * length * decoder_wide
    telling: float = answer * (looks + decoder_feed) + 2 * length * width * decoder_wide
    each, decoder_each = ((8 + 2 * drops) * width + (4 if gated else 2) * size for size in (inner, decoder_inner))
    maps, decoder_maps = (3 * count if c.attention_dropout > 0 else 0 for count in (heads, decoder_heads))
    kept: float = c.depth * length * (each + maps * length)
    kept += depth * answer * (decoder_each + (4 + drops) * width + decoder_maps * (length + answer))
    kept += depth * 2 * length * decoder_wide
    kept += (length + answer) * width * (2 + drops) + answer * (width + 2 * rows)
    return Cost(c.depth * reading + depth * telling + answer * width * rows, kept)


def _encoder_half(c: EncoderHalfConfig, work: Work) -> Cost:
    """The source's part of it, every place of which is read."""
    length, width, gated, drops = work.length, c.width, c.activation in GATED, c.dropout > 0
    _, heads, inner = c.half(False)
    wide = heads * (c.head_size or width // heads)
    reading = length * (4 * width * wide + 2 * length * wide + (3 if gated else 2) * width * inner)
    each = (
        (8 + 2 * drops) * width + (4 if gated else 2) * inner + (3 * heads * length if c.attention_dropout > 0 else 0)
    )
    return Cost(c.depth * reading, c.depth * length * each + length * width * (2 + drops))


def _transformer_xl(c: TransformerXLConfig, work: Work) -> Cost:
    """A row goes through in parts of l tokens, each with the M remembered before it. Of the present tokens one place looks at
    (l + 1) / 2 on average; a score needs two products, with the key and with the distance:

    products = sum over parts of  depth ( 2 (M + l) D D + far + l (2 D D + 3 S D + 2 D F) )  +  restored D V
    S = M + (l + 1) / 2         far = (M + l + 1) D D, once for all rows, and without a product for constants backward

    What is masked is computed all the same, here and in the authors' code, but need not be. Kept are, per key and layer, its
    input and keys and values, 3 D; per place what a block of XLNet keeps, whose query has one bias less.
    """
    width, inner, drops = c.width, c.inner or 4 * c.width, c.dropout > 0
    products, kept, memory = 0.0, work.length * width * (1 + drops), 0
    for begin in range(0, work.length, work.part or work.length):
        length = min(work.part or work.length, work.length - begin)
        keys, looked = memory + length, memory + (length + 1) / 2
        once = (keys + 1) * width * width * 2 / PASSES / work.rows if work.rows else 0
        each = 2 * width * width + 3 * looked * width + 2 * width * inner
        products += c.depth * (2 * keys * width * width + once + length * each)
        maps = c.heads * keys * (3 if c.attention_dropout > 0 else 2)
        kept += c.depth * (3 * keys * width + length * ((6 + 2 * drops) * width + (2 + 2 * drops) * inner + maps))
        memory = min(keys, c.memory or keys)
    rows = padded_vocab(c.vocab)
    return Cost(products + work.restored * width * rows, kept + work.restored * (width + 2 * rows))


def _bilm(c: BiLMConfig, work: Work) -> Cost:
    """Every place is a word, as most tokens are. With P = D / 2, a cell of C and F filters of widths w, n of each:
    products = L ( 50 E sum w n + highways 2 F F + F P + 2 depth 9 C P )  +  2 restored P V, for both directions tell a word.
    Kept are the filters' outputs, 3 F a highway, and of an LSTM its gates, cell and states."""
    half, rows = c.width // 2, padded_vocab(c.vocab)
    lstm, letters, kept = 9 * c.cell * half, 0.0, 0.0
    if c.reads == "characters":
        found = sum(count for _, count in c.filters)
        windows = LETTERS * c.letter_width * sum(width * count for width, count in c.filters)
        letters = windows + 2 * c.highways * found * found + found * half
        kept = LETTERS * (c.letter_width + found) + (1 + 3 * c.highways) * found
    products = work.length * (letters + 2 * c.depth * lstm) + 2 * work.restored * half * rows
    states = 2 * c.depth * (6 * c.cell + 3 * half) + c.width
    return Cost(products, work.length * (kept + states) + 2 * work.restored * (half + rows))


def _lstm(c: LSTMConfig, work: Work) -> Cost:
    """products = L sum over layers of 4 C (in + C)  +  restored D V. Kept are a layer's input, gates, cell and state, and
    what dropout left of the input and of the state that leaves."""
    inputs, rows = [c.width, *c.widths], padded_vocab(c.vocab)
    products, kept = 0.0, (c.dropout > 0) * c.width
    for number, width in enumerate(c.widths):
        drops = (c.layer_dropout if number else c.input_dropout) > 0
        products += 4 * width * (inputs[number] + width)
        kept += inputs[number] * (1 + drops) + 6 * width
    return Cost(
        work.length * products + work.restored * c.width * rows,
        work.length * kept + work.restored * (c.width + 2 * rows),
    )


def _recurrent_seq2seq(c: RecurrentSeq2SeqConfig, work: Work) -> Cost:
    """A source of L tokens and an answer of K; states of S numbers, R of an encoder's state, G gates (LSTM 4, GRU 3):

    products = encoder L * sides * G S (in + S), each layer  +  decoder K G S (in + S), each layer
             + looks K L (S + R), general and additive also read L R S, additive asks K S S
             + K (heard D, twice for maxout)  +  K D V

    Kept for the backward pass: a cell's input, gates, cell and state; a look's weights, and the inside of additive scores.
    """
    length, answer, gates = work.length, work.answer * work.length, 4 if c.cell == "lstm" else 3
    state, read, sides, drops = c.state, c.values, 2 if c.bidirectional else 1, c.dropout > 0
    attends, rows = c.attention != "none", padded_vocab(c.vocab)
    given = read if attends or c.context == "all" else 0
    first = c.width + (given if not attends or c.looks == "before" else 0) + (c.width if c.feed else 0)
    inputs = [c.width, *[read] * (c.depth - 1)], [first, *[state] * (c.depth - 1)]
    products: float = sum(length * sides * gates * state * (wide + state) for wide in inputs[0])
    products += sum(answer * gates * state * (wide + state) for wide in inputs[1])
    kept: float = sum(length * (wide * (1 + drops) + sides * (gates + 2) * state) for wide in inputs[0])
    kept += sum(answer * (wide * (1 + drops) + (gates + 2) * state) for wide in inputs[1])
    if attends:
        products += answer * length * (state + read)
        products += length * read * state if c.score in ("general", "additive") else 0
        products += answer * state * state if c.score == "additive" else 0
        kept += answer * length * (2 + (state if c.score == "additive" else 0)) + 2 * length * read
    if c.readout != "state":
        heard, pairs = given + state + (c.width if c.readout == "maxout" else 0), 2 if c.readout == "maxout" else 1
        products += answer * heard * pairs * c.width
        kept += answer * (heard + (pairs + drops) * c.width)
    return Cost(products + answer * c.width * rows, kept + answer * (c.width + 2 * rows))


def _cove(c: CoVeConfig, work: Work) -> Cost:
    return Cost(work.length * c.products, work.length * c.kept)


def _skip_thought(c: SkipThoughtConfig, work: Work) -> Cost:
    """A sentence of L tokens and two neighbors, K tokens in all; states of S numbers, G gates, E the width of tokens:
    products = L G S (in + S / sides), each layer  +  K (G S (E + 2 S) + S V)"""
    answer, state, rows = work.answer * work.length, c.inner, padded_vocab(c.vocab)
    reading = sum(c.gates * state * (read + c.side) for read in c.inputs)
    telling = c.gates * state * (c.width + 2 * state) + state * rows
    kept: float = work.length * sum(read + (c.gates + 2) * state for read in c.inputs)
    kept += answer * (c.width + (c.gates + 4) * state + 2 * rows)
    return Cost(work.length * reading + answer * telling, kept)


def _tagger(c: TaggerConfig, work: Work) -> Cost:
    """Every place is a word. A frozen language model goes forward only, which costs a third, and keeps nothing."""
    products, kept = work.length * c.products, work.length * c.kept
    if c.lm is not None:
        products += _bilm(c.lm, Work(work.length)).products / PASSES
    return Cost(products, kept)


FORMULAS: dict[type, Callable[[Any, Work], Cost]] = {
    EncoderConfig: _encoder,
    EncoderDecoderConfig: _encoder_decoder,
    EncoderHalfConfig: _encoder_half,
    DecodedConfig: _encoder_decoder,
    RecurrentSeq2SeqConfig: _recurrent_seq2seq,
    XLNetConfig: _xlnet,
    TransformerXLConfig: _transformer_xl,
    BiLMConfig: _bilm,
    LSTMConfig: _lstm,
    CoVeConfig: _cove,
    SkipThoughtConfig: _skip_thought,
    TaggerConfig: _tagger,
}
