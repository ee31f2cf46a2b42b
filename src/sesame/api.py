"""The commands' twins in Python: `sesame.load(folder)`, `sesame.pretrain(...)`, `sesame.finetune(...)`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sesame.checkpoint.folder import Parts, load_parts
from sesame.config import unknown
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.progress import bar, say
from sesame.tasks import Reply, Task
from sesame.tasks.embed import embed
from sesame.tasks.fill import Filled, fill
from sesame.tasks.predict import predict
from sesame.text import Encoding, Tokenizer
from sesame.train.precision import choose_machine


@dataclass
class Loaded:
    """A model that can answer."""

    parts: Parts
    folder: Path

    @property
    def tokenizer(self) -> Tokenizer:
        if self.parts.tokenizer is None:
            raise SesameError(f"{self.folder}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
        return self.parts.tokenizer

    @property
    def limit(self) -> int:
        """The longest input in tokens."""
        config = self.parts.backbone.config
        return config.max_length if config.positions != "rotary" else 1_000_000

    def fill(self, texts: str | Sequence[str], top: int = 5) -> list[list[Filled]]:
        """The best tokens for every mask in every text."""
        if "mlm" not in self.parts.heads:
            raise SesameError(f"{self.folder}: has no trained masked-language head, so it cannot fill masks")
        if not self.tokenizer.has("mask"):
            raise SesameError(f"{self.folder}: its tokenizer has no mask token")
        texts = [texts] if isinstance(texts, str) else texts
        return fill(self.parts.backbone, self.parts.heads["mlm"], self.tokenizer, texts, top, self.limit)

    def task(self, name: str | None = None) -> Task:
        """A task that the model was taught, by name; the only one if there is one."""
        tasks = self.parts.tasks
        if not tasks:
            raise SesameError(
                f"{self.folder}: was not taught any task, so it cannot predict; teach it with `sesame finetune`"
            )
        if name is None and len(tasks) > 1:
            raise SesameError(f"{self.folder}: was taught several tasks ({', '.join(tasks)}); choose one with --task")
        if name is not None and name not in tasks:
            raise SesameError(unknown(name, tasks, str(self.folder), "task"))
        return tasks[name or next(iter(tasks))]

    def predict(
        self,
        texts: str | Sequence[str | tuple[str, str] | Example],
        task: str | None = None,
        abstain: float = 0.0,
        progress: bool = False,
    ) -> list[Reply]:
        """Answers for texts, pairs of texts (qa: question and context), or examples, in the order given."""
        chosen = self.task(task)
        given = [texts] if isinstance(texts, str) else texts
        examples = [_example(chosen, text, number) for number, text in enumerate(given, 1)]
        return predict(chosen, self.parts.backbone, self.tokenizer, examples, abstain=abstain, progress=progress)

    def embed(
        self, texts: str | Sequence[str], layers: str = "last", pooling: str = "mean", progress: bool = False
    ) -> npt.NDArray[np.float32]:
        """One vector for each text. A text that is too long is embedded in windows, and their mean is taken."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        if pooling == "none":
            raise SesameError('pooling "none" gives a matrix for each text; use `embed_tokens`')
        windows = [self._windows(text) for text in texts]
        flat = [window for parts in windows for window in parts]
        with bar("embed", len(flat), "texts") as shown:
            vectors = embed(
                self.parts.backbone, self.parts.heads.get("pooler"), self.tokenizer, flat, layers, pooling,
                shown if progress else None,
            )  # fmt: skip
        many = sum(len(parts) > 1 for parts in windows)
        if many:
            say(f"{many} of {len(texts)} texts are longer than {self.limit} tokens: embedded in windows and averaged")
        rows, at = [], 0
        for parts in windows:
            rows.append(np.mean([vectors[at + i].float().numpy() for i in range(len(parts))], axis=0))
            at += len(parts)
        return np.stack(rows).astype(np.float32) if rows else np.empty((0, self.parts.backbone.width), np.float32)

    def embed_tokens(self, text: str, layers: str = "last") -> tuple[Encoding, npt.NDArray[np.float32]]:
        """A vector for each token of a text that fits into the model, and the encoding that says which is which."""
        encoding = self.tokenizer.encode(text, special=True)
        if len(encoding.ids) > self.limit:
            raise SesameError(f"the text has {len(encoding.ids)} tokens, the model takes {self.limit}; shorten it")
        (found,) = embed(self.parts.backbone, None, self.tokenizer, [encoding], layers, "none")
        return encoding, found.float().numpy()

    def _windows(self, text: str) -> list[Encoding]:
        whole = self.tokenizer.encode(text, special=True)
        if len(whole.ids) <= self.limit:
            return [whole]
        bare = self.tokenizer.encode(text)
        room = self.limit - (len(whole.ids) - len(bare.ids))
        front = whole.ids.index(bare.ids[0]) if bare.ids else 0
        head, tail = whole.ids[:front], whole.ids[front + len(bare.ids) :]
        return [_window(bare, start, room, head, tail) for start in range(0, len(bare.ids), room)]


def _example(task: Task, given: str | tuple[str, str] | Example, number: int) -> Example:
    if isinstance(given, Example):
        return given
    place = f"text {number}"
    if isinstance(given, str):
        return Example(place, given)
    first, second = given
    return Example(place, second, first) if task.config.kind == "qa" else Example(place, first, second)


def _window(bare: Encoding, start: int, room: int, head: list[int], tail: list[int]) -> Encoding:
    part = slice(start, start + room)
    front, back = len(head), len(tail)
    ids = [*head, *bare.ids[part], *tail]
    return Encoding(
        ids,
        [(0, 0)] * front + bare.offsets[part] + [(0, 0)] * back,
        [None] * front + bare.words[part] + [None] * back,
        [0] * len(ids),
    )


def load(folder: str | Path, device: str = "auto") -> Loaded:
    """Open a model folder of ours or of Hugging Face."""
    parts = load_parts(folder)
    machine = choose_machine(device)
    parts.to(machine.device)
    for module in (parts.backbone, *parts.heads.values(), *parts.tasks.values()):
        module.eval()
    return Loaded(parts, Path(folder))


def pretrain(recipe: str, text: Sequence[str | Path] | str | Path, out: str | Path, **wishes: Any) -> Loaded:
    """`sesame pretrain` from Python; the keywords are the command's options. Gives the finished model."""
    from sesame.pretraining import Wishes
    from sesame.pretraining import pretrain as run

    texts = [text] if isinstance(text, str | Path) else list(text)
    return load(run(Wishes(recipe=recipe, text=[str(path) for path in texts], out=Path(out), **wishes)))


def finetune(model: str | Path, task: str, train: str | Path, out: str | Path, **wishes: Any) -> Loaded:
    """`sesame finetune` from Python; the keywords are the command's options. Gives the best seed's model.

    Several tasks, one encoder: `finetune(..., also=["tag:names.conll", "mood=regress:scores.tsv"])`.
    """
    from sesame.finetuning import Wishes
    from sesame.finetuning import finetune as run

    return load(run(Wishes(model=str(model), task=task, train=str(train), out=Path(out), **wishes)))  # type: ignore[arg-type]
