"""Guards: who may ask, from where, and how much; they stand before every request, whatever answers it.

A page of another site that is open in the same browser can send requests to 127.0.0.1, and by DNS rebinding even read
the answers. So the Host must be one of the server's own names, the Origin, where a browser sends one, the server's own,
and whoever listens beyond this machine demands a token.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ccr.errors import CCRError
from ccr.utils.texts import visible
from ccr_studio.service.limits import Meters, RequestLimits

#: Names by which a server on this machine alone may be called.
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
#: Policy on what a page made by this server may load: nothing. The studio, which has pages, brings a policy of its own.
NOTHING = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
#: The cookie in which a browser keeps the token, once it came as ?token=...
COOKIE = "ccr-token"
FEWEST_CHARACTERS = 16
#: Where the page that asks for the token posts it, and how many bytes such a form may have.
SIGN_IN, MOST_TOKEN = "/sign-in", 8192
ASKING_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
WRONG = '<p role="alert"><b>That was not the token.</b></p>'
ASKING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Token needed</title>
<style>body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 15vh auto 0; padding: 0 1rem }
h1 { font-size: 1.3rem } input, button { font: inherit; padding: .5rem .7rem; box-sizing: border-box; width: 100% }
label { display: block; margin-bottom: .3rem } button { margin-top: .7rem }</style></head>
<body><main><h1>This server asks for its token</h1>{wrong}
<form method="post" action="{action}"><label for="token">Token that it was started with (<code>CCR_TOKEN</code>)</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open</button></form>
<p>This browser keeps it in a cookie. Programs send <code>Authorization: Bearer TOKEN</code>.</p></main></body></html>
"""
#: The counter of the requests that were cut off when the server stopped.
CUT_OFF = "ccr_requests_cut_off"
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Access:
    """Access rules of a server: host names, token, open paths, content security policy.

    Parameters
    ----------
    names : hosts by which the server may be called; empty, with a token: any.
    token : what must be shown, as `Authorization: Bearer TOKEN` or in the cookie; None: nothing.
    open_paths : paths that are answered without the token, and to pages of other sites.
    pages : paths that a link on another site's page may lead to.
    policy : the Content-Security-Policy of every answer that has none of its own.
    asks : whether a person who opens a page without the token is asked for it.
    """

    names: tuple[str, ...] = LOCAL_NAMES
    token: str | None = None
    open_paths: tuple[str, ...] = ("/health",)
    pages: tuple[str, ...] = ("/",)
    policy: str = NOTHING
    asks: bool = False


