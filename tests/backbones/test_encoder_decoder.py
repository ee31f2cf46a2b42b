"""The encoder-decoder and decoders at work: padding never leaks, going on equals one pass, beams share a source."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sesame.backbones import Backbone, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig, State
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.nn.attention.buckets import bucket
from sesame.nn.attention.multihead import Rows

KINDS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "marian": {"activation": "silu", "inner": 20},
    "branch": {"order": "branch"},
    "bart": {"positions": "learned", "activation": "gelu", "embedding_norm": True, "grow": False},
    "mbart": {"positions": "learned", "order": "pre", "embedding_norm": True, "activation": "gelu"},
    "t5": {"positions": "relative", "order": "pre", "norm": "rms", "bias": False, "scaled": False, "grow": False,
           "head_size": 6},
    "t5 1.1": {"positions": "relative", "order": "pre", "norm": "rms", "bias": False, "scaled": False, "grow": False,
               "activation": "geglu_tanh", "buckets": 8, "farthest": 12},
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {"order": "pre", "activation": "gelu_tanh"},
    "gpt": {"order": "post", "activation": "gelu_tanh"},
    "rotary": {"order": "pre", "positions": "rotary", "activation": "geglu", "bias": False},
    "branch": {"order": "branch"},
}


def noisy(model: Backbone) -> Backbone:
    """All weights random, so that none hides behind a zero or a one."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0.0, 0.4)
    return model.double().eval()


def seq2seq(kind: str) -> EncoderDecoder:
    model = noisy(EncoderDecoder(EncoderDecoderConfig(50, 32, 2, 4, decoder_depth=3, max_length=40, **KINDS[kind])))
    assert isinstance(model, EncoderDecoder)
    return model


