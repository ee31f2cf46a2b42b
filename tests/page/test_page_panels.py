"""Every panel does its work: type, submit, see the right answer."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.fake import LAYERS, Fake, attention, choice, layers, neighbours, one_head, pieces

pytestmark = pytest.mark.slow  # a browser

Visit = Callable[..., Any]


def panel(page: Any, name: str) -> Any:
    page.locator(f"#tab-{name}").click()
    return page.locator(f"#panel-{name}")


def send(place: Any) -> None:
    place.get_by_role("button", name="Ask", exact=True).click()
    place.locator(".output:not([aria-busy=true]) > *").first.wait_for()


def test_fill_shows_bars_and_puts_a_candidate_in_its_place(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "fill")
    place.get_by_label("Text").fill("I live in [MASK].")
    place.get_by_label("Candidates").fill("3")
    send(place)
    assert fake.asked[-1] == ("fill", {"text": "I live in [MASK].", "top": 3, "model": "minilm"})
    assert place.locator(".bar .value").all_inner_texts() == ["62.0 %", "21.9 %", "11.9 %"]
    assert place.locator("p.text").inner_text() == "I live in france."
    widths = [
        track.evaluate("e => parseFloat(getComputedStyle(e, '::after').width) / e.clientWidth")
        for track in place.locator(".track").all()
    ]
    assert [round(width, 2) for width in widths] == [0.62, 0.22, 0.12]
    place.get_by_role("button", name="england").click()
    assert place.locator("p.text").inner_text() == "I live in england."


def test_classify_draws_each_line_with_its_label(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "classify")
    place.get_by_label("Texts").fill("a lovely day\n\nrain again")
    send(place)
    assert fake.asked[-1] == ("classify", {"texts": ["a lovely day", "rain again"], "model": "minilm", "task": "mood"})
    assert place.locator("summary").all_inner_texts() == ["a lovely day\ngood 91.0 %", "rain again\nbad 78.0 %"]
    place.locator("summary").nth(1).click()
    assert place.locator("details").nth(1).locator(".bar .name").all_inner_texts() == ["bad", "good"]


def test_another_task_asks_another_path(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "classify")
    place.get_by_label("Task").select_option("stars")
    place.get_by_label("Texts").fill("three of five")
    send(place)
    assert fake.asked[-1] == ("regress", {"texts": ["three of five"], "model": "minilm", "task": "stars"})
    assert place.locator(".verdict").inner_text() == "3.250"


def test_tags_stand_where_they_belong_also_after_an_emoji(visit: Visit) -> None:
    place = panel(visit(), "tag")
    place.get_by_label("Text").fill("🎩👩‍🔬 we met Ada in London.")
    send(place)
    assert place.locator("mark").all_inner_texts() == ["AdaPER", "LondonLOC"]
    assert place.locator("td.text").all_inner_texts() == ["Ada", "London"]
    place.get_by_label("Text").fill("nothing here")
    send(place)
    place.get_by_text("Nothing was found in this text.").wait_for()


def test_the_answer_is_lit_and_others_light_up(visit: Visit) -> None:
    place = panel(visit(), "qa")
    place.get_by_role("button", name="Example").click()
    place.locator("mark").wait_for()
    assert place.locator("mark").inner_text() == "in his house in Dorset Street"
    place.locator(".answer").nth(2).hover()
    assert place.locator("mark").inner_text() == "Science Museum"
    place.get_by_label("Question").fill("What does nobody know?")
    place.get_by_label("Question").press("Enter")
    place.get_by_text("The model finds no answer in this context.").wait_for()
    assert place.locator("mark").count() == 0
    assert place.locator(".bar .value").inner_text() == "93.0 %"


def test_pairs_measure_similarity_and_next_sentence(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "pairs")
    place.get_by_role("button", name="Example").click()
    place.locator("td.cosine").first.wait_for()
    assert place.locator("td.cosine").all_inner_texts() == ["0.812", "0.097", "0.097", "0.097", "0.812", "0.097"]
    place.get_by_label("First text").fill("the river")
    place.get_by_label("Second text").fill("the water")
    send(place)
    place.locator(".verdict-line").wait_for()
    assert place.locator(".verdict-line").inner_text() == "0.812"
    place.get_by_label("Measure").select_option("nsp")
    send(place)
    place.get_by_text("next, 88.0 %").wait_for()
    assert fake.asked[-1] == ("nsp", {"text": "the river", "pair": "the water", "model": "minilm"})


def test_the_likeliest_choice_stands_first(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "choice")
    place.get_by_label("Beginning").fill("Once")
    place.get_by_label("Choices").fill(
        "x\n\nupon a time, in a town by the sea, b\nlonger than all of the others are, by a good deal"
    )
    send(place)
    choices = ["x", "upon a time, in a town by the sea, b", "longer than all of the others are, by a good deal"]
    assert fake.asked[-1] == ("choice", {"text": "Once", "choices": choices, "model": "minilm", "task": "swag"})
    shares = choice({"choices": choices})["scores"]
    assert place.locator(".verdict-line").inner_text() == choices[1]
    assert place.locator(".ranked-line .text").all_inner_texts() == [choices[1], choices[2], choices[0]]
    assert place.locator(".ranked-line .value").first.inner_text() == f"{100 * shares[1]:.1f} %"


def test_neighbours_are_listed_with_the_word_lit(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "neighbours")
    place.get_by_label("Text").fill("🎩 play on, play")
    place.get_by_label("Word in it").fill("play")
    place.get_by_label("Lines to look among").fill(f"🎩🎩 a play\nnothing\n{'x' * 120} play {'y' * 120}")
    place.get_by_label("Occurrence").fill("2")
    place.get_by_label("Neighbours").fill("7")
    send(place)
    texts = ["🎩🎩 a play", "nothing", f"{'x' * 120} play {'y' * 120}"]
    body = {"text": "🎩 play on, play", "word": "play", "at": 2, "texts": texts, "top": 7, "model": "minilm"}
    assert fake.asked[-1] == ("neighbours", body)
    whole = place.locator(".output > p.text")
    assert whole.inner_text() == body["text"]
    assert whole.evaluate("e => e.firstChild.textContent") == "🎩 play on, "
    assert place.locator(".ranked-line mark").all_inner_texts() == ["play", "play"]
    assert place.locator(".ranked-line .text").nth(1).inner_text() == f"…{'x' * 89} play {'y' * 89}…"
    scores = [one["score"] for one in neighbours(body)["neighbours"]]
    assert place.locator(".ranked-line .value").first.inner_text() == f"{scores[0]:.3f}"
    place.locator(".ranked-line").first.hover()
    assert place.locator(".ranked-line.lit").all_inner_texts() == place.locator(".ranked-line").all_inner_texts()[:1]
    place.locator(".ranked-line").first.press("ArrowDown")
    assert place.locator(".ranked-line").nth(1).evaluate("e => e === document.activeElement && e.matches('.lit')")
    assert place.locator(".lit").count() == 1
    place.get_by_label("Layer").select_option("0")
    send(place)
    assert fake.asked[-1][1]["layer"] == 0
    place.get_by_label("Word in it").fill("work")
    place.get_by_role("button", name="Ask", exact=True).click()
    place.get_by_text("does not stand in the text").wait_for()


def test_layers_have_bars_whiskers_and_a_line(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "layers")
    place.get_by_label("Rows").fill("a | one | more\nb\ttwo\n\na|three")
    send(place)
    body = {"texts": ["one | more", "two", "three"], "labels": ["a", "b", "a"], "model": "minilm"}
    assert fake.asked[-1] == ("layers", body)
    rows = layers(body)["layers"]
    names = ["Embeddings", *(f"Layer {number + 1}" for number in range(LAYERS)), "Mix of all"]
    assert place.locator(".probe .name").all_inner_texts() == names
    assert place.locator(".probe .value").first.inner_text() == "55.0 % ± 12.0"

    def share(selector: str, side: str) -> list[float]:
        code = """(e, side) => {
            const lane = e.parentElement.getBoundingClientRect();
            return (e.getBoundingClientRect()[side] - lane.left) / lane.width;
        }"""
        return [one.evaluate(code, side) for one in place.locator(selector).all()]

    assert share(".whisker", "left") == pytest.approx([row["score"] - row["spread"] for row in rows], abs=0.005)
    assert share(".whisker", "right") == pytest.approx(
        [min(1, row["score"] + row["spread"]) for row in rows], abs=0.005
    )
    assert share(".least", "left") == pytest.approx([2 / 3] * len(rows), abs=0.005)
    bar = (
        place.locator(".lane").nth(2).evaluate("e => parseFloat(getComputedStyle(e, '::before').width) / e.clientWidth")
    )
    assert bar == pytest.approx(rows[2]["score"], abs=0.005)
    assert place.locator(".bar .value").all_inner_texts() == ["5.0 %", "10.0 %", "20.0 %", "25.0 %", "40.0 %"]
    place.get_by_text("What the task mood learnt to read").wait_for()
    place.get_by_text("not whether the model uses it").wait_for()
    place.get_by_label("Rows").fill("a | one\nno label here")
    place.get_by_role("button", name="Ask", exact=True).click()
    place.get_by_text("Row 2 has no label or no text: write label | text.").wait_for()


def test_translation_with_alignment_read_by_pointer_and_keys(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "translate")
    place.get_by_label("Text").fill("Ein Hund läuft.")
    place.get_by_label("Outputs").fill("2")
    send(place)
    assert fake.asked[-1][1] == {
        "text": "Ein Hund läuft.",
        "beams": 4,
        "best": 2,
        "alternatives": 5,
        "alignment": True,
        "model": "writer",
    }
    assert place.locator(".outputs .large").inner_text() == "A dog runs across the green meadow."
    assert place.locator(".matrix .column").all_inner_texts() == ["Ein", "Hund", "läuft", "."]
    place.locator(".matrix").press("ArrowDown")
    place.locator(".matrix").press("ArrowRight")
    assert place.locator(".readout").inner_text().startswith("writing A it looked at Hund: 0.2")
    box = place.locator(".matrix canvas").bounding_box()
    place.locator(".matrix canvas").hover(position={"x": box["width"] - 3, "y": 3})
    assert place.locator(".readout").inner_text().startswith("writing A it looked at .: 0.0")


def test_generation_shows_alternatives_at_each_step(visit: Visit, fake: Fake) -> None:
    place = panel(visit(), "generate")
    place.get_by_label("Beginning").fill("Once")
    place.get_by_label("Tokens").fill("3")
    send(place)
    asked = {"text": "Once", "max_tokens": 3, "temperature": 0.8, "top_p": 0.95, "seed": 1}
    assert fake.asked[-1] == ("generate", {**asked, "beams": 1, "alternatives": 6, "model": "writer"})
    assert place.locator(".outputs .large").inner_text() == "Once there lived a"
    place.locator(".chip").nth(1).hover()
    assert place.locator(".bar .name").all_inner_texts()[0].strip() == "lived"
    place.locator(".chip").nth(1).press("ArrowRight")
    place.get_by_text("Step 3: what might have stood here").wait_for()
    assert place.locator(".chip").all_inner_texts() == ["there", "lived", "a"]
    place.get_by_label("Temperature").fill("0")
    send(place)
    assert not {"temperature", "top_p", "seed"} & set(fake.asked[-1][1])


def test_tokens_ids_offsets_and_what_normalisation_changed(visit: Visit) -> None:
    place = panel(visit(), "tokens")
    text = "🎄 Café  lights"
    place.get_by_label("Text").fill(text)
    send(place)
    rows = [row.locator("td").all_inner_texts() for row in place.locator("tbody tr").all()]
    assert [row[1:3] for row in rows] == [[piece["token"], str(piece["id"])] for piece in pieces(text)]
    assert [row[4] for row in rows] == ["", "🎄", "Café", "light", "s", ""]
    assert place.locator("del").all_inner_texts() == ["C", "é␣"]
    assert place.locator("ins").all_inner_texts() == ["c", "e"]
    place.get_by_text("6 tokens, 14 letters, 1 unknown").wait_for()


def test_attention_of_any_head_as_lines_and_matrix(visit: Visit) -> None:
    place = panel(visit(), "attention")
    text = "the cat sat on the mat"
    place.get_by_label("Text", exact=True).fill(text)
    send(place)
    weights = attention({"text": text})["weights"]
    assert place.locator(".thumb").count() == len(weights) * len(weights[0])
    place.get_by_role("button", name="layer 2, head 3").click()
    place.locator(".lines button").nth(2).hover()
    shown = [
        float(value.removesuffix(" %").removeprefix("< ")) / 100
        for value in place.locator(".one-word .value").all_inner_texts()
    ]
    assert shown == pytest.approx(sorted(weights[2][3][2], reverse=True), abs=0.001)
    assert place.locator(".lines g:not(.off)").count() == 1
    place.get_by_label("Matrix").check()
    place.locator(".matrix").press("ArrowDown")
    place.locator(".matrix").press("ArrowRight")
    assert place.locator(".readout").inner_text().strip() == f"[CLS] → the: {weights[2][3][0][1]:.3f}"
    place.get_by_label("Layer", exact=True).select_option(str(LAYERS - 1))
    assert place.get_by_role("button", name=f"layer {LAYERS - 1}, head 3").get_attribute("aria-pressed") == "true"
    place.get_by_text("Attention is not explanation").wait_for()


def test_long_inputs_scroll_inside_their_drawings(visit: Visit) -> None:
    page = visit()
    place = panel(page, "attention")
    place.get_by_label("Text", exact=True).fill("word " * 120)
    send(place)
    for view in (".lines", ".matrix"):
        if view == ".matrix":
            place.get_by_label("Matrix").check()
        high, seen = place.locator(view).evaluate("e => [e.scrollHeight, e.clientHeight]")
        assert high > seen > 200
    name = place.locator(".matrix .row").nth(5)
    assert name.evaluate("e => e.scrollWidth <= e.clientWidth"), "the names of a long matrix are cut"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200


def test_one_head_shows_the_numbers_of_the_server(visit: Visit, fake: Fake) -> None:
    page = visit()
    panel(page, "attention").get_by_role("button", name="Example").click()
    page.get_by_role("button", name="layer 1, head 2").click()
    page.get_by_role("link", name="This head step by step").click()
    place = page.locator("#panel-head")
    place.locator(".lecture").wait_for()
    assert fake.asked[-1][1]["layer"] == 1
    assert fake.asked[-1][1]["head"] == 2
    place.locator(".chip").nth(3).click()
    found = one_head([piece["token"] for piece in pieces(fake.asked[-1][1]["text"])], 1, 2)

    def column(label: str, number: int) -> list[str]:
        cells = place.get_by_role("region", name=label).locator(f"tbody tr td:nth-child({number})").all_inner_texts()
        return [cell.strip().replace("−", "-") for cell in cells]

    def near(shown: list[str], values: list[float], most: float) -> bool:
        return all(abs(float(text) - value) <= most for text, value in zip(shown, values, strict=True))

    assert near(column("Scores", 4), found["scores"][3], 0.0051)
    assert near(column("Scores", 3), found["scores"][3], 0.0101)  # computed by the page from q and k
    assert near(column("Softmax", 4), found["weights"][3], 0.00051)
    output = place.get_by_role("region", name="Output").locator("tfoot td").all_inner_texts()[1:7]
    assert near([text.replace("−", "-") for text in output], found["output"][3][:6], 0.0051)
