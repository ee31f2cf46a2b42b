"""The door of the server, before any route: who may enter, how much they may carry, and what is counted of them.

Pure ASGI, because a body must be measured while it is read: a Content-Length is a promise, not a fact.
"""

import asyncio
import hmac
import time
from collections.abc import Collection
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sesame.serve.figures import Figures
from sesame.serve.limits import Limits

OPEN = ("/", "/docs", "/healthz")  # and the page: no key is needed to see whether there is a server
PAGE = "/page/"
SAFE = {  # the page is our own; it loads nothing from elsewhere and runs nothing that stands in its HTML
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'",
}


@dataclass
class Standing:
    """Whether the server goes on; set by whoever stops it."""

    stopping: bool = False


class Door:
    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        figures: Figures,
        standing: Standing,
        routes: Collection[str],
        key: str | None = None,
    ) -> None:
        self.app, self.limits, self.figures, self.standing = app, limits, figures, standing
        self.routes, self.key = frozenset(routes), key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ending = [(b"connection", b"close")] if self.standing.stopping else []
                message = {**message, "headers": [*message.get("headers", ()), *SAFE.items(), *ending]}
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is not None:
                await refused(scope, receive, watched)
            else:
                await self.app(scope, self._measured(receive), watched)
        finally:
            self.figures.request(self._route(scope["path"]), status, time.perf_counter() - started)

    def _route(self, path: str) -> str:
        return "/page" if path.startswith(PAGE) else path if path in self.routes else "other"

    def _refused(self, scope: Scope) -> JSONResponse | None:
        headers, path = Headers(scope=scope), scope["path"]
        if self.key is not None and path not in OPEN and not path.startswith(PAGE) and not self._knows(headers):
            said = "this server needs a key; send it as Authorization: Bearer KEY"
            return JSONResponse({"error": said}, 401, {"WWW-Authenticate": "Bearer"})
        if scope["method"] != "POST":
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return JSONResponse({"error": "the body must be JSON; send Content-Type: application/json"}, 415)
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > self.limits.body:
            return JSONResponse({"error": self._too_large()}, 413)
        return None

    def _knows(self, headers: Headers) -> bool:
        assert self.key is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1", "replace")  # the bytes of the header
        same = hmac.compare_digest(sent, self.key.encode("utf-8", "replace"))
        return same and scheme.lower() == "bearer"

    def _too_large(self) -> str:
        return f"the body is larger than {self.limits.body} bytes; send several requests"

    def _measured(self, receive: Receive) -> Receive:
        """The same, but no more bytes and no longer than allowed."""
        read, whole = 0, False
        end = time.monotonic() + self.limits.timeout

        async def measured() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0.001))
            except TimeoutError:
                raise HTTPException(408, "the body did not arrive in time; send it at once") from None
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if read > self.limits.body:
                    raise HTTPException(413, self._too_large())
            return message

        return measured
