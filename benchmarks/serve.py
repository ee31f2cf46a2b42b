"""A server under load: many clients at once from a second process, ours beside a plain FastAPI + transformers handler.

    python benchmarks/serve.py MODEL [--clients 64] [--seconds 60] [--only ours,plain,one]

Each client sends a text of 5 to 60 words, waits for its vector, and sends the next; one that gets 429 waits a little. "one by
one" is our server with a single client. The plain handler is what people write first: a synchronous endpoint that tokenizes
one text and calls the model (in FastAPI's pool of threads), torch on all cores, mean of the last states. Both answer the
same texts, and the vectors are compared. Prints a table for benchmarks/README.md.
"""

import argparse
import asyncio
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

SENTENCE = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were her all their there been if more when will would who so no time people river light system answer model"
)


def text(luck: random.Random) -> str:
    return " ".join(luck.choices(SENTENCE.split(), k=luck.randint(5, 60)))


# ---- the second process: clients ------------------------------------------------------------------------------------


async def client(number: int, address: str, end: float, found: dict[str, Any]) -> None:
    luck = random.Random(number)
    async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as session:
        while time.monotonic() < end:
            body = {"text": text(luck)}
            started = time.monotonic()
            try:
                reply = await session.post("/v1/embed", json=body)
                status = str(reply.status_code)
            except httpx.HTTPError as error:
                status = type(error).__name__
            found["statuses"][status] = found["statuses"].get(status, 0) + 1
            if status == "200":
                found["seconds"].append(time.monotonic() - started)
            else:
                await asyncio.sleep(0.05 + 0.1 * luck.random())


def load(address: str, clients: int, seconds: float) -> None:
    found: dict[str, Any] = {"statuses": {}, "seconds": []}

    async def all_of_them() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(client(number, address, end, found) for number in range(clients)))

    started = time.monotonic()
    asyncio.run(all_of_them())
    print(json.dumps({**found, "wall": time.monotonic() - started}))


# ---- the other server -----------------------------------------------------------------------------------------------


def plain(folder: str, port: int) -> None:
    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    app = FastAPI()

    class Asked(BaseModel):
        text: str

    def embed(body: Asked) -> dict[str, Any]:
        with torch.inference_mode():
            given = tokenizer(body.text, return_tensors="pt", truncation=True, max_length=512)
            vector = model(**given).last_hidden_state[0].mean(0)
        return {"answers": [{"vector": vector.tolist()}]}

    app.post("/v1/embed")(embed)
    app.get("/healthz")(lambda: {"status": "ready"})
    uvicorn.run(app, port=port, log_level="warning")


# ---- the table ------------------------------------------------------------------------------------------------------


class Started:
    """A server in a process of its own."""

    def __init__(self, command: list[str], port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        started = time.monotonic()
        self.process = subprocess.Popen(command, env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"})
        while True:
            try:
                httpx.get(f"{self.address}/healthz", trust_env=False)
                break
            except httpx.ConnectError:
                if self.process.poll() is not None or time.monotonic() - started > 120:
                    raise SystemExit(f"did not start: {' '.join(command)}") from None
                time.sleep(0.05)
        self.ready = time.monotonic() - started

    def memory(self) -> float:
        """Resident, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else math.nan

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def measure(server: Started, clients: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--load", server.address]
    done = subprocess.run(
        [*command, "--clients", str(clients), "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def row(name: str, found: dict[str, Any], server: Started, before: float) -> str:
    times = sorted(found["seconds"])
    answered, statuses = len(times), dict(found["statuses"])
    statuses.pop("200", None)
    away = statuses.pop("429", 0)
    p50, p99 = (statistics.median(times), times[min(len(times) - 1, int(0.99 * len(times)))]) if times else (0.0, 0.0)
    return (
        f"| {name} | {answered / found['wall']:.1f} | {1000 * p50:.0f} | {1000 * p99:.0f} | {away} | {statuses or 0} "
        f"| {before:.0f} -> {server.memory():.0f} | {server.ready:.1f} |"
    )


def vector(server: Started, given: str) -> list[float]:
    reply = httpx.post(f"{server.address}/v1/embed", json={"text": given}, trust_env=False, timeout=60)
    return reply.json()["answers"][0]["vector"]  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="one,ours,small,plain")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load:
        load(asked.load, asked.clients, asked.seconds)
        return
    if asked.plain:
        plain(asked.model, asked.plain)
        return
    ours = [sys.executable, "-m", "sesame", "serve", f"model={asked.model}", "--port"]
    trials = {
        "one": ("ours, one by one", [*ours, "8765"], 8765, 1),
        "ours": ("ours", [*ours, "8766"], 8766, asked.clients),
        "small": ("ours, a queue of 16", [*ours, "8767", "--queue", "16"], 8767, asked.clients),
        "plain": ("FastAPI + transformers", [sys.executable, __file__, asked.model, "--plain", "8768"], 8768, asked.clients),
    }  # fmt: skip
    given = text(random.Random(7))
    vectors: dict[str, list[float]] = {}
    lines = []
    for key in asked.only.split(","):
        name, command, port, clients = trials[key]
        server = Started(command, port)
        try:
            vectors[name] = vector(server, given)
            measure(server, clients, min(2.0, asked.seconds))  # warm
            before = server.memory()
            lines.append(row(f"{name}, {clients} clients", measure(server, clients, asked.seconds), server, before))
        finally:
            server.stop()
        print(lines[-1], flush=True)
    first = next(iter(vectors.values()))
    apart = max(abs(a - b) for other in vectors.values() for a, b in zip(first, other, strict=True))
    print(f"\n{os.cpu_count()} cores, {asked.seconds:g} s each; vectors differ by at most {apart:.1e}\n")
    print("| server | answers/s | p50 ms | p99 ms | 429 | other errors | memory MB | ready s |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
