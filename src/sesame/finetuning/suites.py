"""Benchmark suites: one command, one table.

    sesame evaluate MODEL --suite glue --data FOLDER --out DIR

| suite | FOLDER holds | table |
|---|---|---|
| glue | a folder for each task (sst2, CoLA, STS-B ...) with train and dev files | table 1 of the BERT paper, on dev data |
| squad | squad1, squad2 | exact match and F1 |
| ner | folders with CoNLL columns: train, dev and perhaps test | F1 of entities |
| layers | one such folder, or its files | table 7 of the BERT paper: frozen features of different layers |

A row is an ordinary `sesame finetune` in DIR/NAME: it can be stopped, goes on with the same command, and is not repeated once
it is finished. Test sets of GLUE have no labels and are never read. The average is that of the paper: over MNLI-m, MNLI-mm,
F1 of QQP and MRPC, Spearman's correlation of STS-B, Matthews' of CoLA, else accuracy; without WNLI.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sesame.evaluate.statistics import summary
from sesame.evaluate.wording import metric_name
from sesame.files import read_json, write_json, write_whole
from sesame.finetuning.run import finetune
from sesame.finetuning.suite_files import GLUE, Entry, columns_of, plan
from sesame.finetuning.wishes import Wishes
from sesame.progress import say

# ---- the runs --------------------------------------------------------------------------------------------------------


def run_suite(
    model: str | Path,
    suite: str,
    data: str | Path,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    strategy: str | None = None,
    settings: Sequence[str] = (),
    **wishes: Any,
) -> dict[str, Any]:
    """Fine-tune a pre-trained model on each task of a suite; gives what suite.json holds.

    `strategy` is "full" by default, "frozen" for layers; `wishes` are further ones of `finetune`, such as seeds and device.
    """
    out, chosen = Path(out), strategy or ("frozen" if suite == "layers" else "full")
    entries, missing = plan(suite, Path(data), only)
    for reason in missing.values():
        say(f"{reason}: left out")
    result: dict[str, Any] = {"suite": suite, "model": str(model), "strategy": chosen, "settings": list(settings)}
    rows = _known_rows(out / "suite.json", result) if only else {}
    order = [entry.key for entry in plan(suite, Path(data))[0]]
    for number, entry in enumerate(entries, 1):
        say(f"{suite} {number} of {len(entries)}: {entry.shown}")
        files = {part: str(file) for part, file in entry.files.items()}
        finetune(
            Wishes(
                model=str(model), task=entry.kind, out=out / entry.key, strategy=chosen,  # type: ignore[arg-type]
                columns=columns_of(entry), metric=entry.scores[0].metric, settings=[*settings, *entry.settings],
                baselines=False, **files, **wishes,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        rows[entry.key] = _row(entry, read_json(out / entry.key / "results.json"))
        found = [rows[key] for key in order if key in rows]
        result |= {"rows": found, "average": average(found), "missing": missing}
        write_json(out / "suite.json", result)
        write_whole(out / "suite.md", f"# {suite}: {Path(model).name}\n\n{shown(result)}\n")
    return result


def _known_rows(file: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """With --only a table grows: the rows that the same command found before."""
    before = read_json(file) if file.is_file() else {}
    return {row["key"]: row for row in before["rows"]} if before and before.items() >= result.items() else {}


def _row(entry: Entry, results: Mapping[str, Any]) -> dict[str, Any]:
    scores = []
    for score in entry.scores:
        found = results["scores"].get(score.split, {}).get(score.metric)
        if found is not None and found["mean"] is not None:
            kept = {key: found[key] for key in ("mean", "std", "n", "values")}
            scores.append(asdict(score) | kept)
    return {"key": entry.key, "name": entry.shown, "rows": results["data"]["rows"], "scores": scores}


def average(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The mean of all scores that count; its spread over seeds where every run has the same number of them."""
    counted = [score for row in rows for score in row["scores"] if score["counts"]]
    if not counted:
        return None
    if len({score["n"] for score in counted}) == 1:
        each = [sum(values) / len(counted) for values in zip(*(score["values"] for score in counted), strict=True)]
        found = summary(each)
        return {"mean": found.mean, "std": found.std, "n": found.n, "scores": len(counted)}
    mean = sum(score["mean"] for score in counted) / len(counted)
    return {"mean": mean, "std": None, "n": None, "scores": len(counted)}


# ---- the tables ------------------------------------------------------------------------------------------------------


def shown(result: Mapping[str, Any]) -> str:
    """The tables as text that is also Markdown: scores times 100, mean ± standard deviation over seeds."""
    parts = [_paper(result)] if result["suite"] == "glue" else []
    first = "layers" if result["suite"] == "layers" else "task"
    lines = [
        [row["name"], _score_name(score), _number(score), str(score["n"]), f"{row['rows']['train']:,}"]
        for row in result["rows"]
        for score in row["scores"]
    ]
    parts.append(_table([first, "score", "mean ± std", "seeds", "training rows"], lines))
    if result["suite"] == "glue":
        left = [name for name in result["missing"] if name != "wnli"]
        counted = (
            f"The average is over {result['average']['scores']} of 9 scores" if result["average"] else "No average"
        )
        without = f"; not there: {', '.join(left)}" if left else ""
        parts.append(f"{counted}, on dev data, as in the BERT paper (without WNLI){without}.")
    return "\n\n".join(parts)


def _paper(result: Mapping[str, Any]) -> str:
    """Table 1 of the BERT paper."""
    rows = {row["key"]: row for row in result["rows"]}
    head, cells = ["model"], [Path(result["model"]).name]
    for entry in GLUE:
        if entry.key == "wnli":
            continue
        found = [score for score in rows[entry.key]["scores"] if score["counts"]] if entry.key in rows else []
        head.append(entry.shown)
        cells.append("/".join(f"{100 * score['mean']:.1f}" for score in found) or "-")
    mean = result["average"]
    return _table([*head, "average"], [[*cells, _number(mean) if mean else "-"]])


def _score_name(score: Mapping[str, Any]) -> str:
    on = score["on"] or {"valid": "dev"}.get(score["split"], score["split"])
    return f"{metric_name(score['metric'])}, {on}"


def _number(found: Mapping[str, Any]) -> str:
    spread = "" if found["std"] is None else f" ± {100 * found['std']:.1f}"
    return f"{100 * found['mean']:.1f}{spread}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
