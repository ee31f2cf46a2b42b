"""The page: files of the folder `page` beside this one, and nothing else.

Which files there are is looked up once, at the start; a request names one of them or none, so no path is ever put together
from what a client sends.
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}


def files(folder: Path) -> dict[str, Path]:
    """What may be seen, by its name in the page."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in found if path.suffix in KINDS}


def add_page(app: FastAPI, folder: Path = FOLDER) -> None:
    known = files(folder)

    def given(name: str) -> Response:
        if name not in known:
            raise HTTPException(404, "there is no such file in the page")
        path = known[name]
        return Response(path.read_bytes(), media_type=KINDS[path.suffix], headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        if "index.html" not in known:
            return PlainTextResponse("This server has no page; programs ask it at /v1, see /openapi.json.\n")
        return given("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return given("docs.html")

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page(name: str) -> Response:
        return given(name or "index.html")
