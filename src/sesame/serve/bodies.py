"""What a client may send: one body for each thing that can be asked.

Strict: a number in quotes is no number, an unknown key is a mistake, NaN is none. Sizes that belong to a server (`limits.py`)
are checked by `asking.py`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(max_length=200)]
Some = Annotated[list[str], Field(min_length=1)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="Which model; needed when several are served.")

    def inputs(self) -> list[Any]:
        """What is computed, one answer for each."""
        raise NotImplementedError

    def read(self) -> list[Any]:
        """The texts, or pairs of them, that are measured."""
        return self.inputs()


class Texts(Body):
    text: str | None = Field(None, description="One text ...")
    texts: Some | None = Field(None, description="... or several.")

    @model_validator(mode="after")
    def _one_of_both(self) -> "Texts":
        either(self.text, self.texts, "text", "texts")
        return self

    def inputs(self) -> list[Any]:
        return [self.text] if self.texts is None else list(self.texts)


class TaskTexts(Texts):
    task: Name | None = Field(None, description="Which task; needed when several of this kind were taught.")


class PairTexts(TaskTexts):
    pair: str | None = Field(None, description="The second text of a pair, beside text.")
    pairs: Some | None = Field(None, description="The second texts, beside texts.")

    @model_validator(mode="after")
    def _as_many(self) -> "PairTexts":
        if (self.pair is not None and self.text is None) or (self.pairs is not None and self.texts is None):
            raise ValueError("pair stands beside text, pairs beside texts")
        if self.pairs is not None and self.texts is not None and len(self.pairs) != len(self.texts):
            raise ValueError(f"{len(self.texts)} texts have {len(self.pairs)} pairs; give as many")
        return self

    def inputs(self) -> list[Any]:
        if self.texts is None:
            return [(self.text, self.pair)]
        seconds: Sequence[str | None] = self.pairs or [None] * len(self.texts)
        return list(zip(self.texts, seconds, strict=True))


class Question(Body):
    task: Name | None = None
    question: str | None = Field(None, description="One question and its context ...")
    context: str | None = None
    questions: Some | None = Field(None, description="... or several and as many contexts.")
    contexts: Some | None = None
    best: int = Field(1, ge=1, le=20, description="How many answers.")

    @model_validator(mode="after")
    def _both(self) -> "Question":
        either(self.question, self.questions, "question", "questions")
        either(self.context, self.contexts, "context", "contexts")
        if (self.question is None) != (self.context is None):
            raise ValueError("context stands beside question, contexts beside questions")
        if self.questions is not None and len(self.questions) != len(self.contexts or []):
            raise ValueError(f"{len(self.questions)} questions have {len(self.contexts or [])} contexts; give as many")
        return self

    def inputs(self) -> list[Any]:
        if self.questions is None:
            return [(self.question, self.context)]
        return list(zip(self.questions, self.contexts or [], strict=True))


class Gaps(Texts):
    top: int = Field(5, ge=1, le=50, description="How many tokens for each gap.")


class Sides(Body):
    a: str | Some = Field(description="One text or several ...")
    b: str | Some = Field(description="... and what each is compared with.")

    def sides(self) -> tuple[list[str], list[str]]:
        a, b = ([side] if isinstance(side, str) else list(side) for side in (self.a, self.b))
        return a, b

    def inputs(self) -> list[Any]:
        a, b = self.sides()
        return a + b


class Speech(Texts):
    max_tokens: int | None = Field(None, ge=1, description="New tokens at most.")
    beams: int | None = Field(None, ge=1, le=32, description="Hypotheses that a search follows; 1: greedy.")
    temperature: float | None = Field(None, gt=0, le=100, description="Draws tokens instead of searching.")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="Draws from the k likeliest tokens.")
    top_p: float | None = Field(None, gt=0, le=1, description="Draws from the fewest tokens that hold this share.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Draws; another seed draws other tokens.")
    best: int = Field(1, ge=1, le=20, description="How many outputs for each text.")
    alternatives: int = Field(0, ge=0, le=10, description="Other tokens at each step of the best output.")

    def settings(self) -> dict[str, Any]:
        """As `sesame.generate.Settings` names them."""
        asked: dict[str, Any] = {"most": self.max_tokens, "beams": self.beams, "best": self.best}
        drawn = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "seed": self.seed}
        drawn = {name: value for name, value in drawn.items() if value is not None}
        if drawn:
            asked |= {"beams": self.beams or 1, "sample": True, **drawn}
        return {name: value for name, value in asked.items() if value is not None}


class Source(Speech):
    alignment: bool = Field(False, description="Also where the decoder looked.")


class Look(Body):
    text: str
    pair: str | None = None
    layer: int | None = Field(None, ge=0, le=1000, description="From 0; with head: the steps of this one.")
    head: int | None = Field(None, ge=0, le=1000, description="From 0.")

    @model_validator(mode="after")
    def _both(self) -> "Look":
        if (self.layer is None) != (self.head is None):
            raise ValueError("layer and head are given together, or neither")
        return self

    def inputs(self) -> list[Any]:
        return [(self.text, self.pair)]


class Options(Body):
    task: Name | None = None
    text: str = Field(description="The beginning, or the question.")
    choices: list[str] = Field(min_length=2, max_length=20, description="How it may go on, or be answered.")

    def inputs(self) -> list[Any]:
        return [(self.text, *self.choices)]

    def read(self) -> list[Any]:
        return [(self.text, choice) for choice in self.choices]  # each is read beside the text


class Near(Body):
    text: str = Field(description="A text in which the word stands.")
    word: Name = Field(description="The word, as it stands there; small or capital does not matter.")
    at: int = Field(1, ge=1, le=100_000, description="Which of its occurrences, from 1.")
    texts: list[str] = Field(min_length=2, description="The lines to look among.")
    layer: int | None = Field(
        None, ge=0, le=1000, description="From 0, the embeddings; by default the last four, summed."
    )
    top: int = Field(10, ge=1, le=50, description="How many neighbours.")

    def inputs(self) -> list[Any]:
        return [(self.text, self.word, self.at, tuple(self.texts))]

    def read(self) -> list[Any]:
        return [*self.texts, self.text]


class Rows(Body):
    texts: list[str] = Field(min_length=10, description="Labelled texts, at least 10.")
    labels: list[Name] = Field(description="As many labels: at least two different ones, each at least twice.")

    @model_validator(mode="after")
    def _enough(self) -> "Rows":
        counts = Counter(self.labels)
        if len(self.texts) != len(self.labels):
            raise ValueError(f"{len(self.texts)} texts have {len(self.labels)} labels; give as many")
        if len(counts) < 2:
            raise ValueError("all labels are the same, so there is nothing to tell apart; give others too")
        if min(counts.values()) < 2:
            raise ValueError("a label stands once only; a probe needs two rows of each, to learn from and to ask about")
        return self

    def inputs(self) -> list[Any]:
        return [(tuple(self.texts), tuple(self.labels))]

    def read(self) -> list[Any]:
        return list(self.texts)


class Answers(BaseModel):
    model: str
    answers: list[Any]


class Wrong(BaseModel):
    error: str


class Health(BaseModel):
    status: Literal["ready", "stopping"]
    models: list[str] | None = None


BODIES: dict[str, type[Body]] = {
    "classify": PairTexts,
    "regress": PairTexts,
    "tag": TaskTexts,
    "qa": Question,
    "fill": Gaps,
    "embed": Texts,
    "similarity": Sides,
    "generate": Speech,
    "translate": Source,
    "tokenize": Texts,
    "attention": Look,
    "nsp": PairTexts,
    "choice": Options,
    "neighbours": Near,
    "layers": Rows,
}


ABOUT = {
    "classify": "The label of each text (or pair), with the probability of every label.",
    "regress": "A number for each text (or pair).",
    "tag": "Names and other spans of each text, with their places and labels.",
    "qa": "The answer to a question in its context: the best spans, and the chance that there is none.",
    "choice": "Which of several endings or answers fits a text.",
    "fill": "The likeliest tokens for every [MASK] of a text.",
    "embed": "A vector for each text.",
    "similarity": "The cosine of every text of a with every one of b.",
    "nsp": "Does the pair follow the text? BERT's next-sentence prediction.",
    "generate": "How a text may go on; with alternatives at each step.",
    "translate": "The answers of an encoder-decoder; with alternatives and where it looked.",
    "tokenize": "The pieces of each text, their ids and places, and the text as it was normalized.",
    "attention": "The attention weights of all layers and heads; with layer and head, all numbers of one head.",
    "neighbours": "The words of some lines that lie nearest to a word in its context.",
    "layers": "How well labels can be read off each layer: a linear probe.",
}


def either(one: object, many: object, name: str, names: str) -> None:
    if (one is None) == (many is None):
        raise ValueError(f"give either {name} or {names}")
