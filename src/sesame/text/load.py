"""Open a tokenizer in any of the forms in which published models carry one.

A folder may hold several; tokenizer.json is the whole truth where it exists, but for flags that the class of a family takes
from tokenizer_config.json (`follow_flags`). The others are bare vocabularies whose preparation follows from the family
(`families.py`) that the folder's config names or the vocabulary shows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from sesame.errors import SesameError
from sesame.files import read_json
from sesame.progress import say
from sesame.text import families
from sesame.text.marian import ROLES as ROLES_OF_MARIAN
from sesame.text.marian import is_marian, marian
from sesame.text.sentencepiece import read_sentencepiece
from sesame.text.tokenizer import ANSWERS, AROUND, CUTTING, LISTED, PADDING, ROLES, Tokenizer

_KNOWN = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model")

# Classes that read tokenizer.json as it stands; those of a family change what their settings name.
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")

EXTRA = "extra_special_tokens"  # what transformers 5 calls LISTED

# transformers writes 1e30 where it does not know the length.
_ABSURD_LENGTH = 10**9

# Families whose ids are not those of their .model file, by rules that are not told in it.
_SHIFTED = (
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
class _Around:
    """What the files beside a vocabulary say."""

    settings: dict[str, Any]  # tokenizer_config.json
    named: dict[str, str | None]  # role -> token; None where a role is switched off
    flags: dict[str, AddedToken]  # of those among them that the files describe
    added: dict[int, AddedToken]
    declared: str | None  # the name of the family, as the files give it
    listed: list[str]  # special tokens that are listed without a role
    appended: list[str]  # those of them that the classes of transformers append to a vocabulary that lacks them


def load_tokenizer(path: Path, rows: int | None = None) -> Tokenizer:
    """Read the tokenizer in `path`: a folder, one of the known files, or a run, whose model's it is; `rows` has the table of
    its model, if there is one."""
    if (path / "recipe.toml").is_file():  # before there is a model, the run keeps its tokenizer beside
        path = next((folder for folder in (path / "final", path / "tokenizer") if folder.is_dir()), path)
    if is_marian(path):
        settings = _read_around(path).settings
        length, sides = _max_length(settings), _sides(settings)
        other = Tokenizer(marian(path, "target"), ROLES_OF_MARIAN, name=str(path))
        return Tokenizer(marian(path), ROLES_OF_MARIAN, length, sides=sides, answers=other, name=str(path))
    source = _find(path)
    around = _read_around(source.parent)
    family = families.FAMILY_NAMES.get(around.declared or "")
    bare = True
    if source.name != "tokenizer.json" and around.declared in families.OTHER_RULES:
        raise SesameError(
            f"{source}: the tokenizer of {around.declared} has rules of its own that this file does not tell; "
            "take its tokenizer.json, if it has one"
        )
    if source.suffix == ".model":
        backend, family = _load_sentencepiece(source, family, around)
    elif source.suffix == ".txt":
        unk = around.named.get("unk") or families.FAMILY_ROLES["bert"]["unk"]
        backend, family = families.wordpiece(_read_vocab_txt(source, unk), unk, around.settings), "bert"
    elif source.name == "vocab.json":
        backend, family = _load_byte_level(source, family, around.settings)
    else:
        backend, bare = _load_json(source), False
        if around.settings.get("tokenizer_class") not in _GENERIC:
            families.follow_flags(backend, family, around.settings)
    _add_tokens(backend, around, source, bare)
    roles = _roles(backend, family, around)
    _mark_special(backend, roles, around.flags, mask_takes_space=bare and family == "roberta")
    if bare and family is not None:
        families.frame_by_roles(backend, family, roles)
    if AROUND in around.settings and source.name == "tokenizer.json":
        backend = _with_template(backend, around.settings[AROUND], source.parent)
    length, sides = _max_length(around.settings), _sides(around.settings)
    _append(backend, around.appended, rows, path)
    further = _further(backend, roles, around.listed)
    beside = source.with_name(ANSWERS)
    told = source.name == "tokenizer.json" and beside.is_file()
    answers = Tokenizer(_load_json(beside), roles, name=str(beside)) if told else None
    return Tokenizer(
        backend, roles, length, inputs=_inputs(around), sides=sides, further=further, answers=answers, name=str(path)
    )


def _with_template(backend: tokenizers.Tokenizer, kept: Any, folder: Path) -> tokenizers.Tokenizer:
    """What stands around a text, where `Tokenizer.save` has put it aside."""
    state = json.loads(backend.to_str()) | {"post_processor": kept}
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state))
    except Exception as error:  # the library raises nothing more special
        raise SesameError(f"{folder}: {AROUND} in tokenizer_config.json is malformed; copy the file again") from error


def _find(path: Path) -> Path:
    if path.is_dir():
        for name in _KNOWN:
            if (path / name).is_file():
                return path / name
        others = sorted(path.glob("*.model"))
        if len(others) == 1:
            return others[0]
        if len(others) > 1:
            raise SesameError(f"{path}: holds several .model files; name the one to read")
        raise SesameError(f"{path}: no tokenizer here; expected one of {', '.join(_KNOWN)}")
    if not path.is_file():
        raise SesameError(f"{path}: no such file or folder; check the path of the tokenizer")
    if path.name == "merges.txt":
        return path.with_name("vocab.json")
    if path.suffix not in (".json", ".txt", ".model"):
        raise SesameError(f"{path}: not a tokenizer file; expected one of {', '.join(_KNOWN)}")
    return path


def _read_around(folder: Path) -> _Around:
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
    if name not in (*families.FAMILY_NAMES, *families.OTHER_RULES, *_SHIFTED):
        name = str(config.get("model_type") or "").lower() or name
    return _Around(settings, named, flags, added, name or None, listed, next(filter(None, lists), []))


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


def _load_json(path: Path) -> tokenizers.Tokenizer:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise SesameError(f"{path}: not a tokenizer.json (it has no model); name the file of a tokenizer")
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing narrower
        raise SesameError(f"{path}: the tokenizers library cannot read it ({error}); copy the file again") from error


def _read_lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            return [line.rstrip("\n") for line in lines]
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file; a byte-level BPE needs vocab.json and merges.txt") from None
    except UnicodeDecodeError as error:
        raise SesameError(f"{path}: not a text file in UTF-8 ({error.reason}); copy the file again") from error


def _read_vocab_txt(path: Path, unk: str) -> dict[str, int]:
    lines = _read_lines(path)
    while lines and not lines[-1]:
        lines.pop()
    vocab = {token: id for id, token in enumerate(lines)}
    if unk not in vocab:
        raise SesameError(
            f"{path}: not a WordPiece vocabulary (no {unk} in {len(lines)} lines); expected a token a line"
        )
    return vocab


def _load_byte_level(
    path: Path, family: str | None, settings: Mapping[str, Any]
) -> tuple[tokenizers.Tokenizer, str | None]:
    vocab = read_json(path)
    if not isinstance(vocab, dict) or not all(isinstance(id, int) for id in vocab.values()):
        raise SesameError(f"{path}: expected an object of tokens and ids; copy the file again")
    merges = path.with_name("merges.txt")
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(_read_lines(merges), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or any(part not in vocab for part in (*parts, "".join(parts))):
            raise SesameError(f"{merges}: line {number} is no merge of two tokens of vocab.json; copy both files again")
        pairs.append((parts[0], parts[1]))
    if any(token.endswith("</w>") for token in vocab):
        raise SesameError(f"{path}: a BPE with </w>, not a byte-level one; save it as tokenizer.json and load that")
    if family != "gpt2":
        family = families.guess_byte_level_family(vocab)
    return families.byte_level(vocab, pairs, family, settings), family


def _load_sentencepiece(path: Path, family: str | None, around: _Around) -> tuple[tokenizers.Tokenizer, str | None]:
    if around.declared in _SHIFTED:
        raise SesameError(f"{path}: {around.declared} renumbers its pieces; save it as tokenizer.json and load that")
    model = read_sentencepiece(path)
    if family not in ("albert", "deberta-v2", "xlnet", "t5", "xlm-roberta"):
        family = families.guess_spiece_family(model.pieces)
        if path.name == "sentencepiece.bpe.model":
            family = "xlm-roberta"
    try:
        return families.sentencepiece(model, family, around.settings), family
    except Exception as error:  # the library raises nothing narrower
        raise SesameError(f"{path}: not usable as a tokenizer of the family {family} ({error})") from error


def _add_tokens(backend: tokenizers.Tokenizer, around: _Around, source: Path, bare: bool) -> None:
    """Add what the companions of a vocabulary list, each under the id that they give; a tokenizer.json knows better."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    for id, token in sorted(around.added.items()):
        if token.content in present and not bare:
            continue
        backend.add_tokens([token])
        if backend.token_to_id(token.content) != id:
            got = backend.token_to_id(token.content)
            raise SesameError(
                f"{source.parent}: the added token {token.content!r} should have id {id} but gets {got}; "
                f"{source.name} and the list of added tokens do not belong together"
            )


