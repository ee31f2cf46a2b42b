"""Commands that let a model speak: `translate`, `generate`."""

import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from sesame.cli.answers import DEVICE, numbered_lines

BEST = typer.Option(1, min=1, help="How many answers for each text.")
MOST = typer.Option(None, min=1, help="New tokens at most.")
FEWEST = typer.Option(0, min=0, help="New tokens at least.")
NO_REPEAT = typer.Option(0, min=0, help="No n-gram of this size comes twice; 0: they may.")
TOP_P = 0.9
BATCH = typer.Option(None, min=1, help="Texts at a time; by default 32, on a GPU 128.")


def register(app: typer.Typer) -> None:
    app.command()(translate)
    app.command()(generate)


def translate(
    model: str = typer.Argument(..., help="The folder of an encoder-decoder, or a run."),
    texts: list[str] = typer.Argument(None, help="Sources; without them, lines of standard input."),
    file: Path | None = typer.Option(None, help="A file with one source a line."),
    beams: int = typer.Option(5, min=1, help="Hypotheses that the search follows; 1: greedy."),
    best: int = BEST,
    penalty: str = typer.Option("plain", help="Length penalty: plain (as transformers) or gnmt."),
    alpha: float = typer.Option(1.0, help="Its strength; 0: none."),
    coverage: float = typer.Option(0.0, min=0.0, help="GNMT's coverage penalty."),
    most: int | None = MOST,
    fewest: int = FEWEST,
    no_repeat: int = NO_REPEAT,
    begin: str = typer.Option("", help="What every answer begins with."),
    beside: list[str] = typer.Option(
        [], "--with", metavar="MODEL", help="Another model of the same tokenizer: both speak as one; repeat it."
    ),
    batch: int | None = BATCH,
    device: str = DEVICE,
    json: bool = typer.Option(False, "--json", help="One JSON object a source, with scores."),
) -> None:
    """Translate, summarise, or do whatever an encoder-decoder was taught: one answer for each source, in order.

    Example: sesame translate runs/en-de --file test.en --beams 5 > said.de
    """
    wanted = numbered_lines(texts, file, empty=True)
    settings = {
        "beams": beams, "best": best, "penalty": penalty, "alpha": alpha, "coverage": coverage, "fewest": fewest,
        "no_repeat": no_repeat,
    }  # fmt: skip
    _speak("translate", model, device, wanted, settings, most, begin, batch, json, beside)


def generate(
    model: str = typer.Argument(..., help="The folder of a decoder, or a run."),
    texts: list[str] = typer.Argument(None, help="Prompts; without them, lines of standard input."),
    file: Path | None = typer.Option(None, help="A file with one prompt a line."),
    greedy: bool = typer.Option(False, "--greedy", help="Always the likeliest token, instead of drawing one."),
    beams: int = typer.Option(1, min=1, help="Search with so many hypotheses, instead of drawing."),
    temperature: float = typer.Option(
        1.0, help="Below 1 likely tokens are preferred, above 1 rare ones come more often."
    ),
    top_k: int = typer.Option(0, min=0, help="Draw from the k likeliest tokens; 0: from all."),
    top_p: float = typer.Option(TOP_P, help="Draw from the fewest tokens that hold this share of the probability."),
    seed: int = typer.Option(0, help="Another seed draws other tokens."),
    best: int = BEST,
    most: int | None = MOST,
    fewest: int = FEWEST,
    no_repeat: int = NO_REPEAT,
    batch: int | None = BATCH,
    device: str = DEVICE,
    json: bool = typer.Option(False, "--json", help="One JSON object a prompt, with scores."),
) -> None:
    """Continue prompts. The same seed and prompts give the same continuations.

    Example: sesame generate runs/gpt "Once upon a time" --top-p 0.9 --best 3
    """
    _check_draws(greedy, beams, (temperature, top_k, top_p))
    wanted = numbered_lines(texts, file, empty=True)
    settings: dict[str, Any] = {"best": best, "fewest": fewest, "no_repeat": no_repeat, "beams": beams}
    if not greedy and beams == 1:
        settings |= {"sample": True, "seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    _speak("generate", model, device, wanted, settings, most, "", batch, json)


def _check_draws(greedy: bool, beams: int, filters: tuple[float, int, float]) -> None:
    """A search would drop in silence what is said of draws; `top_p` is known to be meant where it is not the default."""
    from sesame.errors import SesameError

    if greedy and beams > 1:
        raise SesameError(f"--greedy follows one text and --beams {beams} several; give one of them")
    if (greedy or beams > 1) and filters not in ((1.0, 0, TOP_P), (1.0, 0, 1.0)):
        search = "--greedy" if greedy else f"--beams {beams}"
        raise SesameError(
            f"--temperature, --top-k and --top-p are for drawing, and {search} does not draw; leave it out"
        )


def _speak(
    how: str, model: str, device: str, texts: list[tuple[str, str]], settings: dict[str, Any], most: int | None,
    begin: str, batch: int | None, json: bool, beside: Sequence[str] = (),
) -> None:  # fmt: skip
    """`texts` come with their places."""
    import sesame
    from sesame.checkpoint.speech import Speech, not_followed
    from sesame.generate import Settings
    from sesame.progress import bar, say
    from sesame.tasks.speak import Said, tell_cut

    if most is not None:
        settings["most"] = most
    loaded = sesame.load(model, device)
    others = [sesame.load(other, device) for other in beside]
    odd = not_followed(loaded.parts.speech or Speech(), Settings(**settings))
    if odd:
        say(f"{model}: generation_config.json asks for {', '.join(odd)}; the options of this command decide instead")
    places = [place for place, text in texts if text.strip()]
    given = [text for _, text in texts if text.strip()]
    if len(given) < len(texts):
        say(f"{len(texts) - len(given)} of {len(texts)} lines are empty, and so are their answers")
    with bar(how, len(given), "texts") as shown:
        if how == "translate":
            found = loaded.translate(
                given, begin=begin, batch=batch, shown=shown, places=places, beside=others, **settings
            )
        else:
            found = loaded.generate(given, batch=batch, shown=shown, places=places, **settings)
    if how == "translate":  # a continuation has no end that it could miss
        tell_cut([answers[0] for answers in found], settings.get("most", Settings.most))
    said = iter(found)
    for _, text in texts:
        answers = next(said) if text.strip() else [Said("", 0.0, 0.0, True, [])] * (1 if json else settings["best"])
        if json:
            all = [{"text": a.text, "score": a.score, "logprob": a.logprob, "ended": a.ended} for a in answers]
            typer.echo(jsonlib.dumps({"text": text, "answers": all}, ensure_ascii=False))
        else:
            for answer in answers:
                typer.echo(" ".join(answer.text.splitlines()) if how == "translate" else text + answer.text)
