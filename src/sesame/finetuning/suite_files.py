"""What a suite consists of, and where its data lie in a user's folder.

    glue/SST-2/train.tsv  glue/cola/dev.jsonl  glue/MNLI/dev_matched.tsv  ner/conll2003/train.txt.gz  squad1/train-v1.1.json

Folders are found without case and signs (SST-2 is sst2), files by the word that their name begins with, those of CoNLL by
what it ends in (eng.train, eng.testa, eng.testb). The original files of GLUE are read as they are: `columns_of` knows what
they call their columns.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from sesame.config import unknown
from sesame.data.conll import is_tag
from sesame.data.streams import whole_lines
from sesame.data.tables import TABLES, fold, inner_suffix
from sesame.errors import SesameError


@dataclass(frozen=True)
class Score:
    """A number of the table: a metric of `finetune` on its validation or test data."""

    metric: str
    split: str = "valid"
    counts: bool = True  # in the average
    on: str = ""  # which rows, if not simply those of the split


@dataclass(frozen=True)
class Entry:
    """A run of the suite. The first score decides which seed is best."""

    key: str  # the name of its folder, without case and signs
    shown: str
    kind: str
    scores: tuple[Score, ...]
    settings: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)  # "train", "valid", "test", once they are found


_ACCURACY = (Score("accuracy"),)
_ANSWERS = (Score("exact"), Score("f1"))
GLUE = (
    # The mismatched dev set stands in the place of test data: it is scored, and nothing is chosen by it.
    Entry(
        "mnli",
        "MNLI-(m/mm)",
        "classify",
        (
            Score("accuracy", on="matched"),
            Score("accuracy", "test", on="mismatched"),
        ),
    ),
    Entry("qqp", "QQP", "classify", (Score("f1"), Score("accuracy", counts=False))),
    Entry("qnli", "QNLI", "classify", _ACCURACY),
    Entry("sst2", "SST-2", "classify", _ACCURACY),
    Entry("cola", "CoLA", "classify", (Score("matthews"),)),
    Entry("stsb", "STS-B", "regress", (Score("spearman"), Score("pearson", counts=False))),
    Entry("mrpc", "MRPC", "classify", (Score("f1"), Score("accuracy", counts=False))),
    Entry("rte", "RTE", "classify", _ACCURACY),
    Entry("wnli", "WNLI", "classify", (Score("accuracy", counts=False),)),
)
SQUAD = (Entry("squad1", "SQuAD 1.1", "qa", _ANSWERS), Entry("squad2", "SQuAD 2.0", "qa", _ANSWERS))
LAYERS = ("first", "last", "second-to-last", "sum-last-4", "concat-last-4", "sum-all", "mix")
SUITES = ("glue", "squad", "ner", "layers")

_SAME_FOLDER = {"stsbenchmark": "stsb", "sst": "sst2"}
_SQUAD = re.compile(r"squadv?(1|2)?(?:[01])?")  # squad, squad1.1, squad_v2, SQuAD-v2.0
_DEV = r"(?:dev|valid|validation|val)"
PARTS = {"train": r"train(?:_.*)?", "valid": rf"{_DEV}(?!_mismatched)(?:_.*)?", "test": r"test(?:_.*)?"}
_MISMATCHED = rf"{_DEV}_mismatched(?:_.*)?"
_COLUMNS = ({"text": "#1 String", "pair": "#2 String", "label": "Quality"}, {"label": "is_duplicate"})  # MRPC, QQP
_ENDINGS = {".train": "train", ".testa": "dev", ".testb": "test"}  # of the files of CoNLL-2002 and 2003
_CONLL = ("", ".txt", ".conll", ".tsv", ".tab", ".iob", ".iob2", ".bio", *_ENDINGS)


# ---- what is there ---------------------------------------------------------------------------------------------------


def plan(suite: str, data: Path, only: Sequence[str] = ()) -> tuple[list[Entry], dict[str, str]]:
    """The runs of a suite, and for what cannot be run the reason."""
    if suite not in SUITES:
        raise SesameError(unknown(suite, dict.fromkeys(SUITES), "--suite", "suite"))
    if not data.is_dir():
        raise SesameError(f"{data}: no such folder; give the one that holds the data of {suite}")
    missing: dict[str, str] = {}
    if suite == "layers":
        entries = _layer_entries(data)
    elif suite == "ner":
        entries = _ner_entries(data)
    else:
        entries = list(_fixed_entries(GLUE if suite == "glue" else SQUAD, data, missing))
    known = {_plain_name(name): name for name in [*(entry.key for entry in entries), *missing]}
    for name in only:
        if _plain_name(name) not in known:
            raise SesameError(unknown(name, dict.fromkeys(known.values()), "--only", "task"))
    wanted = {known[_plain_name(name)] for name in only} or set(known.values())
    entries = [entry for entry in entries if entry.key in wanted]
    if not entries:
        reasons = "; ".join(reason for name, reason in missing.items() if name in wanted)
        raise SesameError(f"{data}: there is nothing to run for {suite}" + (f" ({reasons})" if reasons else ""))
    return entries, {name: reason for name, reason in missing.items() if name in wanted}


def _fixed_entries(table: Sequence[Entry], data: Path, missing: dict[str, str]) -> Iterator[Entry]:
    folders = _folders(data)
    for entry in table:
        folder = folders.get(entry.key)
        if folder is None:
            missing[entry.key] = f"{data}: has no folder {entry.key}"
            continue
        files = {part: find_file(folder, PARTS[part]) for part in ("train", "valid")}
        if entry.key == "mnli":
            files["test"] = find_file(folder, _MISMATCHED)
        lacking = [part for part in ("train", "valid") if files[part] is None]
        if lacking:
            missing[entry.key] = f"{folder}: has no {' and no '.join(lacking)} file"
        else:
            yield replace(entry, files={part: file for part, file in files.items() if file is not None})


def _ner_entries(data: Path) -> list[Entry]:
    """Every folder whose training file holds words with tags; or `data` itself."""
    found = []
    for folder in [data] if find_file(data, PARTS["train"]) else sorted(data.iterdir()):
        train = find_file(folder, PARTS["train"]) if folder.is_dir() else None
        if train is not None and is_conll(train):
            found.append(_tag_entry(folder))
    if not found:
        raise SesameError(f"{data}: no folder in it holds a train file of CoNLL columns (a word and its tag a line)")
    return found


def _layer_entries(data: Path) -> list[Entry]:
    if find_file(data, PARTS["train"]) is None:
        raise SesameError(f"{data}: has no train file; --suite layers takes the folder of one tag dataset")
    entry = _tag_entry(data)
    return [replace(entry, key=name, shown=name, settings=(f'task.layers="{name}"',)) for name in LAYERS]


def _tag_entry(folder: Path) -> Entry:
    files = {part: file for part in PARTS if (file := find_file(folder, PARTS[part])) is not None}
    if "test" in files and not is_conll(files["test"]):
        del files["test"]  # it has no tags
    scores = tuple(Score("f1", part) for part in ("valid", "test") if part == "valid" or part in files)
    name = folder.resolve().name
    return Entry(name, name, "tag", scores, files=files)


def _folders(data: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in sorted(item for item in data.iterdir() if item.is_dir()):
        key = _SAME_FOLDER.get(_plain_name(folder.name), _plain_name(folder.name))
        if squad := _SQUAD.fullmatch(key):
            key = f"squad{squad[1] or 1}"
        if key in found:
            raise SesameError(f"{folder}: is the same task as {found[key].name}; keep one of the two folders")
        found[key] = folder
    return found


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def find_file(folder: Path, pattern: str) -> Path | None:
    """The file of a part: "train.tsv", "train-v1.1.json", "train_subset.jsonl.gz"; a plain name goes first."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    found = {file: _ENDINGS.get(inner_suffix(file)) or fold(file.name.split(".")[0]) for file in files}
    found = {file: name for file, name in found.items() if re.fullmatch(pattern, name)}
    plain = [file for file, name in found.items() if "_" not in name] or list(found)
    if len(plain) > 1:
        names = ", ".join(file.name for file in plain[:4])
        raise SesameError(f"{folder}: several files could be meant ({names}); keep one of them, or join them")
    return plain[0] if plain else None


