"""Left to right: nobody sees what comes, by gradients and by numbers; the loss is that of the next token."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import SETTINGS, make_text, weights

from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.fast import FastEncoder
from sesame.backbones.flops import flops_per_token
from sesame.backbones.work import Work
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.nn.attention import core
from sesame.objectives import Vocab, build
from sesame.objectives.clm import CausalLMConfig
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.pair import DialogueConfig, NextSentenceConfig, SentenceOrderConfig
from sesame.objectives.rtd import ReplacedConfig
from sesame.pretraining.run import Wishes, pretrain
from tests.crashes import crash_while_saving

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
KINDS: list[dict[str, Any]] = [{}, {"positions": "rotary", "order": "pre", "activation": "geglu"}, {"share": "all"}]


def made(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "init": 0.2, "causal": True} | changes
    return Encoder(EncoderConfig(50, 16, 3, 2, max_length=12, **settings)).double()


def ragged(lengths: tuple[int, ...] = (9, 4, 1, 7)) -> Batch:
    torch.manual_seed(1)
    return Batch(torch.randint(5, 50, (len(lengths), max(lengths))), torch.tensor(lengths))


def real(batch: Batch) -> torch.Tensor:
    return torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]


def test_all_cores_equal_eager() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 7, 4, dtype=torch.float64) for _ in range(3))
    wanted, maps = core.eager(q, k, v, None, causal=True)
    assert float(maps.triu(1).abs().max()) == 0.0
    assert torch.allclose(maps.sum(-1), torch.ones(3, 2, 7, dtype=torch.float64))
    alone, _ = core.eager(q[:, :, :4], k[:, :, :4], v[:, :, :4], None, causal=True)
    assert torch.allclose(wanted[:, :, :4], alone, atol=1e-12)  # what comes later changes nothing
    assert torch.allclose(core.sdpa(q, k, v, None, causal=True), wanted, atol=1e-12)
    there = torch.arange(7)[None] < torch.tensor([7, 3, 1])[:, None]
    offsets = torch.tensor([0, 7, 10, 11], dtype=torch.int32)
    flat = [x.transpose(1, 2)[there] for x in (q, k, v)]
    found = core.varlen(*flat, core.EndToEnd(offsets, 7, offsets, 7, causal=True))
    assert torch.allclose(found, wanted.transpose(1, 2)[there], atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU")
def test_the_varlen_kernel_equals_the_padded_way() -> None:
    torch.manual_seed(0)
    offsets = torch.tensor([0, 70, 75, 75, 200], dtype=torch.int32, device="cuda")
    q, k, v = (torch.randn(200, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    rows = core.EndToEnd(offsets, 128, offsets, 128, causal=True)
    found, wanted = core.varlen(q, k, v, rows).float(), core._varlen_padded(q, k, v, rows, 0.0).float()
    assert float((found - wanted).detach().abs().max()) < 0.02
    ours, theirs = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, wanted))
    assert all(float((a - b).abs().max()) < 0.1 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("unpadded", [False, True])
@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_gradients_reach_back_only(changes: dict[str, Any], unpadded: bool) -> None:
    """d state_i / d token_j is 0 exactly where j > i, and only there."""
    encoder, batch = made(**changes), ragged((7, 5))
    table = encoder.embeddings.tokens
    ids = torch.arange(14).view(2, 7) + 5  # every token once: a row of the table is a place
    batch = Batch(ids, batch.lengths)
    states = encoder(batch.unpadded(4) if unpadded else batch).last
    for row, length in enumerate(batch.lengths.tolist()):
        for i in range(length):
            (found,) = torch.autograd.grad(states[row, i, 0], table.weight, retain_graph=True)
            seen = found[ids[row]].abs().amax(1) > 0
            assert seen.tolist() == [j <= i for j in range(7)]
            assert not found[ids[1 - row]].any()  # rows do not meet


@pytest.mark.parametrize("changes", KINDS, ids=str)
@torch.no_grad()
def test_every_way_computes_the_same(changes: dict[str, Any]) -> None:
    encoder, batch = made(**changes).eval(), ragged()
    there, plain = real(batch), encoder(batch)
    for states in (encoder(batch, maps=True).last, encoder(batch.unpadded(4)).last):
        assert torch.allclose(states[there], plain.last[there], atol=1e-12)
    assert len(encoder(batch, maps=True).maps) == 3
    only = torch.tensor([[0, 8, 3], [3, 0, 1], [0, 0, 0], [6, 2, 2]])
    wanted = torch.gather(plain.last, 1, only[:, :, None].expand(-1, -1, 16))
    for limited in (encoder(batch, only), encoder(batch.unpadded(4), only)):
        assert torch.allclose(limited.take(only), wanted, atol=1e-12)
    fast = FastEncoder(encoder.float())
    assert (fast(batch).last[there] - plain.last[there]).abs().max() < 1e-4
    assert (fast(batch, only, last=True).take(only) - wanted).abs().max() < 1e-4


@torch.no_grad()
def test_the_loss_is_that_of_the_next_token() -> None:
    encoder, batch = made().eval(), ragged()
    clm = build({"clm": CausalLMConfig()}, encoder, Vocab(50, ROLES)).double().eval()
    batch = clm.corrupt(batch)
    labels = batch.targets["clm"].labels
    for row, length in enumerate(batch.lengths.tolist()):
        assert labels[row].tolist() == [*batch.ids[row, 1:length].tolist(), *[IGNORE] * (9 - length + 1)]
    head = clm.heads()["mlm"]
    logs = head(encoder(batch).last, encoder.token_table())[..., :50].log_softmax(-1)
    wanted = -sum(
        logs[row, i, int(batch.ids[row, i + 1])] for row, length in enumerate([9, 4, 1, 7]) for i in range(length - 1)
    )
    for given in (batch, batch.unpadded(4)):
        (term,) = clm(encoder, given)
        assert float(term.total) == pytest.approx(float(wanted), abs=1e-9)
        assert (term.name, int(term.count)) == ("clm", 8 + 3 + 0 + 6)
        assert term.hits is not None
    (term,) = clm.train()(encoder, batch)  # through `linear_cross_entropy`
    assert float(term.total) == pytest.approx(float(wanted), abs=1e-9)


def test_who_looks_ahead_is_refused() -> None:
    with pytest.raises(SesameError, match=r"backbone\.causal=true"):
        build({"clm": CausalLMConfig()}, made(causal=False), Vocab(50, ROLES))


@pytest.mark.parametrize("config", [NextSentenceConfig(), SentenceOrderConfig(), DialogueConfig()])
def test_no_first_token_tells_what_follows_it(config: Any) -> None:
    """From left to right [CLS] sees itself alone: NSP stayed at chance for as long as it was trained."""
    name = {NextSentenceConfig: "nsp", SentenceOrderConfig: "sop", DialogueConfig: "dialogue"}[type(config)]
    build({name: config}, made(causal=False), Vocab(50, ROLES))
    with pytest.raises(SesameError, match=rf"objectives\.{name} .* from left to right; set objectives\.{name}=false"):
        build({name: config}, made(), Vocab(50, ROLES))


@pytest.mark.parametrize("config", [MaskedLMConfig(), ReplacedConfig()])
def test_masks_are_for_those_who_see_both_sides(config: Any) -> None:
    """It trained, `fill` refused the result, and `generate` took its head for one that tells the next token."""
    name = {MaskedLMConfig: "mlm", ReplacedConfig: "rtd"}[type(config)]
    build({name: config}, made(causal=False), Vocab(50, ROLES))
    with pytest.raises(SesameError, match=rf"objectives\.{name} .* set objectives\.{name}=false and objectives\.clm"):
        build({name: config}, made(), Vocab(50, ROLES))


def test_a_chosen_place_knows_its_left_side_only() -> None:
    encoder, batch = made(), ragged((9, 9))
    mlm = build({"mlm": MaskedLMConfig()}, made(causal=False), Vocab(50, ROLES)).double()
    batch = mlm.corrupt(Batch(batch.ids, batch.lengths, keys=torch.arange(2)))
    at = batch.targets["mlm"].at
    assert at is not None
    (found,) = torch.autograd.grad(
        encoder(batch, mlm.looks_at(batch)).last[0, 0, 0], encoder.embeddings.positions.weight
    )  # type: ignore[union-attr]
    assert (found.abs().amax(1) > 0).tolist()[:9] == [place <= int(at[0, 0]) for place in range(9)]


def test_half_of_the_scores_cost_half() -> None:
    both, left = (EncoderConfig(1000, 64, 4, 4, causal=causal) for causal in (False, True))
    work = Work(128)
    saved = 6 * 4 * 2 * 64 * (128 - 129 / 2)  # a token: four layers, scores and mixing
    assert flops_per_token(both, work) - flops_per_token(left, work) == pytest.approx(saved)
    assert flops_per_token(left, Work(128, 0.15)) > flops_per_token(both, Work(128, 0.15))  # all places are computed


@pytest.mark.slow
def test_a_run_that_crashed_goes_on_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe end to end; transformers' BERT is not left to right, so the folder is of our own kind."""
    text = make_text(tmp_path / "text.txt", 40)

    def run(out: str) -> Path:
        return pretrain(
            Wishes("bert-ltr", [str(text)], tmp_path / out, settings=SETTINGS, steps=8, save_steps=3, device="cpu")
        )

    final = run("calm")
    parts = load_parts(final)
    assert parts.backbone.config.causal
    assert set(parts.heads) == {"mlm"}
    with crash_while_saving(after=1):
        run("broken")
    run("broken")
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
