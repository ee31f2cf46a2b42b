"""Open a tokenizer in any of the forms in which published models carry one.

A folder may hold several; tokenizer.json is the whole truth where it exists, but for flags that the class of a family takes
from tokenizer_config.json (`follow_flags`). The others are bare vocabularies whose preparation follows from the family
(`families.py`) that the folder's config names or the vocabulary shows.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from sesame.errors import SesameError
from sesame.progress import say
from sesame.text import families
from sesame.text.companions import Companions, read_companions
from sesame.text.marian import ROLES as ROLES_OF_MARIAN
from sesame.text.marian import is_marian, marian
from sesame.text.tokenizer import ANSWERS, AROUND, Tokenizer
from sesame.text.vocabulary_files import read_byte_level, read_model, read_whole, read_wordpiece

_KNOWN = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model", "sentencepiece.bpe.model")


def load_tokenizer(path: Path, rows: int | None = None) -> Tokenizer:
    """Read the tokenizer in `path`: a folder, one of the known files, or a run, whose model's it is; `rows` has the table of
    its model, if there is one."""
    if (path / "recipe.toml").is_file():  # before there is a model, the run keeps its tokenizer beside
        path = next((folder for folder in (path / "final", path / "tokenizer") if folder.is_dir()), path)
    if is_marian(path):
        return _load_marian(path)
    source = _find(path)
    beside = read_companions(source.parent)
    whole = source.suffix == ".json" and source.name != "vocab.json"
    backend, family = _read(source, beside)
    _add_tokens(backend, beside, source, bare=not whole)
    roles = _roles(backend, family, beside)
    _mark_special(backend, roles, beside.flags, mask_takes_space=not whole and family == "roberta")
    if not whole and family is not None:
        families.frame_by_roles(backend, family, roles)
    if AROUND in beside.settings and source.name == "tokenizer.json":
        backend = _with_template(backend, beside.settings[AROUND], source.parent)
    _append(backend, beside.appended, rows, path)
    return Tokenizer(
        backend,
        roles,
        beside.max_length,
        inputs=beside.inputs,
        sides=beside.sides,
        further=_further(backend, roles, beside.listed),
        answers=_answers(source, roles),
        name=str(path),
    )


def _load_marian(path: Path) -> Tokenizer:
    beside = read_companions(path)
    other = Tokenizer(marian(path, "target"), ROLES_OF_MARIAN, name=str(path))
    return Tokenizer(
        marian(path), ROLES_OF_MARIAN, beside.max_length, sides=beside.sides, answers=other, name=str(path)
    )


def _read(source: Path, beside: Companions) -> tuple[tokenizers.Tokenizer, str | None]:
    """A tokenizer of this file, and its family if one is known."""
    family = families.FAMILY_NAMES.get(beside.declared or "")
    if source.name != "tokenizer.json" and beside.declared in families.OTHER_RULES:
        raise SesameError(
            f"{source}: the tokenizer of {beside.declared} has rules of its own that this file does not tell; "
            "take its tokenizer.json, if it has one"
        )
    if source.suffix == ".model":
        return read_model(source, family, beside)
    if source.suffix == ".txt":
        return read_wordpiece(source, beside)
    if source.name == "vocab.json":
        return read_byte_level(source, family, beside)
    backend = read_whole(source)
    if not beside.generic:
        families.follow_flags(backend, family, beside.settings)
    return backend, family


def _answers(source: Path, roles: dict[str, str]) -> Tokenizer | None:
    """The tokenizer of answers, where folders of ours keep one beside."""
    beside = source.with_name(ANSWERS)
    told = source.name == "tokenizer.json" and beside.is_file()
    return Tokenizer(read_whole(beside), roles, name=str(beside)) if told else None


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


def _add_tokens(backend: tokenizers.Tokenizer, beside: Companions, source: Path, bare: bool) -> None:
    """Add what the companions of a vocabulary list, each under the id that they give; a tokenizer.json knows better."""
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    for id, token in sorted(beside.added.items()):
        if token.content in present and not bare:
            continue
        backend.add_tokens([token])
        if backend.token_to_id(token.content) != id:
            got = backend.token_to_id(token.content)
            raise SesameError(
                f"{source.parent}: the added token {token.content!r} should have id {id} but gets {got}; "
                f"{source.name} and the list of added tokens do not belong together"
            )


def _roles(backend: tokenizers.Tokenizer, family: str | None, beside: Companions) -> dict[str, str]:
    """Named in the files, else the family's, else known by their looks; only tokens that exist."""
    vocab = backend.get_vocab(with_added_tokens=True)
    if beside.generic and any(beside.named.values()):
        usual: Mapping[str, str] = {}
    elif family is not None:
        usual = families.FAMILY_ROLES[family]
    else:
        usual = _guess_roles(vocab)
    roles = {role: token for role, token in usual.items() if token in vocab}
    for role, name in beside.named.items():
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
