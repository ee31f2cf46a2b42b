"""The sections of a report below its first screen: all scores and all seeds, where it errs, where it comes from."""

from collections.abc import Iterator, Mapping
from typing import Any

from sesame.evaluate import html
from sesame.evaluate.first_screen import Results, rivals_of
from sesame.evaluate.plots import SHOWN_CLASSES, confusion_picture, curve_picture, reliability_picture
from sesame.evaluate.scoring import LOWER_IS_BETTER
from sesame.evaluate.wording import clean, metric_name, number, shown, split_name

SHOWN_MISTAKES = 20
LONG_TEXT, LONGEST_TEXT = 200, 4000  # characters: longer ones are folded; the rest is left out


# ---- all scores and all seeds ---------------------------------------------------------------------------------------


def _scores(results: Results) -> Iterator[str]:
    names = [name for name, on in (results.get("baselines") or {}).items() if on]
    rows = []
    for split, scores in (results["scores"] or {}).items():
        for metric, score in (scores or {}).items():
            rivals = dict(rivals_of(results, split, metric))
            mean, low, high = (number((score or {}).get(key)) for key in ("mean", "low", "high"))
            sure = f"{shown(low)} to {shown(high)}" if low is not None and high is not None and low < high else "–"
            known = [value for value in (mean, *rivals.values()) if value is not None]
            best = (min if metric in LOWER_IS_BETTER else max)(known, default=None)
            cells = [mean, *(rivals.get(name) for name in names)]
            ours, *others = [f"<strong>{shown(cell)}</strong>" if cell == best else shown(cell) for cell in cells]
            rows.append([clean(metric_name(metric)), clean(split_name(split)), ours, sure, *others])
    if rows:
        heads = ["metric", "rows", "this model", "95 % interval", *(f"<bdi>{clean(name)}</bdi>" for name in names)]
        yield html.section("Scores", html.table("Bold: the best of its line", heads, rows, words=2))


def _learning(results: Results) -> Iterator[str]:
    seeds = [seed or {} for seed in results.get("seeds") or []]
    if not any(seeds):
        return
    metric = metric_name(results["metric"])
    lines = "; thin: each seed, thick: their mean" if len(seeds) > 1 else ""
    loss = html.figure(curve_picture("training loss", [seed.get("loss") for seed in seeds]), f"Training loss{lines}")
    curve = curve_picture(f"validation {metric}", [seed.get("curve") for seed in seeds])
    splits = list(dict.fromkeys(split for seed in seeds for split in seed.get("scores") or {}))
    rows = []
    for place, seed in enumerate(seeds):
        best = " (kept)" if place == results.get("best") else ""
        found = [((seed.get("scores") or {}).get(split) or {}).get(results["metric"]) for split in splits]
        attempts, seconds = number(seed.get("attempts")), number(seed.get("seconds"))
        effort = ["–" if attempts is None else f"{attempts:g}", "–" if seconds is None else f"{seconds:,.0f} s"]
        rows.append([f"{clean('–' if seed.get('seed') is None else seed['seed'])}{best}", *map(shown, found), *effort])
    heads = ["seed", *(f"{clean(metric)}, {clean(split_name(split))}" for split in splits), "attempts", "time"]
    both = f'<div class="pair">{loss}{html.figure(curve, f"Validation {clean(metric)}{lines}")}</div>'
    yield html.section("Learning", both, html.table("The seeds", heads, rows))


# ---- classes, calibration, mistakes ---------------------------------------------------------------------------------


def _classes(results: Results) -> Iterator[str]:
    given = [row for row in results.get("per_class") or [] if row]
    order = sorted(given, key=lambda row: 2.0 if (f1 := number(row.get("f1"))) is None else f1)
    cells = [_class_cells(row) for row in order]
    heads = ["label", "F1", "precision", "recall", "rows"]
    table = html.table("The weakest first", heads, cells[:SHOWN_CLASSES], words=2) if cells else ""
    if rest := cells[SHOWN_CLASSES:]:
        table += html.fold(f"{len(rest)} more classes", html.table("Stronger classes", heads, rest, words=2))
    matrix, pairs = _confusions(results)
    small = len((results.get("confusion") or {}).get("labels") or []) <= 12  # it fits beside the table
    both = f'<div class="pair">{table}{matrix}</div>' if small and table and matrix else table + matrix
    if both:
        yield html.section("Classes", both, pairs)


def _class_cells(row: Mapping[str, Any]) -> list[str]:
    count = number(row.get("count"))
    figures = [html.bar(row.get("f1")), shown(row.get("precision")), shown(row.get("recall"))]
    return [html.label(row.get("label")), *figures, "–" if count is None else f"{count:,g}"]


