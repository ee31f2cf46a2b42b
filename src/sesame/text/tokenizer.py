"""Words to ids and back.

A `Tokenizer` is a `tokenizers.Tokenizer` (the backend does all of the splitting) plus what the backend does not know:
which token plays which role, how long the model's inputs may be, and how a folder is written that others can open.

What is unusual here: a stranger's text may contain "[SEP]" or "</s>" as plain characters. With `literal=True` they stay
plain characters and never become control tokens; corpora must be encoded so. Tokens that a folder lists as special without
a role ("[E1]" before an entity) were made to stand in texts, and are found there either way.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tokenizers

from sesame.errors import SesameError
from sesame.files import write_json, write_whole

ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")

# A Unicode noncharacter: never part of text that is exchanged, so a name that starts with it cannot occur in one.
_OUT_OF_REACH = "\ufdd0"
PADDING, CUTTING = "padding_side", "truncation_side"  # in tokenizer_config.json: "left" or "right"
LISTED = "additional_special_tokens"  # in tokenizer_config.json; transformers 5 also writes "extra_special_tokens"
_CONTROL = re.compile(
    r"<extra_id_\d+>|<eo[pd]>|<(un|mas)k_\d+>|<mask>|</?s>NOTUSED"
)  # listed too, but no part of texts
ANSWERS = "tokenizer.answers.json"  # beside tokenizer.json, where answers are cut by pieces of their own
AROUND = "sesame_template"  # in tokenizer_config.json: what stands around a text, where tokenizer.json does not say it


@dataclass(frozen=True)
class Encoding:
    """The pieces of one text or of a pair; all lists have one entry for each piece."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # characters of the original text; specials have (0, 0)
    words: list[int | None]  # the pre-token that a piece belongs to, counted anew in each text; None for specials
    segments: list[int]  # type ids, as the template of the tokenizer sets them


