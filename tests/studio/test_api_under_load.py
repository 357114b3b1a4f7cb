"""The API fuzzed, and asked a thousand things at once while a refit runs."""

from __future__ import annotations

import random
import string
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from ccr_studio.work.workbench import Workbench
from tests.studio.helpers import CLASSES, HOSTILE, finish

REQUESTS, AT_ONCE = 1000, 8


def test_a_thousand_requests_while_a_refit_runs(client: TestClient, bench: Workbench) -> None:
    """None fails, and none mixes two models: every photo's numbers are those of the version that it names."""
    names, classes = bench.now().model.names, bench.now().classes
    failures: list[str] = []
    versions: set[str] = set()
    checked = threading.Lock()

    def ask(number: int) -> None:
        path, params, body = asked(random.Random(number), names, classes, len(bench.photos))
        url = f"/api/{path}"
        answer = client.get(url, params=params) if body is None else client.post(url, json=body)
        if answer.status_code != 200:
            failures.append(f"{path} {params}: {answer.status_code} {answer.text[:200]}")
        elif "version" in (found := answer.json()):
            with checked:
                versions.add(found["version"])
            if path.startswith("photos/") and body is None:
                failures.extend(mixed(bench, int(path.split("/")[1]), found))
            elif path == "photos":
                failures.extend(
                    line for photo in found["photos"] for line in disagreeing(bench, photo, found["version"])
                )

    bench.refit("full", {})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(ask, range(REQUESTS // 2)))
        finish(bench)
        bench.refit("head", {})
        list(pool.map(ask, range(REQUESTS // 2, REQUESTS)))
    finish(bench)
    assert not failures, failures[:5]
    assert bench.refits.job is not None
    assert bench.refits.job.state == "done", bench.refits.job.message
    assert len(versions) >= 2


def asked(rng: random.Random, names: Any, classes: Any, photos: int) -> tuple[str, dict[str, Any], Any]:
    """One of the questions that a page asks."""
    kept = [names[0], names[1]]  # a refit may leave any concept out: those are asked about where that is no error
    row = rng.randrange(photos)
    choices: list[tuple[str, dict[str, Any], Any]] = [
        ("state", {}, None),
        ("photos", {"right": rng.choice(["right", "wrong"]), "counts": True, "limit": 20}, None),
        ("photos", {"classes": rng.choice(classes), "sort": "confidence", "limit": 20}, None),
        (f"photos/{row}", {}, None),
        (f"photos/{row}/contrast", {"other": rng.choice(classes)}, None),
        ("mistakes", {"scope": "shown"}, None),
        ("concepts", {}, None),
        ("search", {"words": rng.choice(kept), "limit": 5}, None),
        ("selections", {}, {"rows": [row, (row + 5) % photos]}),
        ("differences", {"other": "0"}, None),
        ("models", {}, None),
        ("effect", {}, None),
        ("refit", {}, None),
    ]
    return rng.choice(choices)


def mixed(bench: Workbench, row: int, found: dict[str, Any]) -> list[str]:
    """What in a photo's answer is not of the version that it names."""
    if "logit" not in found:
        return []
    own = bench.at(found["version"]).explain(row)
    total = found["bias"] + sum(term["contribution"] for term in found["contributions"])
    right = abs(own.logit - found["logit"]) < 1e-9 and abs(total - found["logit"]) < 1e-9
    return [] if right else [f"photo {row} of version {found['version']} is of another"]


def disagreeing(bench: Workbench, photo: dict[str, Any], version: str) -> list[str]:
    own = bench.at(version)
    same = own.classes[own.predicted[photo["row"]]] == photo["predicted"]
    return [] if same else [f"tile {photo['row']} of version {version} is of another"]


HARD: list[Any] = [None, True, -1, 0, 3, 10**30, 1e308, [], [1, 2], [[0, 0], [1, 0], [1, 1]], {}, {"x": 1}]
HARD += ["", "3", "-1", "nan", "inf", "∞", HOSTILE, "a" * 5000, "\x00", "../../etc/passwd", "apple", "word 3", "row"]


@pytest.mark.parametrize("seed", range(3))
def test_no_request_breaks_the_server(client: TestClient, bench: Workbench, seed: int) -> None:
    """Paths, parameters and bodies of the wrong kinds: refused in words, never an error of the server's own."""
    rng = random.Random(seed)
    operations = [
        (method, path, operation)
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
        if path not in ("/api/refit", "/api/exports/report.html", "/api/undo", "/api/redo", "/metrics")
    ]
    for method, path, operation in operations:
        for _ in range(5):
            url, params, body = _hard_request(rng, path, operation)
            answer = client.request(method, url, params=params, json=body)
            assert answer.status_code < 500, (method, url, params, body, answer.text[:300])
            if answer.status_code >= 400:
                assert 400 <= answer.status_code < 500
                assert answer.json()["error"], (method, url)


def _hard_request(rng: random.Random, path: str, operation: dict[str, Any]) -> tuple[str, dict[str, Any], Any]:
    for part in [part for part in path.split("/") if part.startswith("{")]:
        path = path.replace(part, _in_path(rng))
    params = {
        item["name"]: rng.choice([value for value in HARD if not isinstance(value, (list, dict))] + list(CLASSES))
        for item in operation.get("parameters", [])
        if item["in"] == "query" and rng.random() < 0.6
    }
    names = [
        "action",
        "concept",
        "to",
        "factor",
        "class",
        "value",
        "name",
        "shows",
        "lacks",
        "rows",
        "corners",
        "codes",
    ]
    names += ["kind", "fidelity", "embeddings", "embedding", "against", "top", "text"]
    body: Any = {name: rng.choice(HARD) for name in rng.sample(names, 4)} if rng.random() < 0.8 else rng.choice(HARD)
    if isinstance(body, dict) and rng.random() < 0.5:
        body["action"] = rng.choice(["suppress", "scale", "rename", "pin", "set_weight", "zero_weight"])
        body = {
            key: value for key, value in body.items() if key in ("action", "concept", "to", "factor", "class", "value")
        }
    return path, params, body


def _in_path(rng: random.Random) -> str:
    letters = string.ascii_letters + string.digits + "%-_. "
    made = "".join(rng.choice(letters) for _ in range(rng.randrange(1, 30)))
    return rng.choice(["3", "103", "-3", "1e3", "u0", "%00", "%F0%9F", "9" * 40, made.replace("%", "%25"), "%2e%2e%2f"])
