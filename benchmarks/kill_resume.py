"""Kill a training run again and again, start it again each time, and compare the weights with an undisturbed run.

    python benchmarks/kill_resume.py [--kills 20] [--seed 0]

Kills (SIGKILL, the whole process group) fall at uniformly random moments of a run's life: imports, tokenizer training,
building of the store, training, saving, the end. A run that gets through is compared byte by byte, and the next one
begins from nothing, with an empty cache, until all kills are used up.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SETTINGS = (
    "backbone.width=32",
    "backbone.depth=1",
    "backbone.heads=2",
    "stages.long.share=0",
    "stages.short.length=32",
    "stages.short.batch=8",
    "tokenizer.size=300",
)


def make_text(path: Path, documents: int = 150, seed: int = 0) -> Path:
    """Documents of made-up words; 150 of them are about 100 KB."""
    luck = random.Random(seed)
    words = ["".join(luck.choice("bdfgklmnprst") + luck.choice("aeiou") for _ in range(2 + n % 2)) for n in range(400)]
    sentences = [" ".join(luck.choices(words, k=luck.randint(4, 12))).capitalize() + "." for _ in range(16 * documents)]
    parts = ["\n".join(sentences[at : at + 16]) for at in range(0, len(sentences), 16)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def command(
    text: Path,
    out: Path,
    steps: int = 60,
    save_steps: int = 10,
    recipe: str = "bert",
    settings: Sequence[str] = SETTINGS,
) -> list[str]:
    """`sesame pretrain` on a model so small that a step takes milliseconds."""
    begin = [sys.executable, "-m", "sesame", "pretrain", recipe, "--text", str(text), "--out", str(out)]
    rest = ["--steps", str(steps), "--save-steps", str(save_steps), "--device", "cpu", "--precision", "fp32"]
    return [*begin, *rest, *(word for setting in settings for word in ("--set", setting))]


def start(arguments: list[str], cache: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a command as the leader of its own process group; what it says goes to `log`."""
    environment = {**os.environ, "SESAME_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as handle:
        return subprocess.Popen(arguments, stdout=handle, stderr=handle, env=environment, start_new_session=True)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def weights(out: Path) -> bytes:
    """The file of the finished model; safetensors writes equal tensors as equal bytes."""
    return (out / "final" / "model.safetensors").read_bytes()


def resumed_from(log: Path) -> str:
    """What a run said about where it began: a step, or "-" if it did not come so far or began anew."""
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith("going on from step "):
            return line.rsplit(" ", 1)[1]
    return "-"


def reached(out: Path) -> str:
    """The furthest thing that stands in the run's folder."""
    if (out / "final").is_dir():
        return "final model"
    saved = [int(folder.name[5:]) for folder in out.glob("checkpoints/step-*")]
    if saved:
        return f"checkpoint {max(saved)}"
    names = (("metrics.jsonl", "training"), ("tokenizer", "tokenizer"), ("recipe.toml", "recipe"))
    return next((what for name, what in names if (out / name).exists()), "nothing")


@dataclass(frozen=True)
class Attempt:
    """One process of a run."""

    moment: float  # seconds of its life
    killed: bool
    resumed: str
    reached: str


def attempt(arguments: list[str], out: Path, cache: Path, log: Path, moment: float) -> Attempt:
    """Start the run and kill it after `moment` seconds if it is still alive; a failure of its own is an error."""
    began = time.monotonic()
    process = start(arguments, cache, log)
    try:
        code = process.wait(timeout=moment)
        if code != 0:
            raise RuntimeError(f"the run ended with code {code}:\n{log.read_text(encoding='utf-8')}")
    except subprocess.TimeoutExpired:
        kill_group(process)
        return Attempt(moment, True, resumed_from(log), reached(out))
    return Attempt(time.monotonic() - began, False, resumed_from(log), reached(out))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--documents", type=int, default=4000, help="4000 are 3 MB: enough for the pool of processes")
    asked = parser.parse_args()
    luck = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="kill-resume-") as place:
        folder = Path(place)
        text, log, cache, out = (
            make_text(folder / "text.txt", asked.documents),
            folder / "log",
            folder / "cache",
            folder / "run",
        )
        arguments = command(text, out, asked.steps)
        calm = attempt(arguments, out, cache, log, 3600)
        wanted = weights(out)
        print(f"undisturbed: {asked.steps} steps, {calm.moment:.1f} s\n")
        print("  run  killed at  resumed from  reached")
        kills, runs, equal = 0, 0, 0
        while kills < asked.kills:
            shutil.rmtree(out)
            shutil.rmtree(cache)
            runs += 1
            done = False
            while not done:
                moment = luck.uniform(0, calm.moment) if kills < asked.kills else 3600
                found = attempt(arguments, out, cache, log, moment)
                kills, done = kills + found.killed, not found.killed
                when = f"{found.moment:7.2f} s" if found.killed else "  not"
                print(f"  {runs:3}  {when:9}  {found.resumed:>12}  {found.reached}", flush=True)
            same = weights(out) == wanted
            equal += same
            print(f"       weights {'are bit-identical' if same else 'DIFFER'}", flush=True)
    print(f"\n{kills} kills in {runs} runs: {equal} of {runs} ended with bit-identical weights")
    return int(equal != runs)


if __name__ == "__main__":
    sys.exit(main())
