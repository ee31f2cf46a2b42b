"""How much memory and time does a token store of gigabytes need?

    python benchmarks/store_memory.py TEXT... --tokenizer FOLDER [--gigabytes 2] [--write]

Repeats the given text until it has the wanted size, builds its store in a process of its own and looks at that process
and its workers five times a second. Memory is summed over all of them, as RSS (shared pages count once for each process)
and as PSS (shared pages are divided among those who share them). Linux only. Everything is made in a temporary folder,
which is removed.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import report
from sesame.data.readers import read_documents

EVERY = 0.2
BUILD = """
import sys
from pathlib import Path
from sesame.data.build import build_store
from sesame.text import Tokenizer
text, tokenizer, cache = map(Path, sys.argv[1:])
print(repr(build_store([text], Tokenizer.load(tokenizer), cache)))
"""


def write_text(target: Path, corpus: list[Path], size: int) -> tuple[int, int]:
    """Write the corpus again and again until `size` bytes stand there; gives the bytes of all and of one round."""
    written = distinct = 0
    with target.open("wb") as out:
        while written < size:
            before = written
            for document in read_documents(corpus, "text"):
                block = document.text.encode() + b"\n\n"
                out.write(block)
                written += len(block)
                if written >= size:
                    break
            if written == before:
                raise SystemExit(f"{corpus[0]}: no text in it")
            distinct = max(distinct, written - before)
    return written, distinct


@dataclass
class Memory:
    """What a tree of processes took, in bytes, look by look."""

    rss: list[int] = field(default_factory=list)
    pss: list[int] = field(default_factory=list)
    processes: int = 0

    def look(self, root: int) -> None:
        found = [sizes for pid in family(root) if (sizes := process_memory(pid))]
        self.processes = max(self.processes, len(found))
        self.rss.append(sum(rss for rss, _ in found))
        self.pss.append(sum(pss for _, pss in found))

    def quarters(self) -> list[int]:
        """The peak in each quarter of the time: does it grow with the text?"""
        count = len(self.rss)
        return [max(self.rss[count * i // 4 : max(count * (i + 1) // 4, count * i // 4 + 1)]) for i in range(4)]


def family(root: int) -> Iterable[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it has just ended
                continue
            children.setdefault(parent, []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        yield pid


def process_memory(pid: int) -> tuple[int, int] | None:
    """RSS and PSS of a process; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return (sizes["Rss"], sizes["Pss"]) if "Rss" in sizes and "Pss" in sizes else None


@dataclass(frozen=True)
class Result:
    memory: Memory
    seconds: float
    used: float  # seconds of processor time, over all cores
    others: float  # what other processes used meanwhile


def build(text: Path, tokenizer: Path, cache: Path) -> Result:
    """Build a store in a process of its own and watch it."""
    memory = Memory()
    began, busy = time.monotonic(), report.others()
    child = subprocess.Popen([sys.executable, "-c", BUILD, str(text), str(tokenizer), str(cache)])
    while child.poll() is None:
        memory.look(child.pid)
        time.sleep(EVERY)
    seconds = time.monotonic() - began
    if child.returncode:
        raise SystemExit(f"building the store failed with exit code {child.returncode}")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = spent.ru_utime + spent.ru_stime
    return Result(memory, seconds, used, report.others() - busy - used)


def describe(result: Result, written: int, distinct: int) -> str:
    cores = os.cpu_count() or 1
    peak, quarters = max(result.memory.rss), result.memory.quarters()
    rows = [
        ["text", f"{written / 1e9:.2f} GB, of it {distinct / 1e6:.0f} MB distinct"],
        ["peak RSS, all processes", f"{peak / 1e6:,.0f} MB"],
        ["peak PSS, all processes", f"{max(result.memory.pss) / 1e6:,.0f} MB"],
        ["peak RSS in each quarter of the time", ", ".join(f"{value / 1e6:,.0f}" for value in quarters) + " MB"],
        ["processes", f"{result.memory.processes}"],
        ["wall time", f"{result.seconds:.0f} s"],
        ["rate", f"{written / 1e6 / result.seconds:.1f} MB/s"],
        ["processor time", f"{result.used:.0f} s: {result.used / result.seconds / cores:.0%} of {cores} cores"],
        ["used by other processes meanwhile", f"{result.others / result.seconds / cores:.0%} of {cores} cores"],
    ]
    return f"{report.machine()}\n\n{report.table(['what', 'found'], rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of building a token store.")
    parser.add_argument("corpus", nargs="+", type=Path, help="text files, plain or packed")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json or vocab.txt")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sesame-store-") as folder:
        text = Path(folder) / "text.txt"
        written, distinct = write_text(text, options.corpus, int(options.gigabytes * 1e9))
        result = build(text, options.tokenizer, Path(folder) / "cache")
    shown = describe(result, written, distinct)
    print(shown)
    if options.write:
        report.put("store_memory", shown)


if __name__ == "__main__":
    main()
