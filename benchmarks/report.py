"""What all benchmarks say about themselves: the machine, the day, a table in README.md."""

import datetime
import os
import platform
import time
from pathlib import Path

import torch

README = Path(__file__).with_name("README.md")


def machine() -> str:
    """The processor, its cores and the library, without the name of the host."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    wide = "AVX-512" if any("avx512f" in line for line in lines if line.startswith("flags")) else "AVX2"
    return f"{name} ({wide}), {os.cpu_count()} cores, torch {torch.__version__}, {datetime.date.today():%Y-%m-%d}"


def device_and_machine(device: str = "auto") -> str:
    """What computes under `--device`, and the machine that it is in."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "CPU"
    return f"{name}; {machine()}"


def others() -> float:
    """Seconds of processor time, so far, that went to anybody but this process (Linux; elsewhere 0)."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, stolen = (int(value) for value in first[1:9])
    busy = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return busy - time.process_time()


def waited() -> float:
    """Seconds, so far, that threads of this process were ready to run but others had the core (Linux; elsewhere 0)."""
    return (
        sum(int(file.read_text(encoding="ascii").split()[1]) for file in Path("/proc/self/task").glob("*/schedstat"))
        / 1e9
    )


def put(name: str, text: str, file: Path = README) -> None:
    """Replace what stands between the markers `<!-- name -->` and `<!-- /name -->` of a file, by default README.md."""
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    whole = file.read_text(encoding="utf-8")
    if whole.count(first) != 1 or whole.count(last) != 1:
        raise SystemExit(f"{file.name}: the markers of {name} are missing or not alone; put them back")
    before, rest = whole.split(first)
    _, after = rest.split(last)
    file.write_text(before + first + text.rstrip("\n") + "\n" + last + after, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
