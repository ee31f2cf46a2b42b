"""The HTTP application: routes, and how a request waits for its answer.

    body -> `bodies` (shape) -> `asking` (model, task, sizes) -> `batcher` -> `answers` -> JSON

Every mistake is answered by {"error": "one sentence"}: 400 no JSON, 401 no key, 404 no such model or path, 413 too much, 415
not sent as JSON, 422 what cannot be answered, 429 too many wait, 503 stopping, 504 too late. A SesameError of the library is
the client's (422), with the model's name in place of its folder.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from sesame import __version__
from sesame.errors import SesameError
from sesame.serve.asking import Ask, TooMuch, ask, choose, compute, similarities
from sesame.serve.attention import Written
from sesame.serve.batcher import Batcher, Full, Stopping
from sesame.serve.bodies import ABOUT, BODIES, Answers, Body, Health, Sides, Wrong
from sesame.serve.door import Door, Standing
from sesame.serve.figures import Figures
from sesame.serve.limits import Limits
from sesame.serve.models import Served
from sesame.serve.runs import Watch
from sesame.serve.static import add_page

GONE = 499  # the client left: nobody reads this answer, but it is counted
PLAIN = {  # what the framework says by itself, with a remedy
    "Not Found": "there is no such path; see /openapi.json",
    "Method Not Allowed": "this path takes another method; see /openapi.json",
    "There was an error parsing the body": "the body is no JSON that can be read; check its nesting and its numbers",
}
WRONG = {
    400: "No JSON.",
    401: "No key.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    413: "Too much.",
    415: "Not sent as JSON.",
    422: "Cannot be answered.",
    429: "Too many requests wait.",
    503: "The server stops.",
    504: "Not answered in time.",
}


class Room:
    """The models and their batchers, from the start of the server to its end."""

    def __init__(self, models: Mapping[str, Served], limits: Limits, figures: Figures) -> None:
        self.models, self.limits, self.figures = models, limits, figures
        self.batchers = {
            name: Batcher(partial(compute, served), limits, name, figures) for name, served in models.items()
        }

    def stop(self) -> None:
        for batcher in self.batchers.values():
            batcher.stop(wait=False)
        for batcher in self.batchers.values():
            batcher.stop()

    async def answer(self, what: str, body: Body, request: Request) -> Response:
        served = choose(self.models, body.model)
        if served is None:
            served_are = f"served are {', '.join(self.models)}" if self.models else "only runs are shown here"
            raise HTTPException(404, f"there is no such model; {served_are}")
        try:
            asked = ask(what, body, served, self.limits)
            answers = await self._computed(served, asked, request)
        except SesameError as error:
            status = 413 if isinstance(error, TooMuch) else 422
            raise HTTPException(status, str(error).replace(str(served.loaded.folder), served.name)) from error
        if answers is None:
            return Response(status_code=GONE)
        if isinstance(body, Sides):
            answers = [similarities(body, answers)]
        return Response(written(served.name, answers), media_type="application/json")

    async def _computed(self, served: Served, asked: Ask, request: Request) -> list[Any] | None:
        """The answers; None if nobody waits for them any more."""
        try:
            future = self.batchers[served.name].submit(asked, asked.key, asked.tokens)
        except Full as full:
            raise HTTPException(429, f"{full}", {"Retry-After": str(full.seconds)}) from full
        except Stopping:
            raise HTTPException(503, "the server is stopping; ask another one") from None
        waiting, gone = asyncio.wrap_future(future), asyncio.create_task(_gone(request))
        try:
            both = {waiting, gone}
            await asyncio.wait(both, timeout=self.limits.timeout, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()  # type: ignore[no-any-return]
            if gone.done():
                return None
            raise HTTPException(504, f"no answer within {self.limits.timeout:g} s; ask for less, or later")
        finally:
            waiting.cancel()
            gone.cancel()


async def _gone(request: Request) -> None:
    """Until the client leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def written(model: str, answers: Sequence[Any]) -> bytes:
    each = [answer if isinstance(answer, Written) else _json(answer) for answer in answers]
    return f'{{"model": {_json(model)}, "answers": [{", ".join(each)}]}}'.encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def make_app(
    models: Mapping[str, Served],
    limits: Limits | None = None,
    *,
    key: str | None = None,
    cors: Sequence[str] = (),
    standing: Standing | None = None,
    runs: Watch | None = None,
) -> FastAPI:
    """The application; `key` is asked of every client, `cors` names the other sites whose pages may ask, `runs` are shown."""
    limits, figures, standing = limits or Limits(), Figures(), standing or Standing()
    room = Room(models, limits, figures)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        standing.stopping = True
        await asyncio.to_thread(room.stop)

    app = FastAPI(title="Sesame", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.room, app.state.standing, app.state.figures = room, standing, figures
    _add_mistakes(app)
    _add_state(app, room, standing, figures, runs)
    for what, kind in BODIES.items():
        _add_ask(app, room, standing, what, kind)
    add_page(app)
    routes = [
        "/",
        "/docs",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/v1/models",
        "/v1/runs",
        *(f"/v1/{what}" for what in BODIES),
    ]
    app.add_middleware(Door, limits=limits, figures=figures, standing=standing, routes=routes, key=key)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    return app


def _add_ask(app: FastAPI, room: Room, standing: Standing, what: str, kind: type[Body]) -> None:
    async def endpoint(request: Request, body: Any) -> Response:
        if standing.stopping:
            raise HTTPException(503, "the server is stopping; ask another one")
        return await room.answer(what, body, request)

    endpoint.__annotations__["body"] = kind
    wrong: dict[int | str, dict[str, Any]] = {code: {"model": Wrong, "description": t} for code, t in WRONG.items()}
    app.post(
        f"/v1/{what}", name=what, operation_id=what, description=ABOUT[what], response_model=None,
        responses={200: {"model": Answers}, **wrong},
    )(endpoint)  # fmt: skip


def _add_state(app: FastAPI, room: Room, standing: Standing, figures: Figures, runs: Watch | None) -> None:
    described = [served.describe() for served in room.models.values()]

    @app.get("/healthz", responses={200: {"model": Health}, 503: {"model": Health}})
    async def healthz() -> JSONResponse:
        """Whether the server takes requests: ready, or stopping (503)."""
        if standing.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ready", "models": list(room.models)})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Figures for Prometheus: requests, times, batches, queues."""
        return PlainTextResponse(figures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        """The models that are served, and what each can."""
        return JSONResponse({"models": described, "runs": runs is not None})

    @app.get("/v1/runs", responses={404: {"model": Wrong, "description": "No runs are shown."}})
    def learning_curves(since: int = 0) -> Response:  # not async: files are read, in a thread of the pool
        """The runs of `--runs DIR` with their learning curves; with the last reply's stamp as since, only what changed."""
        if runs is None:
            raise HTTPException(404, "this server shows no runs; start it with --runs DIR")
        return Response(runs.tell(since), media_type="application/json")


def _add_mistakes(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        said = PLAIN.get(error.detail, error.detail)
        return JSONResponse({"error": clean(said)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"error": "the body is not JSON; check its quotes, commas and brackets"}, 400)
        place = ".".join(str(part) for part in first["loc"][1:] if not str(part).startswith("function-"))
        said = str(first["msg"]).removeprefix("Value error, ")
        return JSONResponse({"error": clean(f"{place or 'the body'}: {said}")}, 422)

    @app.exception_handler(SesameError)
    async def mistaken(request: Request, error: SesameError) -> JSONResponse:
        return JSONResponse({"error": clean(str(error))}, 422)

    @app.exception_handler(CancelledError)
    async def cancelled(request: Request, error: CancelledError) -> JSONResponse:
        return JSONResponse({"error": "the server stopped before this was answered; ask again"}, 503)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "the server failed on this; its log says why"}, 500)


def clean(text: str) -> str:
    """A sentence that any client can read: one line, not long, whole characters."""
    line = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    return line if len(line) <= 500 else line[:497] + "..."
