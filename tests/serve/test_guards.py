"""Who may ask, from where, and how much: refused before anything is read, in words, with headers on every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from ccr.errors import CCRError
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import COOKIE, LOCAL_NAMES, NOTHING, access_for
from ccr_studio.service.limits import RequestLimits
from ccr_studio.service.service import Served, Service
from tests.serve.conftest import ADDRESS, photo

TOKEN = "a-token-of-some-length"


def opened(served: Served, *, host: str = "127.0.0.1", token: str | None = None, **options: Any) -> TestClient:
    access = access_for(host, token, names=options.pop("names", ()))
    limits = options.pop("limits", None)
    address = options.pop("address", ADDRESS)
    app = create_app(Service(lambda: served, limits=limits), access=access, **options)
    return TestClient(app, base_url=address, raise_server_exceptions=False)


@pytest.fixture
def guarded(served: Served) -> Iterator[TestClient]:
    with opened(served, host="0.0.0.0", token=TOKEN, address="http://anything:80") as client:
        yield client


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost@evil.example", "0"])
def test_a_server_of_this_machine_is_only_called_by_its_own_names(client: TestClient, name: str) -> None:
    """By DNS rebinding another site's name may lead here."""
    answer = client.get("/health", headers={"Host": name})
    assert answer.status_code == 421
    assert "--allow-host" in answer.json()["error"]


@pytest.mark.parametrize("name", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"])
def test_its_own_names_with_any_port(client: TestClient, name: str) -> None:
    assert client.get("/health", headers={"Host": name}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://[broken"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_may_not_post(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/v1/predict", files=[("photos", photo("red"))], headers=headers)
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "navigate", None])
def test_pages_of_other_sites_may_not_read_either(client: TestClient, site: str, mode: str | None) -> None:
    """Reading may cost something, or be counted; only the page itself may be linked to."""
    headers = {"Sec-Fetch-Site": site} | ({"Sec-Fetch-Mode": mode} if mode else {})
    assert client.get("/v1/model", headers=headers).status_code == 403
    assert client.get("/metrics", headers=headers).status_code == 403
    assert client.get("/", headers=headers).status_code == (200 if mode == "navigate" else 403)
    assert client.get("/health", headers=headers).status_code == 200


def test_cookies_of_others_beside_it_do_not_hide_the_token(guarded: TestClient) -> None:
    """http.cookies stops at the first cookie that it cannot parse."""
    cookie = f'prefs={{"a":1}}; {COOKIE}={TOKEN}; x'
    assert guarded.get("/v1/model", headers={"Cookie": cookie}).status_code == 200


def test_the_token_is_taken_out_of_the_address_also_where_the_cookie_is_there(guarded: TestClient) -> None:
    cookie = {"Cookie": f"{COOKIE}={TOKEN}"}
    again = guarded.get(f"/v1/model?token={TOKEN}", headers=cookie, follow_redirects=False)
    assert (again.status_code, again.headers["Location"]) == (303, "/v1/model")


@pytest.mark.parametrize(
    ("method", "path", "options", "said"),
    [
        ("POST", "/v1/predict/embeddings?clases=2", {"json": {"embeddings": [[1.0] * 16]}}, "did you mean 'classes'"),
        ("POST", "/v1/predict/embeddings?classes=2&classes=3", {"json": {"embeddings": [[1.0] * 16]}}, "2 times"),
        ("GET", "/v1/model?x=1", {}, "no argument 'x' of the address: it takes none"),
        ("POST", "/v1/explain", {"files": {"photo": photo("red")}, "data": {"agianst": "red"}}, "of the form"),
        ("POST", "/v1/explain", {"files": [("photo", photo("red"))] * 2}, "'photo' of the form is given 2 times"),
        ("POST", "/v1/predict", {"files": [("photos", photo("red")), ("photo", photo("red"))]}, "no argument 'photo'"),
    ],
)
def test_an_argument_that_is_not_known_or_given_twice_is_refused(
    client: TestClient, method: str, path: str, options: dict[str, Any], said: str
) -> None:
    answer = client.request(method, path, **options)
    assert answer.status_code == 422
    assert said in answer.json()["error"]


