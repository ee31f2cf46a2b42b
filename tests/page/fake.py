"""A small server with canned answers that follow the HTTP contract, for the tests of the page alone.

Its answers depend on what it is asked wherever that is easy, so that a page that sends the wrong thing shows the wrong
thing. It sends a strict content security policy: inline scripts or styles would be refused and written to the console.
"""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import sesame
from tests.page.fake_runs import FakeRuns

PAGE = Path(sesame.__file__).parent / "serve" / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'"
LAYERS, HEADS, SIZE = 4, 6, 16
Json = dict[str, Any]

MODELS: list[Json] = [
    {"name": "minilm", "can": ["fill", "embed", "similarity", "tokenize", "attention", "classify", "tag", "qa", "nsp",
                                "choice", "neighbours", "layers"],
     "tasks": [{"name": "mood", "kind": "classify", "labels": ["good", "bad"]},
               {"name": "stars", "kind": "regress", "labels": None},
               {"name": "names", "kind": "tag", "labels": ["PER", "LOC"]},
               {"name": "squad", "kind": "qa", "labels": None},
               {"name": "swag", "kind": "choice", "labels": None}],
     "parameters": 22_700_000, "layers": LAYERS, "heads": HEADS, "longest": 512},
    {"name": "writer", "can": ["generate", "translate", "tokenize"], "tasks": [],
     "parameters": 60_500, "layers": 6, "heads": 8, "longest": 512},
]  # fmt: skip


