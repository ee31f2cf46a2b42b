"""The folder of a run.

    RUN/recipe.toml         everything that decides the result: recipe, text, seed, length of the run
    RUN/text.json           the names of the token stores, which are sums of text and tokenizer
    RUN/files.json          sums of the files that it was made from: texts, vectors, the model that it goes on from
    RUN/metrics.jsonl       one line every few steps
    RUN/events/             the same for TensorBoard
    RUN/tokenizer/          the tokenizer, if it was trained for this run
    RUN/checkpoints/step-N/ a model folder, plus train/: optimiser, position, length of the log, sums
                            or, when weights are in shares, train/shards/ instead of the model: see `shards.py`
    RUN/final/              the result, always in one piece; encoders that are trained along have folders in it

Rank 0 owns the folder; other ranks read it, and write nothing but their shares. A checkpoint appears in one piece.
One that was damaged later is noticed by its sums, and the one before it is taken.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sesame.checkpoint.folder import Parts
from sesame.checkpoint.saving import save_parts
from sesame.checkpoint.shards import read_shards, write_shards
from sesame.config import dump_toml, read_toml
from sesame.errors import SesameError
from sesame.files import (
    disk_errors,
    full_disk,
    going_on,
    is_aside,
    read_json,
    tidy,
    whole_folder,
    write_json,
    write_whole,
)
from sesame.progress import say
from sesame.train.optim import Optimizer, load_optimizer, optimizer_tensors
from sesame.train.parallel import ALONE, World
from sesame.train.shares import is_sharded
from sesame.train.state import State

SHARDS = Path("train") / "shards"  # in a checkpoint
LOOKS = 5  # tries for a lock
KEEP = 2  # checkpoints, so that a damaged one has a predecessor


class Run:
    """A run's folder, claimed for this process, or for the processes of `world`."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], world: World = ALONE) -> None:
        self.folder, self.identity, self.world = folder, identity, world
        self.metrics = folder / "metrics.jsonl"
        self.final = folder / "final"
        self.keep = KEEP
        self.keep_best = False  # also the checkpoint of the best look

    @classmethod
    @contextmanager
    def claim(cls, folder: Path, identity: Mapping[str, Any], world: World = ALONE) -> Iterator["Run"]:
        """Start a run in an empty or new folder, or go on with the same run; refuse everything else."""
        run = cls(folder, identity, world)
        with ExitStack() as stack:
            stack.enter_context(going_on(folder))
            with disk_errors(folder):
                new = world.first and run._open(stack)
            world.wait()
            try:
                with full_disk(folder):
                    yield run
            except SesameError:
                if new:
                    run._withdraw()
                raise

    def _open(self, stack: ExitStack) -> bool:
        """Lock the folder, which `stack` unlocks, and say whether the run begins here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        recipe = self.folder / "recipe.toml"
        if not recipe.is_file() and any(item.name != ".lock" and not is_aside(item) for item in self.folder.iterdir()):
            raise SesameError(f"{self.folder}: is not empty and holds no run; choose another --out")
        lock = stack.enter_context((self.folder / ".lock").open("w"))
        if not _taken(lock):
            raise SesameError(f"{self.folder}: another process is working on this run; wait for it or stop it")
        tidy(self.folder)
        tidy(self.folder / "checkpoints")
        if recipe.is_file():
            _same(read_toml(recipe), json.loads(json.dumps(self.identity)), self.folder)
            return False
        write_whole(recipe, dump_toml(self.identity))
        return True

    def _withdraw(self) -> None:
        """A mistake ended a new run before its first checkpoint: what it made must not bind the corrected command."""
        if self._begun():
            return
        for part in ("tokenizer", "events", "checkpoints", "pairs"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        for name in ("text.json", "files.json", "metrics.jsonl", "table.npy", "recipe.toml"):
            (self.folder / name).unlink(missing_ok=True)
        for lock in self.folder.glob("*/.lock"):  # of a part that was a run of its own, and is withdrawn
            if list(lock.parent.iterdir()) == [lock]:
                shutil.rmtree(lock.parent, ignore_errors=True)

    def _begun(self) -> bool:
        """Whether something stands that a changed command would lose: a result, a checkpoint, or a part that is a run."""
        return bool(self._checkpoints()) or any(self.folder.glob("*/recipe.toml")) or self.final.exists()

    def bind_files(self, sums: Mapping[str, str]) -> None:
        """Hold the run to what its files held when it began; those that nobody has now, or had then, are passed over."""
        if not self.world.first:
            return
        kept = self.folder / "files.json"
        if not self._begun():
            write_json(kept, sums)
        known = read_json(kept) if kept.is_file() else {}
        if not isinstance(known, dict):
            raise SesameError(f"{kept}: holds no table of sums; remove it, and the run's files are not compared")
        for name, found in sums.items():
            if known.get(name, found) != found:
                raise SesameError(
                    f"{name}: has changed since this run began, {self.folder}; bring the old one back or choose another --out"
                )

    def bind(self, stores: Sequence[str]) -> None:
        """Hold the run to the text of its first checkpoint: `stores` name the content, not the files."""
        if not self.world.first:
            return
        kept = self.folder / "text.json"
        known = read_json(kept) if kept.is_file() and self._begun() else list(stores)
        if known != list(stores):
            raise SesameError(
                f"{self.folder}: the text has changed since this run began, or its tokenizer; bring the old one back or "
                "choose another --out"
            )
        write_json(kept, known)

    def save(
        self,
        parts: Parts,
        model: nn.Module,
        optimizer: Optimizer,
        state: State,
        card: str,
        beside: Mapping[str, Parts] | None = None,
    ) -> Path:
        """Write a checkpoint, then drop the oldest. All ranks call this; without shares, only rank 0 has work.

        `beside`: other encoders that are trained along, each in a folder of its name within.
        """
        target = self.at(state.step)
        sharded = is_sharded(model)
        with ExitStack() as stack:
            aside = stack.enter_context(whole_folder(target)) if self.world.first else target
            if sharded:
                told = Path(self.world.tell(str(aside)))
                write_shards(told / SHARDS, model, optimizer, self.world)
            if self.world.first:
                if not sharded:
                    self._write(aside, parts, card, beside)
                    (aside / "train").mkdir()
                    save_file(_cpu(optimizer_tensors(model, optimizer)), aside / "train" / "optimizer.safetensors")
                self._note(aside, state)
        if self.world.first:
            best = self.at(int(state.best["step"])) if self.keep_best and state.best else None
            for old in self._checkpoints()[self.keep :]:
                if old != best:
                    shutil.rmtree(old, ignore_errors=True)
        return target

    def at(self, step: int) -> Path:
        """The checkpoint of a step, whether it is there or not."""
        return self.folder / "checkpoints" / f"step-{step}"

    def find(self, step: int) -> Path | None:
        """The checkpoint of a step, if it is whole; rank 0 looks for all."""
        return (
            self.at(step)
            if self.world.tell(str(int(_whole(self.at(step)))) if self.world.first else "") == "1"
            else None
        )

    def _note(self, folder: Path, state: State) -> None:
        """What belongs to every checkpoint: position, length of the log, sums of all files."""
        write_json(folder / "train" / "state.json", state.to_json())
        write_json(folder / "train" / "metrics.json", {"bytes": self._logged()})
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        write_json(folder / "train" / "sums.json", {str(f.relative_to(folder)): _sum(f) for f in files})

    def save_final(self, parts: Parts, card: str, beside: Mapping[str, Parts] | None = None) -> None:
        """Write the result; `parts` are in one piece."""
        if self.world.first:
            with whole_folder(self.final) as folder:
                self._write(folder, parts, card, beside)

    def _write(self, folder: Path, parts: Parts, card: str, beside: Mapping[str, Parts] | None) -> None:
        save_parts(folder, parts, self.identity, card)
        for name, other in (beside or {}).items():
            (folder / name).mkdir()
            save_parts(folder / name, other, self.identity, card)

    def latest(self) -> Path | None:
        """The newest checkpoint that is whole; rank 0 looks for all."""
        found = self._newest() if self.world.first else None
        name = self.world.tell("" if found is None else found.name)
        return self.folder / "checkpoints" / name if name else None

    def _newest(self) -> Path | None:
        for folder in self._checkpoints():
            if _whole(folder):
                return folder
            say(f"{folder.name} is damaged; going back to the checkpoint before it")
        return None

    def restore(self, folder: Path, model: nn.Module, optimizer: Optimizer) -> State:
        """Optimiser and position, and weights in shares; others are read by the caller, who knows their names."""
        if in_shares(folder):
            read_shards(folder / SHARDS, model, optimizer, self.world)
        else:
            load_optimizer(model, optimizer, load_file(folder / "train" / "optimizer.safetensors"))
        state = State.from_json(read_json(folder / "train" / "state.json"))
        self._cut_metrics(read_json(folder / "train" / "metrics.json")["bytes"])
        return state

    def log(self, line: Mapping[str, Any]) -> None:
        if not self.world.first:
            return
        with disk_errors(self.metrics), self.metrics.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")

    def cut_all_metrics(self) -> None:
        self._cut_metrics(0)

    def _logged(self) -> int:
        return self.metrics.stat().st_size if self.metrics.is_file() else 0

    def _cut_metrics(self, size: int) -> None:
        """Forget what was logged after the checkpoint: it will be logged again."""
        if self.world.first and self._logged() > size:
            with disk_errors(self.metrics):
                os.truncate(self.metrics, size)

    def _checkpoints(self) -> list[Path]:
        """Newest first."""
        found = (self.folder / "checkpoints").glob("step-*")
        numbered = [(int(f.name[5:]), f) for f in found if f.name[5:].isdigit()]
        return [folder for _, folder in sorted(numbered, reverse=True)]


def in_shares(checkpoint: Path) -> bool:
    """Whether a checkpoint holds shares of weights instead of a model folder."""
    return (checkpoint / SHARDS).is_dir()


def _taken(lock: IO[str]) -> bool:
    """Whether the lock is ours now; somebody who only looks (`runs.py`) holds it for a moment, which is waited for."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def _same(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    for key, (before, after) in _differences(old, new):
        raise SesameError(
            f"{folder}: holds another run ({key} is {before!r} there, {after!r} here); "
            "choose another --out, or give the same settings to go on with it"
        )


def _differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    elif old != new:
        yield name, (old, new)


def _cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _sum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "blake2b").hexdigest()[:32]


def _whole(folder: Path) -> bool:
    try:
        sums = json.loads((folder / "train" / "sums.json").read_text(encoding="utf-8"))
        return all(_sum(folder / name) == wanted for name, wanted in sums.items())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False
