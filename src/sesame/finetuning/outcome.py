"""What is written down of a fine-tuning: simple methods' scores beside the seeds', predictions, the report, the model."""

import json
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sesame.checkpoint.cards import task_card
from sesame.checkpoint.folder import Parts
from sesame.checkpoint.loading import load_parts
from sesame.evaluate.baselines import baselines
from sesame.evaluate.results import collect
from sesame.evaluate.scoring import figure, gold_of, score
from sesame.files import read_json, write_json, write_whole
from sesame.finetuning.course import Course
from sesame.finetuning.multitask import Subject, card_of_all, of_task
from sesame.progress import say


def simple_answers(course: Course, subject: Subject) -> dict[str, Any]:
    """Answers of simple methods, and their scores."""
    if not course.wishes.baselines:
        return {}
    kept = course.beside(subject, "baselines.json")
    if kept.is_file():
        return dict(read_json(kept))
    found: dict[str, Any] = {}
    for part in subject.splits():
        gold = gold_of(subject.config, subject.parts[part])
        for name, said in baselines(subject.kind, subject.parts["train"], subject.parts[part]).items():
            entry = found.setdefault(name, {"scores": {}, "said": {}})
            entry["scores"][part], entry["said"][part] = score(subject.config, gold, said), said
    for name, entry in found.items():
        say(f"baseline {name}: {shown_scores(entry['scores'], subject.metric)}")
    write_json(kept, found)
    return found


def write_down(course: Course, found: list[dict[str, Any]], best: int, plain: dict[str, dict[str, Any]]) -> None:
    """Calibrate and save the best seed, then write down all that was seen."""
    from sesame.evaluate.report import write_report

    parts = load_parts(course.run.folder / found[best]["folder"] / "final")
    parts.to(course.machine.device)
    all_results = {}
    for name, subject in course.subjects.items():
        results = _results(course, subject, parts, [of_task(seed, name) for seed in found], best, plain[name])
        lines = [json.dumps(line, ensure_ascii=False) for line in results.pop("predictions")]
        write_whole(course.beside(subject, "predictions.jsonl"), "\n".join(lines) + "\n")
        all_results[name] = _plain(results)
    main = all_results[course.first.name]
    if course.several:
        main["data"]["notes"] += _others(course, all_results)
    write_json(course.run.folder / "results.json", main | ({"tasks": dict(all_results)} if course.several else {}))
    for name, results in all_results.items():
        write_report(results, course.beside(course.subjects[name], "report.html"))
    parts.tasks = {name: parts.tasks[name] for name in course.subjects}
    card = task_card(course.run.identity, main) + (card_of_all(all_results) if course.several else "")
    course.run.save_final(parts, card)
    for name, results in all_results.items():
        for line in results["summary"]:
            say(f"{f'{name}: ' if course.several else ''}{line}")
    say(f"{course.run.folder / 'report.html'}: the report; {course.run.final}: the model")


def _results(
    course: Course, subject: Subject, parts: Parts, seeds: list[dict[str, Any]], best: int, plain: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was seen of one task; its calibration goes into the model."""
    task = parts.tasks[subject.name]
    results = collect(
        subject.config, subject.metric, subject.parts, subject.items, task, subject.logits(parts), seeds, best, plain,
        adapted=bool(course.wishes.text), adaptable=course.adaptable,
    )  # fmt: skip
    train = Path(subject.asked.train).name
    results |= {
        "title": f"{subject.name}: {train}",
        "model": Path(course.wishes.model).name,
        "strategy": course.transfer.name,
        "created": date.today().isoformat(),
        "settings": course.transfer.to_dict(),
    }
    results["data"] |= {"train": train, "notes": [*subject.notes, *course.notes]}
    task.config = replace(task.config, **results["tuned"])
    return results


def _others(course: Course, results: dict[str, dict[str, Any]]) -> list[str]:
    """Sentences for the first task's report on where the others' are."""
    found = []
    for name, subject in course.subjects.items():
        if subject is not course.first:
            scores = {part: values[subject.metric]["mean"] for part, values in results[name]["scores"].items()}
            shown = ", ".join(
                f"{part} {subject.metric} {figure(subject.metric, mean)}" for part, mean in scores.items()
            )
            found.append(f"taught together with {name}: {shown}; see {course.beside(subject, 'report.html').name}")
    return found


def shown_scores(scores: dict[str, dict[str, float]], metric: str) -> str:
    return ", ".join(
        f"{part} {metric} {figure(metric, values.get(metric, math.nan))}" for part, values in scores.items()
    )


def _plain(value: Any) -> Any:
    """As JSON can hold it: no NaN."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