def is_local(host: str) -> bool:
    """Does a server that listens on `host` hear this machine alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def access_for(
    host: str, token: str | None, *, names: Iterable[str] = (), policy: str = NOTHING, open_paths: Iterable[str] = ()
) -> Access:
    """The access to a server that listens on `host`: beyond this machine only with a token.

    `names` are further hosts by which it is called, such as that of a proxy in front of it. On this machine alone it is
    always called by one of its names; with a token and no names given, by any.
    """
    if token is not None and (len(token) < FEWEST_CHARACTERS or not token.isascii() or not token.isprintable()):
        raise CCRError(
            f"a token must have at least {FEWEST_CHARACTERS} printable ASCII characters, got {len(token)}: make one "
            'with `python -c "import secrets; print(secrets.token_urlsafe())"`'
        )
    if token is None and not is_local(host):
        raise CCRError(
            f"--host {host} lets other machines ask, so a token is required: put one into the environment variable "
            "CCR_TOKEN or give --token; without --host only this machine can ask"
        )
    further = tuple(name.strip().lower() for name in names)
    if not is_local(host):
        known = (host.lower(), *LOCAL_NAMES, *further) if further else ()
    else:
        known = tuple(dict.fromkeys((*LOCAL_NAMES, host.lower(), *further)))
    return Access(known, token, ("/health", *open_paths), policy=policy)


class Guard:
    """An ASGI application behind its guards: names, origin, token, sizes, time, and headers on every answer."""

    def __init__(self, app: ASGIApp, *, access: Access, limits: RequestLimits, meters: Meters) -> None:
        self.app, self.access, self.limits, self.meters = app, access, limits, meters
        self.bodies = 0  # bytes of all requests under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        guarded = _with_headers(send, self.access.policy)
        if self.access.asks and self.access.token and scope["type"] == "http" and _path(scope) == SIGN_IN:
            await self._answer_in_time(self._sign_in, scope, receive, guarded)
            return
        refusal = refuse(scope, self.access)
        if refusal is not None:
            await _answer(refusal, scope, receive, guarded)
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self._answer_in_time(self.app, scope, receive, guarded)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the form of the page that asks for the token. A page of anywhere may post it: it must know the token,
        and what it gets is a page of this server."""
        assert self.access.token is not None
        misnamed = _wrong_name(Headers(scope=scope), self.access)
        if misnamed is not None:
            await misnamed(scope, receive, send)
            return
        shown = await _posted_token(scope, receive) if scope["method"] == "POST" else None
        if shown is not None and _same(shown, self.access.token):
            await _remember({**scope, "path": scope.get("root_path", "") + "/"}, [], self.access.token)(
                scope, receive, send
            )
        else:
            await asking_page(scope.get("root_path", ""), wrong=shown is not None)(scope, receive, send)

    async def _answer_in_time(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(scope, receive, send, self)
        try:
            with anyio.move_on_after(self.limits.seconds) as timer, suppress(_Refused):
                body.timer = timer
                await app(scope, body.receive, body.send)
            if not body.answered:
                await body.refusal()(scope, receive, send)
        except asyncio.CancelledError:  # the server was told to stop, and waited for as long as it does
            self.meters.cut_off.inc()
            if not body.answered:
                await body.cut_off()(scope, receive, send)
        finally:
            body.forget()


def refuse(scope: Scope, access: Access) -> Response | None:
    """The answer to a request that may not be asked, or None."""
    headers = Headers(scope=scope)
    if "content-length" in headers and "transfer-encoding" in headers:
        return problem(  # RFC 9112, 6.1: a proxy may read another length than this server, and smuggle a request
            400,
            "a request has Content-Length or Transfer-Encoding, not both: leave one out",
            headers={"Connection": "close"},
        )
    misnamed = _wrong_name(headers, access)
    if misnamed is not None:
        return misnamed
    foreign = _foreign(headers, scope, access)
    if foreign is not None:
        return problem(403, f"a page of {visible(foreign)!r} may not use this server: open it under its own address")
    if access.token is None or _path(scope) in access.open_paths:
        return None
    refusal = _refuse_without_token(scope, headers, access.token)
    page = access.asks and scope["type"] == "http" and scope["method"] in _SAFE and _path(scope) in access.pages
    if refusal is not None and refusal.status_code == 401 and page and "text/html" in headers.get("accept", ""):
        return asking_page(scope.get("root_path", ""))  # a person, who can type it
    return refusal


def _wrong_name(headers: Headers, access: Access) -> Response | None:
    """The answer to a request for a host that is not one of the server's names, or None."""
    host = _split(f"//{headers.get('host', '')}").hostname or ""
    if not access.names or host in access.names:
        return None
    return problem(
        421,
        f"this server is not called {visible(host or '(nothing)')!r}: use one of {', '.join(access.names)}, or "
        "start it with --allow-host",
    )


def problem(status: int, message: str, *, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"error": visible(message)}, status, headers)


def asking_page(root: str, *, wrong: bool = False) -> Response:
    """A page with one field, for the token."""
    page = ASKING.replace("{action}", html.escape(root + SIGN_IN)).replace("{wrong}", WRONG if wrong else "")
    headers = {"Content-Security-Policy": ASKING_POLICY, "WWW-Authenticate": "Bearer"}
    return HTMLResponse(page, 401, headers)


async def _posted_token(scope: Scope, receive: Receive) -> str | None:
    """The field `token` of a posted form; None where there is none, or too much was sent."""
    body, more = b"", True
    while more and len(body) <= MOST_TOKEN:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    if len(body) > MOST_TOKEN:
        return None
    return dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True)).get("token")


def _refuse_without_token(scope: Scope, headers: Headers, token: str) -> Response | None:
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    if scope["type"] == "http" and scope["method"] in _SAFE and _same(dict(query).get("token", ""), token):
        return _remember(scope, query, token)  # also who has the cookie already: the address must not keep it
    kind, _, shown = headers.get("authorization", "").partition(" ")
    if (kind.lower() == "bearer" and _same(shown.strip(), token)) or _same(_cookie(headers), token):
        return None
    return problem(
        401,
        "this server demands its token: send the header `Authorization: Bearer TOKEN`, or open it once with ?token=...",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _remember(scope: Scope, query: list[tuple[str, str]], token: str) -> Response:
    """To the same page without the token in its address, which the browser keeps in a cookie from now on."""
    rest = urlencode([pair for pair in query if pair[0] != "token"])
    root = scope.get("root_path", "")
    path = root + _path(scope)
    # A path that begins with two slashes would lead to another host.
    response = RedirectResponse("/" + path.lstrip("/\\") + (f"?{rest}" if rest else ""), 303)
    # Lax: a link on another site's page may lead here; what changes anything is no GET, and its Origin is looked at.
    response.set_cookie(COOKIE, token, path=root or "/", httponly=True, samesite="lax")
    return response


def _same(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), token.encode())


