"""What a run would be, before an hour is spent: `sesame pretrain ... --dry-run`.

    prepare as usual -> how many rows at a time -> a few steps on the clock -> steps, tokens, passes, time, compute

Tokenizer and token store go into the cache, where the run itself finds them; nothing is written into --out.
The rules of thumb behind the warnings: 20 tokens for each parameter (Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556,
for left-to-right models); text read again is worth little after 4 passes and nothing after 40 (Muennighoff et al. 2023,
https://arxiv.org/abs/2305.16264).
"""

import tempfile
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sesame.backbones.flops import step_memory, weights_memory
from sesame.checkpoint.run import Run
from sesame.data.answer_pack import BucketLoader
from sesame.data.batch import Batch
from sesame.data.loader import Loader
from sesame.errors import SesameError
from sesame.pretraining.mixture import check_mixture, text_files
from sesame.pretraining.prepared import Prepared, prepare
from sesame.pretraining.probe import CPU_TOKENS, Probe, Speed, even, free_memory
from sesame.pretraining.timing import RESERVE
from sesame.pretraining.wishes import Wishes, chosen_recipe
from sesame.progress import say
from sesame.recipe import Stage
from sesame.train.accounting import Account, peak, work_of
from sesame.train.parallel import join
from sesame.train.precision import choose_machine

STEPS = {"cpu": 3, "cuda": 10}  # measured
RULE, FAR = 20, 4  # tokens a parameter, and the factor from which on we call it far
MOST_PASSES = 40
FEW_STEPS = 100
FILLED = 0.8  # of the free memory of a computer


@dataclass(frozen=True)
class StagePlan:
    """A stage of the run as it would be; `most` rows fit at a time (on a CPU: by estimate)."""

    name: str
    length: int
    batch: int
    micro: int
    most: int
    flops_per_token: float
    tokens_per_second: float
    mfu: float | None
    padding: float
    memory: int
    loading: float  # share of a loader thread that the training keeps busy
    steps: int = 0
    tokens: float = 0.0
    passes: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    recipe: str
    device: str
    precision: str
    peak_flops: float | None
    peak_source: str
    parameters: int
    weights_memory: int
    text_tokens: int
    stages: list[StagePlan]
    steps: int
    tokens: float
    passes: float  # over the text
    seconds: float
    flops: float
    settings: list[str]  # what to give to `--set` to train as measured
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def dry_run(wishes: Wishes) -> Plan:
    """Prepare, measure and predict; the run's folder is not touched."""
    with join(wishes.device) as world:
        if world.ranks > 1:
            raise SesameError("--dry-run measures one process; call it without torchrun")
    machine = choose_machine(wishes.device, wishes.precision)
    recipe = replace(chosen_recipe(wishes, machine), table="random")  # counting changes no figure here
    check_mixture(wishes, recipe)
    files = text_files(wishes.text)
    with tempfile.TemporaryDirectory(prefix="sesame-") as scratch:
        folder = Path(scratch) / "run"
        return _Planner(prepare(wishes, recipe, machine, Run(folder, {}), files)).plan()


