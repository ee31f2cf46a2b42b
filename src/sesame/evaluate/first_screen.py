"""The first screen of a report: how good the model is, how sure that is, whether it beats the baselines, what to try next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sesame.evaluate import html
from sesame.evaluate.plots import score_picture
from sesame.evaluate.scoring import LOWER_IS_BETTER
from sesame.evaluate.wording import clean, metric_name, number, shown, split_name

Results = Mapping[str, Any]


def first_screen(results: Results) -> Iterator[str]:
    yield from _top(results)
    yield from _notices(results)


def _headline_split(results: Results) -> str:
    """The split that answers the question: test rows, else validation rows, else whatever has the metric."""
    having = [split for split in results["scores"] or {} if _score(results, split)]
    return next((split for split in ("test", "valid", *having) if split in having), "")


def _score(results: Results, split: str) -> Mapping[str, Any]:
    """The main score on a split, or {} when it is not known."""
    score = ((results["scores"] or {}).get(split) or {}).get(results["metric"]) or {}
    return score if number(score.get("mean")) is not None else {}


def rivals_of(results: Results, split: str, metric: str) -> list[tuple[str, float]]:
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
    where = f"{clean(metric)} on {clean(split_name(split))} rows" if split else f"no {clean(metric)} is known"
    rivals = rivals_of(results, split, results["metric"])
    picture = score_picture(metric, score, rivals) if score else ""
    figure = html.figure(picture, "Line: the mean; dots: the seeds; band: the 95 % interval") if picture else ""
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
        on = f" on {clean(split_name(versus['split']))} rows" if versus.get("split") else ""
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