def sources() -> tuple[Batch, torch.Tensor]:
    torch.manual_seed(0)
    outputs = torch.randint(50, (3, 7))
    return Batch(torch.randint(50, (3, 9)), torch.tensor([9, 5, 1]), outputs=outputs), outputs


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_a_source_never_leaks(kind: str) -> None:
    model, (batch, outputs) = seq2seq(kind), sources()
    whole = model(batch).last
    for row, length in enumerate(batch.lengths.tolist()):
        alone = Batch(batch.ids[row : row + 1, :length], batch.lengths[row : row + 1], full=True)
        alone = Batch(**{**alone.__dict__, "outputs": outputs[row : row + 1]})
        torch.testing.assert_close(model(alone).last[0], whole[row], rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_does_not_look_ahead(kind: str) -> None:
    model, (batch, outputs) = seq2seq(kind), sources()
    changed = outputs.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 50
    before, after = model(batch).last, model(Batch(**{**batch.__dict__, "outputs": changed})).last
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amin(dim=(0, 2)).min() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [(1,) * 7, (3, 4), (1, 5, 1)])
def test_going_on_equals_one_pass(kind: str, parts: tuple[int, ...]) -> None:
    model, (batch, outputs) = seq2seq(kind), sources()
    state, found = State(), []
    for part in outputs.split(parts, dim=1):
        encoded = model.go_on(Batch(**{**batch.__dict__, "outputs": part}), state)
        assert encoded.state is not None
        state = encoded.state
        found.append(encoded.last)
    torch.testing.assert_close(torch.cat(found, 1), model(batch).last, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_hypotheses_share_their_source(kind: str) -> None:
    model, (batch, outputs) = seq2seq(kind), sources()
    state = model.go_on(Batch(**{**batch.__dict__, "outputs": outputs[:, :3]}), State()).state
    assert state is not None
    chosen = torch.tensor([[2, 2, 2], [0, 0, 0]])
    state = state.select(chosen)
    assert state.source[0].shape[0] == 2
    assert state.layers[0].shape[0] == 6
    state = state.select(torch.tensor([[4, 3], [0, 2]]))  # the sources change places
    rows = torch.tensor([0, 0, 2, 2])
    ids = outputs[rows, 3:4]
    found = model.go_on(Batch(ids, torch.ones(4).long(), full=True, outputs=ids), state)
    torch.testing.assert_close(found.last[:, 0], model(batch).last[rows, 3], rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_those_of_the_source(kind: str) -> None:
    model, (batch, _) = seq2seq(kind), sources()
    maps = model(batch, maps=True).maps
    assert len(maps) == 3
    assert maps[0].shape == (3, 4, 7, 9)
    torch.testing.assert_close(maps[-1].sum(-1), torch.ones(3, 4, 7, dtype=torch.double))
    assert maps[-1][1, :, :, 5:].abs().max() == 0


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_goes_on_from_prompts_of_different_lengths(kind: str) -> None:
    model = noisy(Encoder(EncoderConfig(50, 32, 3, 4, segments=0, causal=True, max_length=20, **DECODERS[kind])))
    torch.manual_seed(0)
    prompts, lengths, new = torch.randint(50, (3, 8)), torch.tensor([8, 5, 1]), torch.randint(50, (3, 4))
    state, found = model.go_on(Batch(prompts, lengths), State()).state, []
    for part in new.split((1, 2, 1), dim=1):
        assert state is not None
        encoded = model.go_on(Batch(part, torch.full((3,), part.shape[1]), full=True), state)
        state = encoded.state
        found.append(encoded.last)
    for row, length in enumerate(lengths.tolist()):
        ids = torch.cat([prompts[row, :length], new[row]])[None]
        whole = model(Batch(ids, torch.tensor([length + 4]), full=True)).last[0, length:]
        torch.testing.assert_close(torch.cat(found, 1)[row], whole, rtol=0, atol=1e-11)


def test_the_three_orders_of_a_decoder_are_their_formulas() -> None:
    """post LN(x + f(x)), pre x + f(LN(x)) with a norm at the end, branch x + LN(f(x)); all three parts of each block."""
    torch.manual_seed(3)
    outputs, batch = torch.randint(50, (2, 6)), Batch(torch.randint(50, (2, 7)), torch.tensor([7, 7]), full=True)
    batch = replace(batch, outputs=outputs)
    for order in ("post", "pre", "branch"):
        model = noisy(EncoderDecoder(EncoderDecoderConfig(50, 16, 1, 2, decoder_depth=2, order=order)))
        assert isinstance(model, EncoderDecoder)
        x, read = model._enter(model.decoder, outputs, 0), model.read(batch)
        for block in model.decoder.blocks:
            parts = (
                (block.attention_norm, lambda x, b=block: b.attention(x, Rows(causal=True))),
                (block.cross_norm, lambda x, b=block, read=read: b.cross(x, b.cross.read(read), None)),
                (block.feedforward_norm, lambda x, b=block: b.feedforward(x)),
            )
            for norm, f in parts:
                x = {
                    "post": lambda x, n, f: n(x + f(x)),
                    "pre": lambda x, n, f: x + f(n(x)),
                    "branch": lambda x, n, f: x + n(f(x)),
                }[order](x, norm, f)
        x = model.decoder.final_norm(x)
        assert isinstance(model.decoder.final_norm, torch.nn.Identity) == (order != "pre")
        torch.testing.assert_close(model(batch).last, x, rtol=0, atol=1e-11)


def test_too_long_is_said() -> None:
    model, (batch, _) = seq2seq("transformer"), sources()
    with pytest.raises(SesameError, match="41 tokens do not fit"):
        model(Batch(torch.zeros(1, 41).long(), torch.tensor([41]), full=True, outputs=batch.outputs))
    with pytest.raises(SesameError, match="41 tokens of the answer"):
        model(Batch(**{**batch.__dict__, "outputs": torch.zeros(3, 41).long()}))
    decoder = Encoder(EncoderConfig(50, 32, 1, 4, causal=True, max_length=6)).eval()
    state = decoder.go_on(Batch(torch.zeros(2, 6).long(), torch.tensor([6, 2])), State()).state
    assert state is not None
    with pytest.raises(SesameError, match="more than 6 tokens"):
        decoder.go_on(Batch(torch.zeros(2, 1).long(), torch.tensor([1, 1]), full=True), state)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"width": 30}, "does not divide"), ({"buckets": 6, "positions": "relative"}, "multiple of 4"),
    ({"norm": "rms"}, "order"), ({"decoder_depth": -1}, "below 0"), ({"dropout": 1.0}, "dropouts"),
])  # fmt: skip
def test_numbers_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SesameError, match=said):
        EncoderDecoderConfig(**({"vocab": 50, "width": 32, "depth": 2, "heads": 4} | wrong))


def test_buckets_as_published() -> None:
    """Distances and buckets of 32 buckets up to 128, computed by hand from the paper's rule."""
    distances = torch.tensor([-200, -128, -64, -8, -7, -1, 0, 1, 7, 8, 11, 12, 127, 128, 500])
    both = bucket(distances, 32, 128, ahead=True).tolist()
    assert both == [15, 15, 14, 8, 7, 1, 0, 17, 23, 24, 24, 25, 31, 31, 31]
    back = bucket(distances, 32, 128, ahead=False).tolist()
    assert back == [31, 31, 26, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