def is_conll(file: Path) -> bool:
    """Whether the lines are a word and its tag, as far as the first hundred tell."""
    if inner_suffix(file) not in _CONLL:
        return False
    rows = [line.split() for _, line in islice(whole_lines(file), 100)]
    rows = [row for row in rows if row and row[0] != "-DOCSTART-" and not row[0].startswith("#")]
    return bool(rows) and all(len(row) >= 2 and is_tag(row[-1]) for row in rows)


def columns_of(entry: Entry) -> dict[str, str]:
    """What the original files of GLUE call their columns; CoLA's have no header: source, label, mark, sentence."""
    file = entry.files["train"]
    suffix = inner_suffix(file)
    if entry.kind not in ("classify", "regress") or suffix not in TABLES or suffix == ".parquet":
        return {}
    _, first = next(whole_lines(file), (0, ""))
    if suffix in (".tsv", ".tab"):
        cells = first.split("\t")
        if entry.key == "cola" and len(cells) == 4 and cells[1] in ("0", "1"):
            return {"text": "4", "label": "2"}
        names = {fold(cell) for cell in cells}
    else:
        names = {fold(name) for name in re.findall(r'[^",;:{}]+', first)}
    return dict(next((known for known in _COLUMNS if {fold(name) for name in known.values()} <= names), {}))