def _roles(backend: tokenizers.Tokenizer, family: str | None, around: _Around) -> dict[str, str]:
    """Named in the files, else the family's, else known by their looks; only tokens that exist."""
    vocab = backend.get_vocab(with_added_tokens=True)
    generic = around.settings.get("tokenizer_class") in _GENERIC
    if generic and any(around.named.values()):
        usual: Mapping[str, str] = {}
    elif family is not None:
        usual = families.FAMILY_ROLES[family]
    else:
        usual = _guess_roles(vocab)
    roles = {role: token for role, token in usual.items() if token in vocab}
    for role, name in around.named.items():
        if name is None:
            roles.pop(role, None)
        else:
            roles[role] = name
    return roles


def _guess_roles(vocab: Mapping[str, int]) -> dict[str, str]:
    """The family whose tokens are most fully in the vocabulary gives the roles."""

    def fit(family: str) -> tuple[int, int]:
        tokens = set(families.FAMILY_ROLES[family].values())
        return len(tokens & vocab.keys()), -len(tokens - vocab.keys())

    return families.FAMILY_ROLES[max(families.FAMILY_ROLES, key=fit)]


def _mark_special(
    backend: tokenizers.Tokenizer, roles: Mapping[str, str], flags: Mapping[str, AddedToken], mask_takes_space: bool
) -> None:
    """Tokens with a role are special: found whole in text, left out by `decode`. A missing one is appended."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):  # the order in which transformers appends
        if role in roles and roles[role] not in known:
            lstrip = role == "mask" and mask_takes_space
            usual = AddedToken(roles[role], normalized=False, special=True, lstrip=lstrip)
            backend.add_special_tokens([flags.get(roles[role], usual)])
            known.add(roles[role])


def _append(backend: tokenizers.Tokenizer, tokens: list[str], rows: int | None, place: Path) -> None:
    """Listed tokens that the vocabulary lacks get the ids behind it, as in transformers, if the model has rows for them."""
    missing = [token for token in dict.fromkeys(tokens) if backend.token_to_id(token) is None]
    if missing and rows is not None and backend.get_vocab_size() + len(missing) > rows:
        named = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        say(
            f"{place}: special tokens that the vocabulary lacks are listed ({named}), and the model has no rows for them: in "
            "texts they are characters like any other"
        )
        return
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in missing])


def _further(backend: tokenizers.Tokenizer, roles: Mapping[str, str], listed: list[str]) -> list[str]:
    """Those of the listed tokens that the vocabulary has and that no role has taken; they are found whole in texts."""
    known = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    wanted = [token for token in dict.fromkeys(listed) if token not in roles.values() and known.get(token, True)]
    there = [token for token in wanted if backend.token_to_id(token) is not None]
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in there if token not in known]
    )
    return there


def _max_length(settings: Mapping[str, Any]) -> int | None:
    length = settings.get("model_max_length")
    return int(length) if isinstance(length, int | float) and 0 < length < _ABSURD_LENGTH else None


def _sides(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: settings[key] for key in (PADDING, CUTTING) if settings.get(key) in ("left", "right")}


def _inputs(around: _Around) -> list[str] | None:
    names = around.settings.get("model_input_names")
    if isinstance(names, list):
        return [str(name) for name in names]
    silent = around.declared == "distilbert" or around.settings.get("tokenizer_class") == "TokenizersBackend"
    return ["input_ids", "attention_mask"] if silent else None
