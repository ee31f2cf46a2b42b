"""What the files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from sesame.errors import SesameError
from sesame.files import read_json
from sesame.text import families
from sesame.text.tokenizer import CUTTING, LISTED, PADDING, ROLES

EXTRA = "extra_special_tokens"  # what transformers 5 calls LISTED

# Classes that read tokenizer.json as it stands; those of a family change what their settings name.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")

# transformers writes 1e30 where it does not know the length.
_ABSURD_LENGTH = 10**9

# Families whose ids are not those of their .model file, by rules that are not told in it.
SHIFTED = (
    "camembert",
    "mbart",
    "nllb",
    "pegasus",
    "barthez",
    "xglm",
    "m2m_100",
    "marian",
    "plbart",
    "bigbird_pegasus",
)


@dataclass(frozen=True)
class Companions:
    """The settings of a tokenizer, and the tokens that are named beside its vocabulary."""

    settings: dict[str, Any]  # tokenizer_config.json
    named: dict[str, str | None]  # role -> token; None where a role is switched off
    flags: dict[str, AddedToken]  # of those among them that the files describe
    added: dict[int, AddedToken]
    declared: str | None  # the name of the family, as the files give it
    listed: list[str]  # special tokens that are listed without a role
    appended: list[str]  # those of them that the classes of transformers append to a vocabulary that lacks them

    @property
    def generic(self) -> bool:
        """Whether tokenizer.json is read as it stands."""
        return self.settings.get("tokenizer_class") in _GENERIC

    @property
    def max_length(self) -> int | None:
        length = self.settings.get("model_max_length")
        return int(length) if isinstance(length, int | float) and 0 < length < _ABSURD_LENGTH else None

    @property
    def sides(self) -> dict[str, str]:
        """On which side texts are padded and cut, where it is told."""
        return {key: self.settings[key] for key in (PADDING, CUTTING) if self.settings.get(key) in ("left", "right")}

    @property
    def inputs(self) -> list[str] | None:
        """What the model is given, by transformers' names; None: as usual for the tokenizer."""
        names = self.settings.get("model_input_names")
        if isinstance(names, list):
            return [str(name) for name in names]
        silent = self.declared == "distilbert" or self.settings.get("tokenizer_class") == "TokenizersBackend"
        return ["input_ids", "attention_mask"] if silent else None


def read_companions(folder: Path) -> Companions:
    settings = _read_dict(folder / "tokenizer_config.json")
    named: dict[str, str | None] = {}
    flags: dict[str, AddedToken] = {}
    listed: list[str] = []
    sources = [settings, _read_dict(folder / "special_tokens_map.json")]
    decoded = "added_tokens_decoder" in settings
    lists = [_tokens(source, key) for source in sources[: 1 if decoded else 2] for key in (EXTRA, LISTED)]
    if decoded:  # before there was one, tokens that were named later stood in the map alone
        sources.reverse()
    try:
        for source in sources:
            for role in ROLES:
                if f"{role}_token" not in source:
                    continue
                said = source[f"{role}_token"]
                named[role] = token = families.content(said)
                if token and isinstance(said, dict):
                    flags[token] = _added_token(said | {"special": True})
            listed += _listed(source)
        added = {int(id): _added_token(token) for id, token in settings.get("added_tokens_decoder", {}).items()}
        for text, id in _read_dict(folder / "added_tokens.json").items():
            plain = text not in named.values() and text not in listed
            added.setdefault(int(id), AddedToken(text, normalized=plain, special=text in listed))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SesameError(f"{folder}: the list of added tokens is malformed ({error}); copy the files again") from error
    config = _read_dict(folder / "config.json")
    name = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or "")
    name = name.removesuffix("Fast").removesuffix("Tokenizer").lower()
    if name not in (*families.FAMILY_NAMES, *families.OTHER_RULES, *SHIFTED):
        name = str(config.get("model_type") or "").lower() or name
    return Companions(settings, named, flags, added, name or None, listed, next(filter(None, lists), []))


def _listed(source: Mapping[str, Any]) -> list[str]:
    """Special tokens without a role, under the names of transformers 4 and 5; some versions give each a name."""
    return [token for key in (LISTED, EXTRA) for token in _tokens(source, key)]


def _tokens(source: Mapping[str, Any], key: str) -> list[str]:
    tokens = source.get(key)
    tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
    return [token for token in map(families.content, tokens if isinstance(tokens, list) else []) if token]


def _read_dict(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise SesameError(f"{path}: expected an object with names and values; copy the file again")
    return value


def _added_token(token: Mapping[str, Any]) -> AddedToken:
    flags = {name: bool(token.get(name, False)) for name in ("lstrip", "rstrip", "single_word", "special")}
    return AddedToken(token["content"], normalized=bool(token.get("normalized", not flags["special"])), **flags)
