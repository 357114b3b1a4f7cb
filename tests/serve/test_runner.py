"""`ccr serve` as a user starts it: it says where it is, answers, and ends well when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

import httpx
import pytest
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from ccr.cli.commands import commands
from ccr.errors import CCRError
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import RequestLimits
from ccr_studio.service.runner import checked_root, farewell, listen, server_of, url_of
from ccr_studio.service.service import Served, Service
from tests.serve.conftest import small_model

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "model"
    small_model().save(folder)
    return folder


def started(model: Path, *options: str, **environment: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    program = f"import sys; sys.argv[1:] = {['serve', str(model), '--port', '0', '--json', *options]!r}\n"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{program}from ccr.start import main; main()"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, json.loads(child.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_told_to_stop_answers_what_it_was_asked_and_leaves_well(
    model: Path, number: signal.Signals
) -> None:
    child, said = started(model)
    dimension = httpx.get(f"{said['url']}/v1/model").json()["dimension"]
    body = json.dumps({"embeddings": [[1.0] * dimension]}).encode()
    host, port = re.findall(r"//(.+):(\d+)", said["url"])[0]
    head = (
        f"POST /v1/predict/embeddings HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body[:5])
        time.sleep(0.3)
        child.send_signal(number)
        time.sleep(2.0)  # longer than an interrupted computation is waited for
        connection.sendall(body[5:])
        answer = connection.recv(65_536).decode()
    assert answer.startswith("HTTP/1.1 200")
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_the_log_of_requests_has_no_token(model: Path) -> None:
    token = "a-token/of+some length!"
    child, said = started(model, "--access-log", CCR_TOKEN=token)
    # As browsers, forms and programs write it in an address, and with every character encoded.
    sent = quote(token, safe="!"), quote_plus(token), "".join(f"%{ord(sign):02X}" for sign in token)
    queries = [f"token={sent[0]}", f"a={'b' * 90}&token={sent[1]}&x=1", f"%74oken={sent[2]}", f"TOKEN={sent[0]}"]
    queries += [f"a=1%26token={sent[1]}", f"a=1;token={sent[2]}", *(f"token=x&other={one}" for one in sent)]
    for query in queries:
        assert answer_to(said["url"], f"GET /v1/model?{query} HTTP/1.0\r\n\r\n".encode())
    for one in sent:
        assert answer_to(said["url"], f"GET /{one}?tokens={one} HTTP/1.0\r\n\r\n".encode())
    child.terminate()
    _, err = child.communicate(timeout=60)
    assert "some" not in unquote_plus(unquote_plus(err))
    lines = [line for line in err.splitlines() if "/v1/model?" in line]
    assert len(lines) == len(queries)
    assert all("token=(hidden)" in line and "HTTP/1.0" in line for line in lines), lines  # not wrapped at 80 columns


def answer_to(url: str, sent: bytes) -> bytes:
    """All that a server answers to some bytes, until it ends the connection."""
    host, port = re.findall(r"//(.+):(\d+)", url)[0]
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@contextmanager
def serving(limits: RequestLimits, **options: Any) -> Iterator[str]:
    """A server of this process."""
    served = Served("colours", small_model(), None)
    app = create_app(Service(lambda: served, limits=limits), access=access_for("127.0.0.1", None), **options)
    listening = listen("127.0.0.1", 0)
    url, server = url_of(listening), server_of(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n", b"\x16\x03\x01"]
)
def test_what_is_no_http_is_refused_as_json(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccr_studio.service.runner.SILENT", 0.5)
    with serving(RequestLimits()) as url:
        head, _, body = answer_to(url, sent).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
    assert b"content-security-policy" in head.lower()
    assert json.loads(body)["error"]


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_connection_on_which_nothing_arrives_ends(
    sent: bytes, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """260 of them kept everybody out, for as long as they liked."""
    monkeypatch.setattr("ccr_studio.service.runner.SILENT", 0.5)
    with serving(RequestLimits()) as url:
        answer = answer_to(url, before + sent)
    if not before:  # one that was answered before just ends
        assert b"408" in answer
        assert b"no request arrived within 0.5 seconds" in answer


def test_a_connection_whose_answer_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred of them would keep everybody out, and each holds its answer."""
    monkeypatch.setattr("ccr_studio.service.runner.UNREAD", 0.5)
    router = APIRouter()

    @router.get("/large")
    async def large() -> PlainTextResponse:
        return PlainTextResponse(b"x" * (32 << 20))

    with serving(RequestLimits(), routers=[router]) as url:
        host, port = re.findall(r"//(.+):(\d+)", url)[0]
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            time.sleep(3.0)
            with suppress(ConnectionResetError):
                taken = sum(map(len, iter(lambda: connection.recv(1 << 20), b"")))
                assert taken < 32 << 20
        assert len(httpx.get(f"{url}/large").content) == 32 << 20


