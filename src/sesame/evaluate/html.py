"""Pieces of HTML that the report is put together from, and how they look.

What goes into a section, a figure, a table or a fold is HTML already; a label and a bar take what the data holds.
"""

from collections.abc import Sequence
from typing import Any

from sesame.evaluate.wording import clean, number, shown

STYLE = """
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


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n" + "\n".join(part for part in parts if part) + "\n</section>"


def figure(svg: str, caption: str) -> str:
    return f'<figure>\n<figcaption>{caption}</figcaption>\n<div class="scroll">{svg}</div>\n</figure>' if svg else ""


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
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


def fold(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>\n{inside}\n</details>"


def label(text: Any, kind: str = "") -> str:
    return f'<bdi class="label {kind}">{clean("none" if text is None else text)}</bdi>'


def bar(value: Any) -> str:
    found = number(value)
    if found is None:
        return shown(value)
    return f'<span class="bar" style="--share:{100 * min(max(found, 0.0), 1.0):.0f}%">{shown(found)}</span>'
