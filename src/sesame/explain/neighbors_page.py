"""Neighbours of a word in context as one HTML page: no script, no network, light or dark as the reader likes."""

from collections.abc import Sequence
from pathlib import Path

from sesame.evaluate.wording import clean
from sesame.explain.occurrences import Occurrence
from sesame.explain.senses import Near, Numbers
from sesame.files import write_whole

AROUND = 90  # characters on each side of the word
_COLORS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#744210", "#285e61", "#4a5568")
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
article{border-left:.3rem solid var(--sense);padding:.1rem 0 .1rem 1rem;margin:1.2rem 0}
ol{margin:.3rem 0;padding-left:1.4rem;opacity:.85}mark{background:none;color:inherit;font-weight:700}
small{opacity:.7}p{margin:.2rem 0}
"""


def around(one: Occurrence, most: int = AROUND) -> tuple[str, str, str]:
    """What stands before the word, the word, and what stands behind it, cut to what a line holds."""
    before, behind = one.text[: one.start], one.text[one.end :]
    before = before if len(before) <= most else "…" + before[-most:]
    behind = behind if len(behind) <= most else behind[:most] + "…"
    return before, one.word, behind


def write_neighbors(path: Path, word: str, occurrences: Sequence[Occurrence], near: Near, senses: Numbers) -> None:
    """Every occurrence under its sense, with the nearest other ones."""
    parts = []
    for sense in range(int(senses.max(initial=0)) + 1):
        of_sense = [row for row in range(len(occurrences)) if senses[row] == sense]
        parts.append(f"<h2>Sense {sense + 1} <small>({len(of_sense)} of {len(occurrences)})</small></h2>")
        parts += [_article(occurrences, near, row, sense) for row in of_sense]
    title = clean(f"Neighbours of “{word}” in context")
    note = "Each occurrence with its nearest others, by the cosine of a model's states; senses are clusters of them."
    write_whole(
        path,
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{note}</p>\n"
        + "\n".join(parts)
        + "\n</body>\n"
        "</html>\n",
    )


def _article(occurrences: Sequence[Occurrence], near: Near, row: int, sense: int) -> str:
    others = "".join(
        f"<li>{_sentence(occurrences[other])} <small>{cosine:.2f}</small></li>"
        for other, cosine in zip(near.rows[row].tolist(), near.cosines[row].tolist(), strict=True)
    )
    place = clean(occurrences[row].place)
    return (
        f'<article style="--sense:{_COLORS[sense % len(_COLORS)]}"><p>{_sentence(occurrences[row])} <small>{place}</small>'
        f"</p><ol>{others}</ol></article>"
    )


def _sentence(one: Occurrence) -> str:
    before, word, behind = map(clean, around(one))
    return f"{before}<mark>{word}</mark>{behind}"
