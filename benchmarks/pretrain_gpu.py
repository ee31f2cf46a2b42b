"""How many tokens a second does masked pre-training take on one GPU, here and in transformers?

    python benchmarks/pretrain_gpu.py OUT [--only base] [--steps 30]
    python benchmarks/pretrain_gpu.py --table OUT/pretrain_gpu.jsonl [--write]

Full rows of random tokens, 15 % masked, vocabulary 30,522, gradients clipped at 1.0, fused AdamW; the batch is made before
the clock starts. Each side runs in a process of its own. A few at a time take their first step, which compiles; then they
are timed one after the other, each with the GPU to itself. The best of three rounds counts. Our own compilation of the
first shape is timed before that: alone with an empty cache, and once more with a full one.

- transformers: `BertForMaskedLM` under bf16 autocast with fp32 weights, as it is and with torch.compile.
- sesame: `take_step`, the step of the training loop, on BERT as the paper has it (norms last, biases, exact GELU, tied head).
"""

import argparse
import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VOCAB = 30522
ROLES = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
ROOMS = 10  # of the card's memory: a large model takes three of them, a small one two
Step = Callable[[], None]


@dataclass(frozen=True)
class Case:
    name: str
    side: str
    depth: int
    width: int
    length: int
    batch: int
    dropout: float = 0.0


SHAPES = {
    "base 128": (12, 768, 128, 768),
    "base 512": (12, 768, 512, 192),
    "12 x 256": (12, 256, 128, 1024),
    "4 x 256": (4, 256, 128, 2048),
}
PEERS = ("transformers", "transformers, compiled")


