"""What the Transformer and its kin cost, by formula: encoders, XLNet, Transformer-XL, encoder-decoders."""

from sesame.backbones.encoder import EncoderConfig
from sesame.backbones.encoder_decoder import EncoderDecoderConfig
from sesame.backbones.encoder_half import EncoderHalfConfig
from sesame.backbones.transformer_xl import TransformerXLConfig
from sesame.backbones.work import PASSES, Cost, Work
from sesame.backbones.xlnet import XLNetConfig
from sesame.nn.embeddings import padded_vocab
from sesame.nn.feedforward import GATED


def encoder(c: EncoderConfig, work: Work) -> Cost:
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


def xlnet(c: XLNetConfig, work: Work) -> Cost:
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


def transformer_xl(c: TransformerXLConfig, work: Work) -> Cost:
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


def encoder_decoder(c: EncoderDecoderConfig, work: Work) -> Cost:
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


def encoder_half(c: EncoderHalfConfig, work: Work) -> Cost:
    """The source's part of it, every place of which is read."""
    length, width, gated, drops = work.length, c.width, c.activation in GATED, c.dropout > 0
    _, heads, inner = c.half(False)
    wide = heads * (c.head_size or width // heads)
    reading = length * (4 * width * wide + 2 * length * wide + (3 if gated else 2) * width * inner)
    each = (
        (8 + 2 * drops) * width + (4 if gated else 2) * inner + (3 * heads * length if c.attention_dropout > 0 else 0)
    )
    return Cost(c.depth * reading, c.depth * length * each + length * width * (2 + drops))