def _cookie(headers: Headers) -> str:
    # As browsers read cookies: others of the same host may stand beside it that http.cookies cannot parse.
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _foreign(headers: Headers, scope: Scope, access: Access) -> str | None:
    """The site of a page that may not use this server; None if there is no such page."""
    origin = headers.get("origin")
    if origin is not None:
        own, further = _split(origin), [name for name in access.names if name not in LOCAL_NAMES]
        ours = own.netloc.lower() in (headers.get("host", "").lower(), *further) or own.hostname in further
        return None if own.netloc and ours else origin
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return None
    # Also what only reads: an <img> of another site's page would have looks at the test photos counted.
    safe, path = scope["type"] == "http" and scope["method"] in _SAFE, _path(scope)
    followed = headers.get("sec-fetch-mode") == "navigate" and path in access.pages
    return None if safe and (followed or path in access.open_paths) else "another site"


def _split(address: str) -> SplitResult:
    """The parts of an address; empty ones where it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _path(scope: Scope) -> str:
    """The path below the root at which a proxy shows the server."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and path == root:
        return "/"
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def add_headers(headers: MutableHeaders, policy: str) -> None:
    """Set the HTTP security headers of an answer, where they are not set yet."""
    headers.setdefault("Content-Security-Policy", policy)
    headers.setdefault("Cache-Control", "no-store")
    headers["X-Content-Type-Options"] = "nosniff"
    if "frame-ancestors 'none'" in policy:  # the older header knows no list of those who may
        headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _with_headers(send: Send, policy: str) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            add_headers(MutableHeaders(scope=message), policy)
        await send(message)

    return guarded


async def _answer(refusal: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
    else:
        await refusal(scope, receive, send)


class _Refused(Exception):
    """The body is not read any further."""


class _Body:
    """The body of a request, counted as it comes, and what is answered, held back if the body was refused."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, guard: Guard) -> None:
        self._receive, self._send, self._guard, self.limits = receive, send, guard, guard.limits
        self.timer: anyio.CancelScope | None = None
        self.answered = False
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "")
        self.complete = not announced and "transfer-encoding" not in headers
        self._announced = int(announced) if announced.isdecimal() and len(announced) < 20 else 0
        self._json = "json" in headers.get("content-type", "").lower()
        self._bytes = self._values = self._lists = 0

    def problem(self) -> Response | None:
        """Reason why the body is not read any further; None while it may be."""
        size, limits, close = max(self._announced, self._bytes), self.limits, {"Connection": "close"}
        if size > limits.request_bytes:
            most = f"a request may have {limits.request_bytes:,} bytes, this one has more: send fewer photos"
            return problem(413, most, headers=close)
        if self._json and size > limits.json_bytes:
            most = f"a request of JSON may have {limits.json_bytes:,} bytes, this one has more: send several"
            return problem(413, most, headers=close)
        if self._values > limits.json_values or self._lists > limits.json_lists:
            most = f"{limits.json_values:,} values in {limits.json_lists:,} lists and objects"
            return problem(413, f"a request of JSON may have {most}, this one has more: send several", headers=close)
        if self._bytes and self._guard.bodies > limits.bodies:
            held = f"requests under way hold {limits.bodies:,} bytes already: try again in a moment"
            return problem(503, held, headers=close | {"Retry-After": "1"})
        return None

    async def receive(self) -> Message:
        if self.problem() is not None:
            raise _Refused
        message = await self._receive()
        if message["type"] == "http.request":
            self._count(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self.problem() is not None:
                raise _Refused
        return message

    def _count(self, part: bytes) -> None:
        """Count what arrived, whatever was announced: a chunked body may have any length."""
        self._bytes += len(part)
        self._guard.bodies += len(part)
        if self._json:
            self._values += part.count(b",")
            self._lists += part.count(b"[") + part.count(b"{")

    def forget(self) -> None:
        """The request is over, and its body is not held any more."""
        self._guard.bodies -= self._bytes
        self._bytes = 0

    async def send(self, message: Message) -> None:
        if not self.answered and self.problem() is not None:
            return  # whatever was made of half a body: the refusal follows
        self.answered = True
        if self.timer is not None:
            self.timer.deadline = math.inf  # what has begun, such as a stream of events, may last
        await self._send(message)

    def cut_off(self) -> Response:
        """The answer to a request that was still under way when the server had to end."""
        later = {"Retry-After": "5", "Connection": "close"}
        return problem(503, "the server is stopping: send the request again once it is back", headers=later)

    def refusal(self) -> Response:
        """The answer in place of one that did not come."""
        refused = self.problem()
        if refused is not None:
            return refused
        seconds = self.limits.seconds
        if not self.complete:
            late = f"the request did not arrive within {seconds:g} seconds"
            return problem(408, late, headers={"Connection": "close"})
        return problem(
            503, f"there was no answer within {seconds:g} seconds: try again, with less", headers={"Retry-After": "5"}
        )
