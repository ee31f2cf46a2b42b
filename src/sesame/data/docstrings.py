"""The documentation that every Python machine carries: docstrings of its standard library and installed packages.

It is real English prose, some megabytes of it, already on the disk: the text of the demo. Sources are read, never
imported.

What is unusual: docstrings are found by one regular expression (a string alone at the start of a line, behind a line
that ends in a colon) instead of by parsing. On the standard library it misses two in a thousand of those that `ast`
finds, is many times faster, and sources for other versions of Python are no obstacle.
"""

import ast
import hashlib
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

SHORTEST = 40  # characters of prose that make a docstring worth keeping
STANDARD = "python"  # the library name of the standard library
_SKIPPED = frozenset(
    ("test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "dist-packages", "_vendor", "vendor",
     "_vendored", "__pycache__", "turtledemo", "pydoc_data")
)  # fmt: skip
_TOPICS = Path("pydoc_data", "topics.py")


@dataclass(frozen=True)
class Docstring:
    library: str
    module: str
    name: str  # of the function or class; empty for the module itself
    text: str  # prose, a paragraph a line


def harvest(limit_bytes: int | None = None) -> Iterator[Docstring]:
    """Every docstring with enough prose: the standard library first, then the packages by name.

    A paragraph that was seen before is left out. `limit_bytes` ends the harvest after so many bytes of text.
    """
    seen: set[bytes] = set()
    total = 0
    for library, module, path, root in _sources():
        for name, raw in _topics(root / path) if path == _TOPICS else _docstrings(root / path):
            fresh = [part for part in prose(raw).split("\n") if _is_new(part, seen)]
            text = "\n".join(fresh)
            if len(text) < SHORTEST:
                continue
            yield Docstring(library, f"{module}.{name}" if path == _TOPICS else module, name, text)
            total += len(text.encode()) + 1
            if limit_bytes is not None and total >= limit_bytes:
                return


def documents(limit_bytes: int | None = None) -> Iterator[tuple[str, str]]:
    """(module, text) with all docstrings of a module as one document, a paragraph a line."""
    for module, group in groupby(harvest(limit_bytes), key=lambda entry: (entry.library, entry.module)):
        yield module[1], "\n".join(entry.text for entry in group)


def _is_new(paragraph: str, seen: set[bytes]) -> bool:
    digest = hashlib.blake2b(paragraph.encode("utf-8", "replace"), digest_size=8).digest()
    if digest in seen:
        return False
    seen.add(digest)
    return True


def _sources() -> Iterator[tuple[str, str, Path, Path]]:
    """(library, module, path below root, root) of every source file, in a fixed order."""
    paths = sysconfig.get_paths()
    standard = Path(paths["stdlib"])
    for path in [*_files(standard), *([_TOPICS] if (standard / _TOPICS).is_file() else [])]:
        yield STANDARD, _module(path), path, standard
    for root in sorted({Path(paths["purelib"]), Path(paths["platlib"])}):
        for path in _files(root):
            yield path.parts[0].removesuffix(".py"), _module(path), path, root


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _files(root: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED and "." not in name]
        for name in names:
            if name.endswith(".py") and not name.startswith(("test_", "conftest")):
                found.append(Path(place, name).relative_to(root))
    return sorted(found)


# Line by line: a header, a short string alone, or a long string, the line's first (also one that is no docstring:
# its closing quotes must not pass for opening ones). Nothing here backtracks inside a string.
_TOKEN = re.compile(
    r"""\n(?:[ \t]*+(?:
        (?:async[ ]+)?(?:def|class)[ \t]+(?P<header>\w+)
        | [rRuU]?(?P<short>"(?:[^"\\\n]|\\.){40,}+"|'(?:[^'\\\n]|\\.){40,}+')[ \t]*+(?=\n))
    | [^\n"'#]*+
      (?P<long>\"{3}[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+\"{3}|'{3}[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+'{3}))
    """,
    re.DOTALL | re.VERBOSE,
)
_OPENS_BODY = re.compile(r":[ \t]*(?:#[^\n]*)?\n\s*(?P<prefix>[rRuU]?)\Z")
_OPENS_FILE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*+(?P<prefix>[rRuU]?)\Z")


def _docstrings(path: Path) -> list[tuple[str, str]]:
    """(name, docstring) in one source file."""
    try:
        source = path.read_bytes().decode("utf-8", "ignore").replace("\r\n", "\n").removeprefix("\ufeff")
    except OSError:
        return []  # a link to nowhere or a file of somebody else: there is enough other text
    found: list[tuple[str, str]] = []
    name, source = "", "\n" + source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in other people's strings
        for match in _TOKEN.finditer(source):
            if match["header"]:
                name = match["header"]
                continue
            kind = match.lastgroup or ""
            opening = _opening(source, match.start(kind))
            if opening is not None:
                found.append((name, _value(opening["prefix"], match[kind], 3 if kind == "long" else 1)))
    return found