def cases() -> list[Case]:
    found = [Case(name, "sesame", *shape) for name, shape in SHAPES.items()]
    found += [Case(name, "sesame", *SHAPES[name], dropout=0.1) for name in ("base 128", "base 512")]
    # transformers computes all logits: half the rows fit well, and more make it no faster.
    return found + [Case(n, side, d, w, x, min(b // 2, 512)) for n, (d, w, x, b) in SHAPES.items() for side in PEERS]


class Meeting:
    """Processes that share a GPU: a few at a time are there, and one is timed when all of them have compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def room(self, wanted: int) -> Iterator[None]:
        """A share of the memory: `wanted` of ROOMS."""
        with ExitStack() as held:
            while not self._take(wanted, held):
                time.sleep(0.1 + 0.2 * random.random())
            yield

    def _take(self, wanted: int, held: ExitStack) -> bool:
        with ExitStack() as found:
            for number in range(ROOMS):
                handle = found.enter_context((self.folder / f"room{number}").open("w"))
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue
                wanted -= 1
                if wanted == 0:
                    held.enter_context(found.pop_all())
                    return True
        return False

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """Many may compile together; who is timed has the GPU alone."""
        with (self.folder / "turn").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


# ---- the sides ---------------------------------------------------------------------------------------------------------


def theirs(case: Case) -> Step:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCAB, hidden_size=case.width, num_hidden_layers=case.depth, num_attention_heads=case.width // 64,
        intermediate_size=4 * case.width, hidden_dropout_prob=case.dropout, attention_probs_dropout_prob=case.dropout,
    )  # fmt: skip
    model = BertForMaskedLM(config).cuda().train()
    ids = torch.randint(1000, VOCAB, (case.batch, case.length), device="cuda")
    labels = torch.where(torch.rand(ids.shape, device="cuda") < 0.15, ids, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    call = torch.compile(model) if case.side.endswith("compiled") else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = call(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def ours(case: Case) -> Step:
    import torch

    from sesame.backbones import Encoder, EncoderConfig
    from sesame.data.batch import Batch
    from sesame.objectives import Vocab, build
    from sesame.objectives.mlm import MaskedLMConfig
    from sesame.objectives.model import Model
    from sesame.train.compute import computing
    from sesame.train.loop import Window, take_step
    from sesame.train.optim import OptimConfig, build_optimizer
    from sesame.train.precision import choose_machine

    machine = choose_machine("cuda", "bf16")
    config = EncoderConfig(
        VOCAB, case.width, case.depth, case.width // 64, dropout=case.dropout, attention_dropout=case.dropout
    )
    backbone = Encoder(config)
    objective = build({"mlm": MaskedLMConfig()}, backbone, Vocab(VOCAB, ROLES))
    model = Model(backbone, objective).cuda().train()
    ids = torch.randint(1000, VOCAB, (case.batch, case.length))
    ids[:, 0], ids[:, -1] = ROLES["cls"], ROLES["sep"]
    keys = torch.randint(0, 2**62, (case.batch,))
    rows = Batch(ids, torch.full((case.batch,), case.length), keys=keys, full=True)
    batch = objective.corrupt(rows).to(machine.device)
    optimizer, call = build_optimizer(model, OptimConfig()), computing(model, machine, compiled=True)
    return lambda: take_step(model, call, optimizer, [batch], 1.0, machine, 0, Window())


def measure(case: Case, steps: int, meeting: Meeting) -> dict[str, Any]:
    import torch

    with meeting.room(3 if case.width > 256 else 2):  # until the process ends: so long does it hold its memory
        began = time.monotonic()
        torch.set_float32_matmul_precision("high")
        torch.manual_seed(0)
        with meeting.turn(alone=False):
            step = ours(case) if case.side.startswith("sesame") else theirs(case)
            step()
            torch.cuda.synchronize()
        first = time.monotonic() - began
        with meeting.turn(alone=True):
            return rate(case, step, steps, first)


def rate(case: Case, step: Step, steps: int, first: float) -> dict[str, Any]:
    import torch

    rounds = []
    for number in range(4):  # the first one warms up
        began = time.monotonic()
        for _ in range(max(1, steps // 3)):
            step()
        torch.cuda.synchronize()
        rounds.append((time.monotonic() - began) / max(1, steps // 3))
        if number and steps < 3:
            break
    best = min(rounds[1:])
    return {
        **asdict(case),
        "tokens_per_second": case.batch * case.length / best,
        "step_ms": 1e3 * best,
        "first_step_s": first,
        "memory_gb": torch.cuda.max_memory_allocated() / 2**30,
    }


# ---- all of them -------------------------------------------------------------------------------------------------------


def start(case: Case, steps: int, cache: str, meeting: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    command += ["--steps", str(steps), "--meet", str(meeting)]
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def run_all(out: Path, steps: int, only: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in cases() if case.name.startswith(only)]
    with tempfile.TemporaryDirectory() as cache, (out / "pretrain_gpu.jsonl").open("w") as handle:
        meeting = Path(cache, "meeting")
        meeting.mkdir()
        for start_kind in ("cold", "warm"):  # alone, so that compilation can be timed
            found = result(start(chosen[0], 1, cache, meeting))
            handle.write(json.dumps({**found, "side": f"sesame, {start_kind} start"}) + "\n")
            handle.flush()
        for process in [start(case, steps, cache, meeting) for case in chosen]:
            handle.write(json.dumps(result(process)) + "\n")
            handle.flush()


def flops(line: dict[str, Any]) -> float:
    """Useful ones of a token: no logits but those of masked places, whatever a side computes."""
    from sesame.backbones import EncoderConfig
    from sesame.backbones.flops import flops_per_token
    from sesame.backbones.work import Work

    config = EncoderConfig(VOCAB, line["width"], line["depth"], line["width"] // 64)
    return flops_per_token(config, Work(line["length"], masked=0.15))


def table(lines: list[dict[str, Any]]) -> str:
    import report
    from sesame.train.accounting import known_peak

    peak = known_peak("NVIDIA H200", "bf16").flops or 1.0
    eager = {line["name"]: line["tokens_per_second"] for line in lines if line.get("side") == "transformers"}
    rows = []
    for line in lines:
        if line.get("side", "start").endswith("start"):
            continue
        rate = line["tokens_per_second"]
        rows.append([
            line["name"], f"{line['dropout']:g}", line["side"], f"{line['batch']}", f"{rate / 1e3:,.0f}",
            f"{rate / eager[line['name']]:.2f}", f"{rate * flops(line) / peak:.0%}", f"{line['memory_gb']:.0f} GB",
        ])  # fmt: skip
    head = [
        "shape",
        "dropout",
        "side",
        "rows",
        "thousand tokens/s",
        "times transformers",
        "MFU",
        "memory",
    ]
    starts = {line["side"]: line["first_step_s"] for line in lines if line.get("side", "").endswith("start")}
    said = ", ".join(f"{seconds:.0f} s {side.split()[1]}" for side, seconds in starts.items())
    return f"{report.table(head, rows)}\n\nTo the first step of ours at base 128: {said}."


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens a second on one GPU.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="", help="shapes whose name begins so")
    parser.add_argument("--case", help="one case as JSON, in this process")
    parser.add_argument("--meet", type=Path, help="folder of the processes that share the GPU")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measure(Case(**json.loads(given.case)), given.steps, Meeting(given.meet))))
    elif given.table:
        import report

        text = table([json.loads(line) for line in given.table.read_text().splitlines()])
        print(text)
        if given.write:
            report.put("pretrain_gpu", text)
    else:
        run_all(given.out, given.steps, given.only)


if __name__ == "__main__":
    main()
