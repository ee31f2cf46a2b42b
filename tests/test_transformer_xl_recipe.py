"""`sesame pretrain transformer-xl`: only memory can know, a crash changes nothing, the folder opens again."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kill_resume import make_text, weights

from sesame.backbones import Encoder, EncoderConfig, TransformerXL, TransformerXLConfig
from sesame.backbones.grow import grow
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.errors import SesameError
from sesame.evaluate.perplexity import Reading, perplexity
from sesame.objectives import Vocab, build
from sesame.objectives.base import Together
from sesame.objectives.clm import CausalLMConfig
from sesame.objectives.mlm import MaskedLMConfig
from sesame.pretraining.run import Wishes, pretrain
from sesame.recipe import resolve
from tests.crashes import crash_while_saving

pytestmark = pytest.mark.usefixtures("one_thread_for_all")

PART, PARTS, WORDS = 4, 3, 8
FILL, ASK = WORDS, WORDS + 1
STEPS, RATE = 150, 1e-3
ROLES = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
SETTINGS = (
    "backbone.width=32", "backbone.depth=2", "backbone.heads=2", "backbone.memory=12", "objectives.clm.part=12",
    "stages.main.length=48", "stages.main.batch=8", "tokenizer.size=300", "optimizer.rate=1e-3",
)  # fmt: skip


def told(rows: int, picks: torch.Generator) -> Batch:
    """A word, then fill; in every later part a question, to which that word is the answer, then fill."""
    word, ask = torch.randint(0, WORDS, (rows, 1), generator=picks), torch.full((rows, 1), ASK)
    fill = torch.full((rows, PART - 1), FILL)
    ids = torch.cat([word, fill, *[ask, word, fill[:, 1:]] * (PARTS - 1)], dim=1)
    return Batch(ids, torch.full((rows,), PART * PARTS), full=True)


def learn(seed: int, part: int) -> tuple[TransformerXL, Together]:
    """Rows in parts with memory; part 0: every part is a row of its own."""
    torch.manual_seed(seed)
    picks = torch.Generator().manual_seed(seed)
    xl = TransformerXL(TransformerXLConfig(WORDS + 2, 32, 2, 2, memory=PART, dropout=0.0, init=0.2))
    clm = build({"clm": CausalLMConfig(plain=True, part=part)}, xl, Vocab(WORDS + 2, ROLES))
    trained = [*xl.parameters(), *clm.parameters()]
    optimizer = torch.optim.AdamW(trained, RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 10, (STEPS - step) / (0.4 * STEPS))
        batch = told(32, picks)
        if part == 0:
            batch = Batch(batch.ids.view(-1, PART), torch.full((32 * PARTS,), PART), full=True)
        [term] = clm(xl, clm.corrupt(batch))
        optimizer.zero_grad()
        (term.total / term.count).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return xl.eval(), clm.eval()


@torch.no_grad()
def at_answers(xl: TransformerXL, clm: Together, seed: int, remember: bool) -> float:
    """The mean loss of the answers."""
    batch = told(256, torch.Generator().manual_seed(1000 + seed))
    state, found = None, []
    for here in torch.split(batch.ids, PART, dim=1):
        encoded = xl(Batch(here, torch.full((256,), PART), full=True), state=state)
        state = encoded.state if remember else None
        found.append(encoded.last[:, 0])
    states, answers = torch.stack(found[1:], dim=1), batch.ids[:, PART + 1 :: PART]
    logits = clm.heads()["mlm"](states, xl.token_table())
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_only_memory_can_know(seed: int) -> None:
    """The answer stands in the part before: with memory it is certain, without nobody can be better than log W."""
    trained = learn(seed, PART)
    assert at_answers(*trained, seed, remember=True) < 0.15
    assert at_answers(*trained, seed, remember=False) > math.log(WORDS) - 0.05
    assert at_answers(*learn(seed, 0), seed, remember=False) > math.log(WORDS) - 0.05


def test_a_part_is_not_shared_and_needs_a_memory() -> None:
    xl, encoder = TransformerXL(TransformerXLConfig(50, 16, 1, 2)), Encoder(EncoderConfig(50, 16, 1, 2, causal=True))
    for config, backbone, why in (
        ({"clm": CausalLMConfig(part=4)}, encoder, "remembers"),
        ({"clm": CausalLMConfig(part=4), "mlm": MaskedLMConfig()}, encoder, "leave the other"),
        ({"mlm": MaskedLMConfig()}, xl, "recipe transformer-xl"),
    ):
        with pytest.raises(SesameError, match=why):
            build(config, backbone, Vocab(50, ROLES))
    with pytest.raises(SesameError, match="part"):
        CausalLMConfig(part=-1)
    assert grow(xl, [[1, 2]]).vocab == 51


@pytest.mark.parametrize("part", [4, 7])
def test_the_loss_in_parts_is_that_of_a_whole_row(part: int) -> None:
    """With nothing forgotten, also for rows of several lengths; in evaluation and in training."""
    torch.manual_seed(part)
    xl = TransformerXL(TransformerXLConfig(50, 16, 2, 2, dropout=0.0)).double()
    batch = Batch(torch.randint(5, 50, (3, 10)), torch.tensor([10, 6, 3]))
    whole, parted = (
        build({"clm": CausalLMConfig(plain=True, part=n)}, xl, Vocab(50, ROLES)).double() for n in (0, part)
    )
    parted.load_state_dict(whole.state_dict())
    for mode in (True, False):
        [one], [other] = (clm.train(mode)(xl.train(mode), clm.corrupt(batch)) for clm in (whole, parted))
        assert float(one.total.detach()) == pytest.approx(float(other.total.detach()), abs=1e-9)
        assert int(one.count) == int(other.count) == 9 + 5 + 2


def test_the_recipe_is_the_papers() -> None:
    recipe = resolve("transformer-xl", size="base")
    assert (recipe.backbone["memory"], recipe.objectives["clm"].part, recipe.steps) == (150, 150, 200_000)
    for size in ("tiny", "mini", "small", "medium", "base", "large"):
        for device in ("cpu", "cuda"):
            for budget in (False, True):
                found = resolve("transformer-xl", size=size, budget=budget, device=device)
                assert all(stage.length % found.objectives["clm"].part == 0 for stage in found.stages.values())


@pytest.mark.slow
def test_a_run_that_crashed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    text = make_text(tmp_path / "text.txt", 40)

    def run(out: str, **more: Any) -> Path:
        wanted: dict[str, Any] = {"settings": SETTINGS, "steps": 8, "save_steps": 3, "device": "cpu"} | more
        return pretrain(Wishes("transformer-xl", [str(text)], tmp_path / out, **wanted))

    final = run("calm")
    with crash_while_saving(after=1):
        run("broken")
    run("broken")
    assert weights(tmp_path / "broken") == weights(tmp_path / "calm")
    parts = load_parts(final)
    assert isinstance(parts.backbone, TransformerXL)
    assert set(parts.heads) == {"mlm"}
    assert parts.unused == []
    given = text.read_text(encoding="utf-8").split("\n\n")[:5]
    one = perplexity(parts, given, Reading(length=12, remember=0))
    other = perplexity(parts, given, Reading(length=29, remember=0))
    assert one.nats == pytest.approx(other.nats, rel=1e-5)
    assert 1 < one.perplexity < 600
    run("further", start=str(final), steps=4)
