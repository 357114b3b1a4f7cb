"""Many or misleading requests at once: memory stays within what docs/serving.md says, and others are answered."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import BYTES_PER_PIXEL, Busy, DecodingGate, RequestLimits
from ccr_studio.service.service import Served, Service
from tests.data.helpers import PixelEncoder
from tests.hostile.flooding import BUDGET
from tests.serve.conftest import ADDRESS, small_model

ROOT = Path(__file__).parents[2]
#: Beside decoding: what 64 requests and the threads that serve them take.
SLACK = 300 << 20


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("colours", small_model(), PixelEncoder())


def asked(served: Served, limits: RequestLimits | None = None) -> TestClient:
    app = create_app(Service(lambda: served, limits=limits), access=access_for("127.0.0.1", None))
    return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("flood", ["studio uploads", "whole photos"])
def test_decoding_takes_no_more_memory_than_its_budget(tmp_path: Path, flood: str) -> None:
    """Forty photos of 39.7 megapixels at once took a studio to 19 GB. Here photos and budget are a quarter of that."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.flooding", flood, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "CCR_CACHE": str(tmp_path / "cache")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["grown"] < BUDGET + SLACK, found
    assert set(found["statuses"]) <= {"200", "503"}, found
    assert found["statuses"].get("200", 0) >= 3, found
    assert found["in_words"], found
    assert found["others"] == 200, found


def test_the_gate_counts_what_it_let_in_and_gives_it_back() -> None:
    gate = DecodingGate(100 * BYTES_PER_PIXEL, at_once=1, waiting=1, patience=0.05)
    late = pytest.raises(Busy, match=r"no room to decode a photo for 0\.05 seconds")
    with gate.room(60), gate.room(40), late, gate.room(1):
        pass
    with gate.room(1000), pytest.raises(Busy), gate.room(1):  # more than the budget: alone
        pass
    with gate.room(100):
        pass


def test_whoever_waits_at_the_gate_of_a_server_that_ends_is_sent_away() -> None:
    """A studio that was told to stop took half a minute: photos that nobody waited for any more waited for room."""
    gate = DecodingGate(100 * BYTES_PER_PIXEL, patience=60)
    sent_away: list[Busy] = []

    def wait() -> None:
        try:
            with gate.room(50):
                pass
        except Busy as busy:
            sent_away.append(busy)

    with gate.room(100):
        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        time.sleep(0.3)
        gate.dismiss()
        for thread in waiting:
            thread.join(10)
    assert len(sent_away) == 3
    with gate.room(100):  # who comes later is let in
        pass


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_a_length_that_contradicts_the_body_is_refused_and_not_believed(served: Served, kind: str) -> None:
    """300 MB were read against a limit of 64: Content-Length was believed, and the chunks were not counted."""
    headers = {"Content-Length": "10", "Transfer-Encoding": "chunked", "Content-Type": kind}
    path = "/v1/predict/embeddings" if "json" in kind else "/v1/predict"
    with asked(served, RequestLimits(request_bytes=200_000)) as client:
        answer = client.post(path, content=iter([b"x" * 50_000] * 8), headers=headers)
    assert answer.status_code == 400
    assert "Content-Length or Transfer-Encoding, not both" in answer.json()["error"]


@pytest.mark.parametrize("announced", [b"10", b"-1", b"1" * 30, b"x"])
def test_what_arrives_is_counted_whatever_was_announced(served: Served, announced: bytes) -> None:
    """By the application alone: a server before it may pass on any header."""
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 50_000
        return {"type": "http.request", "body": b"x" * 50_000, "more_body": taken < 10_000_000}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    headers = [(b"host", b"localhost"), (b"content-length", announced), (b"content-type", b"application/json")]
    path = "/v1/predict/embeddings"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    app = asked(served, RequestLimits(request_bytes=200_000)).app
    asyncio.run(
        app({**scope, "headers": headers, "root_path": "", "http_version": "1.1", "scheme": "http"}, receive, send)
    )
    assert sent[0]["status"] == 413
    assert taken <= 250_000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"embeddings":[' + b"[0]," * 6_000 + b"[0]]}", "5,000 lists and objects"),
        (b'{"embeddings":[[' + b"0," * 2_000_001 + b"0]]}", "2,000,000 values"),
        (b'{"embeddings":[[' + b" " * (33 << 20) + b"0]]}", "33,554,432 bytes"),
        (b"[" * 6_000, "5,000 lists and objects"),
    ],
)
def test_json_is_refused_before_it_is_parsed(
    served: Served, monkeypatch: pytest.MonkeyPatch, body: bytes, said: str
) -> None:
    """15.5 million rows of [0] in 59 MB took 3.6 GB and stopped the event loop for half a minute."""
    parsed: list[object] = []
    monkeypatch.setattr("ccr_studio.service.app._JsonAside.json", parsed.append)
    with asked(served) as client:
        answer = client.post("/v1/predict/embeddings", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert said in answer.json()["error"]
    assert not parsed


@pytest.mark.parametrize("kind", [None, "text/plain"])
def test_a_body_that_does_not_say_that_it_is_json_is_not_parsed_as_such(served: Served, kind: str | None) -> None:
    """Its values would not have been counted; FastAPI before 0.132 parsed what had no type."""
    body = b'{"embeddings":[' + b"[0]," * 6_000 + b"[0]]}"
    with asked(served) as client:
        answer = client.post("/v1/predict/embeddings", content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == 422
    assert "Input should be a valid dictionary" in answer.json()["error"]


def test_a_form_has_a_limit_on_its_fields_however_it_is_written(served: Served) -> None:
    """Starlette before 1.3.1 had none where a form was no multipart."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with asked(served) as client:
        answer = client.post("/v1/explain", content=b"a&" * 2_000, headers=headers)
    assert answer.status_code == 400
    assert "Too many fields" in answer.json()["error"]


def test_the_bodies_of_all_requests_together_are_limited(served: Served) -> None:
    with asked(served, RequestLimits(bodies=100_000)) as client:
        for _ in range(3):  # what was refused is not held any more
            answer = client.post("/v1/predict", content=b"x" * 150_000, headers={"Content-Type": "text/plain"})
            assert answer.status_code in (422, 503)
        embeddings = {"embeddings": [[1.0] * 16]}
        assert client.post("/v1/predict/embeddings", json=embeddings).status_code == 200
        answer = client.post(
            "/v1/predict/embeddings", content=b'{"x":"' + b"x" * 150_000, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        assert client.post("/v1/predict/embeddings", json=embeddings).status_code == 200
