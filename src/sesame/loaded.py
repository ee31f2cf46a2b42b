"""A model that can answer, as `sesame.load` gives it: it fills masks, predicts, embeds, translates, continues."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sesame import fewer_bits
from sesame.backbones import Backbone, Encoder, EncoderDecoder
from sesame.backbones.fast import FastEncoder
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.onnx.engine import OnnxEngine, OnnxEngines, exported
from sesame.checkpoint.reading import reading
from sesame.checkpoint.speech import answers, quickest, together, voice_of
from sesame.config import unknown
from sesame.data.examples import Example
from sesame.errors import SesameError
from sesame.generate import Speaker
from sesame.nn.packed import Precision
from sesame.progress import Bar, bar, say
from sesame.tasks import Reply, Task
from sesame.tasks.answer import BEST
from sesame.tasks.embed import embed
from sesame.tasks.embed_windows import joined, windows_of
from sesame.tasks.ensemble import check_alike, mean_replies
from sesame.tasks.fill import Filled, fill
from sesame.tasks.given import example_of, texts_of
from sesame.tasks.layers import LayerChoice
from sesame.tasks.predict import check_abstain, predict, withheld
from sesame.tasks.speak import Said, Voice
from sesame.text import Encoding, Tokenizer


@dataclass
class Loaded:
    """A model that can answer.

    Fewer bits than 32 are compared with 32 at the first answer of each kind (`sesame.fewer_bits`), and refused if they
    agree too little, unless `accept`.
    """

    parts: Parts
    folder: Path
    precision: Precision = "fp32"
    accept: bool = False
    onnx: bool = False  # ONNX Runtime computes instead of the backbone
    fast: dict[Precision, FastEncoder] = field(default_factory=dict)  # packed weights, made at the first answer
    speaker: Speaker | None = None  # likewise
    graphs: dict[Precision, OnnxEngines] = field(default_factory=dict)
    agreed: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, or a copy: packed weights cannot travel, and are made again there."""
        return {**self.__dict__, "fast": {}, "speaker": None}

    @property
    def tokenizer(self) -> Tokenizer:
        if self.parts.tokenizer is None:
            raise SesameError(f"{self.folder}: has no tokenizer; put tokenizer.json or vocab.txt beside the weights")
        return self.parts.tokenizer

    @property
    def limit(self) -> int:
        """The longest text in tokens that is read at once; of an encoder-decoder by its encoder, see `EncoderHalf`."""
        backbone = self.parts.backbone
        most: int | None = backbone.config.max_length if isinstance(backbone, EncoderDecoder) else backbone.longest
        return most or 1_000_000

    @property
    def _causal(self) -> bool:
        return bool(getattr(self.parts.backbone.config, "causal", False))

    def fill(self, texts: str | Sequence[str], top: int = 5) -> list[list[Filled]]:
        """The best tokens for every mask in every text."""
        if self._causal:
            raise SesameError(f"{self.folder}: reads from left to right and cannot fill a gap; pre-train with masks")
        if "mlm" not in self.parts.heads:
            remedy = "`sesame pretrain adapt --start MODEL --text TEXT` teaches it one"
            remedy = "the generator beside it can: name its folder" if "rtd" in self.parts.heads else remedy
            raise SesameError(f"{self.folder}: has no trained masked-language head, so it cannot fill masks; {remedy}")
        if not self.tokenizer.has("mask"):
            raise SesameError(f"{self.folder}: its tokenizer has no mask token")
        texts = texts_of(texts)
        head, table = self.parts.heads["mlm"], self.parts.backbone.token_table()

        def ask(precision: Precision, texts: Sequence[str], top: int) -> list[list[Filled]]:
            with self._autocast(precision):
                return fill(self._computer(precision, "fill"), head, table, self.tokenizer, texts, top, self.limit)

        if self._unsure("fill"):
            sample = fewer_bits.sample_masks(texts, self.tokenizer.roles["mask"])
            found = fewer_bits.of_masks(ask(self.precision, sample, 5), ask("fp32", sample, 5))
            self._settle("fill", found)
        return ask(self.precision, texts, top)

    def task(self, name: str | None = None) -> Task:
        """A task that the model was taught, by name; the only one if there is one."""
        tasks = self.parts.tasks
        if not tasks:
            texts = self.parts.backbone.answers
            raise SesameError(
                f"{self.folder}: was not taught any task{' with labels' if texts else ''}, so it cannot predict; "
                + ("it answers with texts, use `sesame translate`" if texts else "teach it with `sesame finetune`")
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
        best: int = BEST,
        beside: Sequence["Loaded"] = (),
    ) -> list[Reply]:
        """Answers for texts, pairs of texts (qa: question and context, `best` answers), or examples, in the order given.

        `beside`: other models that were taught the same labels; the answer is that of the mean of all probabilities.
        """
        chosen = self.task(task)
        if beside:
            check_abstain(abstain)
            check_alike([chosen.config, *(other.task(task).config for other in beside)])
            each = [one.predict(texts, task, progress=progress) for one in (self, *beside)]
            return [withheld(reply, abstain) for reply in mean_replies(chosen.config, each)]
        given = [texts] if isinstance(texts, str) else texts
        examples = [example_of(chosen, text, number) for number, text in enumerate(given, 1)]

        def ask(precision: Precision, examples: Sequence[Example], abstain: float, progress: bool) -> list[Reply]:
            computer = self._computer(precision, chosen.name)
            engine = None if isinstance(computer, Backbone) else computer
            with self._autocast(precision):
                return predict(
                    chosen, self.parts.backbone, self.tokenizer, examples,
                    engine=engine, abstain=abstain, best=best, progress=progress,
                )  # fmt: skip

        if self._unsure(chosen.name):
            sample = fewer_bits.sample_examples(examples, chosen.config.kind, chosen.config.pair)
            both = [ask(precision, sample, 0.0, False) for precision in (self.precision, "fp32")]
            self._settle(chosen.name, fewer_bits.of_replies(*both))
        return ask(self.precision, examples, abstain, progress)

    def embed(
        self, texts: str | Sequence[str], layers: str = "last", pooling: str | None = None, progress: bool = False
    ) -> npt.NDArray[np.float32]:
        """One vector for each text. One that is too long is read in windows of equal size: "mean" and "max" are over all of
        its tokens, of "cls" and "pooler" the mean over its windows is taken."""
        texts = texts_of(texts)
        pooling = self.parts.backbone.pooled if pooling is None else pooling
        if pooling == "none":
            raise SesameError('pooling "none" gives a matrix for each text; use `embed_tokens`')

        def ask(precision: Precision, texts: list[str], progress: bool) -> npt.NDArray[np.float32]:
            with self._autocast(precision):
                return self._embed(
                    self._computer(precision, "embed", layers, pooling), texts, layers, pooling, progress
                )

        if self._unsure("embed"):
            sample = fewer_bits.sample_texts(texts)
            self._settle("embed", fewer_bits.of_vectors(ask(self.precision, sample, False), ask("fp32", sample, False)))
        return ask(self.precision, texts, progress)

    def _embed(
        self, computer: Backbone | FastEncoder | OnnxEngine, texts: list[str], layers: str, pooling: str, progress: bool
    ) -> npt.NDArray[np.float32]:
        windows = windows_of(self.tokenizer, texts, self.limit)
        flat = [window for parts in windows for window in parts]
        pooler = self.parts.heads.get("pooler")
        with bar("embed", len(flat), "texts") as shown:
            vectors = embed(computer, pooler, self.tokenizer, flat, layers, pooling, shown if progress else None)
        if not vectors:
            return np.empty((0, LayerChoice(layers, reading(self.parts).backbone).width), np.float32)
        if many := sum(len(parts) > 1 for parts in windows):
            say(f"{many} of {len(texts)} texts are longer than {self.limit} tokens: embedded in windows and averaged")
        return joined(vectors, windows, pooling)

    def embed_tokens(self, text: str, layers: str = "last") -> tuple[Encoding, npt.NDArray[np.float32]]:
        """A vector for each token of a text that fits into the model, and the encoding that says which is which."""
        encoding = self.tokenizer.encode(text, special=True)
        if len(encoding.ids) > self.limit:
            raise SesameError(f"the text has {len(encoding.ids)} tokens, the model takes {self.limit}; shorten it")
        computer = self._computer(self.precision, "embed", layers)
        with self._autocast(self.precision):
            states = computer.tokens if isinstance(computer, OnnxEngine) else computer
            (found,) = embed(states, None, self.tokenizer, [encoding], layers, "none")
        return encoding, found.float().numpy()

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        begin: str = "",
        batch: int | None = None,
        shown: Bar | None = None,
        places: Sequence[str] | None = None,
        beside: Sequence["Loaded"] = (),
        **settings: Any,
    ) -> list[list[Said]]:
        """Answers of an encoder-decoder; the keywords are those of `sesame.generate.Settings`, by default five beams.

        `places`, such as "test.en:3", say where the texts come from: what is said about one names its place. `beside`: other
        models of the same tokenizer; all speak as one, by the mean of their probabilities.
        """
        if not self.parts.backbone.answers:
            remedy = (
                "it continues texts, use `sesame generate`" if self._causal else "take one that was trained on pairs"
            )
            raise SesameError(f"{self.folder}: has no encoder and decoder, so it cannot translate; {remedy}")
        voice = voice_of(self.parts)
        if begin:
            voice = replace(voice, first=(*voice.first, *self.tokenizer.answers.encode(begin).ids))
        return self._speak(texts, voice, {"beams": 5, **settings}, batch, shown, places, beside)

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        batch: int | None = None,
        shown: Bar | None = None,
        places: Sequence[str] | None = None,
        **settings: Any,
    ) -> list[list[Said]]:
        """Continuations of prompts; the keywords are those of `sesame.generate.Settings`, by default greedy.

        `places`: as in `translate`.
        """
        if self.parts.backbone.answers:
            raise SesameError(f"{self.folder}: answers sources and does not continue prompts; use `sesame translate`")
        return self._speak(texts, voice_of(self.parts), settings, batch, shown, places)

    def _speak(
        self,
        texts: str | Sequence[str],
        voice: Voice,
        settings: dict[str, Any],
        batch: int | None,
        shown: Bar | None,
        places: Sequence[str] | None,
        beside: Sequence["Loaded"] = (),
    ) -> list[list[Said]]:
        texts = texts_of(texts)
        if self.speaker is None:
            self.speaker = quickest(self.parts)
        speaks = together(self.parts, [other.parts for other in beside]) if beside else self.speaker
        return answers(self.parts, texts, settings, speaks=speaks, voice=voice, batch=batch, shown=shown, places=places)

    def reader(self) -> Backbone | FastEncoder:
        """Who gives the states of all layers; never ONNX Runtime, whose graphs give one."""
        if self.onnx:
            return reading(self.parts).backbone
        computer = self._computer(self.precision, "embed")
        assert not isinstance(computer, OnnxEngine)
        return computer

    # ---- who computes --------------------------------------------------------------------------------------------

    def _computer(
        self, precision: Precision, head: str, layers: str | None = None, pooling: str | None = None
    ) -> Backbone | FastEncoder | OnnxEngine:
        """The graph of a head if ONNX Runtime is wanted; on a CPU the packed encoder; else the backbone itself."""
        backbone = reading(self.parts).backbone if head == "embed" else self.parts.backbone
        if self.onnx:
            if precision not in self.graphs:
                self.graphs[precision] = OnnxEngines(self.folder, precision)
            return self.graphs[precision].get(head, layers, pooling)
        weight = next(backbone.parameters())
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or not isinstance(backbone, Encoder):
            return backbone
        if precision not in self.fast:
            self.fast[precision] = FastEncoder(backbone, precision)
        return self.fast[precision]

    def _autocast(self, precision: Precision) -> AbstractContextManager[None]:
        device = next(self.parts.backbone.parameters()).device.type
        if precision == "bf16" and device != "cpu":
            return torch.autocast(device, torch.bfloat16)
        return nullcontext()

    def _unsure(self, what: str) -> bool:
        """Fewer bits of this model were not compared yet; an exported graph was, when it was written."""
        return self.precision != "fp32" and what not in self.agreed and not exported(self.folder)

    def _settle(self, what: str, found: fewer_bits.Agreement) -> None:
        self.fast.pop("fp32", None)  # they were here to compare with
        self.graphs.pop("fp32", None)
        found.judge(self.precision, self.accept)
        self.agreed.add(what)
