"""The decoder for answers on a CPU equals the backbone, whatever a search does with the hypotheses."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sesame.backbones import EncoderDecoder, EncoderDecoderConfig, State
from sesame.backbones.fast_decoder import ROOM, Branches, FastDecoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.speech import fast_speaker, speaker
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.generate import Settings, generate
from sesame.objectives.decoder_head import DecoderHead

MARIAN = EncoderDecoderConfig(90, 32, 2, 4, decoder_depth=3, inner=48, max_length=100)
SHAPES = {
    "marian": MARIAN,
    "silu": replace(MARIAN, activation="silu"),
    "bart": replace(MARIAN, positions="learned", activation="gelu", embedding_norm=True, grow=False),
    "branch": replace(MARIAN, order="branch"),
    "mbart": replace(MARIAN, positions="learned", activation="gelu", embedding_norm=True, order="pre"),
    "t5": replace(MARIAN, positions="relative", order="pre", norm="rms", bias=False, grow=False, scaled=False),
    "t5 1.1": replace(
        MARIAN, positions="relative", order="pre", norm="rms", bias=False, grow=False, scaled=False,
        activation="geglu_tanh", head_size=5,
    ),
    "swiglu": replace(MARIAN, activation="swiglu"),
    "reglu": replace(MARIAN, activation="reglu"),
}  # fmt: skip
SEEDS = (0, 1, 2)


def model(shape: str, seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    return EncoderDecoder(SHAPES[shape]).eval()


def source(seed: int, size: int, width: int, start: int = 1) -> Batch:
    luck = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (size,), generator=luck)
    lengths[0] = width
    ids, outputs = (torch.randint(3, 90, (size, wide), generator=luck) for wide in (width, start))
    return Batch(ids, lengths, outputs=outputs)


def moves(n: int, new: int, sources: int, luck: torch.Generator) -> Tensor:
    """Some sources leave, the others' hypotheses come from any of theirs."""
    stay = (torch.rand(sources, generator=luck) < 0.8).nonzero()[:, 0]
    stay = torch.arange(sources) if len(stay) == 0 else stay
    return stay[:, None] * n + torch.randint(0, n, (len(stay), new), generator=luck)


def plain_next(backbone: EncoderDecoder, ids: Tensor, state: State) -> tuple[Tensor, State]:
    encoded = backbone.go_on(Batch(ids[:, None], torch.ones_like(ids), outputs=ids[:, None], full=True), state)
    assert encoded.state is not None
    return encoded.last[:, -1], encoded.state


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_hypotheses_that_move_and_leave(shape: str, seed: int) -> None:
    backbone, luck = model(shape, seed), torch.Generator().manual_seed(seed)
    state = backbone.go_on(source(seed, 6, 9, start=1 + seed), State()).state
    assert state is not None
    fast = FastDecoder(backbone)
    branches, n = fast.take_over(state), 1
    for new in (3, 3, 4, 4, 2, 4, 4, 4, 4, 4, 4, 4):
        rows = moves(n, new, state.layers[0].shape[0] // n, luck)
        ids = torch.randint(3, 90, (rows.numel(),), generator=luck)
        wanted, state = plain_next(backbone, ids, state.select(rows))
        found, branches = fast.next(ids, branches.select(rows))
        n = new
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert len(branches.steps) > 30


@pytest.mark.parametrize("seed", SEEDS)
@torch.inference_mode()
def test_a_memory_is_a_value(seed: int) -> None:
    backbone = model("marian", seed)
    state = backbone.go_on(source(seed, 3, 5), State()).state
    assert state is not None
    fast, ids = FastDecoder(backbone), torch.tensor([5, 6, 7])
    start = fast.take_over(state)
    first, after = fast.next(ids, start)
    kept = fast.next(ids, after)[0]
    fast.next(ids + 1, after)
    fast.next(ids + 2, start)
    assert torch.equal(fast.next(ids, start)[0], first)
    assert torch.equal(fast.next(ids, after)[0], kept)


@torch.inference_mode()
def test_a_cache_grows_and_an_answer_has_an_end() -> None:
    backbone = model("marian", 0)
    state = backbone.go_on(source(0, 2, 5), State()).state
    assert state is not None
    fast, ids = FastDecoder(backbone), torch.tensor([5, 6])
    branches: Branches = fast.take_over(state)
    for _ in range(99):
        wanted, state = plain_next(backbone, ids, state)
        found, branches = fast.next(ids, branches)
    assert len(branches.steps) == 100 > ROOM
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(SesameError, match="101 tokens of the answer do not fit"):
        fast.next(ids, branches)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", ["marian", "t5"])
def test_searches_find_the_same(shape: str, seed: int) -> None:
    backbone = model(shape, seed)
    torch.manual_seed(seed)
    head = DecoderHead(32, 90, tied=shape == "marian", scale=1.0 if shape == "marian" else 0.7, bias="fixed")
    head.bias.normal_()
    parts = Parts(backbone, {"seq2seq": head})
    fast, plain = fast_speaker(parts), speaker(parts)
    assert fast is not None
    for settings in (
        Settings(beams=4, best=4, most=15, early="present"),
        Settings(beams=3, most=12, coverage=0.3),
        Settings(most=15),
        Settings(most=12, sample=True, best=3, seed=seed, top_k=20),
    ):
        batch = replace(source(seed, 5, 7), keys=torch.arange(5))
        found, wanted = (generate(each, batch, settings, (2,)) for each in (fast, plain))
        assert [[one.ids for one in some] for some in found] == [[one.ids for one in some] for some in wanted]
        for some, others in zip(found, wanted, strict=True):
            assert [one.logprob for one in some] == pytest.approx([one.logprob for one in others], abs=1e-4)


def test_other_machines_and_precisions_have_the_plain_one() -> None:
    parts = Parts(model("marian", 0).double(), {"seq2seq": DecoderHead(32, 90)})
    assert fast_speaker(parts) is None