class Refusal(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def pieces(text: str) -> list[Json]:
    """Words of at most five letters, with their places; not a tokenizer."""
    found: list[Json] = [{"token": "[CLS]", "id": 101, "start": 0, "end": 0}]
    place = 0
    for word in text.split():
        start = text.index(word, place)
        place = start + len(word)
        for at in range(0, len(word), 5):
            part = word[at : at + 5].lower()
            found.append({"token": f"##{part}" if at else part, "id": 1000 + sum(map(ord, part)) % 9000,
                          "start": start + at, "end": min(start + at + 5, place)})  # fmt: skip
    return [*found, {"token": "[SEP]", "id": 102, "start": 0, "end": 0}]


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [round(power / sum(powers), 4) for power in powers]


def score(layer: int, head: int, i: int, j: int) -> float:
    """Heads of several habits: the next word, the previous one, the first one, all alike, a wide neighbourhood."""
    habits = (-abs(j - i - 1), -abs(j - i + 1), 3.0 if j == 0 else 0.0, 0.1 * ((i * j) % 7), -0.15 * (i - j) ** 2)
    return habits[(head + layer) % 5] * (1.0 + 0.4 * layer)


def dotted(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def one_head(tokens: list[str], layer: int, head: int) -> Json:
    def vectors(salt: int) -> list[list[float]]:
        return [
            [round(math.sin(1 + salt + i * 1.7 + d * 0.9 + layer + 3 * head), 4) for d in range(SIZE)]
            for i in range(len(tokens))
        ]

    q, k, v = vectors(0), vectors(5), vectors(11)
    scale = 1 / math.sqrt(SIZE)
    scores = [[round(dotted(query, key) * scale, 4) for key in k] for query in q]
    weights = [softmax(row) for row in scores]
    output = [[round(dotted(row, [value[d] for value in v]), 4) for d in range(SIZE)] for row in weights]
    return {
        "tokens": tokens,
        "q": q,
        "k": k,
        "v": v,
        "scores": scores,
        "weights": weights,
        "output": output,
        "scale": scale,
    }


def attention(body: Json) -> Json:
    tokens = [piece["token"] for piece in pieces(body["text"])]
    if "pair" in body:
        tokens += [piece["token"] for piece in pieces(body["pair"])][1:]
    if "layer" in body:
        return one_head(tokens, body["layer"], body["head"])
    size = range(len(tokens))
    maps = [
        [[softmax([score(lay, head, i, j) for j in size]) for i in size] for head in range(HEADS)]
        for lay in range(LAYERS)
    ]
    return {"tokens": tokens, "layers": LAYERS, "heads": HEADS, "weights": maps}


def spans(text: str) -> list[Json]:
    """Every capitalized word after the first letter of the text, a place if it stands after `in`."""
    found = []
    for piece in text.split():
        word = piece.strip(".,")
        if word[:1].isupper():
            start = text.index(word)
            label = "LOC" if text[:start].endswith("in ") else "PER"
            found.append({"label": label, "start": start, "end": start + len(word), "text": word, "score": 0.97})
    return found


def classify(body: Json) -> list[Json]:
    texts = body["texts"] if "texts" in body else [body["text"]]
    shares = [0.91 if "lovely" in text or "quiet" in text else 0.22 for text in texts]
    return [
        {"label": "good" if p > 0.5 else "bad", "score": max(p, 1 - p), "scores": {"good": p, "bad": 1 - p}}
        for p in shares
    ]


def answer(body: Json) -> Json:
    if "nobody" in body["question"]:
        return {"answers": [{"text": body["context"][:4], "start": 0, "end": 4, "score": 0.04}], "none": 0.93}
    found = [
        (word, body["context"].find(word))
        for word in ("in his house in Dorset Street", "Dorset Street", "Science Museum")
    ]
    best = [
        {"text": word, "start": at, "end": at + len(word), "score": 0.71 / (rank + 1)}
        for rank, (word, at) in enumerate(found)
        if at >= 0
    ]
    return {"answers": best[: body["best"]], "none": 0.08}


def fill(body: Json) -> Json:
    gaps = body["text"].count("[MASK]")
    if not gaps:
        raise Refusal(400, "text: has no gap; put [MASK] where a word is missing")
    words = [["france", "england", "lyon", "paris", "europe", "spain", "texas", "italy"],
             ["beauty", "cafes", "museums", "culture", "art", "food", "parks", "history"]]  # fmt: skip
    lists = [
        [{"token": word, "score": 0.62 / (rank + 1) ** 1.5} for rank, word in enumerate(words[gap % 2])]
        for gap in range(gaps)
    ]
    filled = body["text"]
    for gap in lists:
        filled = filled.replace("[MASK]", gap[0]["token"], 1)
    return {"gaps": [gap[: body["top"]] for gap in lists], "text": filled}


def steps(words: list[str]) -> list[Json]:
    others = [{"token": other, "p": 0.2 / (rank + 1)} for rank, other in enumerate(["the", "an", "old", "small"])]
    return [{"token": word, "alternatives": [{"token": word, "p": 0.5}, *others]} for word in words]


def translate(body: Json) -> Json:
    source = [*body["text"].rstrip(".").split(), "."]
    target = ["A", "dog", "runs", "across", "the", "green", "meadow", "."]
    weights = [
        softmax([-1.2 * abs(j - i * len(source) / len(target)) for j in range(len(source))]) for i in range(len(target))
    ]
    outputs = [{"text": " ".join(target[:-1]) + ".", "score": -0.41 - rank} for rank in range(body["best"])]
    return {
        "outputs": outputs,
        "steps": steps(target),
        "alignment": {"source": source, "target": target, "weights": weights},
    }


def generate(body: Json) -> Json:
    words = ["there", "lived", "a", "keeper", "of", "lamps", "who", "counted", "every", "ship", "."][
        : body["max_tokens"]
    ]
    return {
        "outputs": [{"text": " " + " ".join(words), "score": -12.5}],
        "steps": steps([f" {word}" for word in words]),
    }


def similarity(body: Json) -> Json:
    share = {"river": 0, "flooded": 0, "water": 0, "rain": 0, "cello": 1, "instrument": 1}
    topic = [
        {share[word] for word in text.strip(".").replace(",", "").split() if word in share}
        for text in body["a"] + body["b"]
    ]
    rows, columns = topic[: len(body["a"])], topic[len(body["a"]) :]
    return {"matrix": [[0.812 if a & b else 0.097 for b in columns] for a in rows]}


def tokenize(body: Json) -> Json:
    normalized = " ".join(body["text"].lower().split()).replace("é", "e").replace("ü", "u").replace("ï", "i")
    return {"tokens": pieces(body["text"]), "normalized": normalized, "unknown": body["text"].count("🎄")}


def choice(body: Json) -> Json:
    shares = softmax([-0.02 * abs(len(one) - 35) for one in body["choices"]])
    best = shares.index(max(shares))
    return {"choice": best, "text": body["choices"][best], "score": shares[best], "scores": shares}


def neighbours(body: Json) -> Json:
    """The same word in each line, nearer in lines of similar length; a layer moves them all."""
    word, text = body["word"], body["text"]
    place = -1
    for _ in range(body["at"]):
        place = text.find(word, place + 1)
    if place < 0:
        raise Refusal(422, f"the word {word!r} does not stand in the text; write it as it stands there")
    found = [
        {"word": word, "text": line, "start": line.index(word), "end": line.index(word) + len(word), "line": number,
         "score": round(0.98 - 0.1 * body.get("layer", 0) - 0.015 * abs(len(line) - len(text)), 3)}
        for number, line in enumerate(body["texts"], 1) if word in line
    ]  # fmt: skip
    found.sort(key=lambda one: -one["score"])
    return {"word": word, "start": place, "end": place + len(word), "neighbours": found[: body["top"]]}


def layers(body: Json) -> Json:
    most = max(body["labels"].count(label) for label in body["labels"]) / len(body["labels"])
    names = ["embeddings", *(str(number) for number in range(1, LAYERS + 1)), "mix"]
    rows = [{"layer": name, "score": 0.55 + 0.08 * at, "spread": 0.12 - 0.02 * at} for at, name in enumerate(names)]
    return {"layers": rows, "metric": "accuracy", "least": most, "rows": len(body["texts"]), "folds": 5,
            "mixes": {"mood": [0.05, 0.1, 0.2, 0.25, 0.4]}}  # fmt: skip


def reply(what: str, body: Json) -> list[Json]:
    text = body.get("text") or ""
    if "teapot" in text:
        raise Refusal(429, "The queue is full; try again in 1 second.")
    model = next((one for one in MODELS if one["name"] == body.get("model")), None)
    if model is None or what not in [*model["can"], "regress"]:
        raise Refusal(404, f"model: {body.get('model')} cannot {what}")
    if what == "classify":
        return classify(body)
    if what == "regress":
        return [{"score": 3.25} for _ in body["texts"]]
    if what == "nsp":
        return [{"label": "next", "score": 0.88, "scores": {"next": 0.88, "other": 0.12}}]
    if what == "tag":
        return [{"entities": spans(text)}]
    one = {"qa": answer, "fill": fill, "similarity": similarity, "tokenize": tokenize, "attention": attention}
    one |= {"choice": choice, "neighbours": neighbours, "layers": layers}
    return [({**one, "generate": generate, "translate": translate}[what])(body)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Fake"

    def log_message(self, format: str, *args: object) -> None:
        """Silence; the tests look at the page."""

    def give(self, status: int, kind: str, words: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(words)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(words)

    def give_json(self, status: int, value: Json) -> None:
        self.give(status, "application/json", json.dumps(value).encode())

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/v1/models":
            key = self.server.key
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                self.give_json(401, {"error": "This server wants an API key."})
            else:
                self.give_json(200, {"models": self.server.models, "runs": self.server.runs is not None})
            return
        if path == "/v1/runs" and self.server.runs is not None:
            self.give_json(200, self.server.runs.tell(int(self.path.partition("since=")[2] or 0)))
            return
        file = PAGE / "index.html" if path == "/" else PAGE / path.removeprefix("/page/")
        if file.is_file() and PAGE in file.resolve().parents:
            self.give(200, KINDS[file.suffix] + "; charset=utf-8", file.read_bytes())
        else:
            self.give_json(404, {"error": "There is nothing here."})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what = self.path.removeprefix("/v1/")
        self.server.asked.append((what, body))
        if "slowly" in str(body.get("text")):
            self.server.hold.wait(10)
        try:
            self.give_json(200, {"model": body.get("model"), "answers": reply(what, body)})
        except Refusal as refusal:
            self.give_json(refusal.status, {"error": str(refusal)})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has left


class Fake(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, models: list[Json] | None = None, key: str = "", runs: FakeRuns | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models, self.key, self.runs = MODELS if models is None else models, key, runs
        self.asked: list[tuple[str, Json]] = []
        self.hold = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}/"

    def __enter__(self) -> "Fake":
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self.shutdown()
        self.server_close()
