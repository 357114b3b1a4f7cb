"""Whatever is sent, the answer is one of ours: never a 500, always JSON with a message, and always with the headers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.data.helpers import encoded
from tests.serve.conftest import COLOURS, coloured

PATHS = ["/v1/predict", "/v1/predict/embeddings", "/v1/embed", "/v1/explain", "/v1/explain/embedding", "/v1/model"]
PATHS += ["/health", "/metrics", "/openapi.json", "/", "/v1/predict/../model", "/v1//predict", "/v1/%00", "/%ff/x"]
KINDS = ["application/json", "multipart/form-data; boundary=b", "multipart/form-data", "image/png", "", "text/plain"]
KINDS += [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=" + "x" * 300,
    "application/json; charset=x",
]
NUMBERS = [0, -1, 1e308, 1e-320, "1", None, True, [], {}, "NaN", 10**400, 0.5]
TEXTS = ["red", "", "\x00", "\ud800", "x" * 2000, "../../etc/passwd", "{}", "\u202e", 7]


def damaged(rng: np.random.Generator, content: bytes) -> bytes:
    """The same bytes with a few changed, cut off, or put in twice."""
    data = bytearray(content)
    for _ in range(rng.integers(0, 6)):
        if data:
            data[rng.integers(len(data))] = rng.integers(256)
    cut = int(rng.integers(0, len(data) + 1)) if rng.random() < 0.3 else len(data)
    return bytes(data[:cut]) * (1 + int(rng.random() < 0.1))


def some_json(rng: np.random.Generator) -> bytes:
    row = [float(value) for value in rng.normal(size=16)]
    if rng.random() < 0.6:
        row[rng.integers(16)] = NUMBERS[rng.integers(len(NUMBERS))]  # type: ignore[call-overload]
    if rng.random() < 0.3:
        row = row[: rng.integers(0, 17)]
    text = TEXTS[rng.integers(len(TEXTS))]
    top = NUMBERS[rng.integers(len(NUMBERS))]
    shapes = [{"embeddings": [row]}, {"embedding": row, "against": text, "top": top}, {"embeddings": row}, row, text]
    content = json.dumps(shapes[rng.integers(len(shapes))]).encode()
    return damaged(rng, content) if rng.random() < 0.4 else content


def some_form(rng: np.random.Generator) -> bytes:
    photo = encoded(coloured(list(COLOURS)[rng.integers(3)], int(rng.integers(50))))
    photo = damaged(rng, photo) if rng.random() < 0.5 else photo
    field = [b"photos", b"photo", b"against", b"top", b""][rng.integers(5) if rng.random() < 0.3 else 0]
    name = [b'; filename="a.png"', b"", b'; filename=""', b'; filename="\xff\x00"', b"; filename*=utf-8''%f0"][
        rng.integers(5)
    ]
    part = b'--b\r\nContent-Disposition: form-data; name="' + field + b'"' + name + b"\r\n\r\n" + photo + b"\r\n"
    form = part * int(rng.integers(1, 9)) + b"--b--\r\n"
    return damaged(rng, form) if rng.random() < 0.4 else form


@pytest.mark.parametrize("part", range(4))
def test_no_request_breaks_the_server(client: TestClient, part: int) -> None:
    statuses: dict[int, int] = {}
    for seed in range(part * 150, (part + 1) * 150):
        rng = np.random.default_rng(seed)
        path = PATHS[rng.integers(len(PATHS))] if rng.random() < 0.4 else PATHS[rng.integers(5)]
        kind = KINDS[rng.integers(len(KINDS))] if rng.random() < 0.3 else KINDS["embedding" not in path]
        content = some_json(rng) if "json" in kind else some_form(rng)
        method = "POST" if rng.random() < 0.9 else ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "QUERY"][rng.integers(6)]
        query = ["", "?classes=-1", "?concepts=999999999999999999999", "?classes=%00&x=1", "?top=2"][
            rng.integers(5) if rng.random() < 0.3 else 0
        ]
        answer = client.request(method, path + query, content=content, headers={"Content-Type": kind})
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert answer.status_code in (200, 400, 404, 405, 413, 415, 422), (seed, answer.status_code, answer.text[:500])
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if answer.status_code != 200 and method != "HEAD":
            assert answer.json()["error"], seed
    assert statuses[200] > 3, statuses
    assert statuses[422] > 20, statuses
