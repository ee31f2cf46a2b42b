"""How long is one training step of BERT-mini on a CPU, here and in transformers?

    python benchmarks/train_step.py [--steps 9] [--write]

Masked language modelling, 4 layers of 256, vocabulary 30522, 32 rows of 128 tokens, fp32, gradients clipped at 1.0,
AdamW. The sides start from the same weights, get the same tokens and take turns (A B C A B C ...), each in a process of
its own, so that whatever else the machine does hits them alike; a step that other processes disturbed is measured again;
medians are compared. Before the clock starts, the losses and the gradients of both are checked
to be equal.

- transformers: `BertForMaskedLM` and `torch.optim.AdamW` with their defaults, labels -100 where nothing is asked. Its
  batch is corrupted beforehand: the clock does not count that.
- transformers, tuned: the same with eager attention and fused AdamW, the fastest that its user gets by settings.
- sesame: `take_step`, the step of the training loop; its corruption is counted.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM
from transformers.utils import logging

import report
from sesame import chance
from sesame.checkpoint.loading import load_parts
from sesame.data.batch import Batch
from sesame.objectives import Vocab
from sesame.objectives import build as build_objectives
from sesame.objectives.mlm import MaskedLMConfig
from sesame.objectives.model import Model
from sesame.train.loop import Window, take_step
from sesame.train.optim import OptimConfig, build_optimizer
from sesame.train.precision import Machine, choose_machine
from sesame.train.step import count_targets, step_loss

VOCAB, ROWS, LENGTH = 30522, 32, 128
NOISE = 0.03  # share of a step's time that its threads may wait for other processes
ROLES = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
CPU = Machine(torch.device("cpu"), "fp32")
Step = Callable[[int], None]
SIDES = ("transformers", "transformers, tuned", "sesame")


def text(step: int) -> Batch:
    """Full rows of random tokens, the same for both sides."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(1000, VOCAB, (ROWS, LENGTH), generator=generator)
    ids[:, 0], ids[:, -1] = ROLES["cls"], ROLES["sep"]
    keys = torch.randint(0, 2**62, (ROWS,), generator=generator)
    return Batch(ids, torch.full((ROWS,), LENGTH), keys=keys, full=True)


def their_inputs(batch: Batch) -> dict[str, torch.Tensor]:
    """A corrupted batch of ours as `BertForMaskedLM` takes it."""
    targets = batch.targets["mlm"]
    assert targets.at is not None
    labels = torch.full_like(batch.ids, -100).scatter(1, targets.at, targets.labels)
    return {"input_ids": batch.ids, "attention_mask": torch.ones_like(batch.ids), "labels": labels}


def build_theirs(dropout: float, attention: str) -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation=attention,
    )
    return BertForMaskedLM(config)


def build_ours(theirs: BertForMaskedLM) -> Model:
    """Our model with their weights, through a folder."""
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        parts = load_parts(Path(folder))
    objective = build_objectives({"mlm": MaskedLMConfig()}, parts.backbone, Vocab(VOCAB, ROLES))
    objective.heads()["mlm"].load_state_dict(parts.heads["mlm"].state_dict())
    return Model(parts.backbone, objective)


def check_equal(theirs: BertForMaskedLM, ours: Model) -> str:
    """The same loss and the same gradients on one corrupted batch, without dropout; else nothing can be compared."""
    theirs.eval()
    ours.eval()
    batch = ours.objective.corrupt(text(0))
    their_loss = theirs(**their_inputs(batch)).loss
    our_loss = step_loss(ours(batch), count_targets([batch]))
    their_loss.backward()
    our_loss.backward()
    norms = [
        float(torch.nn.utils.get_total_norm([p.grad for p in m.parameters() if p.grad is not None]))
        for m in (theirs, ours)
    ]
    losses = [loss.item() for loss in (their_loss, our_loss)]
    apart = abs(losses[0] - losses[1])
    if apart > 1e-4 or abs(norms[0] - norms[1]) > 1e-4 * norms[0]:
        raise SystemExit(f"the two compute different things: losses {losses}, gradient norms {norms}")
    theirs.zero_grad()
    ours.zero_grad()
    masked = int(count_targets([batch])["mlm"])
    return (
        f"before: losses {losses[0]:.6f} and {losses[1]:.6f} ({apart:.1e} apart), "
        f"gradient norms {norms[0]:.5f} and {norms[1]:.5f}, {masked} of {ROWS * LENGTH} tokens masked"
    )


