"""`ccr serve` as a user starts it: it says where it is, answers, and ends well when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from ccr.cli.serve import serve
from ccr.errors import CCRError
from ccr.serve.runner import checked_root, listen, url_of
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
        serve(model, host="0.0.0.0")


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