def test_health_answers_head(client: TestClient) -> None:
    answer = client.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_own_pages_and_links_from_elsewhere_work(client: TestClient, served: Served) -> None:
    files = [("photos", photo("red"))]
    own = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/predict", files=files, headers=own).status_code == 200
    assert client.get("/health", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    with opened(served, names=["photos.example"]) as proxied:  # the proxy calls it by another name than browsers do
        assert proxied.get("/health", headers={"Origin": "https://photos.example"}).status_code == 200
        assert proxied.get("/health", headers={"Host": "photos.example"}).status_code == 200


def test_listening_beyond_this_machine_demands_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(CCRError, match="a token is required"):
            access_for(host, None)
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        assert set(LOCAL_NAMES) <= set(access_for(host, None).names)
    for token in ("short", "x" * 15, "tøken of some length", "with\na line end in it"):
        with pytest.raises(CCRError, match="at least 16 printable"):
            access_for("127.0.0.1", token)


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ÿ"])
def test_without_the_token_nothing_is_answered_but_health(guarded: TestClient, shown: str) -> None:
    headers = {"Authorization": shown.encode("latin-1")}
    assert guarded.get("/health", headers=headers).status_code == 200
    for path in ("/v1/model", "/metrics", "/openapi.json", "/nowhere"):
        answer = guarded.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_token_opens_and_a_browser_keeps_it_in_a_cookie(guarded: TestClient) -> None:
    assert guarded.get("/v1/model", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    first = guarded.get(f"/v1/model?token={TOKEN}&x=1", follow_redirects=False)
    assert (first.status_code, first.headers["Location"]) == (303, "/v1/model?x=1")
    assert "httponly" in first.headers["Set-Cookie"].lower()
    assert "samesite=lax" in first.headers["Set-Cookie"].lower()
    assert guarded.get("/v1/model").status_code == 200
    guarded.cookies.clear()
    assert guarded.get("/v1/model", headers={"Cookie": f"{COOKIE}=wrong"}).status_code == 401
    elsewhere = guarded.get(f"//evil.example/?token={TOKEN}", follow_redirects=False)
    assert not elsewhere.headers.get("Location", "/").startswith(("//", "http"))


def test_every_answer_has_the_headers(client: TestClient, guarded: TestClient) -> None:
    for answer in (client.get("/health"), client.get("/nowhere"), guarded.get("/v1/model"), client.post("/v1/predict")):
        assert answer.headers["Content-Security-Policy"] == NOTHING
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def chunks(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"x" * 50_000


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(client: TestClient, announced: bool, kind: str) -> None:
    content = b"x" * 250_000 if announced else chunks(5)
    path = "/v1/predict/embeddings" if "json" in kind else "/v1/predict"
    answer = client.post(path, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 413, answer.text
    assert "200,000 bytes" in answer.json()["error"]


def test_more_photos_than_may_ever_wait_are_refused_for_good(served: Served) -> None:
    with opened(served, limits=RequestLimits(waiting=2)) as client:
        answer = client.post("/v1/predict", files=[("photos", photo("red"))] * 3)
        assert answer.status_code == 422
        assert "may have 2 photos, got 3" in answer.json()["error"]
        assert client.post("/v1/predict", files=[("photos", photo("red"))] * 2).status_code == 200


def test_too_many_pixels_are_refused_by_the_limit_and_the_option_of_the_server(served: Served) -> None:
    """The message named another limit, and an argument of the library."""
    with opened(served, limits=RequestLimits(pixels=10)) as client:
        answer = client.post("/v1/predict", files=[("photos", photo("red"))])
    assert answer.status_code == 422
    assert "20 x 20 pixels, more than the limit of 10" in answer.json()["error"]
    assert "`ccr serve --megapixels` raises it" in answer.json()["error"]
    assert "max_pixels" not in answer.json()["error"]


def slow_paths() -> APIRouter:
    router = APIRouter()

    @router.get("/slow")
    async def slow() -> None:
        await asyncio.sleep(30)

    @router.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @router.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(4):
                yield b"."
                await asyncio.sleep(0.1)

        return StreamingResponse(parts())

    @router.get("/bug")
    async def bug() -> None:
        raise RuntimeError("a secret detail")

    @router.websocket("/socket")
    async def socket(connection: WebSocket) -> None:
        await connection.accept()
        await connection.send_text("hello")
        await connection.close()

    return router


def test_time_is_limited_until_the_answer_begins(served: Served) -> None:
    with opened(served, limits=RequestLimits(seconds=0.2), routers=[slow_paths()]) as client:
        answer = client.get("/slow")
        assert answer.status_code == 503
        assert "within 0.2 seconds" in answer.json()["error"]
        assert client.get("/stream").content == b"...."


async def asked_without_a_body(app: Any, path: str = "/body") -> list[dict[str, Any]]:
    """What is answered to a request whose body does not arrive."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(30)
        return {}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    headers = [(b"host", b"localhost"), (b"content-length", b"10")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app({**scope, "headers": headers, "root_path": "", "http_version": "1.1", "scheme": "http"}, receive, send)
    return sent


def test_a_body_that_does_not_arrive_is_not_waited_for(served: Served) -> None:
    client = opened(served, limits=RequestLimits(seconds=0.2), routers=[slow_paths()])
    sent = asyncio.run(asked_without_a_body(client.app))
    assert sent[0]["status"] == 408
    assert b"did not arrive within 0.2 seconds" in sent[1]["body"]


def test_a_token_that_does_not_arrive_is_not_waited_for(served: Served) -> None:
    """The form for it had no limit of time: some hundred such connections kept everybody out."""
    access = replace(access_for("127.0.0.1", TOKEN), asks=True)
    app = create_app(Service(lambda: served, limits=RequestLimits(seconds=0.2)), access=access)
    sent = asyncio.run(asyncio.wait_for(asked_without_a_body(app, path="/sign-in"), 10))
    assert sent[0]["status"] == 408


def test_our_own_mistakes_are_not_told_to_strangers(served: Served) -> None:
    with opened(served, routers=[slow_paths()]) as client:
        answer, well = client.get("/bug"), client.get("/health")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert set(answer.headers) == set(well.headers)
    assert all(answer.headers[name] == value for name, value in well.headers.items() if name != "content-length")


def test_web_sockets_are_guarded_too(served: Served) -> None:
    with opened(served, routers=[slow_paths()]) as client:
        with client.websocket_connect("/socket", headers={"Origin": ADDRESS, "Host": "127.0.0.1:8000"}) as socket:
            assert socket.receive_text() == "hello"
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=headers):
                pass


@pytest.mark.parametrize("path", ["/ccr/health", "/health"])
def test_a_proxy_may_show_the_server_below_a_path(served: Served, path: str) -> None:
    """Some proxies take the path away, others leave it."""
    with opened(served, root_path="/ccr") as client:
        assert client.get(path).json()["status"] == "ok"
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/ccr"}]
    with opened(served, host="0.0.0.0", token=TOKEN, root_path="/ccr") as client:
        assert client.get(path).status_code == 200
        to = client.get(f"/ccr/v1/model?token={TOKEN}", follow_redirects=False)
        assert to.headers["Location"] == "/ccr/v1/model"
        client.cookies.clear()
        assert client.get(f"/ccr?token={TOKEN}", follow_redirects=False).headers["Location"] == "/ccr/"


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "many", True])
def test_limits_are_numbers_above_zero(value: Any) -> None:
    with pytest.raises(CCRError, match="the limit seconds must be a number above 0"):
        RequestLimits(seconds=value)
