"""The tables that want a GPU: as many trials at a time as one card bears, within one sitting.

    python benchmarks/one_card.py OUT --data DATA --corpora CORPORA [--vectors FILE] [--tokenizer FOLDER]
                                      [--only multi30k,...] [--slots 10] [--seconds 1500] [--miniature]
    python benchmarks/one_card.py OUT --data DATA --tables

DATA and CORPORA are the folders that the scripts read (multi30k, aeslc, conll2003, imdb, trec6, ptb_sample, the sets of GLUE;
en.*.txt.xz, ptb, wikitext-2), FILE are static vectors for the tagger, FOLDER is a tokenizer of English for the encoders, who
else train their own. A job is one script with all its trials; what it finds is in OUT/JOB or where its words say, what it
says in OUT/JOB.log. It takes as many slots as it has trials side by side (ALONE: all of them), and starts, in the order
below, as soon as so many are free and what it builds on is done. With SESAME_MPS=1 all share the device by NVIDIA's
multi-process service, if the machine has it. Budgets are by the clock, so whoever has company does less in them; the tables
say how many shared the card.

A job that was cut off, by hand or by --seconds, goes on where it stood when the same command is given again; what is done is
not made again. `--miniature` walks through all of it in seconds a trial, to see that it works. `--tables` writes what OUT
holds into the documents.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from side_by_side import shared_device

HERE = Path(__file__).parent
LOOK, GRACE = 0.5, 20.0  # seconds between two looks at what runs; for a job to save what it has
ALONE = 1_000  # slots of a job whose clock bears no company


@dataclass(frozen=True)
class Job:
    name: str
    slots: int
    words: str  # with places for folders
    miniature: str = ""  # words that come behind them, then
    after: str = ""
    table: str = ""  # the script that writes it, and how; empty: another job's does


# Those that want the card for themselves come first, then the long ones, those on which others wait, and those that want
# little company: they take more slots than they have trials.
JOBS = (
    Job(
        "electra", ALONE,
        "electra.py {out}/electra --recipe sesame-rtd --size mini --set backbone.depth=12 --set stages.short.batch=256 "
        "--set stages.long.batch=64 --set stages.last.batch=256 --set optimizer.rate=1.5e-3 --budget 4m --rehearse "
        "--text {english} {tokenizer} --sst2 {data}/sst2",
        "--size tiny --set backbone.depth=2 --set stages.short.batch=16 --set stages.long.batch=4 --budget 9s "
        "--teach epochs=0.01 --teach least_steps=5",
    ),
    Job(
        "methods", ALONE,  # the two rows that docs/methods.md says are to be made again
        "methods.py {out}/methods --only xlnet,scratch --text {english} {tokenizer} --data {data} --parallel 15",
        "--size tiny --budget 10 --seeds 1 --rows 64 --parallel 2",
    ),
    Job("awd-lstm", 1, "perplexities.py {out}/perplexities --data {corpora} --trials awd-lstm.ptb", "--size tiny --budget 3"),
    Job(
        "elmo", 1, "-m sesame pretrain elmo --size small --text {english} --out {out}/elmo --rehearse --budget 8m",
        "--size tiny --budget 15s",
    ),
    Job(
        "translation", 8,  # three trials that want little company: what the recipe reaches
        "multi30k.py {out}/multi30k --data {data}/multi30k --budget 230 --parallel 3 --trials all",
        "--size tiny --budget 30 --seeds 1",
    ),
    Job(
        "perplexities", 2,
        "perplexities.py {out}/perplexities --data {corpora} --trials gpt.ptb,gpt.wikitext-2,gpt2.ptb,elmo.ptb --parallel 2",
        "--size tiny --budget 10", table="perplexities.py --table {out}/perplexities",
    ),
    Job(
        "subjects", 3, "subjects.py {out}/subjects --data {data}/aeslc --text {english}",
        "--size tiny --budget 10 --seeds 1 --trials bart,bart-scratch --set steps=20",
        table="subjects.py --table {out}/subjects",
    ),
    Job(
        "multi30k", 3,  # what each of its tips is worth
        "multi30k.py {out}/multi30k --data {data}/multi30k --budget 230 --parallel 3 "
        "--trials plain-loss,no-warm-up,agreement",
        "--size tiny --budget 30 --seeds 1 --trials plain-loss",
        after="translation", table="multi30k.py --table {out}/multi30k",
    ),
    Job(
        "parsing", 2, "parsing.py {out}/parsing --trees {data}/ptb_sample/trees.jsonl.gz",
        "--size tiny --budget 10 --seeds 1", table="parsing.py --table {out}/parsing",
    ),
    Job(
        "ulmfit", 2, "ulmfit.py {out}/ulmfit --data {data} --text {english} --parallel 4",
        "--size tiny --budget 10 --tune 8 --seeds 1 --counts 20 --parallel 1 --set epochs=1",
        table="ulmfit.py --table {out}/ulmfit --draw {docs}/ulmfit.svg",
    ),
    Job(
        "tagger", 4, "tagger.py {out}/tagger --data {data}/conll2003 --vectors {vectors} --lm {out}/elmo --parallel 4",
        "--seeds 1 --parallel 2 --set epochs=1", after="elmo", table="tagger.py --table {out}/tagger",
    ),
    Job(
        "attention", 3,
        "multi30k.py {out}/attention --data {data}/multi30k --seeds 2 --parallel 3 --trials all,seq2seq,rnnsearch,luong-dot,"
        "luong-general,luong-scaled,luong-cosine,luong-additive,luong-local-p",
        "--size tiny --budget 30 --seeds 1 --trials luong-local-p,seq2seq",
        table="multi30k.py --table {out}/attention --name attention --draw {docs}/attention.svg --data {data}/multi30k",
    ),
)  # fmt: skip


def english_of(given: argparse.Namespace) -> list[Path]:
    return sorted(given.corpora.glob("en.[0-9].txt.xz")) if given.corpora else []


def missing(jobs: list[Job], given: argparse.Namespace) -> list[str]:
    """What jobs would look for in vain, some of them an hour later and only then."""
    places = tuple(str(place) for place in (given.data, given.corpora, given.vectors, given.tokenizer) if place)
    words = dict.fromkeys(word for job in jobs for word in command(job.words, given) if word.startswith(places))
    found = [word for word in words if not Path(word).exists()]
    if not english_of(given) and any("{english}" in job.words for job in jobs):
        found.append(f"{given.corpora}/en.1.txt.xz")
    return found


def command(words: str, given: argparse.Namespace) -> list[str]:
    places = {"out": given.out, "data": given.data, "corpora": given.corpora, "vectors": given.vectors}
    named = {name: shlex.quote(str(place)) for name, place in places.items()} | {
        "english": shlex.join(map(str, english_of(given))),
        "tokenizer": f"--tokenizer {shlex.quote(str(given.tokenizer))}" if given.tokenizer else "",
        "docs": shlex.quote(str(HERE.parent / "docs")),
    }
    parts = shlex.split(words.format(**named))
    return [sys.executable, *([str(HERE / parts[0]), *parts[1:]] if parts[0].endswith(".py") else parts)]


def shared(slots: int) -> dict[str, str]:
    """What a job is told that has company: how much of it, for its tables, and its share of the cores."""
    threads = str(max(1, (os.cpu_count() or 1) // slots))
    return {"SESAME_SLOTS": str(slots), "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE"}


class Sitting:
    """What runs, what is done, and what is not."""

    def __init__(self, jobs: list[Job], given: argparse.Namespace, how: dict[str, str]) -> None:
        self.waiting, self.given = list(jobs), given
        self.running: dict[Job, subprocess.Popen[bytes]] = {}
        self.failed: list[str] = []
        self.began = time.monotonic()
        self.env = os.environ | how | {"TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_COMPILE_THREADS": "2"}

    def say(self, words: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {words}", flush=True)

    def look(self) -> None:
        """Take leave of who has ended, and let start who can."""
        for job, process in list(self.running.items()):
            if process.poll() is not None:
                del self.running[job]
                self.failed += [job.name] if process.returncode else []
                self.say(f"{job.name}: " + (f"failed; see {self.log(job)}" if process.returncode else "done"))
        free = self.given.slots - sum(job.slots for job in self.running)
        for job in list(self.waiting):
            if job.after in self.failed:
                self.waiting.remove(job)
                self.failed.append(job.name)
                self.say(f"{job.name}: left out, {job.after} failed")
            elif min(job.slots, self.given.slots) <= free and not self.unfinished(job.after):
                self.start(job)
                free -= job.slots

    def unfinished(self, name: str) -> bool:
        return any(job.name == name for job in (*self.waiting, *self.running))

    def log(self, job: Job) -> Path:
        return Path(self.given.out) / f"{job.name}.log"

    def start(self, job: Job) -> None:
        self.waiting.remove(job)
        words = f"{job.words} --device {self.given.device}" + (f" {job.miniature}" if self.given.miniature else "")
        with self.log(job).open("ab") as log:
            env = self.env | ({} if job.slots == ALONE else shared(self.given.slots))
            how = {"stdout": log, "stderr": subprocess.STDOUT, "env": env, "start_new_session": True}
            self.running[job] = subprocess.Popen(command(words, self.given), **how)
        self.say(f"{job.name}: began")

    def stop(self) -> None:
        """Ctrl-C for all, which saves; then the end, for who does not hear."""
        for number, wait in ((signal.SIGINT, GRACE), (signal.SIGKILL, 5.0)):
            for process in self.running.values():
                if process.poll() is None:
                    os.killpg(process.pid, number)
            until = time.monotonic() + wait
            while time.monotonic() < until and any(process.poll() is None for process in self.running.values()):
                time.sleep(LOOK)
        left = [job.name for job in (*self.running, *self.waiting)]
        self.say(f"cut off: {', '.join(left)}; the same command goes on")


def sit(jobs: list[Job], given: argparse.Namespace) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its jobs would outlive it
    with shared_device() as how:
        sitting = Sitting(jobs, given, how)
        try:
            while sitting.waiting or sitting.running:
                if time.monotonic() - sitting.began > given.seconds:
                    raise KeyboardInterrupt
                sitting.look()
                time.sleep(LOOK)
        except KeyboardInterrupt:
            sitting.stop()
            raise SystemExit(1) from None
    if sitting.failed:
        raise SystemExit(f"failed: {', '.join(sitting.failed)}")


def write_tables(jobs: list[Job], given: argparse.Namespace) -> None:
    for job in jobs:
        if job.table and subprocess.run(command(job.table, given), check=False).returncode:
            print(f"{job.name}: no table")


def main() -> None:
    parser = argparse.ArgumentParser(description="All tables that want a GPU, on one card.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--only", default="", help=", ".join(job.name for job in JOBS))
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--miniature", action="store_true")
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name] or [job.name for job in JOBS]
    if unknown := sorted(set(names) - {job.name for job in JOBS}):
        parser.error(f"--only {unknown[0]}: there are {', '.join(job.name for job in JOBS)}")
    jobs = [job for job in JOBS if job.name in names]
    if given.tables:
        write_tables(jobs, given)
    elif given.corpora is None or (given.vectors is None and "tagger" in names):
        parser.error("--corpora is needed, and --vectors for the tagger")
    elif absent := missing(jobs, given):
        parser.error(f"there is no {', no '.join(absent)}")
    else:
        sit(jobs, given)


if __name__ == "__main__":
    main()
