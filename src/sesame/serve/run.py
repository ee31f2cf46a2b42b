"""The server itself: uvicorn, with an end that loses nothing.

SIGTERM or Ctrl-C: health says "stopping" and new requests are refused (503), so that whoever sends them looks elsewhere. A
moment later nobody new is let in; another moment later, when those who were just coming in have been told, what was taken is
answered, and the process ends with 0. A second Ctrl-C does not wait.
"""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from sesame.errors import SesameError
from sesame.progress import say
from sesame.serve.door import Standing

MOMENT = 0.5  # seconds


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, standing: Standing) -> None:
        super().__init__(config)
        self.standing = standing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but a signal that was obeyed is not raised again: the process ends with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.standing.stopping:
            self.should_exit = True
            self.force_exit = sig == signal.SIGINT
            return
        self.standing.stopping = True
        asyncio.get_running_loop().call_later(MOMENT, self._close)

    def _close(self) -> None:
        for server in self.servers:
            server.close()
        asyncio.get_running_loop().call_later(MOMENT, self._finish)

    def _finish(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            for server in self.servers:
                for socket in server.sockets:
                    host, port = socket.getsockname()[:2]
                    say(f"ready: http://{f'[{host}]' if ':' in host else host}:{port}  (Ctrl-C stops)")


def serve(app: FastAPI, host: str, port: int) -> None:
    """Until a signal."""
    config = uvicorn.Config(
        app, host=host, port=port, access_log=False, server_header=False, log_level="warning",
        log_config=None,  # uvicorn's own would close every handler that the process has, with their streams
    )  # fmt: skip
    server = Server(config, app.state.standing)
    try:
        server.run()
    except SystemExit as end:  # uvicorn's way to say that the port is taken
        raise SesameError(f"{host}:{port} cannot be served on; choose another --port or --host") from end