def test_too_many_connections_are_refused_as_json_and_health_still_answers() -> None:
    with serving(RequestLimits(connections=3)) as url:
        host, port = re.findall(r"//(.+):(\d+)", url)[0]
        held = [socket.create_connection((host, int(port))) for _ in range(3)]
        refused, health = httpx.get(f"{url}/v1/model"), httpx.get(f"{url}/health")
        for connection in held:
            connection.close()
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert "3 connections are open" in refused.json()["error"]
        assert health.status_code == 200
        time.sleep(0.3)
        assert httpx.get(f"{url}/v1/model").status_code == 200


@pytest.mark.parametrize("program", ["service stopped", "studio stopped"])
def test_what_is_cut_off_when_a_server_stops_is_answered_and_said(program: str, tmp_path: Path) -> None:
    """Four requests got 500 and tracebacks, and the server said that every request was answered."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.flooding", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "CCR_CACHE": str(tmp_path / "cache")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception in ASGI" not in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["statuses"] == {"503": 4}, found
    assert found["in_words"]
    assert found["cut_off"] == 4
    assert "4 requests still under way got 503" in farewell(found["cut_off"])


def test_beyond_this_machine_a_token_is_demanded(model: Path) -> None:
    child, said = started(model, "--host", "0.0.0.0", CCR_TOKEN="a-token-of-some-length")
    try:
        assert said["token"] is True
        assert httpx.get(f"{said['url']}/health").status_code == 200
        assert httpx.get(f"{said['url']}/v1/model").status_code == 401
        bearer = {"Authorization": "Bearer a-token-of-some-length"}
        assert httpx.get(f"{said['url']}/v1/model", headers=bearer).status_code == 200
    finally:
        child.terminate()
        child.communicate(timeout=30)
    with pytest.raises(CCRError, match="a token is required"):
        next(one for one in commands if one.__name__ == "serve")(model, host="0.0.0.0")


def test_the_body_of_an_answer_does_not_wait_for_its_head() -> None:
    """Nagle's algorithm would hold the second packet until the first is acknowledged, which takes 40 ms."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_port_that_is_taken_is_said_in_words() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken, "/ccr") == f"http://127.0.0.1:{port}/ccr"
        with pytest.raises(CCRError, match=f"cannot listen on 127.0.0.1, port {port} .*--port 0"):
            listen("127.0.0.1", port)
    with pytest.raises(CCRError, match="cannot listen on no such host"):
        listen("no such host", 0)


@pytest.mark.parametrize(("given", "root"), [("", ""), ("/", ""), ("/ccr/", "/ccr"), ("/a/b.c", "/a/b.c")])
def test_a_root_path_is_a_path(given: str, root: str) -> None:
    assert checked_root(given) == root


@pytest.mark.parametrize("given", ["ccr", "/a b", "//evil", "/a?b", "/a/../b\n"])
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(CCRError, match="--root-path must be a path such as /ccr"):
        checked_root(given)