class _Planner:
    def __init__(self, parts: Prepared) -> None:
        self.parts, self.recipe, self.machine = parts, parts.recipe, parts.machine
        self.cuda = self.machine.device.type == "cuda"
        self.peak = peak(self.machine)
        self.probe = Probe(parts.model, parts.call, parts.optimizer, self.machine, self.recipe.optimizer.clip)
        self.settings: list[str] = []

    def plan(self) -> Plan:
        found = [self._stage(name, stage) for name, stage in self.recipe.stages.items()]
        compiling, looks = sum(one.speed.first for one in found), self._looks(found[0].speed)
        stages = self._spread(found, looks + compiling)
        plan = Plan(
            recipe=self.recipe.name,
            device=self.machine.device.type,
            precision=self.machine.precision,
            peak_flops=self.peak.flops,
            peak_source=self.peak.source,
            parameters=sum(p.numel() for p in self.parts.model.parameters()),
            weights_memory=weights_memory(self.parts.model),
            text_tokens=self.parts.examples.train.tokens(),
            stages=stages,
            steps=sum(stage.steps for stage in stages),
            tokens=sum(stage.tokens for stage in stages),
            passes=sum(stage.passes for stage in stages),
            seconds=sum(stage.seconds for stage in stages) + looks + compiling,
            flops=sum(stage.tokens * stage.flops_per_token for stage in stages),
            settings=self.settings,
            warnings=[],
        )
        return replace(plan, warnings=warnings(plan))

    # ---- one stage -------------------------------------------------------------------------------------------------

    def _stage(self, name: str, stage: Stage) -> "_Measured":
        say(f"a few steps of stage {name} on the clock (of a large model on a CPU: minutes)")
        whole = self.parts.examples.loader(replace(stage, ramp=0), 1)
        rows = sum(map(len, self.parts.examples.packers(self.parts.examples.train, stage)))
        work = self.parts.examples.work(stage, whole)
        account = Account.of(self.parts.model.backbone.config, work, self.machine)

        def loader(batch: int, micro: int) -> Loader:
            return replace(whole, batch=batch, micro=micro)

        batch = stage.batch
        if isinstance(whole, BucketLoader):  # a step has so many places, whatever the number of its rows
            source: Loader = self.parts.examples.loader(stage, self.parts.examples.micro(stage))
            batch = micro = most = whole.usual
        else:
            micro, most = self._micro(name, stage, lambda count: loader(count, count).load(0, self._greediest()))
            source = loader(batch, micro)
        try:
            speed = self.probe.speed(lambda step: source.load(step, 0.5), STEPS["cuda" if self.cuda else "cpu"])
        except torch.OutOfMemoryError:
            raise SesameError(
                f"stages.{name}.micro={micro}: so many rows of {stage.length} tokens do not fit into the memory of this GPU; "
                f"{most} do"
            ) from None
        rate = speed.tokens_per_second
        plan = StagePlan(
            name=name, length=stage.length, batch=batch, micro=micro, most=most, flops_per_token=account.flops,
            tokens_per_second=rate, mfu=account.mfu(rate), padding=speed.padding, memory=speed.memory,
            loading=speed.loading,
        )  # fmt: skip
        return _Measured(plan, speed, replace(source, ramp=stage.ramp), rows, stage.share)

    def _micro(self, name: str, stage: Stage, rows: Callable[[int], list[Batch]]) -> tuple[int, int]:
        """Rows at a time, and how many fit: what the recipe says, else what the run would take unless it is a bad choice."""
        usual = min(stage.micro or self.parts.examples.micro(stage), stage.batch)
        if self.cuda:
            most = self.probe.largest(rows, stage.length, usual)
            micro = even(stage.batch, min(usual, most))
        else:
            most = self._most_by_estimate(name, stage)
            sizes = {min(max(1, tokens // stage.length), stage.batch, most) for tokens in CPU_TOKENS}
            micro = usual if stage.micro else self.probe.fastest(rows, sorted(sizes), min(usual, most))
        if stage.micro:
            return usual, most
        if micro != usual:
            self.settings.append(f"stages.{name}.micro={micro}")
        return micro, most

    def _greediest(self) -> float:
        """The progress at which most tokens are masked."""
        mlm = self.recipe.objectives.get("mlm")
        return 1.0 if mlm is not None and mlm.end_rate > mlm.rate else 0.0

    def _most_by_estimate(self, name: str, stage: Stage) -> int:
        model, free = self.parts.model, FILLED * free_memory()
        work = work_of(self.recipe.objectives, stage.length, self._greediest())
        size = 2 if self.machine.precision == "bf16" else 4
        one, two = (step_memory(model, model.backbone.config, work, rows, size) for rows in (1, 2))
        if one > free:
            raise SesameError(
                f"training needs about {one / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; take a smaller --size "
                f"or a shorter length (--set stages.{name}.length=N)"
            )
        return 1 + int((free - one) / (two - one))

    # ---- the whole run ---------------------------------------------------------------------------------------------

    def _looks(self, speed: Speed) -> float:
        """Seconds of all looks at the held-out text: a forward pass takes a third of a step."""
        wanted = self.recipe.evaluation.tokens or (524_288 if self.cuda else 16_384)
        tokens = min(wanted, self.parts.examples.valid.tokens())
        return (1 / self.recipe.evaluation.every) * tokens / (3 * speed.tokens_per_second)

    def _spread(self, found: "list[_Measured]", besides: float) -> list[StagePlan]:
        """Give each stage its share of the steps, or of the time that `besides` leaves."""
        whole = sum(one.share for one in found)
        stages, done, last = [], 0.0, 0
        for one in found:
            done += one.share / whole
            if self.parts.wishes.budget is None:
                end = round(self.recipe.steps * done)
                steps, last = end - last, end
            else:
                left = max(self.parts.wishes.budget - RESERVE - besides, 1.0)
                steps = one.steps_in(left * one.share / whole)
            stages.append(one.after(steps))
        return stages


@dataclass(frozen=True)
class _Measured:
    """A stage on the clock; the loader knows how many rows so many steps have, also while the batch still grows."""

    plan: StagePlan
    speed: Speed
    loader: Loader
    rows: int  # of the text
    share: float

    def after(self, steps: int) -> StagePlan:
        rows = self.loader.before(steps)
        tokens = rows * self.speed.tokens_per_row
        return replace(
            self.plan,
            steps=steps,
            tokens=tokens,
            passes=rows / self.rows,
            seconds=tokens / self.speed.tokens_per_second,
        )

    def steps_in(self, seconds: float) -> int:
        rows = int(seconds * self.speed.tokens_per_second / self.speed.tokens_per_row)
        return bisect_right(range(rows + 1), rows, key=self.loader.before) - 1


def warnings(plan: Plan) -> list[str]:
    """What looks odd, one sentence each."""
    found = []
    ratio = plan.tokens / plan.parameters
    if plan.steps < FEW_STEPS:
        found.append(f"only {plan.steps:,} steps: take a longer budget, a smaller batch or a smaller --size")
    if plan.passes > MOST_PASSES:
        found.append(
            f"the text is read {plan.passes:,.0f} times: as a rule of thumb a text gives nothing new after "
            f"{MOST_PASSES} passes; bring more text or train shorter"
        )
    elif plan.passes < 1:
        found.append(f"only {100 * plan.passes:.0f} % of the text is read: a longer run would see the rest")
    if not RULE / FAR <= ratio <= RULE * FAR:
        remedy = "a smaller --size or a longer run" if ratio < RULE else "a larger --size or a shorter run"
        found.append(
            f"{ratio:.3g} tokens for each parameter: a rule of thumb (made for left-to-right models) says about {RULE}; "
            f"{remedy} may use the time better"
        )
    for stage in plan.stages:
        if stage.padding > 0.2:
            found.append(
                f"stage {stage.name}: {100 * stage.padding:.0f} % of the places are padding; a shorter length wastes less"
            )
        if stage.loading > (4 if plan.device == "cuda" else 1):
            found.append(f"stage {stage.name}: batches are made more slowly than they are used; the device will wait")
    return found
