"""Answers over HTTP are the library's, to the last digit; batches do not change them."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from sesame.checkpoint.speech import voice_of
from sesame.data.batch import Batch
from sesame.explain.alignment import align
from sesame.loaded import Loaded
from sesame.serve.app import make_app
from sesame.serve.limits import Limits
from sesame.serve.models import Served, open_models
from tests.serve.models import WORDS, reader
from tests.tasks.toys import PLAIN

TEXTS = ["w1 w2 alpha", "w3", "gamma w4 w5 w6 w7 w8 delta", " ".join(PLAIN * 3), "", "zzz é 👩‍🚀 \u202e"]


@pytest.fixture(scope="module")
def client(served: dict[str, Served]) -> Iterator[TestClient]:
    with TestClient(make_app(served, Limits(deadline=0.0))) as found:
        yield found


@pytest.fixture
def library(served: dict[str, Served]) -> Loaded:
    return served["reader"].loaded


def asked(client: TestClient, what: str, **body: Any) -> list[Any]:
    body.setdefault("model", "reader")
    reply = client.post(f"/v1/{what}", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == body["model"]
    return reply.json()["answers"]  # type: ignore[no-any-return]


def test_classify(client: TestClient, library: Loaded) -> None:
    for reply, answer in zip(
        library.predict(TEXTS, "mood"), asked(client, "classify", texts=TEXTS, task="mood"), strict=True
    ):
        assert answer == {"label": reply["label"], "score": reply["probability"], "scores": reply["probabilities"]}
    single = asked(client, "classify", text=TEXTS[0], task="mood")
    assert single[0]["scores"] == library.predict(TEXTS[0], "mood")[0]["probabilities"]


def test_classify_pairs_and_several_labels(client: TestClient, library: Loaded) -> None:
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    answers = asked(client, "classify", texts=TEXTS, pairs=TEXTS[::-1], task="follows")
    assert [a["scores"] for a in answers] == [r["probabilities"] for r in library.predict(pairs, "follows")]
    answers, replies = asked(client, "classify", texts=TEXTS, task="topics"), library.predict(TEXTS, "topics")
    assert [(a["labels"], a["scores"]) for a in answers] == [(r["labels"], r["probabilities"]) for r in replies]
    assert all(a["score"] == max(a["scores"].values()) == a["scores"][a["label"]] for a in answers)


def test_regress_tag_and_questions(client: TestClient, library: Loaded) -> None:
    assert asked(client, "regress", texts=TEXTS, task="stars") == [
        {"score": r["value"]} for r in library.predict(TEXTS, "stars")
    ]
    for text, answer, reply in zip(
        TEXTS, asked(client, "tag", texts=TEXTS), library.predict(TEXTS, "names"), strict=True
    ):
        assert [(e["label"], e["start"], e["end"], e["score"]) for e in answer["entities"]] == [
            (e["label"], e["start"], e["end"], e["probability"]) for e in reply["entities"]
        ]
        assert all(text[e["start"] : e["end"]] == e["text"] for e in answer["entities"])
    questions = ["who", "what w1"] * 3
    replies = library.predict(list(zip(questions, TEXTS, strict=True)), "asked")
    answers = asked(client, "qa", questions=questions, contexts=TEXTS, best=3)
    for answer, reply in zip(answers, replies, strict=True):
        assert [a["score"] for a in answer["answers"]] == [b["probability"] for b in reply["best"][:3]]
        assert answer["none"] == reply.get("no_answer")
        assert answer["answer"] == reply["answer"]


def test_fill(client: TestClient, library: Loaded) -> None:
    texts = ["w1 [MASK] w2", "[MASK] alpha ___ w3"]
    answers = asked(client, "fill", texts=texts, top=4)
    for answer, gaps in zip(answers, library.fill(texts, 4), strict=True):
        assert answer["gaps"] == [
            [{"token": t, "score": p} for t, p in zip(g.tokens, g.probabilities, strict=True)] for g in gaps
        ]
    best = [gap[0]["token"] for gap in answers[1]["gaps"]]
    assert answers[1]["text"] == f"{best[0]} alpha {best[1]} w3"


def test_vectors_of_an_encoder_decoder(client: TestClient, served: dict[str, Served]) -> None:
    texts = ["w1 w2", "w3", "w4 w5 w6"]
    wanted = np.array(served["answers"].loaded.embed(texts))
    found = asked(client, "embed", texts=texts, model="answers")
    np.testing.assert_allclose([answer["vector"] for answer in found], wanted, atol=1e-6)


def test_vectors_and_similarity(client: TestClient, library: Loaded) -> None:
    vectors = library.embed(TEXTS)
    assert [a["vector"] for a in asked(client, "embed", texts=TEXTS)] == vectors.tolist()
    (answer,) = asked(client, "similarity", a=TEXTS[:2], b=TEXTS[2:5])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(answer["matrix"], unit[:2] @ unit[2:5].T, atol=1e-6)
    assert np.shape(asked(client, "similarity", a="w1", b="w1")[0]["matrix"]) == (1, 1)


def test_tokens(client: TestClient, library: Loaded) -> None:
    (answer,) = asked(client, "tokenize", text="w1 e\u0301 w2")
    assert answer["normalized"] == "w1 é w2"
    assert answer["unknown"] == 1
    assert [t["id"] for t in answer["tokens"]] == library.tokenizer.encode("w1 e\u0301 w2", special=True).ids
    assert ("w2", 6, 8) in [(t["token"], t["start"], t["end"]) for t in answer["tokens"]]


def test_next_sentence(client: TestClient, library: Loaded) -> None:
    (answer,) = asked(client, "nsp", text="w1 w2", pair="w3")
    found = library.tokenizer.encode_pair("w1 w2", "w3")
    batch = Batch(torch.tensor([found.ids]), torch.tensor([6]), segments=torch.tensor([found.segments]), full=True)
    with torch.no_grad():
        state = library.parts.backbone(batch).last[:, 0]
        wanted = library.parts.heads["nsp"](library.parts.heads["pooler"](state).tanh())[0].softmax(0)
    assert answer["scores"]["follows"] == pytest.approx(float(wanted[0]))
    assert answer["scores"][answer["label"]] == answer["score"] >= 0.5


def test_translations_with_steps_and_alignment(client: TestClient, served: dict[str, Served]) -> None:
    library, sources = served["answers"].loaded, ["wa wb wc", "wd", "we wf wg wh wa"]
    answers = asked(
        client, "translate", model="answers", texts=sources, best=2, max_tokens=9, alternatives=3, alignment=True
    )
    for source, answer, said in zip(sources, answers, library.translate(sources, best=2, most=9), strict=True):
        assert answer["outputs"] == [{"text": each.text, "score": each.score} for each in said]
        told = [*said[0].ids, *(voice_of(library.parts).end if said[0].ended else ())]
        assert [s["token"] for s in answer["steps"]] == [library.tokenizer.shown(id) for id in told]
        assert sum(np.log([s["p"] for s in answer["steps"]])) == pytest.approx(said[0].logprob, abs=1e-4)
        for step in answer["steps"]:
            chances = [a["p"] for a in step["alternatives"]]
            assert chances == sorted(chances, reverse=True)
            assert len(chances) == 3
            assert step["p"] <= chances[0]
        seen = align(library.parts, source, said[0].text)
        np.testing.assert_allclose(answer["alignment"]["weights"], seen.weights, atol=1e-4)
        assert (answer["alignment"]["source"], answer["alignment"]["target"]) == (seen.source, seen.answer)


def test_continuations(client: TestClient, served: dict[str, Served]) -> None:
    library, prompts = served["speaks"].loaded, ["wa wb", "wc", "wd we wf " * 6]
    for body, settings in (
        ({}, {}),
        ({"beams": 3, "best": 2}, {"beams": 3, "best": 2}),
        ({"seed": 4, "top_p": 0.9, "best": 2}, {"sample": True, "seed": 4, "top_p": 0.9, "best": 2}),
    ):
        answers = asked(client, "generate", model="speaks", texts=prompts, max_tokens=6, **body)
        wanted = library.generate(prompts, most=6, **settings)
        assert [[o["text"] for o in a["outputs"]] for a in answers] == [[s.text for s in said] for said in wanted]


def test_attention_maps(client: TestClient, library: Loaded) -> None:
    (answer,) = asked(client, "attention", text="w1 alpha", pair="w2 zzz w3")
    found = library.tokenizer.encode_pair("w1 alpha", "w2 zzz w3")
    lengths = torch.tensor([len(found.ids)])
    batch = Batch(torch.tensor([found.ids]), lengths, segments=torch.tensor([found.segments]), full=True)
    with torch.no_grad():
        maps = torch.stack(library.parts.backbone(batch, maps=True).maps)[:, 0]
    assert (answer["layers"], answer["heads"]) == (2, 2)
    np.testing.assert_allclose(answer["weights"], maps, atol=0.51e-4)
    assert answer["tokens"] == ["[CLS]", "w1", "alpha", "[SEP]", "w2", "[UNK]", "w3", "[SEP]"]


@pytest.mark.parametrize("model", ["reader", "speaks", "turns", "near"])
@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 1)])
def test_the_steps_of_a_head(
    served: dict[str, Served], tmp_path_factory: pytest.TempPathFactory, model: str, layer: int, head: int
) -> None:
    if model == "turns":
        made = reader(tmp_path_factory.mktemp("turns") / "turns", (), positions="rotary", order="pre")
        served = {**served, **open_models([str(made)])}
    elif model == "near":
        near = {"local_layers": (0,), "window": 1, "local_base": 20.0}
        made = reader(tmp_path_factory.mktemp("near") / "near", (), positions="rotary", order="pre", **near)
        served = {**served, **open_models([str(made)])}
    with TestClient(make_app(served)) as client:
        (maps,) = asked(client, "attention", model=model, text="wa wb wc")
        (steps,) = asked(client, "attention", model=model, text="wa wb wc", layer=layer, head=head)
    np.testing.assert_allclose(steps["weights"], maps["weights"][layer][head], atol=1e-4)
    scores = np.array([[-np.inf if x is None else x for x in row] for row in steps["scores"]])
    np.testing.assert_allclose(np.array(steps["q"]) @ np.array(steps["k"]).T * steps["scale"], np.where(
        np.isinf(scores), np.array(steps["q"]) @ np.array(steps["k"]).T * steps["scale"], scores), atol=2e-3
    )  # fmt: skip
    np.testing.assert_allclose(np.array(steps["weights"]) @ np.array(steps["v"]), steps["output"], atol=2e-3)
    assert np.isinf(scores).any() == (model == "speaks" or (model == "near" and layer == 0))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_requests_that_share_a_batch(served: dict[str, Served], seed: int) -> None:
    """Many at once are computed together, and get what each would alone: the same digits."""
    luck = random.Random(seed)
    texts = [" ".join(luck.choices(PLAIN, k=luck.randint(1, 12))) for _ in range(48)]
    prompts = [" ".join(luck.choices(WORDS, k=luck.randint(1, 19))) for _ in range(24)]
    reader, speaks = served["reader"].loaded, served["speaks"].loaded
    app = make_app(served, Limits(deadline=0.02, batch=200))
    with TestClient(app) as client, ThreadPoolExecutor(24) as pool:
        moods = list(pool.map(lambda text: asked(client, "classify", text=text, task="mood")[0], texts))
        said = list(pool.map(lambda p: asked(client, "generate", model="speaks", text=p, max_tokens=5)[0], prompts))
        drawn = list(
            pool.map(lambda p: asked(client, "generate", model="speaks", text=p, max_tokens=5, seed=seed)[0], prompts)
        )
        counts = [line for line in client.get("/metrics").text.splitlines() if "batch_requests_count" in line]
    for text, mood in zip(texts, moods, strict=True):
        (alone,) = reader.predict([text], "mood")
        assert (mood["label"], mood["scores"]) == (alone["label"], alone["probabilities"])
    for prompt, one, two in zip(prompts, said, drawn, strict=True):
        assert one["outputs"][0]["text"] == speaks.generate(prompt, most=5)[0][0].text
        assert two["outputs"][0]["text"] == speaks.generate(prompt, most=5, sample=True, seed=seed)[0][0].text
    assert sum(int(line.split()[-1]) for line in counts) < len(texts) + 2 * len(prompts), "nothing was shared"


def test_numbers_are_written_in_full() -> None:
    from sesame.serve.app import written

    value = 0.1234567890123456789
    assert json.loads(written("m", [{"x": value}]))["answers"][0]["x"] == value
