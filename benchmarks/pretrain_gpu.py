"""How many tokens a second does masked pre-training take on one GPU, here and in transformers?

    python benchmarks/pretrain_gpu.py OUT [--only base] [--steps 30]
    python benchmarks/pretrain_gpu.py --table OUT/pretrain_gpu.jsonl [--write]

Full rows of random tokens, 15 % masked, vocabulary 30,522, gradients clipped at 1.0, fused AdamW; the batch is made before
the clock starts. Each side runs in a process of its own; those that compile do it first, side by side, to fill the cache of
compiled kernels; then all are timed one after the other with the GPU to themselves. The best of three rounds counts.

- transformers: `BertForMaskedLM` under bf16 autocast with fp32 weights, as it is and with torch.compile.
- sesame: `take_step`, the step of the training loop, on BERT as the paper has it (norms last, biases, exact GELU, tied head).
- sesame, mixed: the same under autocast, `--precision mixed`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VOCAB = 30522
ROLES = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
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
    "base 128": (12, 768, 128, 1024),
    "base 512": (12, 768, 512, 256),
    "12 x 256": (12, 256, 128, 1024),
    "4 x 256": (4, 256, 128, 2048),
}
PEERS = ("transformers", "transformers, compiled")


def cases() -> list[Case]:
    found = [Case(name, "sesame", *shape) for name, shape in SHAPES.items()]
    found += [Case(name, "sesame", *SHAPES[name], dropout=0.1) for name in ("base 128", "base 512")]
    found += [Case("base 128", "sesame, mixed", *SHAPES["base 128"])]
    # transformers computes all logits: half the rows fit well, and more make it no faster.
    return found + [Case(n, side, d, w, x, b // 2) for n, (d, w, x, b) in SHAPES.items() for side in PEERS]


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

    machine = choose_machine("cuda", "mixed" if case.side.endswith("mixed") else "bf16")
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


def measure(case: Case, steps: int) -> dict[str, Any]:
    import torch

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    began = time.monotonic()
    step = ours(case) if case.side.startswith("sesame") else theirs(case)
    step()
    torch.cuda.synchronize()
    first = time.monotonic() - began
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


def start(case: Case, steps: int, cache: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case)), "--steps", str(steps)]
    env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def run_all(out: Path, steps: int, only: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in cases() if case.name.startswith(only)]
    compiling = [case for case in chosen if case.side != "transformers"]
    with tempfile.TemporaryDirectory() as cache, (out / "pretrain_gpu.jsonl").open("w") as handle:
        cold = result(start(compiling[0], 1, cache))  # alone, so that its compilation can be timed
        handle.write(json.dumps({**cold, "side": "sesame, first start"}) + "\n")
        for at in range(1, len(compiling), 4):
            for process in [start(case, 1, cache) for case in compiling[at : at + 4]]:
                result(process)
        for case in chosen:
            handle.write(json.dumps(result(start(case, steps, cache))) + "\n")
            handle.flush()


def table(lines: list[dict[str, Any]]) -> str:
    import report

    eager = {line["name"]: line["tokens_per_second"] for line in lines if line.get("side") == "transformers"}
    rows = []
    for line in lines:
        if line.get("side") in (None, "sesame, first start"):
            continue
        rate = line["tokens_per_second"]
        rows.append([
            line["name"], f"{line['dropout']:g}", line["side"], f"{line['batch']}", f"{rate / 1e3:,.0f}",
            f"{rate / eager[line['name']]:.2f}", f"{line['first_step_s']:.0f} s", f"{line['memory_gb']:.0f} GB",
        ])  # fmt: skip
    head = [
        "shape",
        "dropout",
        "side",
        "rows",
        "thousand tokens/s",
        "times transformers",
        "to the first step",
        "memory",
    ]
    return report.table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens a second on one GPU.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="", help="shapes whose name begins so")
    parser.add_argument("--case", help="one case as JSON, in this process")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measure(Case(**json.loads(given.case)), given.steps)))
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