def _opening(source: str, start: int) -> re.Match[str] | None:
    """Is a string at `start` the first statement of a body, or of the file? Then what stands before it."""
    before = source[source.rfind("\n", 0, start) + 1 : start].strip()
    if len(before) > 1:
        return None
    body = _OPENS_BODY.search(source, max(0, start - 400), start)
    return body or (_OPENS_FILE.match(source, 0, start) if start < 10_000 else None)


def _value(prefix: str, literal: str, quotes: int) -> str:
    text = literal[quotes:-quotes]
    if "\\" not in text:
        return text
    try:
        return str(ast.literal_eval(prefix + literal))
    except (SyntaxError, ValueError):
        return text  # escapes that this version of Python does not know


def _topics(path: Path) -> list[tuple[str, str]]:
    """The language reference that `help()` shows: one dictionary of long texts."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics = ast.literal_eval(node.value)
            return [(str(name), str(text)) for name, text in sorted(topics.items())]
    return []


# ---- from a docstring to prose --------------------------------------------------------------------------------------

_PROSE_DIRECTIVES = "note|warning|tip|important|caution|attention|seealso|versionadded|versionchanged|deprecated"
_DIRECTIVE = re.compile(r"\.\. ([\w:-]+)::\s*(.*)")
_UNDERLINE = re.compile(r"([=\-~^\"*#+`'.])\1{2,}$")
_PROMPT = re.compile(r">>>|\.\.\.( |$)|\$ |In \[\d|%\w")
_PARAMETER = re.compile(r"[*`]{0,2}\w+[*`]{0,2}(?:, ?\*{0,2}\w+)* : ")
_SECTION = re.compile(r"[A-Z]\w*(?: \w+)?:$")
_FIELD = re.compile(r":(?P<kind>\w+)[^:]{0,60}:\s*|[*`]{0,2}\w+[*`]{0,2} ?\([^()]{1,80}(?:\([^()]*\)[^()]*)?\) ?: ")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)])\s+")
_ROLE = re.compile(
    r"(?::[\w+-]+)*:`(?:~?)([^`<]+?)(?:\s*<[^`>]*>)?`|`+([^`<]+?)(?:\s*<[^`>]*>)?`+_{0,2}|\*\*([^*]+)\*\*"
)
_NO_LETTERS = re.compile(r"[^\w ]+|[\d_]+")
_CODE_SIGNS = re.compile(r"[=\[\]{}<>\\|/_@#*+~^$]|::")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # "\0" in a docstring without the r before it


def prose(docstring: str) -> str:
    """The sentences of a docstring, a paragraph a line: without code, prompts, tables, headings and field names."""
    paragraphs: list[str] = []
    held: list[str] = []
    skipped: int | None = None  # inside a literal block: the indentation that it hangs from
    prompt = fenced = False

    def flush() -> None:
        text = _CONTROL.sub("", " ".join(held))
        held.clear()
        if len(text) < 20:
            return
        if "`" in text or "**" in text:
            text = _ROLE.sub(lambda m: m[1] or m[2] or m[3], text)
        if _is_prose(text := " ".join(text.split())):
            paragraphs.append(text)

    for line in inspect.cleandoc(docstring).split("\n"):
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        if bare.startswith("```"):
            fenced = not fenced
        if not bare or bare.startswith("```"):
            flush()
            prompt = False
            continue
        if fenced or prompt or (skipped is not None and indent > skipped):
            continue
        skipped, prompt = None, _PROMPT.match(bare) is not None
        if prompt or _UNDERLINE.match(bare):
            if not prompt and held:
                held.pop()  # the heading above the line
            flush()
            continue
        bare, new, literal = _line(bare)
        if new:
            flush()
        if bare:
            held.append(bare)
        if literal:
            flush()
            skipped = indent
    flush()
    return "\n".join(paragraphs)


def _line(bare: str) -> tuple[str, bool, bool]:
    """What remains of a line, whether a new paragraph begins with it, whether code hangs from it."""
    if bare.startswith(".. "):
        directive = _DIRECTIVE.match(bare)
        if directive and re.fullmatch(_PROSE_DIRECTIVES, directive[1]):
            return "" if directive[1].startswith(("version", "deprecated")) else directive[2], True, False
        return "", True, True
    if _PARAMETER.match(bare) or _SECTION.match(bare):
        return "", True, False
    if field := _FIELD.match(bare):
        return "" if field["kind"] in ("type", "rtype", "raises") else bare[field.end() :], True, False
    if bullet := _BULLET.match(bare):
        bare, new = bare[bullet.end() :], True
    else:
        new = False
    return (bare[:-1], new, True) if bare.endswith("::") else (bare, new, False)


def _is_prose(text: str) -> bool:
    """Some words, nearly all letters, and hardly a sign that only code has."""
    if len(text) < 20 or text.count(" ") < 3:
        return False
    return len(_NO_LETTERS.sub("", text)) > 0.85 * len(text) and len(_CODE_SIGNS.findall(text)) < 0.03 * len(text)