def _confusions(results: Results) -> tuple[str, str]:
    """The picture of the confusion matrix, and a table of the worst pairs of the whole of it."""
    confusion = results.get("confusion") or {}
    labels = [str(label) for label in confusion.get("labels") or []]
    counts = [[number(count) or 0.0 for count in row or []] for row in confusion.get("counts") or []]
    if not labels or [len(row) for row in counts] != [len(labels)] * len(labels):
        return "", ""
    some = (
        f"the {SHOWN_CLASSES} most confused of {len(labels)} classes" if len(labels) > SHOWN_CLASSES else "all classes"
    )
    figure = html.figure(confusion_picture(labels, counts), f"Confusion: {some}; the shade is the share of the row")
    wrong = [(n, gold, said) for gold, row in enumerate(counts) for said, n in enumerate(row) if n and gold != said]
    worst = sorted(wrong, key=lambda pair: -pair[0])[:10]
    rows = [
        [html.label(labels[gold]), html.label(labels[said], "wrong"), f"{n:,g}", f"{n / sum(counts[gold]):.0%}"]
        for n, gold, said in worst
    ]
    if not rows or len(labels) <= 2:
        return figure, ""
    return figure, html.table("The most frequent confusions", ["right", "said", "rows", "of that class"], rows, words=2)


def _calibration(results: Results) -> Iterator[str]:
    given = results.get("calibration") or {}
    error, scaled, temperature = (number(given.get(key)) for key in ("ece", "ece_scaled", "temperature"))
    said = []
    if error is not None:
        said.append(f"Its probabilities are off by <strong>{error:.1%}</strong> on average (ECE).")
    if temperature is not None and temperature != 1:
        mood = "too sure" if temperature > 1 else "not sure enough"
        after = f"; with that the error is <strong>{scaled:.1%}</strong>" if scaled is not None else ""
        said.append(f"It is {mood}: its logits fit best when divided by {temperature:.2f}{after}.")
    caption = "How often it is right (up) at each confidence (across); on the dashed line both agree"
    figure = html.figure(reliability_picture([part for part in given.get("bins") or [] if part]), caption)
    if said or figure:
        text = f"<div>{''.join(f'<p>{sentence}</p>' for sentence in said)}</div>"
        yield html.section("Calibration", f'<div class="pair">{figure}{text if said else ""}</div>')


def _mistakes(results: Results) -> Iterator[str]:
    given = [mistake for mistake in results.get("mistakes") or [] if mistake]
    worst = sorted(given, key=lambda mistake: -(number(mistake.get("probability")) or 0.0))[:SHOWN_MISTAKES]
    if worst:
        items = "\n".join(f"<li>{_mistake(mistake)}</li>" for mistake in worst)
        order = "surest" if any(number(one.get("probability")) is not None for one in worst) else "worst"
        yield html.section(
            "Mistakes", f"<p class=muted>The {order} ones first.</p>", f'<ol class="mistakes">\n{items}\n</ol>'
        )


def _mistake(mistake: Mapping[str, Any]) -> str:
    probability = number(mistake.get("probability"))
    sure = f" at {probability:.0%}" if probability is not None else ""
    place = f'<span class="muted place"><bdi>{clean(mistake["place"])}</bdi></span>' if mistake.get("place") else ""
    marks = f"said {html.label(mistake.get('said'), 'wrong')}{sure}, right: {html.label(mistake.get('gold'), 'right')}"
    texts = "".join(_text(mistake[key]) for key in ("text", "pair") if mistake.get(key))
    return f'<p class="marks"><span>{marks}</span>{place}</p>\n{texts}'


def _text(text: Any) -> str:
    text = str(text)
    if len(text) <= LONG_TEXT:
        return f'<p class="text" dir="auto">{clean(text)}</p>'
    more = f" … ({len(text) - LONGEST_TEXT:,} characters more)" if len(text) > LONGEST_TEXT else ""
    whole = f'<p class="text" dir="auto">{clean(text[:LONGEST_TEXT])}{more}</p>'
    return html.fold(f'<span class="text" dir="auto">{clean(text[:LONG_TEXT].rstrip())} …</span>', whole)


# ---- where it comes from --------------------------------------------------------------------------------------------


def _origin(results: Results) -> Iterator[str]:
    data = results.get("data") or {}
    counts = {split: count for split, found in (data.get("rows") or {}).items() if (count := number(found)) is not None}
    files = {key: value for key, value in data.items() if key not in ("rows", "notes") and value}
    rows = [
        [
            clean(split_name(split)),
            f"<bdi>{clean(files.get(split, '–'))}</bdi>",
            f"{counts[split]:,g}" if split in counts else "–",
        ]
        for split in dict.fromkeys([*counts, *files])
    ]
    table = html.table("The data", ["rows of", "file", "rows"], rows, words=2) if rows else ""
    notes = "".join(f"<li>{clean(note)}</li>" for note in data.get("notes") or [] if note)
    settings = [[clean(key), clean(value)] for key, value in _flat(results.get("settings") or {})]
    folded = (
        html.fold("All settings", html.table("Settings", ["setting", "value"], settings, words=2)) if settings else ""
    )
    if table or notes or folded:
        yield html.section("Data and settings", table, f"<ul>{notes}</ul>" if notes else "", folded)


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            unknown = value is None or (isinstance(value, float) and number(value) is None)
            yield f"{before}{key}", "–" if unknown else f"{value:g}" if isinstance(value, float) else str(value)


SECTIONS = (_scores, _learning, _classes, _calibration, _mistakes, _origin)
