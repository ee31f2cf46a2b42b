"""The report: one HTML file that says how good a model is, how sure that is, and whether it beats the baselines.

It needs no network and no script (a policy in its head forbids both), follows the reader's light or dark setting and fits a
phone. Whatever comes from the data is escaped. A section whose figures are missing is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sesame.evaluate.plots import (
    SHOWN_CLASSES,
    clean,
    confusion_picture,
    curve_picture,
    number,
    reliability_picture,
    score_picture,
    shown,
)
from sesame.files import write_whole

Results = Mapping[str, Any]

SHOWN_MISTAKES = 20
LONG_TEXT, LONGEST_TEXT = 200, 4000  # characters: longer ones are folded; the rest is left out
LOWER_IS_BETTER = {"mse", "rmse", "mae", "loss", "nll", "brier", "ece", "perplexity"}
_METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "weighted_f1": "weighted F1",
    "matthews": "Matthews",
    "ece": "ECE",
}
_SPLITS = {"valid": "validation", "train": "training"}


def write_report(results: Results, path: Path) -> None:
    """Write `results` as one HTML page; only "task", "metric" and "scores" must be there.

    `versus["difference"]` is this model minus the baseline, in units of the metric; `best` is a place in `seeds`.
    """
    title = clean(results.get("title") or f"{results['task']}: {metric_name(results['metric'])}")
    body = "\n".join(section for part in _SECTIONS for section in part(results))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    write_whole(
        path,
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
    )


def metric_name(metric: str) -> str:
    return _METRICS.get(metric, metric.replace("_", " "))


def _split_name(split: str) -> str:
    return _SPLITS.get(split, split)


# ---- pieces of HTML -------------------------------------------------------------------------------------------------


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n" + "\n".join(part for part in parts if part) + "\n</section>"


def _figure(svg: str, caption: str) -> str:
    return f'<figure>\n<figcaption>{caption}</figcaption>\n<div class="scroll">{svg}</div>\n</figure>' if svg else ""


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table of ready HTML: the first cell of a row is its heading, the first `words` columns are no numbers."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>\n"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll"><table class="words{words}"><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def _fold(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>\n{inside}\n</details>"


def _label(text: Any, kind: str = "") -> str:
    return f'<bdi class="label {kind}">{clean("none" if text is None else text)}</bdi>'


def _bar(value: Any) -> str:
    found = number(value)
    if found is None:
        return shown(value)
    return f'<span class="bar" style="--share:{100 * min(max(found, 0.0), 1.0):.0f}%">{shown(found)}</span>'


# ---- the first screen -----------------------------------------------------------------------------------------------


def _headline_split(results: Results) -> str:
    """The split that answers the question: test rows, else validation rows, else whatever has the metric."""
    having = [split for split in results["scores"] or {} if _score(results, split)]
    return next((split for split in ("test", "valid", *having) if split in having), "")


def _score(results: Results, split: str) -> Mapping[str, Any]:
    """The main score on a split, or {} when it is not known."""
    score = ((results["scores"] or {}).get(split) or {}).get(results["metric"]) or {}
    return score if number(score.get("mean")) is not None else {}


def _rivals(results: Results, split: str, metric: str) -> list[tuple[str, float]]:
    """The baselines that have a score, the best one first."""
    given = {name: (on.get(split) or {}).get(metric) for name, on in (results.get("baselines") or {}).items() if on}
    known = [(name, value) for name, found in given.items() if (value := number(found)) is not None]
    return sorted(known, key=lambda rival: rival[1] * (1 if metric in LOWER_IS_BETTER else -1))


def _top(results: Results) -> Iterator[str]:
    facts = [results["task"], results.get("model"), results.get("strategy"), results.get("created")]
    title = results.get("title") or f"{results['task']}: {metric_name(results['metric'])}"
    yield f"<header><h1><bdi>{clean(title)}</bdi></h1>\n<p class=muted>"
    yield " · ".join(f"<bdi>{clean(fact)}</bdi>" for fact in facts if fact) + "</p></header>"
    split = _headline_split(results)
    score, metric = _score(results, split), metric_name(results["metric"])
    where = f"{clean(metric)} on {clean(_split_name(split))} rows" if split else f"no {clean(metric)} is known"
    rivals = _rivals(results, split, results["metric"])
    picture = score_picture(metric, score, rivals) if score else ""
    figure = _figure(picture, "Line: the mean; dots: the seeds; band: the 95 % interval") if picture else ""
    better = _verdict(results, number(score.get("mean")), rivals)
    yield (
        f'<div class="top"><div>\n<p class="big"><strong>{shown(score.get("mean"))}</strong> <span>{where}</span></p>\n'
        f"<p>{_sureness(score, split)}</p>\n{better}\n</div>\n{figure}</div>"
    )


def _sureness(score: Mapping[str, Any], split: str) -> str:
    low, high, std = number(score.get("low")), number(score.get("high")), number(score.get("std"))
    seeds = len(score.get("values") or [])
    if low is not None and high is not None and low < high:
        over = f" over {seeds} seeds" if seeds > 1 else ""
        spread = f"; their standard deviation is {shown(std)}" if seeds > 1 and std is not None else ""
        said = f"95 % interval <strong>{shown(low)} to {shown(high)}</strong>{over}{spread}."
    elif score and seeds <= 1:
        said = "One seed: how much the score moves from run to run is not known; train with more seeds."
    else:
        said = ""
    if split == "valid":
        said += " These rows also helped to choose the model; a test file would judge it more fairly."
    return said


def _verdict(results: Results, mean: float | None, rivals: Sequence[tuple[str, float]]) -> str:
    """One colored sentence: does it beat the baseline, and was that tested?"""
    versus, sign = results.get("versus") or {}, -1 if results["metric"] in LOWER_IS_BETTER else 1
    difference, low, high = (number(versus.get(key)) for key in ("difference", "low", "high"))
    if difference is not None and low is not None and high is not None:
        name = f"<bdi>{clean(versus.get('baseline'))}</bdi>"
        worst, best = sorted((sign * low, sign * high))
        kind, claim = ("good", "Better than") if worst > 0 else ("bad", "Worse than") if best < 0 else ("open", "")
        claim = f"{claim or 'Not shown to differ from'} {name}"
        chance = number(versus.get("p"))
        p = "" if chance is None else ", p &lt; 0.001" if chance < 0.001 else f", p = {chance:.3f}"
        on = f" on {clean(_split_name(versus['split']))} rows" if versus.get("split") else ""
        detail = f"difference {difference:+.3f}{on} (95 % interval {low:+.3f} to {high:+.3f}{p})."
    elif rivals and mean is not None:
        name, value = rivals[0]
        kind = "open" if sign * (mean - value) > 0 else "bad"
        claim = f"{'Ahead of' if kind == 'open' else 'No better than'} <bdi>{clean(name)}</bdi>"
        detail = f"difference {mean - value:+.3f}; whether this could be chance was not tested."
    else:
        return ""
    return f'<p class="verdict {kind}"><strong>{claim}:</strong> {detail}</p>'


def _notices(results: Results) -> Iterator[str]:
    for warning in filter(None, results.get("warnings") or []):
        yield f'<p class="notice"><strong>Take care:</strong> {clean(warning)}</p>'
    if sentence := str(results.get("next") or "").removeprefix("next: "):
        yield f'<p class="notice next"><strong>What to try next:</strong> {clean(sentence)}</p>'


# ---- all scores and all seeds ---------------------------------------------------------------------------------------


def _scores(results: Results) -> Iterator[str]:
    names = [name for name, on in (results.get("baselines") or {}).items() if on]
    rows = []
    for split, scores in (results["scores"] or {}).items():
        for metric, score in (scores or {}).items():
            rivals = dict(_rivals(results, split, metric))
            mean, low, high = (number((score or {}).get(key)) for key in ("mean", "low", "high"))
            sure = f"{shown(low)} to {shown(high)}" if low is not None and high is not None and low < high else "–"
            known = [value for value in (mean, *rivals.values()) if value is not None]
            best = (min if metric in LOWER_IS_BETTER else max)(known, default=None)
            cells = [mean, *(rivals.get(name) for name in names)]
            ours, *others = [f"<strong>{shown(cell)}</strong>" if cell == best else shown(cell) for cell in cells]
            rows.append([clean(metric_name(metric)), clean(_split_name(split)), ours, sure, *others])
    if rows:
        heads = ["metric", "rows", "this model", "95 % interval", *(f"<bdi>{clean(name)}</bdi>" for name in names)]
        yield _section("Scores", _table("Bold: the best of its line", heads, rows, words=2))


def _learning(results: Results) -> Iterator[str]:
    seeds = [seed or {} for seed in results.get("seeds") or []]
    if not any(seeds):
        return
    metric = metric_name(results["metric"])
    lines = "; thin: each seed, thick: their mean" if len(seeds) > 1 else ""
    loss = _figure(curve_picture("training loss", [seed.get("loss") for seed in seeds]), f"Training loss{lines}")
    curve = curve_picture(f"validation {metric}", [seed.get("curve") for seed in seeds])
    splits = list(dict.fromkeys(split for seed in seeds for split in seed.get("scores") or {}))
    rows = []
    for place, seed in enumerate(seeds):
        best = " (kept)" if place == results.get("best") else ""
        found = [((seed.get("scores") or {}).get(split) or {}).get(results["metric"]) for split in splits]
        attempts, seconds = number(seed.get("attempts")), number(seed.get("seconds"))
        effort = ["–" if attempts is None else f"{attempts:g}", "–" if seconds is None else f"{seconds:,.0f} s"]
        rows.append([f"{clean('–' if seed.get('seed') is None else seed['seed'])}{best}", *map(shown, found), *effort])
    heads = ["seed", *(f"{clean(metric)}, {clean(_split_name(split))}" for split in splits), "attempts", "time"]
    both = f'<div class="pair">{loss}{_figure(curve, f"Validation {clean(metric)}{lines}")}</div>'
    yield _section("Learning", both, _table("The seeds", heads, rows))


# ---- classes, calibration, mistakes ---------------------------------------------------------------------------------


def _classes(results: Results) -> Iterator[str]:
    given = [row for row in results.get("per_class") or [] if row]
    order = sorted(given, key=lambda row: 2.0 if (f1 := number(row.get("f1"))) is None else f1)
    cells = [_class_cells(row) for row in order]
    heads = ["label", "F1", "precision", "recall", "rows"]
    table = _table("The weakest first", heads, cells[:SHOWN_CLASSES], words=2) if cells else ""
    if rest := cells[SHOWN_CLASSES:]:
        table += _fold(f"{len(rest)} more classes", _table("Stronger classes", heads, rest, words=2))
    matrix, pairs = _confusions(results)
    small = len((results.get("confusion") or {}).get("labels") or []) <= 12  # it fits beside the table
    both = f'<div class="pair">{table}{matrix}</div>' if small and table and matrix else table + matrix
    if both:
        yield _section("Classes", both, pairs)


def _class_cells(row: Mapping[str, Any]) -> list[str]:
    count = number(row.get("count"))
    figures = [_bar(row.get("f1")), shown(row.get("precision")), shown(row.get("recall"))]
    return [_label(row.get("label")), *figures, "–" if count is None else f"{count:,g}"]


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
    figure = _figure(confusion_picture(labels, counts), f"Confusion: {some}; the shade is the share of the row")
    wrong = [(n, gold, said) for gold, row in enumerate(counts) for said, n in enumerate(row) if n and gold != said]
    worst = sorted(wrong, key=lambda pair: -pair[0])[:10]
    rows = [
        [_label(labels[gold]), _label(labels[said], "wrong"), f"{n:,g}", f"{n / sum(counts[gold]):.0%}"]
        for n, gold, said in worst
    ]
    if not rows or len(labels) <= 2:
        return figure, ""
    return figure, _table("The most frequent confusions", ["right", "said", "rows", "of that class"], rows, words=2)


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
    figure = _figure(reliability_picture([part for part in given.get("bins") or [] if part]), caption)
    if said or figure:
        text = f"<div>{''.join(f'<p>{sentence}</p>' for sentence in said)}</div>"
        yield _section("Calibration", f'<div class="pair">{figure}{text if said else ""}</div>')


def _mistakes(results: Results) -> Iterator[str]:
    given = [mistake for mistake in results.get("mistakes") or [] if mistake]
    worst = sorted(given, key=lambda mistake: -(number(mistake.get("probability")) or 0.0))[:SHOWN_MISTAKES]
    if worst:
        items = "\n".join(f"<li>{_mistake(mistake)}</li>" for mistake in worst)
        order = "surest" if any(number(one.get("probability")) is not None for one in worst) else "worst"
        yield _section(
            "Mistakes", f"<p class=muted>The {order} ones first.</p>", f'<ol class="mistakes">\n{items}\n</ol>'
        )


def _mistake(mistake: Mapping[str, Any]) -> str:
    probability = number(mistake.get("probability"))
    sure = f" at {probability:.0%}" if probability is not None else ""
    place = f'<span class="muted place"><bdi>{clean(mistake["place"])}</bdi></span>' if mistake.get("place") else ""
    marks = f"said {_label(mistake.get('said'), 'wrong')}{sure}, right: {_label(mistake.get('gold'), 'right')}"
    texts = "".join(_text(mistake[key]) for key in ("text", "pair") if mistake.get(key))
    return f'<p class="marks"><span>{marks}</span>{place}</p>\n{texts}'


def _text(text: Any) -> str:
    text = str(text)
    if len(text) <= LONG_TEXT:
        return f'<p class="text" dir="auto">{clean(text)}</p>'
    more = f" … ({len(text) - LONGEST_TEXT:,} characters more)" if len(text) > LONGEST_TEXT else ""
    whole = f'<p class="text" dir="auto">{clean(text[:LONGEST_TEXT])}{more}</p>'
    return _fold(f'<span class="text" dir="auto">{clean(text[:LONG_TEXT].rstrip())} …</span>', whole)


# ---- where it comes from --------------------------------------------------------------------------------------------


def _origin(results: Results) -> Iterator[str]:
    data = results.get("data") or {}
    counts = {split: count for split, found in (data.get("rows") or {}).items() if (count := number(found)) is not None}
    files = {key: value for key, value in data.items() if key not in ("rows", "notes") and value}
    rows = [
        [
            clean(_split_name(split)),
            f"<bdi>{clean(files.get(split, '–'))}</bdi>",
            f"{counts[split]:,g}" if split in counts else "–",
        ]
        for split in dict.fromkeys([*counts, *files])
    ]
    table = _table("The data", ["rows of", "file", "rows"], rows, words=2) if rows else ""
    notes = "".join(f"<li>{clean(note)}</li>" for note in data.get("notes") or [] if note)
    settings = [[clean(key), clean(value)] for key, value in _flat(results.get("settings") or {})]
    folded = _fold("All settings", _table("Settings", ["setting", "value"], settings, words=2)) if settings else ""
    if table or notes or folded:
        yield _section("Data and settings", table, f"<ul>{notes}</ul>" if notes else "", folded)


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            unknown = value is None or (isinstance(value, float) and number(value) is None)
            yield f"{before}{key}", "–" if unknown else f"{value:g}" if isinstance(value, float) else str(value)


_SECTIONS = (_top, _notices, _scores, _learning, _classes, _calibration, _mistakes, _origin)

_STYLE = """
:root{--paper:#fcfcfb;--card:#fff;--ink:#1b1f24;--muted:#59626d;--line:#d9dde1;--accent:#0a5fa5;--warm:#b34708;--good:#0b6a48}
@media (prefers-color-scheme:dark){:root{--paper:#14171a;--card:#1b1f23;--ink:#e9ecef;--muted:#a5afba;--line:#3a4149;
--accent:#74b9f5;--warm:#f29b62;--good:#5fcb9f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main{max-width:1000px;margin:auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.5rem;line-height:1.25;margin:0}h2{font-size:1.15rem;margin:0 0 .6rem}
p{margin:.4rem 0}section{margin-top:2.2rem;padding-top:1.2rem;border-top:1px solid var(--line)}
.muted,figcaption,caption{color:var(--muted);font-size:.875rem}
.top,.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:1.2rem 2rem;margin-top:1.2rem}
.top{align-items:center}.pair{margin:0 0 1rem}.top>*,.pair>*{min-width:0}
.big{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .7rem;margin:0}.big strong{font-size:4rem;line-height:1.05;
letter-spacing:-.02em}
.verdict,.notice{border-left:4px solid var(--muted);background:var(--card);padding:.6rem .9rem;border-radius:0 6px 6px 0}
.verdict{margin-top:.9rem}.good{border-color:var(--good)}.good strong{color:var(--good)}
.bad,.notice{border-color:var(--warm)}.bad strong,.notice strong{color:var(--warm)}
.next{border-color:var(--accent)}.next strong{color:var(--accent)}
figure{margin:0}figcaption,caption{text-align:left;padding-bottom:.35rem}
.scroll{overflow-x:auto}svg{display:block;width:100%;height:auto}svg *{stroke-linejoin:round}svg text{font-family:inherit}
table{border-collapse:collapse;min-width:min(100%,24rem);margin-bottom:1rem}
th,td{padding:.28rem 1.1rem .28rem 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,.words2 :is(th,td):nth-child(2){text-align:left}th:last-child,td:last-child{padding-right:.2rem}
tbody th{font-weight:400;white-space:normal;min-width:8rem;
overflow-wrap:break-word}
thead th{font-weight:500;color:var(--muted);font-size:.875rem}
.bar{display:inline-block;width:5.5rem;padding-bottom:3px;background:
linear-gradient(var(--accent),var(--accent)) 0 100%/var(--share) 3px no-repeat,
linear-gradient(var(--line),var(--line)) 0 100%/100% 3px no-repeat}
.label{border-radius:4px}.right,.wrong{padding:.05rem .4rem;border:1px solid;font-weight:500}
.right{color:var(--good)}.wrong{color:var(--warm)}
.mistakes{list-style:none;padding:0;margin:0}.mistakes li{padding:.7rem 0;border-top:1px solid var(--line)}
.marks{margin:0;font-size:.9rem;display:flex;flex-wrap:wrap;gap:0 1rem;line-height:1.7}.place{margin-left:auto}
.text{white-space:pre-wrap;unicode-bidi:plaintext}
summary{cursor:pointer;color:var(--accent)}summary .text{color:var(--ink)}details[open]>summary .text{display:none}
details[open]>summary:has(.text)::after{content:"fold"}
@media (max-width:30rem){th,td{padding-right:.7rem}tbody th{min-width:7rem}.bar{width:4rem}.big strong{font-size:3.4rem}}
@media print{:root{color-scheme:light}section{break-inside:avoid}}
"""
