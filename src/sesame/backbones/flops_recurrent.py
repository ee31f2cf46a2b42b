"""What recurrent models cost, by formula: C numbers in a cell, G gates, V words."""

from sesame.backbones.bilm import BiLMConfig
from sesame.backbones.cove import CoVeConfig
from sesame.backbones.lstm import LSTMConfig
from sesame.backbones.recurrent_seq2seq import RecurrentSeq2SeqConfig
from sesame.backbones.skip_thought import SkipThoughtConfig
from sesame.backbones.tagger import TaggerConfig
from sesame.backbones.work import PASSES, Cost, Work
from sesame.nn.embeddings import padded_vocab
from sesame.text.characters import LETTERS


def bilm(c: BiLMConfig, work: Work) -> Cost:
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


def lstm(c: LSTMConfig, work: Work) -> Cost:
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


def recurrent_seq2seq(c: RecurrentSeq2SeqConfig, work: Work) -> Cost:
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


def cove(c: CoVeConfig, work: Work) -> Cost:
    return Cost(work.length * c.products, work.length * c.kept)


def skip_thought(c: SkipThoughtConfig, work: Work) -> Cost:
    """A sentence of L tokens and two neighbors, K tokens in all; states of S numbers, G gates, E the width of tokens:
    products = L G S (in + S / sides), each layer  +  K (G S (E + 2 S) + S V)"""
    answer, state, rows = work.answer * work.length, c.inner, padded_vocab(c.vocab)
    reading = sum(c.gates * state * (read + c.side) for read in c.inputs)
    telling = c.gates * state * (c.width + 2 * state) + state * rows
    kept: float = work.length * sum(read + (c.gates + 2) * state for read in c.inputs)
    kept += answer * (c.width + (c.gates + 4) * state + 2 * rows)
    return Cost(work.length * reading + answer * telling, kept)


def tagger(c: TaggerConfig, work: Work) -> Cost:
    """Every place is a word. A frozen language model goes forward only, which costs a third, and keeps nothing."""
    products, kept = work.length * c.products, work.length * c.kept
    if c.lm is not None:
        products += bilm(c.lm, Work(work.length)).products / PASSES
    return Cost(products, kept)
