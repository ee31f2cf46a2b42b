"""Which models are served, under which names, and what each can do.

A model can do what its parts allow; each of it is done once at the start (`warm`), so that weights are packed, fewer bits are
compared with 32, and a folder that cannot answer is refused before anybody asks. Paths come from the command line alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sesame.backbones import LSTM, Backbone, BiLM, Encoder, EncoderHalf, TransformerXL, XLNet
from sesame.checkpoint.onnx.engine import exported
from sesame.checkpoint.onnx.heads import EMBED, FILL
from sesame.checkpoint.reading import reading
from sesame.checkpoint.speech import quickest, speaker
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.loaded import Loaded
from sesame.opening import load
from sesame.progress import say
from sesame.tasks import Task
from sesame.tasks.inputs import ids_and_segments

TASKS = ("classify", "regress", "tag", "qa", "choice")  # the kinds that have a path of their own
LAYERED = (Encoder, EncoderHalf, XLNet, TransformerXL, BiLM, LSTM)  # whose layers can be looked at


@dataclass(frozen=True)
class Served:
    name: str
    loaded: Loaded
    can: tuple[str, ...]

    @cached_property
    def backbone(self) -> Backbone:
        """What reads texts."""
        return reading(self.loaded.parts).backbone

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, with those around it."""
        return [len(found.ids) for found in ids_and_segments(self.loaded.tokenizer, texts)]

    def task(self, kind: str, name: str | None) -> str:
        """The name of the task of this kind that is meant."""
        known = [task for task, each in self.loaded.parts.tasks.items() if each.config.kind == kind]
        if name is not None and name not in known:
            raise SesameError(f"{self.name} has no {kind} task of this name; it has {', '.join(known)}")
        if name is None and len(known) > 1:
            raise SesameError(
                f"{self.name} was taught several tasks of this kind ({', '.join(known)}); name one as task"
            )
        return name or known[0]

    def describe(self) -> dict[str, Any]:
        """As `/v1/models` tells it."""
        parts = self.loaded.parts
        modules = (parts.backbone, *parts.heads.values(), *parts.tasks.values())
        weights = {id(weight): weight.numel() for module in modules for weight in module.parameters()}
        tasks = [
            {
                "name": name,
                "kind": task.config.kind,
                "labels": list(task.config.labels) or None,
                "pair": task.config.pair,
            }
            for name, task in parts.tasks.items()
        ]
        return {
            "name": self.name,
            "can": list(self.can),
            "tasks": tasks,
            "parameters": sum(weights.values()),
            "layers": parts.backbone.depth,
            "heads": int(getattr(parts.backbone.config, "heads", 0)),
            "longest": parts.backbone.longest,
        }


def abilities(loaded: Loaded) -> list[str]:
    parts = loaded.parts
    if parts.tokenizer is None:
        return []
    found = [kind for kind in TASKS if any(task.config.kind == kind for task in parts.tasks.values())]
    if loaded.onnx and exported(loaded.folder):  # a graph without weights beside it: it does one thing
        kind = loaded.graphs[loaded.precision].get().head.kind
        more = {FILL: ["fill"], EMBED: ["embed", "similarity"]}
        return [*found, *more.get(kind, []), "tokenize"]
    causal = bool(getattr(parts.backbone.config, "causal", False))
    if "mlm" in parts.heads and not causal and parts.tokenizer.has("mask"):
        found.append("fill")
    if parts.tokenizer.has("pad"):
        found += ["embed", "similarity"]
    if isinstance(parts.backbone, Encoder | XLNet | TransformerXL):
        found.append("attention")
    if "embed" in found and isinstance(reading(parts).backbone, LAYERED):
        found += ["neighbours", "layers"]
    if isinstance(parts.backbone, Encoder) and {"pooler", "nsp"} <= set(parts.heads):
        found.append("nsp")
    if _speaks(loaded):
        found.append("translate" if parts.backbone.answers else "generate")
    return [*found, "tokenize"]


def _speaks(loaded: Loaded) -> bool:
    try:
        speaker(loaded.parts)
    except SesameError:
        return False
    return True


def warm(name: str, loaded: Loaded, can: Sequence[str]) -> list[str]:
    """Do once what is slow the first time; gives what can be done indeed.

    A task that fails is the user's to mend, for it is what the model was taught. Without filling gaps or vectors the rest can
    still be served: they are left out, and it is said.
    """
    text = "One two three."
    for task, each in loaded.parts.tasks.items():
        if each.config.kind in TASKS:
            loaded.predict([_first(each, text)], task)
    if "generate" in can or "translate" in can:
        loaded.speaker = quickest(loaded.parts)
    left: set[str] = set()
    if "fill" in can and not _works(
        name, "fill", lambda: loaded.fill(f"One {loaded.tokenizer.roles['mask']} three.", 1)
    ):
        left.add("fill")
    if "embed" in can and not _works(name, "embed", lambda: loaded.embed(text)):
        left |= {"embed", "similarity", "neighbours", "layers"}
    return [each for each in can if each not in left]


def _first(task: Task, text: str) -> str | tuple[str, str] | Example:
    """Something to ask a task."""
    if task.config.kind == "choice":
        return Example("warm", text, options=(text, text))
    return (text, text) if task.config.kind == "qa" or task.config.pair else text


def _works(name: str, what: str, call: Callable[[], object]) -> bool:
    try:
        call()
    except SesameError as error:
        say(f"{name}: {what} is left out: {error}")
        return False
    return True


def open_models(
    folders: Sequence[str],
    device: str = "auto",
    engine: str = "torch",
    precision: str = "fp32",
    accept: bool = False,
) -> dict[str, Served]:
    """Folders, or NAME=FOLDER; a folder's own name is its last part, of a run's `final` the run's."""
    if not folders:
        raise SesameError("name at least one model folder to serve")
    found: dict[str, Served] = {}
    for given in folders:
        name, folder = _name(given)
        if name in found:
            raise SesameError(f"two models are called {name!r}; name one of them: OTHER={folder}")
        loaded = load(folder, device, engine, precision, accept)
        for module in (loaded.parts.backbone, *loaded.parts.heads.values()):
            module.eval()  # what ONNX Runtime computes nobody has told yet
        can = abilities(loaded)
        if not can:
            raise SesameError(
                f"{folder}: has no tokenizer, so it cannot be served; put tokenizer.json beside the weights"
            )
        found[name] = Served(name, loaded, tuple(warm(name, loaded, can)))
    return found


def _name(given: str) -> tuple[str, str]:
    name, sign, folder = given.partition("=")
    if sign and name and "/" not in name and not Path(given).exists():
        return name, folder
    path = Path(given).resolve()
    return path.parent.name if path.name == "final" else path.name, given