def their_step(model: BertForMaskedLM, corrupt: Callable[[Batch], Batch], fused: bool) -> tuple[Step, Step]:
    """What happens before the clock, and the step itself."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused or None)
    model.train()
    ready: dict[str, torch.Tensor] = {}

    def prepare(step: int) -> None:
        ready.update(their_inputs(corrupt(text(step))))

    def run(step: int) -> None:
        optimizer.zero_grad()
        model(**ready).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return prepare, run


def our_step(model: Model) -> tuple[Step, Step]:
    optimizer = build_optimizer(model, OptimConfig())
    model.train()
    ready: list[Batch] = []

    def prepare(step: int) -> None:
        ready[:] = [text(step)]

    def run(step: int) -> None:
        batches = [model.objective.corrupt(batch) for batch in ready]
        take_step(model, model, optimizer, batches, 1.0, CPU, chance.key(0, step), Window())

    return prepare, run


_running: tuple[Step, Step]


def _start(side: str, dropout: float, threads: int) -> None:
    """In the process of one side: make the model and its step, with the allocator that its users have."""
    global _running
    torch.set_num_threads(threads)
    quiet()
    theirs = build_theirs(dropout, "eager" if side == "transformers, tuned" else "sdpa")
    ours = build_ours(theirs)
    if side == "sesame":
        choose_machine("cpu")
        _running = our_step(ours)
    else:
        _running = their_step(theirs, ours.objective.corrupt, fused=side == "transformers, tuned")


def _timed(step: int) -> tuple[float, float]:
    """Seconds of a step, and the share of them that its threads waited for other processes."""
    prepare, run = _running
    prepare(step)
    waited, began = report.waited(), time.perf_counter()
    run(step)
    seconds = time.perf_counter() - began
    return seconds, (report.waited() - waited) / seconds


def measure(dropout: float, steps: int, threads: int, patience: float) -> dict[str, list[float]]:
    """Seconds of each timed step of each side; the sides take turns, each in a process of its own."""
    deadline = time.monotonic() + patience
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    with ExitStack() as stack:
        pools = {
            name: stack.enter_context(
                ProcessPoolExecutor(1, get_context("spawn"), initializer=_start, initargs=(name, dropout, threads))
            )
            for name in SIDES
        }
        for step in range(1, steps + 3):
            for name, pool in pools.items():
                seconds, share = pool.submit(_timed, step).result()
                while step > 2 and share > NOISE:
                    if time.monotonic() > deadline:
                        raise SystemExit(f"a step waited {share:.0%} of its time for others; measure on a calm machine")
                    time.sleep(1)
                    seconds, share = pool.submit(_timed, step).result()
                if step > 2:  # the first two warm up
                    found[name].append(seconds)
    return found


def compare(dropout: float, steps: int, threads: int, patience: float) -> tuple[list[list[str]], float]:
    theirs = build_theirs(dropout, "sdpa")
    print(f"dropout {dropout:g}; {check_equal(theirs, build_ours(theirs))}")
    found = measure(dropout, steps, threads, patience)
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    rows = [
        [
            f"{dropout:g}",
            name,
            f"{middle[name]:.3f}",
            f"{min(seconds):.3f} to {max(seconds):.3f}",
            f"{ROWS * LENGTH / middle[name]:,.0f}",
            f"{middle['transformers'] / middle[name]:.2f}",
        ]
        for name, seconds in found.items()
    ]
    return rows, middle["transformers"] / middle["sesame"]


def quiet() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one training step, here and in transformers.")
    parser.add_argument("--steps", type=int, default=9, help="timed steps of each side")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for a calm machine")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    quiet()
    rows = []
    for dropout in (0.1, 0.0):
        found, ratio = compare(dropout, options.steps, options.threads, options.patience)
        rows += found
        print(f"dropout {dropout:g}: sesame is {ratio:.2f} times as fast")
    head = ["dropout", "side", "median s a step", "range", "tokens/s", "times as fast"]
    shown = (
        f"{report.machine()}; {options.threads} threads, medians of {options.steps} steps\n\n{report.table(head, rows)}"
    )
    print(shown)
    if options.write:
        report.put("train_step", shown)


if __name__ == "__main__":
    main()
