"""TOML to frozen dataclasses, strictly: an unknown key is an error that names the nearest known one."""

import dataclasses
import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sesame.errors import SesameError

T = TypeVar("T")


def build(cls: type[T], values: Mapping[str, Any], place: str) -> T:
    """Make a dataclass from a table; `place` ("bert.toml: optimizer") leads every complaint."""
    if not isinstance(values, Mapping):
        raise SesameError(f"{place}: expected a table of keys, found {values!r}")
    hints = get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise SesameError(unknown(key, known, place))
    given = {key: _convert(hints[key], value, f"{place}: {key}") for key, value in values.items()}
    for name, field in known.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in given:
            raise SesameError(f"{place}: the key {name!r} is missing; add it")
    return cls(**given)


def check_options(cls: type[Any], options: Iterable[str], place: str, more: Iterable[str] = ()) -> None:
    """Refuse keywords of a program that are neither fields of a dataclass nor among `more`."""
    known = dict.fromkeys([*(field.name for field in dataclasses.fields(cls)), *more])
    for key in options:
        if key not in known:
            raise SesameError(unknown(key, known, place, "option"))


def check_seconds(name: str, value: object) -> None:
    """A program gives seconds, where the command line has 90s or 10m."""
    if value is not None and (not isinstance(value, int | float) or not value > 0):
        raise SesameError(f"{name} is {value!r}; give seconds above 0, such as 600")


def several(given: str | Path | Iterable[str | Path] | None) -> list[str]:
    """A program gives one name where several may stand, or None for none; a text alone is one, not its letters."""
    if given is None:
        return []
    return [str(given)] if isinstance(given, str | Path) else [str(one) for one in given]


def unknown(key: str, known: Mapping[str, Any], place: str, what: str = "key") -> str:
    near = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
    return f"{place}: unknown {what} {key!r}; {hint}"


def _convert(wanted: Any, value: Any, place: str) -> Any:
    origin = get_origin(wanted)
    if wanted is Any:
        return value
    if origin is Literal:
        if value not in get_args(wanted):
            raise SesameError(f"{place} is {value!r}; it must be one of {', '.join(map(_shown, get_args(wanted)))}")
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in get_args(wanted):
            return None
        return _convert(next(kind for kind in get_args(wanted) if kind is not NoneType), value, place)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise SesameError(f"{place}: expected a table of keys, found {value!r}")
        return {key: _convert(get_args(wanted)[1], inner, f"{place}.{key}") for key, inner in value.items()}
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise SesameError(f"{place} is {value!r}; it must be a list")
        return origin(_convert(get_args(wanted)[0], inner, place) for inner in value)
    if dataclasses.is_dataclass(wanted):
        return build(wanted, value, place)  # type: ignore[arg-type]
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise SesameError(f"{place} is {value!r}; it must be {_KINDS.get(wanted, wanted.__name__)}")
    if isinstance(value, float) and math.isnan(value):  # TOML knows it, and no comparison finds it
        raise SesameError(f"{place} is nan; it must be a number")
    return value


def _shown(choice: Any) -> str:
    return str(choice) or '""'


_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows' editors begin files with a mark
    except FileNotFoundError:
        raise SesameError(f"{path}: no such file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SesameError(f"{path}: not valid TOML: {error}") from error


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; anything else is replaced."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def says_steps(settings: Iterable[str], **others: object) -> bool:
    """Whether `--set steps=N` says when to end; beside another option that does, one of the two would be passed over."""
    asked = any("steps" in parse_setting(one) for one in settings)
    for name, value in others.items():
        if asked and value is not None:
            raise SesameError(f"--set steps=... and --{name} both say when to end; give one of them")
    return asked


def parse_setting(text: str) -> dict[str, Any]:
    """`optimizer.rate=1e-3` as a table; a value that is not TOML is taken as a text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SesameError(f"--set {text}: write key=value, such as optimizer.rate=1e-3")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    result: Any = parsed
    for part in reversed(key.strip().split(".")):
        result = {part: result}
    return dict(result)


def dump_toml(values: Mapping[str, Any], prefix: str = "") -> str:
    """A table as TOML: plain keys first, then the tables inside it."""
    plain = [f"{_key(key)} = {_value(value)}" for key, value in values.items() if not isinstance(value, Mapping)]
    parts = ["\n".join(plain) + "\n"] if plain else []
    for key, value in values.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{_key(key)}"
            inner = dump_toml(value, f"{name}.")
            empty = not value or any(not isinstance(item, Mapping) for item in value.values())
            parts.append((f"[{name}]\n" if empty else "") + inner)
    return "\n".join(parts)


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)
