"""The report: everything shown, everything escaped, nothing that breaks on what is missing."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesame.evaluate import html, plots
from sesame.evaluate.few_labels import few_labels
from sesame.evaluate.plots import most_confused, tidy_curve
from sesame.evaluate.report import write_report
from sesame.evaluate.wording import number, shown

EVIL = "<script>alert('x')</script> & \"q\" $\\frac{1}{0}$ --> ]]>"
SCRIPTS = ["доставка", "退款申请", "إرجاع", "ภาษาไทย", "नमस्ते", "🙂", "a\x00b\ud800", ""]


def score(mean: float) -> dict[str, Any]:
    return {"mean": mean, "std": 0.01, "low": mean - 0.01, "high": mean + 0.01, "values": [mean - 0.005, mean + 0.005]}


def full(labels: list[str], points: int = 30, seeds: int = 2) -> dict[str, Any]:
    n = len(labels)
    return {
        "task": "classify",
        "title": f"Intents {EVIL}",
        "model": "mini",
        "strategy": "full",
        "metric": "accuracy",
        "created": "2026-11-15",
        "data": {"train": "train.csv", "rows": {"train": 900, "test": 500}, "notes": [f"a note {EVIL}"]},
        "scores": {"valid": {"accuracy": score(0.92)}, "test": {"accuracy": score(0.91), "macro_f1": score(0.9)}},
        "baselines": {"majority": {"test": {"accuracy": 0.4}}, f"tf-idf{EVIL}": {"test": {"accuracy": 0.83}}},
        "versus": {"baseline": EVIL, "split": "test", "difference": 0.08, "low": 0.05, "high": 0.11, "p": 0.0001},
        "seeds": [
            {
                "seed": 70 + seed,
                "attempts": 1,
                "seconds": 12.3,
                "scores": {"valid": {"accuracy": 0.9}},
                "loss": [[step, 2 / (1 + step)] for step in range(points)],
                "curve": [[step, step / points] for step in range(points)],
            }
            for seed in range(seeds)
        ],
        "best": 1,
        "per_class": [{"label": label, "precision": 0.8, "recall": 0.7, "f1": 0.75, "count": 40} for label in labels],
        "confusion": {
            "labels": labels,
            "counts": [[40 if g == s else (g + s) % 3 for s in range(n)] for g in range(n)],
        },
        "calibration": {
            "ece": 0.05,
            "ece_scaled": 0.02,
            "temperature": 1.3,
            "bins": [{"low": 0.8, "high": 0.9, "confidence": 0.85, "accuracy": 0.8, "count": 9}],
        },
        "mistakes": [
            {
                "text": f"text {EVIL}",
                "pair": EVIL,
                "gold": EVIL,
                "said": "b",
                "probability": 0.98,
                "place": "test.csv:17",
            },
            {"text": "long " * 3000, "pair": None, "gold": "a", "said": EVIL, "probability": 0.5, "place": EVIL},
        ],
        "settings": {"rate": 5e-5, "optim": {"name": EVIL}},
        "warnings": [EVIL],
        "next": EVIL,
    }


class Page(HTMLParser):
    """The tags of a page, checked for balance, and its texts."""

    EMPTY = frozenset({"meta", "path", "use", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == name]


def written(results: dict[str, Any], folder: Path) -> str:
    write_report(results, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_everything_is_shown_escaped_and_offline(tmp_path: Path) -> None:
    text = written(full([EVIL, *SCRIPTS]), tmp_path)
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.tags}
    assert all(not name.startswith("on") for _, attrs in page.tags for name in attrs)
    reached = {
        value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "xlink:href")
    }
    assert all(value and value.startswith("#") for value in reached)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "alert('x')" in "".join(page.texts)  # as words
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == ["Scores", "Learning", "Classes", "Calibration", "Mistakes", "Data and settings"]
    for word in (
        "<strong>0.910</strong>",
        "0.900 to 0.920",
        "p &lt; 0.001",
        "доставка",
        "退款申请",
        "test.csv:17",
        "optim.name",
        "71 (kept)",
    ):
        assert word in text


def test_pictures_speak_and_take_the_colors_of_the_page(tmp_path: Path) -> None:
    text = written(full(["a", "b"]), tmp_path)
    pictures = Page(text).named("svg")
    assert len(pictures) == 5
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in pictures)
    assert "0.910, 95 % interval 0.900 to 0.920" in str(pictures[0]["aria-label"])
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert not re.search(r"(fill|stroke): #", drawn)
    assert set(re.findall(r"var\(--(\w+)\)", drawn)) <= set(re.findall(r"--(\w+):", text))
    assert "~" not in re.sub(r"<[^>]*>", "", drawn)  # no stand-in is left
    ids = [str(attrs["id"]) for _, attrs in Page(text).tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'#([mp]\w{10}|C\w+)[")]', drawn)) <= set(ids)


def test_tables_have_scopes_and_levels(tmp_path: Path) -> None:
    page = Page(written(full(["a", "b", "c"]), tmp_path))
    assert all(attrs.get("scope") in ("row", "col") for attrs in page.named("th"))
    assert len(page.named("table")) == len(page.named("caption"))
    assert len(page.named("h1")) == 1


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    assert written(full(["a", "b"]), tmp_path) == written(full(["a", "b"]), tmp_path)


def test_many_classes_and_long_curves_stay_small(tmp_path: Path) -> None:
    text = written(full([f"intent number {k}" for k in range(77)], points=5000, seeds=5), tmp_path)
    assert len(text.encode()) < 400_000
    assert "the 20 most confused of 77 classes" in text
    assert "57 more classes" in text
    assert text.count("long long long") < 1500  # cut
    assert "11,000 characters more" in text


def test_only_the_needed_keys(tmp_path: Path) -> None:
    text = written(
        {"task": "classify", "metric": "accuracy", "scores": {"valid": {"accuracy": {"mean": 0.5}}}}, tmp_path
    )
    Page(text)
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["Scores"]
    assert "One seed" in text
    assert "a test file would judge it more fairly" in text
    assert 'class="verdict' not in text


def holes(value: Any, random: Random, share: float) -> Any:
    """A copy of `value` with some of its parts lost, as JSON loses them: a number to NaN or null, the rest to null."""
    if random.random() < share:
        return float("nan") if isinstance(value, float) and random.random() < 0.5 else None
    if isinstance(value, dict):
        return {key: holes(part, random, share) for key, part in value.items()}
    return [holes(part, random, share) for part in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(random=st.randoms(use_true_random=False), share=st.sampled_from([0.02, 0.1, 0.3]))
def test_missing_parts_never_break_the_page(
    random: Random, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    results = full(["a", "b", "c"], points=4)
    lost = {key: value if key in ("task", "metric") else holes(value, random, share) for key, value in results.items()}
    page = Page(written(lost, tmp_path_factory.mktemp("holes")))
    assert not any("nan" in text for text in page.texts)


@pytest.mark.parametrize(
    ("metric", "low", "high", "kind", "claim"),
    [
        ("accuracy", 0.01, 0.1, "good", "Better than"),
        ("accuracy", -0.1, -0.01, "bad", "Worse than"),
        ("accuracy", -0.01, 0.1, "open", "Not shown to differ from"),
        ("mse", -0.1, -0.01, "good", "Better than"),
        ("mse", 0.01, 0.1, "bad", "Worse than"),
    ],
)
def test_the_verdict(metric: str, low: float, high: float, kind: str, claim: str, tmp_path: Path) -> None:
    versus = {
        "baseline": "tf-idf",
        "split": "test",
        "difference": (low + high) / 2,
        "low": low,
        "high": high,
        "p": 0.04,
    }
    results = {"task": "t", "metric": metric, "scores": {"test": {metric: score(0.5)}}, "versus": versus}
    text = written(results, tmp_path)
    assert f'class="verdict {kind}"' in text
    assert f"{claim} <bdi>tf-idf</bdi>" in text
    assert "p = 0.040" in text


def test_an_untested_lead_is_called_untested(tmp_path: Path) -> None:
    results = {"task": "t", "metric": "mse", "scores": {"test": {"mse": score(0.5)}}}
    results["baselines"] = {"mean": {"test": {"mse": 0.9}}, "tf-idf": {"test": {"mse": 0.7}}}
    text = written(results, tmp_path)
    assert "Ahead of <bdi>tf-idf</bdi>:</strong> difference -0.200; whether this could be chance was not tested" in text
    assert "<strong>0.500</strong></td>" in text  # the lowest is the best


def test_mistakes_come_surest_first_and_at_most_twenty(tmp_path: Path) -> None:
    mistakes = [{"text": f"m{k}", "gold": "a", "said": "b", "probability": k / 100} for k in range(30)]
    results = {"task": "t", "metric": "accuracy", "scores": {"test": {"accuracy": score(0.5)}}, "mistakes": mistakes}
    assert re.findall(r">(m\d+)<", written(results, tmp_path)) == [f"m{k}" for k in range(29, 9, -1)]


@pytest.mark.parametrize(("sure", "order"), [({}, "worst"), ({"probability": 0.5}, "surest")])
def test_the_order_of_mistakes_and_the_advice_are_told_as_they_are(
    tmp_path: Path, sure: dict[str, float], order: str
) -> None:
    """Numbers and tags come without a probability: nothing is sure of itself there."""
    results = {"task": "t", "metric": "mse", "scores": {"test": {"mse": score(0.5)}}, "next": "next: label more"}
    text = written(results | {"mistakes": [{"text": "m", "gold": "1", "said": "3", **sure}]}, tmp_path)
    assert f"The {order} ones first." in text
    assert "What to try next:</strong> label more" in text


def test_the_colors_can_be_read() -> None:
    """WCAG: text needs a contrast of 4.5 to its ground, in the light and in the dark."""

    def light(color: str) -> float:
        full = color[1:] if len(color) == 7 else "".join(2 * c for c in color[1:])
        parts = [int(full[k : k + 2], 16) / 255 for k in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for block in re.findall(r":root\{(--paper.*?)\}", html.STYLE, flags=re.DOTALL):
        colors = dict(re.findall(r"--(\w+):(#\w+)", block))
        for ground in ("paper", "card"):
            for ink in ("ink", "muted", "accent", "warm", "good"):
                bright, dark = sorted((light(colors[ground]), light(colors[ink])), reverse=True)
                assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)


def test_numbers() -> None:
    assert [number(value) for value in (None, float("nan"), float("inf"), "x", [], 1, 0.5)] == [None] * 5 + [1.0, 0.5]
    assert [shown(value) for value in (None, 0.91234, -1, 88.44, 12345)] == ["–", "0.912", "-1.000", "88.4", "12,345.0"]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e3, 1e3) | st.none()), max_size=700))
def test_a_tidy_curve_keeps_the_mean(points: list[tuple[int, float | None]]) -> None:
    known = [value for _, value in points if value is not None]
    curve = tidy_curve(points)
    assert len(curve) == min(len(known), plots.SHOWN_POINTS)
    assert curve == sorted(curve, key=lambda point: point[0])
    if known:
        assert (
            min(known) - 1e-9
            <= min(value for _, value in curve)
            <= max(value for _, value in curve)
            <= max(known) + 1e-9
        )


def test_the_most_confused_classes() -> None:
    counts = [[9, 0, 0, 0], [0, 5, 4, 0], [0, 0, 9, 0], [1, 0, 0, 8]]
    assert most_confused(counts, 2) == [1, 2]
    assert most_confused(counts, 9) == [0, 1, 2, 3]


def test_few_labels_is_one_svg_with_one_color_a_method(tmp_path: Path) -> None:
    points = {10: [0.5, 0.6], "50": [0.7, 0.8], 0: [0.2], 100: [float("nan")]}
    sets = {"TREC-6": {"fine-tuned": points, EVIL: {10: [0.4]}}, "大": {EVIL: points}, "empty": {}}
    few_labels({"title": EVIL, "x": "labels per class", "y": "accuracy", "sets": sets}, tmp_path / "few.svg")
    tree = ET.parse(tmp_path / "few.svg")
    words = [text.text or "" for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"TREC-6", "大", "fine-tuned", "labels per class", "accuracy", "10", "50"} <= set(words)
    assert not any(word.startswith("~") for word in words)
    text = (tmp_path / "few.svg").read_text(encoding="utf-8")
    assert "fill: #ffffff" in text  # a ground of its own, for dark pages
    assert "#0072b2" in text
    assert "#d55e00" in text
    assert "#009e73" not in text  # two methods, two colors
    few_labels({"title": EVIL, "x": "labels per class", "y": "accuracy", "sets": sets}, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == text


def test_reading_the_modules_costs_no_matplotlib() -> None:
    code = "import sys, sesame.evaluate.report, sesame.evaluate.few_labels; print('matplotlib' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_words_above_a_confusion_matrix_fit(classes: int) -> None:
    """They began above the first column, and their end was cut off: "rows: what is ri". Half an em a letter is ample."""
    drawn = plots.confusion_picture([f"class {k}" for k in range(classes)], [[1.0] * classes] * classes)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])  # type: ignore[index]
    at, told = re.search(r'<text [^>]*x="([-\d.]+)"[^>]*>((?:rows|columns):[^<]*)', drawn).groups()  # type: ignore[union-attr]
    assert float(at) >= 0
    assert float(at) + len(told) * 5.3 <= width
