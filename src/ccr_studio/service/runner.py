"""Runner: an application on a port, until it is told to stop; what has begun is answered first."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from ccr.errors import CCRError
from ccr.utils.processes import sigint_left_to_caller
from ccr.utils.texts import counted
from ccr_studio.service.guards import NOTHING, add_headers, problem
from ccr_studio.service.limits import RequestLimits

#: Seconds that requests under way have to be answered once the server is told to stop.
FAREWELL = 10
#: Seconds until the head of a request must have arrived on a connection.
SILENT = 15.0
#: Seconds in which whoever asked must take more of an answer that is ready to be sent.
UNREAD = 60.0


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
    limits: RequestLimits,
    access_log: bool = False,
    token: str | None = None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; then no more is accepted, and what is under way is answered.

    `started` is called once requests are answered; `token` never stands in the log of requests.
    """
    server = server_of(app, limits, access_log=access_log, started=started)
    log, no_secrets = logging.getLogger("uvicorn.access"), _NoSecrets(token)
    log.addFilter(no_secrets)
    try:
        with _signals_to(server), suppress(SystemExit):  # a failed start leaves by it
            asyncio.run(server.serve(sockets=[listening]))
    finally:
        log.removeFilter(no_secrets)
    if not server.began:
        raise CCRError("the server could not start: the reason is in its log")


def farewell(cut_off: int) -> str:
    """Message that the server stopped, with the number of requests cut off."""
    if not cut_off:
        return "stopped: every request that had begun is answered"
    return f"stopped: {counted(cut_off, 'request')} still under way got 503, every other that had begun is answered"


def server_of(
    app: ASGIApp,
    limits: RequestLimits,
    *,
    farewell: int | None = None,
    access_log: bool = False,
    started: Callable[[], None] | None = None,
) -> Server:
    """A server for an application; `farewell` seconds after it is told to stop, what is not answered is cut off."""
    config = uvicorn.Config(
        _bounded(app, lambda: len(server.server_state.connections), limits.connections),
        http=_Protocol,
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=FAREWELL if farewell is None else farewell,
        lifespan="on",
    )
    server = Server(config, started)
    return server


def _bounded(app: ASGIApp, connections: Callable[[], int], most: int) -> ASGIApp:
    """The application while at most so many connections are open, but for whoever asks whether it lives."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or connections() <= most or scope["path"].endswith("/health"):
            await app(scope, receive, send)
            return
        late = {"Retry-After": "1", "Connection": "close"}
        refusal = problem(503, f"{most} connections are open already: try again in a moment", headers=late)
        add_headers(refusal.headers, NOTHING)
        await refusal(scope, receive, send)

    return bounded


def _spelled(text: str) -> str:
    """Pattern of a text in an address, where any character may be percent-encoded, and a space may be a plus."""
    same = ({sign, sign.lower(), sign.upper()} for sign in text)
    ways = (
        (*(f"{re.escape(one)}|%{ord(one):02x}" for one in signs), *(r"\+|%2b" for _ in signs & {" "})) for signs in same
    )
    return "".join(f"(?:{'|'.join(each)})" for each in ways)


class _NoSecrets(logging.Filter):
    """Takes the token out of the log of requests: the argument of an address, and the token itself anywhere."""

    def __init__(self, token: str | None) -> None:
        super().__init__()
        anywhere = "" if token is None else f"|{_spelled(token)}"
        self._secrets = re.compile(rf"(?P<argument>{_spelled('token=')}[^&;\s]+){anywhere}", re.IGNORECASE)

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._hidden(part) if isinstance(part, str) else part for part in record.args)
        return True

    def _hidden(self, text: str) -> str:
        return self._secrets.sub(lambda found: "token=(hidden)" if found["argument"] else "(hidden)", text)


class _Protocol(H11Protocol):
    """HTTP/1.1 whose own refusals are JSON too, and which ends connections on which no request arrives, or whose answer
    is not read."""

    _silence: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif self._silence is None and (before is None or before.response_complete):
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, f"{msg.rstrip('.')}: send HTTP/1.1")

    def _wait_for_request(self) -> None:
        self._silence = self.loop.call_later(SILENT, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _hang_up(self) -> None:
        self._silence = None
        if not self.transport.is_closing():
            self._refuse(408, f"no request arrived within {SILENT:g} seconds")

    def _refuse(self, status: int, message: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # its answer has nowhere to go any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        refusal = problem(status, message, headers={"Connection": "close"})
        add_headers(refusal.headers, NOTHING)
        reason = STATUS_PHRASES[status]
        with suppress(h11.LocalProtocolError):  # where an answer has begun already, the connection just ends
            head = h11.Response(status_code=status, headers=refusal.raw_headers, reason=reason)
            for event in (head, h11.Data(data=bytes(refusal.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


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
    with sigint_left_to_caller():
        before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
