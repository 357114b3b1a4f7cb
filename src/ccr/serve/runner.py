"""Runner: an application on a port, until it is told to stop; what has begun is answered first."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

from ccr.errors import CCRError
from ccr.interrupt import left_to_others
from ccr.serve.limits import Limits

#: Seconds that requests under way have to be answered once the server is told to stop.
FAREWELL = 10


def listen(host: str, port: int) -> socket.socket:
    """A socket on this host and port, 0 being any that is free; an error in words where that cannot be."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=512)
        # Connections inherit it. Without it the body of an answer waits 40 ms until its head is acknowledged; asyncio
        # sets it only for sockets that name their protocol, which those of `create_server` do not.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CCRError(
            f"cannot listen on {host}, port {port} ({reason}): try --port 0, which is any free one"
        ) from None


def checked_root(path: str) -> str:
    """The path at which a proxy shows the server: nothing, or one that begins with a slash and ends without."""
    root = path.rstrip("/")
    if root and not re.fullmatch(r"(/[\w.~-]+)+", root):
        raise CCRError(f"--root-path must be a path such as /ccr, got {path!r}")
    return root


def url_of(listening: socket.socket, root_path: str = "") -> str:
    """The address under which a browser on this machine finds it."""
    host, port = listening.getsockname()[:2]
    named = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{named}]' if ':' in named else named}:{port}{root_path}"


def run(
    app: ASGIApp,
    listening: socket.socket,
    *,
    limits: Limits,
    access_log: bool = False,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; then no more is accepted, and what is under way is answered.

    `started` is called once requests are answered.
    """
    server = server_of(app, limits, access_log=access_log, started=started)
    with _signals_to(server), suppress(SystemExit):  # a failed start leaves by it
        asyncio.run(server.serve(sockets=[listening]))
    if not server.began:
        raise CCRError("the server could not start: the reason is in its log")


def server_of(
    app: ASGIApp,
    limits: Limits,
    *,
    farewell: int = FAREWELL,
    access_log: bool = False,
    started: Callable[[], None] | None = None,
) -> Server:
    """A server for an application; `farewell` seconds after it is told to stop, what is not answered is cut off."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=access_log,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=farewell,
        lifespan="on",
    )
    return Server(config, started)


class Server(uvicorn.Server):
    """A server that ends well when it is told to end, instead of raising the signal once more."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._tell, self.began = started, False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.began = self.started
        if self.started and self._tell is not None:
            self._tell()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # done by `_signals_to`


@contextmanager
def _signals_to(server: uvicorn.Server) -> Iterator[None]:
    """Ctrl-C and SIGTERM tell the server to stop. Only the main thread may listen to them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with left_to_others():
        before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
