"""The report: one HTML file that says how good a model is, how sure that is, and whether it beats the baselines.

It needs no network and no script (a policy in its head forbids both), follows the reader's light or dark setting and fits a
phone. Whatever comes from the data is escaped. A section whose figures are missing is left out.
"""

from pathlib import Path

from sesame.evaluate import html
from sesame.evaluate.first_screen import Results, first_screen
from sesame.evaluate.sections import SECTIONS
from sesame.evaluate.wording import clean, metric_name
from sesame.files import write_whole


def write_report(results: Results, path: Path) -> None:
    """Write `results` as one HTML page; only "task", "metric" and "scores" must be there.

    `versus["difference"]` is this model minus the baseline, in units of the metric; `best` is a place in `seeds`.
    """
    title = clean(results.get("title") or f"{results['task']}: {metric_name(results['metric'])}")
    body = "\n".join([*first_screen(results), *(section for part in SECTIONS for section in part(results))])
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    write_whole(
        path,
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{html.STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
    )
