"""Replaced-token detection: what is masked, sampled, asked and counted; what two networks share and what they do not."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sesame import chance
from sesame.backbones import Encoder, EncoderConfig
from sesame.backbones.smaller import smaller
from sesame.data.batch import IGNORE, Batch
from sesame.errors import SesameError
from sesame.objectives import Vocab, build
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.objectives.rtd import Replaced, ReplacedConfig, sample
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine
from sesame.train.shadow import Shadow
from sesame.train.step import clip_gradients, count_targets, one_step, paces, step_loss
from tests.languages import Topics
from tests.replaced_runs import learn

ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SIZE = 90
CPU = Machine(torch.device("cpu"), "fp32")


def small(dtype: torch.dtype = torch.float64, vocab: int = SIZE, dropout: float = 0.0, **settings: float) -> Model:
    torch.manual_seed(0)
    backbone = Encoder(
        EncoderConfig(
            vocab, 32, 2, 4, max_length=40, embedding_width=24, dropout=dropout, attention_dropout=dropout, init=0.2
        )
    )
    config = ReplacedConfig(**settings)  # type: ignore[arg-type]
    return Model(backbone, build({"rtd": config}, backbone, Vocab(vocab, ROLES))).to(dtype)


def rtd_of(model: nn.Module) -> Replaced:
    assert isinstance(model, Model)
    found = model.objective.parts["rtd"]
    assert isinstance(found, Replaced)
    return found


def rows(count: int, length: int, ragged: bool = False, seed: int = 0, size: int = SIZE) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, size, (count, length), generator=generator)
    lengths = torch.randint(3, length + 1, (count,), generator=generator) if ragged else torch.full((count,), length)
    ids[:, 0] = ROLES["cls"]
    ids[torch.arange(count), lengths - 1] = ROLES["sep"]
    ids[torch.arange(length)[None] >= lengths[:, None]] = ROLES["pad"]
    keys = torch.tensor([chance.key(seed, row) >> 1 for row in range(count)])
    return Batch(ids, lengths, keys=keys)


def real(batch: Batch) -> Tensor:
    return torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]


# ---- what the two networks see --------------------------------------------------------------------------------------


def test_15_percent_are_chosen_and_85_percent_of_those_masked() -> None:
    batch = rows(2000, 40)
    after = rtd_of(small()).corrupt(batch)
    targets = after.targets["mlm"]
    assert targets.at is not None
    assert int(targets.count()) == 2000 * 6  # round(0.15 * 40)
    seen = torch.gather(after.ids, 1, targets.at)
    assert (seen == ROLES["mask"]).float().mean() == pytest.approx(0.85, abs=0.01)
    assert torch.equal(seen == targets.labels, seen != ROLES["mask"])  # the rest stays: no random tokens
    assert int(targets.labels.min()) >= 5  # never a special
    assert torch.equal(after.targets["rtd"].labels, batch.ids)


def test_samples_follow_the_generators_softmax() -> None:
    """Chi-squared of 200,000 draws from one distribution with 20 kinds: 99.9 % of honest samplers stay below 45."""
    logits = torch.randn(20, generator=torch.Generator().manual_seed(1)) * 1.5
    draws = chance.uniform_tensor(torch.arange(1000), "test", 200).flatten()
    found = torch.bincount(sample(logits.expand(len(draws), -1), draws), minlength=20)
    wanted = logits.softmax(0) * len(draws)
    assert float(((found - wanted).square() / wanted).sum()) < 45
    sure = torch.full((3, 8), -torch.inf)
    sure[:, 5] = 0.0
    assert sample(sure, torch.tensor([0.0, 0.5, 1 - 2**-53])).tolist()[:2] == [5, 5]


@torch.no_grad()
def test_only_chosen_places_change_and_only_others_are_called_replaced() -> None:
    model = small()
    objective = rtd_of(model)
    batch = rows(200, 40, ragged=True)
    masked = objective.corrupt(batch)
    filled, (term,) = objective.before(masked)
    targets = masked.targets["mlm"]
    assert targets.at is not None
    chosen = torch.zeros_like(batch.ids).scatter_add(1, targets.at, (targets.labels != IGNORE).long()).bool()
    assert torch.equal(filled.ids[~chosen], batch.ids[~chosen])
    assert not (filled.ids[chosen] == ROLES["mask"]).all()
    assert filled.ids.max() < SIZE  # never a padding row of the table
    (answer,) = objective.terms(model.backbone(filled), model.backbone)
    replaced, of = answer.figures["replaced"].tolist()
    assert of == int(batch.lengths.sum()) == int(answer.count)  # [CLS] and [SEP] are asked too, padding is not
    assert replaced == int((filled.ids != batch.ids).sum())
    lucky = chosen & (filled.ids == batch.ids)
    assert int(lucky.sum()) > 0
    assert replaced == int(chosen.sum() - lucky.sum())
    assert (term.name, term.weight, answer.name, answer.weight) == ("mlm", 1.0, "rtd", 50.0)


@torch.no_grad()
def test_losses_are_those_of_the_definition() -> None:
    model = small().eval()
    objective = rtd_of(model)
    batch = objective.corrupt(rows(7, 33, ragged=True))
    mlm, rtd = model(batch)
    filled, _ = objective.before(batch)
    targets, original = batch.targets["mlm"], batch.targets["rtd"].labels
    assert targets.at is not None
    logits = objective.mlm.head(objective.generator(batch).last, model.backbone.token_table())[..., :SIZE].log_softmax(
        -1
    )
    scores = objective.head(model.backbone(filled).last).sigmoid()
    wanted, asked = 0.0, 0.0
    for row in range(7):
        for at, label in zip(targets.at[row].tolist(), targets.labels[row].tolist(), strict=True):
            wanted -= float(logits[row, at, label]) if label != IGNORE else 0.0
        for at in range(int(batch.lengths[row])):
            p = float(scores[row, at])
            asked -= float(torch.tensor(p if filled.ids[row, at] != original[row, at] else 1 - p).log())
    assert float(mlm.total) == pytest.approx(wanted, abs=1e-9)
    assert float(rtd.total) == pytest.approx(asked, rel=1e-6)
    loose = model(batch.unpadded(8))
    assert float(loose[0].total) == pytest.approx(float(mlm.total), abs=1e-9)
    assert float(loose[1].total) == pytest.approx(float(rtd.total), abs=1e-9)


@torch.no_grad()
def test_padding_never_leaks() -> None:
    model = small().train()
    objective = rtd_of(model)
    batch = objective.corrupt(rows(9, 30, ragged=True))
    other = replace(batch, ids=torch.where(real(batch), batch.ids, 77))
    wide = replace(batch, ids=nn.functional.pad(batch.ids, (0, 7), value=50))
    wide = wide.with_targets(
        rtd=replace(batch.targets["rtd"], labels=nn.functional.pad(batch.targets["rtd"].labels, (0, 7), value=IGNORE))
    )
    for term, changed, wider in zip(model(batch), model(other), model(wide), strict=True):
        assert float(changed.total) == pytest.approx(float(term.total), abs=1e-10)
        assert float(wider.total) == pytest.approx(float(term.total), abs=1e-10)
        for name, figure in term.figures.items():
            assert torch.equal(changed.figures[name], figure)
            assert torch.equal(wider.figures[name], figure)


# ---- what they learn from -------------------------------------------------------------------------------------------


def gradients(model: Model, batches: list[Batch], only: str = "") -> dict[str, Tensor]:
    model.zero_grad()
    counts = count_targets(batches)
    for batch in batches:
        step_loss([term for term in model(batch) if only in term.name], counts).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_no_gradient_flows_through_the_sampling() -> None:
    model = small()
    batch = rtd_of(model).corrupt(rows(16, 30))
    from_answers = gradients(model, [batch], "rtd")
    assert not [name for name in from_answers if ".generator." in name or ".mlm." in name]
    assert "objective.parts.rtd.head.dense.weight" in from_answers
    assert (
        float(from_answers["backbone.embeddings.tokens.weight"].abs().max()) > 0
    )  # as the discriminator's, not by samples
    from_filling = gradients(model, [batch], "mlm")
    assert not [name for name in from_filling if name.startswith("backbone.blocks") or ".rtd.head" in name]
    assert float(from_filling["backbone.embeddings.tokens.weight"].abs().max()) > 0


def test_4_batches_of_8_equal_1_of_32() -> None:
    model = small()
    whole = rows(32, 36, ragged=True)
    assert whole.keys is not None
    pieces = [
        Batch(whole.ids[at : at + 8], whole.lengths[at : at + 8], keys=whole.keys[at : at + 8])
        for at in range(0, 32, 8)
    ]
    corrupt = model.objective.corrupt
    large, parts = gradients(model, [corrupt(whole)]), gradients(model, [corrupt(piece) for piece in pieces])
    assert large.keys() == parts.keys()
    assert max(float((large[name] - parts[name]).abs().max()) for name in large) < 1e-12


def test_tables_are_one_tensor_also_in_copies() -> None:
    for model in (small(), deepcopy(small()), small().to(torch.bfloat16), Shadow(small(torch.float32)).copy):
        ours, theirs = model.backbone.embeddings, rtd_of(model).generator.embeddings  # type: ignore[union-attr]
        for name in ("tokens", "positions", "segments", "norm"):
            assert getattr(ours, name).weight is getattr(theirs, name).weight
        assert ours.project.weight is not theirs.project.weight  # type: ignore[union-attr]
        names = [name for name, _ in model.named_parameters() if name.endswith("tokens.weight")]
        assert names == ["backbone.embeddings.tokens.weight"]  # trained and saved once


def test_the_generator_has_the_authors_sizes() -> None:
    small = smaller(EncoderConfig(30522, 256, 12, 4, inner=1024, embedding_width=128), 0.25, 1.0)
    assert (small.width, small.depth, small.heads, small.inner, small.embedding_width) == (64, 12, 1, 256, 128)
    base = smaller(EncoderConfig(30522, 768, 12, 12), 0.33333, 1.0)
    assert (base.width, base.depth, base.heads, base.inner, base.embedding_width) == (256, 12, 4, 1024, 768)
    odd = smaller(EncoderConfig(100, 60, 5, 6), 0.35, 0.5)  # 21 = 60 * 0.35 does not divide by 2 heads
    assert (odd.width, odd.depth, odd.heads) == (21, 2, 1)


def test_gradients_are_clipped_apart() -> None:
    """The generator's own gradient does not depend on how heavy the discriminator's loss is; clipped together it does."""

    def norms(weight: float, apart: bool) -> tuple[float, float]:
        model = small(weight=weight, clip_apart=apart)
        objective = rtd_of(model)
        gradients(model, [objective.corrupt(rows(16, 30))])
        before = float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())
        assert float(clip_gradients(model, 1.0)) == pytest.approx(before)
        own = [p for name, p in model.named_parameters() if ".generator." in name or ".mlm." in name]
        rest = [p for p in model.parameters() if all(p is not other for other in own)]
        return tuple(float(torch.stack([p.grad.norm() for p in g if p.grad is not None]).norm()) for g in (own, rest))  # type: ignore[return-value]

    apart, together = norms(5000.0, True), norms(5000.0, False)
    assert apart == pytest.approx((min(1.0, norms(0.0, True)[0]), 1.0), rel=1e-4)
    assert together[0] < 0.1 * apart[0]
    assert torch.tensor(together).norm() == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_generator_may_have_a_rate_of_its_own(kind: str) -> None:
    """Its weights move so many times as far in a step; all others, shared tables among them, as they would."""

    def moved(factor: float) -> dict[str, torch.Tensor]:
        model = small(generator_rate=factor).train()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = build_optimizer(model, OptimConfig(kind, decay=0.0), paces(model))  # type: ignore[arg-type]
        optimizer.set_rate(1e-3)
        batches = [rtd_of(model).corrupt(rows(8, 30))]
        one_step(model, model, optimizer, batches, count_targets(batches), 1.0, CPU)
        return {name: p.detach() - before[name] for name, p in model.named_parameters()}

    plain, fast = moved(1.0), moved(4.0)
    for name, step in plain.items():
        own = ".generator." in name or ".mlm." in name
        assert torch.allclose(fast[name], 4 * step if own else step, atol=1e-9), name
    assert any(".generator." in name for name in plain)
    with pytest.raises(SesameError, match="generator_rate is 0"):
        ReplacedConfig(generator_rate=0.0)


def test_a_step_tells_the_figures_of_all_micro_batches() -> None:
    model = small(torch.float32).train()
    batches = [rtd_of(model).corrupt(rows(8, 30, ragged=True, seed=seed)) for seed in (1, 2)]
    counts = count_targets(batches)
    optimizer = build_optimizer(model, OptimConfig())
    told = one_step(model, model, optimizer, batches, counts, 1.0, CPU)
    found = dict(zip(told.names, told.values.tolist(), strict=True))
    assert {name for kind, name in found if kind == "part"} == {
        "mlm_accuracy",
        "replaced",
        "rtd_recall",
        "rtd_precision",
    }
    assert found["of", "mlm_accuracy"] == found["count", "mlm"] == float(counts["mlm"])
    tokens = sum(int(batch.lengths.sum()) for batch in batches)
    assert found["of", "replaced"] == found["count", "rtd"] == found["tokens", ""] == tokens
    assert found["of", "rtd_recall"] == found["part", "replaced"]
    assert found["part", "rtd_recall"] == found["part", "rtd_precision"]


@pytest.mark.slow
def test_it_compiles_to_one_graph() -> None:
    """No number comes back to Python on the way, so a GPU never waits."""
    model = small(torch.float32).train()
    batch = rtd_of(model).corrupt(rows(4, 24))
    torch.manual_seed(0)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    for plain, fast in zip(model(batch), compiled(batch), strict=True):
        assert float(fast.total.detach()) == pytest.approx(float(plain.total.detach()), rel=1e-5)
        assert set(fast.figures) == set(plain.figures)


def test_bad_settings_are_told() -> None:
    for settings in ({"rate": 0.0}, {"rate": 1.0}, {"generator_width": 2.0}, {"mask": -0.1}, {"weight": -1.0}):
        with pytest.raises(SesameError, match=r"objectives\.rtd"):
            ReplacedConfig(**settings)  # type: ignore[arg-type]
    backbone = Encoder(EncoderConfig(10, 8, 1, 1))
    with pytest.raises(SesameError, match="mask token"):
        build({"rtd": ReplacedConfig()}, backbone, Vocab(10, {"pad": 0, "cls": 1, "sep": 2}))
    with pytest.raises(SesameError, match=r"leave objectives\.mlm out"):
        build({"rtd": ReplacedConfig(), "mlm": MaskedLMConfig()}, backbone, Vocab(10, ROLES))


# ---- what is learnt -------------------------------------------------------------------------------------------------


def counting(documents: int, words: list[str]) -> str:
    """Every row counts up from somewhere, round and round: a wrong word cannot hide."""
    luck = torch.Generator().manual_seed(0)
    found = []
    for start in torch.randint(len(words), (documents,), generator=luck).tolist():
        run = [words[(start + at) % len(words)] for at in range(66)]
        found.append("\n".join(" ".join(run[at : at + 11]) for at in range(0, 66, 11)))
    return "\n\n".join(found) + "\n"


@pytest.mark.slow
def test_replaced_tokens_are_found_where_they_can_be(tmp_path: Path) -> None:
    """The generator learns nothing here (weight 0), so it writes nonsense into a text that leaves no freedom."""
    words = [f"w{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)]
    config = ReplacedConfig(mlm_weight=0.0, patience=0)
    found = learn(counting(600, words), words, tmp_path, config, 300, 5e-3).figures
    assert found["replaced"] > 0.14
    assert found["rtd_recall"] > 0.95
    assert found["rtd_precision"] > 0.95
    assert found["rtd_average_precision"] > 0.98


@pytest.mark.slow
def test_the_generator_comes_within_3_percent_of_its_optimum(tmp_path: Path) -> None:
    """A topic's six words are drawn evenly: log 6 for each hidden one, nothing for one that stayed."""
    topics = Topics(4, 6)
    config = ReplacedConfig(generator_width=1.0, patience=0)
    result = learn(topics.text(600, 6, 11, seed=1), topics.words, tmp_path, config, 500, 5e-3)
    targets = result.batch.targets["mlm"]
    assert targets.at is not None
    hidden = (torch.gather(result.batch.ids, 1, targets.at) == ROLES["mask"]) & (targets.labels != IGNORE)
    best = math.log(6) * float(hidden.sum() / targets.count())
    assert best * 0.99 < result.figures["mlm"] < best * 1.03, f"{result.figures['mlm']:.4f}, optimum {best:.4f}"
