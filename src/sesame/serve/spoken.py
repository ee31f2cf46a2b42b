"""What a model says, what else it might have said at each step, and where it looked.

Alternatives: the output is said again, forced token by token, and the likeliest tokens of each step are noted before any
rule of the search touches them. (The last step is noted too; what is chosen there is of no interest.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from sesame.checkpoint.speech import answers, quickest, voice_of
from sesame.data.batch import Batch
from sesame.explain.alignment import align
from sesame.generate import Heard, Memory, Speaker
from sesame.loaded import Loaded
from sesame.tasks.speak import Said
from sesame.text import Tokenizer


@dataclass
class Listener:
    """A speaker of one text that is overheard: what follows is `told`."""

    speaker: Speaker
    tokenizer: Tokenizer
    told: list[int]
    count: int
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def vocab(self) -> int:
        return self.speaker.vocab

    def begin(self, batch: Batch, looks: bool = False) -> Heard:
        return self._note(self.speaker.begin(batch, looks))

    def next(self, ids: Tensor, memory: Memory, looks: bool = False) -> Heard:
        return self._note(self.speaker.next(ids, memory, looks))

    def _note(self, heard: Heard) -> Heard:
        chances = heard.logits[0].float().softmax(-1)
        best = chances.topk(min(self.count, len(chances)))
        token = self.told[len(self.steps)]
        others = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.steps.append(
            {
                "token": self._shown(token),
                "p": float(chances[token]),
                "alternatives": [{"token": self._shown(id), "p": p} for id, p in others],
            }
        )
        return heard

    def _shown(self, id: int) -> str:
        return self.tokenizer.shown(id) if id < len(self.tokenizer) else ""


def spoken(
    loaded: Loaded, inputs: Sequence[str], settings: tuple[tuple[str, Any], ...], alternatives: int, alignment: bool
) -> list[dict[str, Any]]:
    """The outputs for each text, the best first; with them, if asked, the steps and the alignment of the first."""
    speak = loaded.translate if loaded.parts.backbone.answers else loaded.generate
    found: list[dict[str, Any]] = []
    for text, outputs in zip(inputs, speak(inputs, **dict(settings)), strict=True):
        answer: dict[str, Any] = {"outputs": [{"text": said.text, "score": said.score} for said in outputs]}
        if alternatives:
            answer["steps"] = steps(loaded, text, outputs[0], alternatives)
        if alignment:
            seen = align(loaded.parts, text, outputs[0].text)
            weights = [[round(float(weight), 4) for weight in row] for row in seen.weights]
            answer["alignment"] = {"source": seen.source, "target": seen.answer, "weights": weights}
        found.append(answer)
    return found


def steps(loaded: Loaded, text: str, said: Said, count: int) -> list[dict[str, Any]]:
    voice = voice_of(loaded.parts)
    told = [*said.ids, *(voice.end[:1] if said.ended else ())]
    if not told:
        return []
    listener = Listener(loaded.speaker or quickest(loaded.parts), loaded.tokenizer, told, count)
    asked = {"most": len(told), "never": ()}
    answers(loaded.parts, [text], asked, speaks=listener, voice=replace(voice, first=tuple(told[:-1])))
    return listener.steps
