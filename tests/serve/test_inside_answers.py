"""Neighbours of a word, what layers know, and choices over HTTP: the library's own, to the last digit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from sesame.backbones import BiLMConfig, LSTMConfig, TransformerXLConfig, XLNetConfig, build_backbone
from sesame.data.examples import Example
from sesame.explain.layers import learnt_mixes, probe
from sesame.explain.near_words import near_words, occurrence
from sesame.serve.app import make_app
from sesame.serve.limits import Limits
from sesame.serve.models import Served, open_models
from tests.languages import word_tokenizer
from tests.serve.models import WORDS, reader, written
from tests.tasks.toys import PLAIN

LINES = ["w1 w2 alpha", "W3, w1!", "gamma w4 w5 w6 w7 w8 delta", "👩‍🚀 w1 w9", "w2"]


@pytest.fixture(scope="module")
def client(served: dict[str, Served]) -> Iterator[TestClient]:
    with TestClient(make_app(served, Limits(deadline=0.0))) as found:
        yield found


def asked(client: TestClient, what: str, **body: Any) -> dict[str, Any]:
    reply = client.post(f"/v1/{what}", json={"model": "reader", **body})
    assert reply.status_code == 200, reply.text
    (answer,) = reply.json()["answers"]
    return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("layer", [None, 0, 2])
@pytest.mark.parametrize("model", ["reader", "speaks"])
def test_neighbours(client: TestClient, served: dict[str, Served], model: str, layer: int | None) -> None:
    lines = LINES if model == "reader" else ["wa wb wc", "wd wa", "wb we wf", "wa", "wg wh wi"]
    text, word = (f"{lines[0]} {lines[0]}", "W1" if model == "reader" else "wa")
    more = {} if layer is None else {"layer": layer}
    answer = asked(client, "neighbours", model=model, text=text, word=word, at=2, texts=lines, top=4, **more)
    loaded = served[model].loaded
    here = occurrence(text, word, 2)
    name = "sum-last-4" if layer is None else str(layer)
    wanted = near_words(loaded.parts.backbone, loaded.tokenizer, here, lines, name, 4, loaded.reader())
    assert (answer["word"], answer["start"], answer["end"]) == (here.word, here.start, here.end)
    assert [n["score"] for n in answer["neighbours"]] == [one.cosine for one in wanted]
    assert [(n["line"], n["start"]) for n in answer["neighbours"]] == [(w.line, w.occurrence.start) for w in wanted]
    assert len(answer["neighbours"]) == 4
    for one in answer["neighbours"]:
        assert one["text"] == lines[one["line"] - 1]
        assert one["text"][one["start"] : one["end"]] == one["word"]


@pytest.mark.parametrize("kind", ["bilm", "lstm", "xlnet", "transformer-xl"])
def test_other_readers_have_neighbours_and_layers_too(tmp_path: Path, kind: str) -> None:
    tokenizer = word_tokenizer(WORDS)
    size = len(tokenizer)
    configs: dict[str, Any] = {
        "bilm": BiLMConfig(
            size, width=16, depth=2, cell=16, reads="tokens", letter_width=4, filters=((1, 8),), max_length=24
        ),
        "lstm": LSTMConfig(size, width=16, depth=2, cell=16),
        "xlnet": XLNetConfig(size, width=16, depth=2, heads=2),
        "transformer-xl": TransformerXLConfig(size, width=16, depth=2, heads=2),
    }
    made = written(tmp_path / "both", build_backbone(configs[kind]), tokenizer=tokenizer)
    served = open_models([str(made)])
    assert {"neighbours", "layers"} <= set(served["both"].can)
    rows = [f"{WORDS[n % 7]} wa {WORDS[n % 5]}" for n in range(20)]
    with TestClient(make_app(served)) as client:
        near = asked(client, "neighbours", model="both", text="wb wa", word="wa", texts=rows, layer=2)
        known = asked(client, "layers", model="both", texts=rows, labels=["a", "b"] * 10)
    assert len(near["neighbours"]) == 10
    assert [row["layer"] for row in known["layers"]] == ["embeddings", "1", "2", "mix"]


def test_what_layers_know(client: TestClient, served: dict[str, Served]) -> None:
    texts = [f"{PLAIN[n % 9]} {PLAIN[n % 7]} {PLAIN[n % 4]}" for n in range(24)]
    labels = ["early" if n % 9 < 4 else "late" for n in range(24)]
    answer = asked(client, "layers", texts=texts, labels=labels)
    parts = served["reader"].loaded.parts
    assert parts.tokenizer is not None
    rows = [Example("", text, label=label) for text, label in zip(texts, labels, strict=True)]
    wanted = probe(parts.backbone, parts.tokenizer, rows, "classify")
    assert [(row["layer"], row["score"], row["spread"]) for row in answer["layers"]] == wanted.each()
    assert answer["layers"][-1]["layer"] == "mix"
    told = {"metric": "accuracy", "least": wanted.least, "rows": 24, "folds": 5}
    assert {key: answer[key] for key in told} == told
    mix = parts.tasks["mixed"].choice.mix
    assert mix is not None
    assert answer["mixes"] == learnt_mixes(parts.tasks) == {"mixed": pytest.approx(mix.scores.softmax(0).tolist())}
    assert len(set(answer["mixes"]["mixed"])) == 3, "noise, not the beginning"


def test_a_larger_model_is_probed_with_less(tmp_path: Path) -> None:
    """Rows x longest row, by what a token costs: 4 D D + 8 D D + 2 L D for each layer."""
    served = open_models([str(reader(tmp_path / "one", ())), str(reader(tmp_path / "two", (), depth=4))])
    body = {"texts": ["w1", "w2 w3"] * 5, "labels": ["a", "b"] * 5}  # 4 tokens with those around them
    each = 2 * (12 * 16 * 16 + 2 * 4 * 16)
    with TestClient(make_app(served, Limits(work=40 * each))) as client:
        asked(client, "layers", model="one", **body)
        reply = client.post("/v1/layers", json={"model": "two", **body})
    assert reply.status_code == 413
    assert "10 rows of up to 4 tokens are 40 places, more than the 20" in reply.json()["error"]


def test_choices(client: TestClient, served: dict[str, Served]) -> None:
    choices = ["w3", "w4 w5", "alpha"]
    answer = asked(client, "choice", text="w1 w2", choices=choices)
    (reply,) = served["reader"].loaded.predict([Example("", "w1 w2", options=tuple(choices))], "pick")
    best = reply["choice"]
    assert answer["scores"] == reply["probabilities"]
    assert (answer["choice"], answer["text"], answer["score"]) == (best, choices[best], reply["probabilities"][best])
    again = asked(client, "choice", text="w1 w2", choices=choices[::-1], task="pick")
    assert again["text"] == answer["text"]
    (model,) = [one for one in client.get("/v1/models").json()["models"] if one["name"] == "reader"]
    assert {"choice", "neighbours", "layers"} <= set(model["can"])


def test_as_many_answers_as_are_asked_for(client: TestClient, served: dict[str, Served]) -> None:
    context, library = " ".join(PLAIN[:9]), served["reader"].loaded
    for best in (1, 5, 20):
        answer = asked(client, "qa", question="w1", context=context, best=best)
        (reply,) = library.predict([("w1", context)], "asked", best=best)
        assert [one["score"] for one in answer["answers"]] == [one["probability"] for one in reply["best"]]
        assert len(answer["answers"]) == best
        assert len({(one["start"], one["end"]) for one in answer["answers"]}) == best
        assert answer["none"] == reply["no_answer"]
    assert sum(one["score"] for one in answer["answers"]) + answer["none"] == pytest.approx(1.0)
    assert len(library.predict([("w1", context)], "asked")[0]["best"]) == 5, "what `predict` tells stays"


def test_many_choices_share_a_batch_with_others(served: dict[str, Served]) -> None:
    """Requests of different numbers of choices are computed together, each with its own."""
    library = served["reader"].loaded
    from sesame.serve.answers import choice

    inputs = [("w1", "w2", "w3"), ("w4 w5", "alpha", "w6", "w7 w8", "w9")]
    with torch.no_grad():
        found = choice(library, inputs, "pick")
    for (text, *rest), one in zip(inputs, found, strict=True):
        (alone,) = choice(library, [(text, *rest)], "pick")
        assert one["scores"] == pytest.approx(alone["scores"], abs=1e-6)
        assert len(one["scores"]) == len(rest)