class Tokenizer:
    """Text to ids and back, with named roles.

    `roles` maps those of `ROLES` that exist to their token, e.g. {"pad": "[PAD]"}. `max_length` is the longest input of
    the model that the tokenizer belongs to, or None. `inputs` are the model's input names where a folder states them, `sides`
    at which end of a text others shall pad and cut: nothing here follows them, but a folder must not lose them. `further`
    are the special tokens without a role that a folder lists.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        roles: dict[str, str],
        max_length: int | None = None,
        *,
        inputs: Sequence[str] | None = None,
        sides: Mapping[str, str] = MappingProxyType({}),
        further: Sequence[str] = (),
        answers: "Tokenizer | None" = None,
        name: str = "this tokenizer",
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.roles = {role: roles[role] for role in ROLES if role in roles}
        self.max_length = max_length
        self.name = name
        self._inputs = list(inputs) if inputs is not None else None
        self.sides = dict(sides)
        self.further = tuple(further)
        self.own_answers = answers
        for role, token in self.roles.items():
            if backend.token_to_id(token) is None:
                raise SesameError(f"{name}: the {role} token {token!r} is not in the vocabulary; name one that is")

    @classmethod
    def load(cls, path: str | Path, rows: int | None = None) -> "Tokenizer":
        """Read a folder or a file: tokenizer.json, vocab.txt, vocab.json with merges.txt, or a SentencePiece model; of a
        model with so many `rows`."""
        from sesame.text.load import load_tokenizer

        return load_tokenizer(Path(path), rows)

    @property
    def answers(self) -> "Tokenizer":
        """Who cuts answers: another one where each side has its own pieces (Marian), with the same ids."""
        return self if self.own_answers is None else self.own_answers

    def __len__(self) -> int:
        """The highest id plus one: the rows that an embedding table needs."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def has(self, role: str) -> bool:
        return role in self.roles

    def id(self, role: str) -> int:
        if role not in self.roles:
            known = ", ".join(self.roles) or "none"
            raise SesameError(f"{self.name} has no {role} token (it has: {known}); choose a tokenizer that has one")
        id = self.backend.token_to_id(self.roles[role])
        assert id is not None, "checked when the tokenizer was made"
        return id

    def ids(self) -> dict[str, int]:
        return {role: self.id(role) for role in self.roles}

    def token(self, id: int) -> str:
        token = self.backend.id_to_token(id) if id >= 0 else None
        if token is None:
            raise SesameError(f"{self.name} has no token with id {id}; ids run from 0 to {len(self) - 1}")
        return str(token)

    def shown(self, id: int) -> str:
        """A token for people: bytes as the letters they stand for, with the space before a word; half a letter as it is."""
        token = self.token(id)
        if type(self.backend.decoder).__name__ != "ByteLevel":
            return token
        text = self.decode([id], skip_special=False)
        return text if text and "\ufffd" not in text else token

    def tokens(self) -> list[str]:
        """All tokens by id; an id that no token has gives an empty string."""
        found = [""] * len(self)
        for token, id in self.backend.get_vocab(with_added_tokens=True).items():
            found[id] = token
        return found

    def encode(self, text: str, special: bool = False, *, literal: bool = False) -> Encoding:
        """One text to pieces; `special` adds the template's tokens, `literal` reads "[SEP]" as plain characters."""
        return self.encode_batch([text], special, literal=literal)[0]

    def encode_pair(self, a: str, b: str, *, literal: bool = False) -> Encoding:
        """Two texts in one input, joined by the template."""
        return self._encode_all([(a, b)], special=True, literal=literal)[0]

    def encode_batch(self, texts: list[str], special: bool = False, *, literal: bool = False) -> list[Encoding]:
        """Many texts at once, on all cores."""
        return self._encode_all(texts, special, literal)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special))

    def fingerprint(self) -> str:
        """Equal fingerprints mean equal ids for every text."""
        state = json.loads(self.backend.to_str())
        if isinstance(state["model"]["vocab"], list):
            # The last digits of a Unigram score do not survive the library's reading of its own file.
            state["model"]["vocab"] = [[token, round(score, 6)] for token, score in state["model"]["vocab"]]
        more = [self.further] if self.further else []
        other = [] if self.own_answers is None else [self.own_answers.fingerprint()]
        decides = json.dumps([state, self.roles, *more, *other], sort_keys=True)
        return hashlib.sha256(decides.encode("utf-8")).hexdigest()

    def input_names(self) -> list[str]:
        """The inputs of a model for this tokenizer, in the ecosystem's names."""
        if self._inputs is not None:
            return list(self._inputs)
        one, two = self.encode(self.sample, special=True), self.encode_pair(self.sample, self.sample)
        types = {*two.segments, *one.segments}
        return ["input_ids", *(["token_type_ids"] if len(types) > 1 else []), "attention_mask"]

    def segments_of(self, found: tokenizers.Encoding) -> list[int]:
        """The template's segments; all 0 where the folder states inputs of its model without them, as others take it."""
        told = self._inputs is None or "token_type_ids" in self._inputs
        return found.type_ids if told else [0] * len(found.ids)

    @cached_property
    def sample(self) -> str:
        """A text that has pieces, to see what the template puts around one: "a", or a token of a vocabulary without it."""
        if self.encode("a").ids:
            return "a"
        known = (self.decode([id]) for id in sorted(self.backend.get_vocab(with_added_tokens=True).values()))
        return next((text for text in known if self.encode(text).ids), "a")

    @cached_property
    def marks(self) -> frozenset[str]:
        """Those of `further` that are found in every text, also in one that is read as characters."""
        return frozenset(token for token in self.further if not _CONTROL.fullmatch(token))

    @cached_property
    def cls_last(self) -> bool:
        """Whether the template puts the class token behind the text, as XLNet's does."""
        return self.has("cls") and self.encode(self.sample, special=True).ids[-1] == self.id("cls")

    def padding_as_usual(self) -> "Tokenizer":
        """The tokenizer for a model that learns here: whatever another folder said, its rows are padded as in training."""
        if PADDING not in self.sides:
            return self
        sides = {key: side for key, side in self.sides.items() if key != PADDING}
        return self.changed(sides=sides)

    def for_a_new_model(self) -> "Tokenizer":
        """The same, and what inputs another model had is forgotten."""
        usual = self.padding_as_usual()
        return usual if usual._inputs is None else usual.changed(inputs=None)

    def changed(self, **changes: Any) -> "Tokenizer":
        """The same but for some of what it is made of, by the names of `__init__`."""
        kept = {name: getattr(self, name) for name in ("backend", "roles", "max_length", "sides", "further", "name")}
        return Tokenizer(**({**kept, "inputs": self._inputs, "answers": self.own_answers} | changes))

    def save(self, folder: Path, before: Sequence[int] | None = None) -> None:
        """Write tokenizer.json and its two companions, so that `transformers.AutoTokenizer` gives equal ids.

        `before`: there these tokens stand before a text and nothing behind it, and the template is kept for us alone: whoever
        continues a prompt elsewhere must not meet the end of a text behind it.
        """
        added = {
            str(id): {
                "content": token.content,
                "lstrip": token.lstrip,
                "normalized": token.normalized,
                "rstrip": token.rstrip,
                "single_word": token.single_word,
                "special": token.special,
            }
            for id, token in sorted(self.backend.get_added_tokens_decoder().items())
        }
        named = {f"{role}_token": token for role, token in self.roles.items()}
        config: dict[str, Any] = {
            # Any family's own class would make transformers rebuild the pipeline by that family's rules.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": self.input_names(),
            "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": added,
            **named,
        }
        if self.cls_last:  # transformers reads a text's state at the last place of a row
            config[PADDING] = "left"
        config |= self.sides
        if self.further:
            config[LISTED] = list(self.further)
        if self.max_length is not None:
            config["model_max_length"] = self.max_length
        state = json.loads(self.backend.to_str())
        if before is not None:
            config[AROUND] = state["post_processor"]
            state["post_processor"] = _only_before(state["post_processor"], {self.token(id): id for id in before})
        write_whole(folder / "tokenizer.json", json.dumps(state, ensure_ascii=False, indent=2))
        if self.own_answers is not None:
            state = json.loads(self.own_answers.backend.to_str())
            write_whole(folder / ANSWERS, json.dumps(state, ensure_ascii=False, indent=2))
        write_json(folder / "tokenizer_config.json", config)
        write_json(folder / "special_tokens_map.json", named)

    def _encode_all(self, inputs: Sequence[Any], special: bool, literal: bool) -> list[Encoding]:
        backend = self._literal_backend if literal else self.backend
        try:
            found = backend.encode_batch(list(inputs), add_special_tokens=special)
        except (TypeError, UnicodeEncodeError):
            # Half of a surrogate pair (broken JSON has them) is not a character; one stands in for one, offsets hold.
            found = backend.encode_batch([_whole_characters(text) for text in inputs], add_special_tokens=special)
        return [Encoding(e.ids, e.offsets, e.word_ids, self.segments_of(e)) for e in found]

    @cached_property
    def _literal_backend(self) -> tokenizers.Tokenizer:
        """The same tokenizer with its special tokens renamed to what no text contains; all ids stay.

        The library's own switch, `encode_special_tokens`, is not enough: it skips the first search for special tokens,
        but a Unigram model then finds "</s>" among its pieces all the same.
        """
        state = json.loads(self.backend.to_str())
        hidden = {t["content"] for t in state["added_tokens"] if t["special"] and len(t["content"]) > 1}
        hidden -= self.marks
        for token in state["added_tokens"]:
            token["content"] = _hide(token["content"], hidden)
        model = state["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {_hide(token, hidden): id for token, id in model["vocab"].items()}
        else:
            model["vocab"] = [[_hide(token, hidden), score] for token, score in model["vocab"]]
        if model.get("unk_token") is not None:
            model["unk_token"] = _hide(model["unk_token"], hidden)
        return tokenizers.Tokenizer.from_str(json.dumps(state))


def _only_before(processor: dict[str, Any] | None, tokens: dict[str, int]) -> dict[str, Any] | None:
    """What mends offsets stays; of a template the tokens before a text."""
    parts = [] if processor is None else processor.get("processors", [processor])
    kept = [part for part in parts if part["type"] == "ByteLevel"]
    if tokens:
        special: list[Any] = [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens]
        first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
        known = {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in tokens.items()}
        texts = {"single": [*special, first], "pair": [*special, first, second]}
        kept.append({"type": "TemplateProcessing", **texts, "special_tokens": known})
    return {"type": "Sequence", "processors": kept} if len(kept) > 1 else next(iter(kept), None)


def _hide(token: str, hidden: set[str]) -> str:
    return _OUT_OF_REACH + token if token in hidden else token


def _whole_characters(text: Any) -> Any:
    if isinstance(text, tuple):
        return tuple(_whole_characters(part) for part in text)
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
