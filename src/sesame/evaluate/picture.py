"""One picture of a page, drawn by matplotlib as SVG that lives inside the page.

Three things are unusual here.
- The colors are roles: a figure is drawn in stand-in colors that become the page's CSS variables, so that one picture is
  right in the light and in the dark.
- Words from the data never reach matplotlib. It draws an ASCII stand-in of about the same width, and the word itself,
  escaped, takes its place in the SVG: any script is drawn by the reader's own fonts, and "$", "<" or a missing glyph
  cannot break a picture.
- Figures are made without pyplot: there is no global state, and nothing to close.
"""

import re
from io import StringIO
from typing import TYPE_CHECKING, Any

from sesame.evaluate.wording import clean, columns, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 360  # of a picture, in CSS pixels: as wide as a phone
SIZE = 11.0  # of the letters

# The stand-in colors and the CSS variables that they become.
INK, MUTED, LINE, ACCENT, WARM, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_ROLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "accent", WARM: "warm", PAPER: "paper"}


class Picture:
    """One figure; sizes and margins are CSS pixels."""

    def __init__(self, name: str, width: float = WIDTH, height: float = 230) -> None:
        from matplotlib.figure import Figure

        self.name, self.width, self.height = name, width, height
        self.figure = Figure(figsize=(width / 72, height / 72))  # the SVG backend counts 72 dots an inch
        self.names: dict[str, str] = {}

    def axes(self, left: float = 46, right: float = 12, top: float = 10, bottom: float = 38) -> "Axes":
        box = (left / self.width, bottom / self.height)
        axes = self.figure.add_axes((*box, 1 - (left + right) / self.width, 1 - (top + bottom) / self.height))
        bare(axes)
        return axes

    def word(self, text: Any, limit: int = 24) -> str:
        """The stand-in for a word of the data, about as wide as the word."""
        word = shortened(" ".join(str(text).split()), limit)
        stand_in = f"~{len(self.names)}".ljust(columns(word), "n")
        self.names[stand_in] = clean(word)
        return stand_in

    def svg(self) -> str:
        """The whole SVG file, with the words in place; the same figure gives the same bytes."""
        import matplotlib

        text = StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.name}):
            self.figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
        return re.sub(r">(~\d+n*)</text>", lambda found: f">{self.names[found[1]]}</text>", text.getvalue())

    def inline(self, told: str) -> str:
        """The SVG for a page: colored by the page, with the text `told` for those who cannot see it."""
        text = self.svg()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
        text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same in every figure, and nobody asks for them
        text = re.sub(r"<[^>]*>", _in_roles, text)
        limits = f"min-width:{0.8 * self.width:.0f}px;max-width:{1.3 * self.width:.0f}px"
        opening = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{clean(told)}"'
        return re.sub(r"<svg[^>]*>", lambda _: f'{opening} style="{limits}">', text, count=1)


def _in_roles(tag: re.Match[str]) -> str:
    """Inside a tag: colors become the page's, and letters take the page's font."""
    colored = re.sub(r"#(0[1-6])\1\1\b", lambda found: f"var(--{_ROLES[found[0]]})", tag[0])
    return re.sub(r"font-family: [^;\"]*;? ?", "", colored)


def bare(axes: "Axes") -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelsize=SIZE, labelcolor=MUTED, pad=5)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
