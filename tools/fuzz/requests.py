"""Requests to a service and a studio: generated from their OpenAPI, then damaged; or bytes that are hardly HTTP. Each
must be answered, or refused in JSON."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import threading
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.testclient import TestClient

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.layout import Layout
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import RequestLimits
from ccr_studio.service.runner import listen, server_of
from ccr_studio.service.service import Served, Service
from ccr_studio.serving import NOBODY, POLICY, studio_app
from ccr_studio.work.workbench import Workbench
from tools.fuzz.mutate import VALUES, damaged_bytes, damaged_json
from tools.fuzz.seeds import SmallEncoder

ADDRESS = "http://127.0.0.1"
#: Words that a route may know, and words that none should.
WORDS: tuple[str, ...] = (
    "concept 0", "concept 3", "class 0", "class 1", "opened", "previous", "0", "1", "3", "train", "test", "u0", "mine",
    "saved:mine", "", " ", "\x1b[2J", "\u200b", "../x", "a" * 300, "=1+1", "<b>", "é", "nan", "-1", "🍎",
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"},
    {"Content-Type": "text/plain"}, {"Cookie": "a=b; ccr-token=\xff"}, {"Transfer-Encoding": "chunked"},
    {"Content-Type": ""}, {"Content-Type": "application/json; charset=x"}, {"Content-Type": "multipart/form-data"},
    {"Content-Type": "multipart/form-data; boundary=" + "x" * 300}, {"Content-Type": "image/png"},
    {"Content-Type": "application/x-www-form-urlencoded"},
)  # fmt: skip
#: Methods that a path may not have, and paths that nothing has.
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "QUERY")
PATHS = ("/", "/openapi.json", "/v1/predict/../model", "/v1//predict", "/v1/%00", "/%ff/x", "/static/../x", "//x")
_IN_PATH = re.compile(r"\{(\w+)\}")


class Operation(NamedTuple):
    """A path of the API with one of its methods."""

    method: str
    path: str
    described: Mapping[str, Any]


class Broken(logging.Handler):
    """What a server logs of its own failures."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.stories: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.stories.append(self.format(record))


class Servers:
    """A service and three studios on one store, one of which only shows and one of which takes answers alone; opened
    when they are first asked."""

    def __init__(self, store: Path, folder: Path, images: list[bytes]) -> None:
        self.store, self.folder, self.images = store, folder, images
        self.log = Broken()
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    @cached_property
    def model(self) -> ConceptModel:
        """Fitted on the store, so that edits and refits of it mean something."""
        texts = [f"concept {number}" for number in range(8)]
        concepts = Concepts(texts, SmallEncoder().embed_texts(texts))
        settings: dict[str, Any] = {"coder": HardThreshold(length=3), "max_iter": 2, "random_state": 0}
        return ConceptClassifier(concepts, **settings).fit(EmbeddingStore.open(self.store)).model_

    @cached_property
    def service(self) -> Api:
        served = Served("fuzzed", self.model, SmallEncoder())
        limits = RequestLimits(request_bytes=300_000, json_bytes=200_000, pixels=1_000_000, seconds=60)
        app = create_app(Service(lambda: served, limits=limits), access=access_for("127.0.0.1", None))
        return Api(self._open.enter_context(TestClient(app, base_url=ADDRESS)), self.images)

    @cached_property
    def studio(self) -> Api:
        return Api(self._studio("studio", read_only=False), self.images)

    @cached_property
    def shown(self) -> Api:
        """The studio that only shows; its folder must not come to be."""
        return Api(self._studio("shown", read_only=True), self.images)

    @cached_property
    def reviewed(self) -> Api:
        """The studio that takes answers of reviewers, and changes nothing else."""
        return Api(self._studio("reviewed", read_only=True, decides=True), self.images)

    @cached_property
    def address(self) -> tuple[str, int]:
        """Of a server on a port of its own."""
        served = Served("fuzzed", self.model, SmallEncoder())
        limits = RequestLimits(request_bytes=300_000, seconds=5)
        listening = listen("127.0.0.1", 0)
        app = create_app(Service(lambda: served), access=access_for("127.0.0.1", None))
        server = server_of(app, limits, farewell=1)
        logging.getLogger("uvicorn.error").addHandler(self.log)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(20)

        self._open.callback(stop)
        host, port = listening.getsockname()[:2]
        return host, port

    def _studio(self, name: str, *, read_only: bool, decides: bool = False) -> TestClient:
        bench = self.bench(self.folder / name / "session", self.model, read_only=read_only, decides=decides)
        bench.start()
        self._open.callback(bench.close)
        return self._open.enter_context(client_of(bench))

    def bench(self, folder: Path, model: ConceptModel | None, **options: Any) -> Workbench:
        """A workbench on the session in a folder, or on a new one with this model."""
        bench = Workbench(
            EmbeddingStore.open(self.store),
            model,
            folder=folder,
            models=folder.parent / "models",
            load_encoder=SmallEncoder,
            **options,
        )
        bench.words.start()  # whoever asks for the encoder waits for it
        bench.layout = Layout(bench.photos, folder.parent, method="pca", keep=not bench.read_only)  # UMAP compiles
        return bench

    @cached_property
    def session(self) -> Path:
        """A session with two edits, a lesson, a selection and a correction."""
        folder = self.folder / "worked on" / "session"
        with closing(self.bench(folder, self.model)) as bench:
            bench.edit("suppress", {"concept": self.model.names[0]})
            bench.edit("rename", {"concept": self.model.names[1], "to": "another name"})
            bench.teach("taught", [0, 1, 2], [3, 4, 5])
            bench.selections.add([0, 1, 2])
            bench.correct(int(bench.photos.training[0]), "leave out", "yes", by="me")
        return folder


def client_of(bench: Workbench) -> TestClient:
    """A client of the studio on a workbench, which its end closes."""
    return TestClient(studio_app(bench, access=access_for("127.0.0.1", None, policy=POLICY + NOBODY)), base_url=ADDRESS)


class Api:
    """A client and the operations that its server describes."""

    def __init__(self, client: TestClient, images: list[bytes]) -> None:
        self.client, self.images = client, images
        described = client.get("/openapi.json").json()
        self._schemas = described["components"]["schemas"]
        self.operations = [
            Operation(method, path, operation)
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
        ]

    def ask(self, rng: random.Random, operation: Operation | None = None) -> None:
        """One request to one of the operations, valid or damaged, and a look at what came of it."""
        method, path, described = operation or rng.choice(self.operations)
        path = _IN_PATH.sub(lambda _: quote(rng.choice(WORDS) or "0", safe=""), path)
        if operation is None and rng.random() < 0.1:
            method, path = rng.choice(METHODS), rng.choice((path, *PATHS))
        query = []
        for parameter in described.get("parameters", ()):
            if parameter["in"] == "query" and (parameter.get("required") or rng.random() < 0.4):
                value = self._value(parameter["schema"], rng)
                query += [(parameter["name"], item) for item in (value if isinstance(value, list) else [value])]
        if rng.random() < 0.1:
            query.append((rng.choice(WORDS), rng.choice(WORDS)))
        options: dict[str, Any] = {"params": [(str(name), str(value)) for name, value in query]} if query else {}
        options |= self._body(described, rng, path)
        headers = {**options.pop("headers", {}), **rng.choice(HEADERS)}
        self.check(self.client.request(method, path, headers=_latin(headers), **options))

    def upload(self, rng: random.Random) -> None:
        """A damaged photo, to be predicted or dropped on the page."""
        content = damaged_bytes(rng.choice(self.images), rng)
        if rng.random() < 0.5 and any(one.path == "/api/uploads" for one in self.operations):
            answer = self.client.post(
                "/api/uploads", content=content, headers={"X-File-Name": quote(rng.choice(WORDS))}
            )
        else:
            path, field = rng.choice((("/v1/predict", "photos"), ("/v1/embed", "photos"), ("/v1/explain", "photo")))
            answer = self.client.post(path, files=[(field, (rng.choice(WORDS) or "x", content))])
        self.check(answer)

    def check(self, answer: Any) -> None:
        """An answer, or a refusal in words that says when to come back."""
        if answer.status_code >= 400:
            assert answer.request.method == "HEAD" or answer.json()["error"], answer.text
            assert answer.status_code < 500 or (answer.status_code == 503 and "Retry-After" in answer.headers)
        elif answer.headers.get("content-type", "").startswith("application/json") and answer.request.method != "HEAD":
            json.loads(answer.content, parse_constant=_no_constant)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"

    def _body(self, described: Mapping[str, Any], rng: random.Random, path: str) -> dict[str, Any]:
        content = described.get("requestBody", {}).get("content", {})
        if path == "/api/uploads":
            return {"content": damaged_bytes(rng.choice(self.images), rng)}
        if "multipart/form-data" in content:
            fields = self._schemas[content["multipart/form-data"]["schema"]["$ref"].rpartition("/")[2]]["properties"]
            image = rng.choice(self.images)
            image = damaged_bytes(image, rng) if rng.random() < 0.5 else image
            name = "photos" if "photos" in fields else "photo"
            data = {key: str(self._value(fields[key], rng)) for key in fields if key != name and rng.random() < 0.5}
            return {"files": [(name, ("x.png", image))] * rng.choice((1, 1, 2)), "data": data}
        if "application/json" not in content:
            return {"json": rng.choice(VALUES[:9])} if rng.random() < 0.1 else {}
        value = self._value(content["application/json"]["schema"], rng)
        value = damaged_json(value, rng) if rng.random() < 0.4 else value
        text = json.dumps(value).encode()
        text = damaged_bytes(text, rng) if rng.random() < 0.1 else text
        return {"content": text, "headers": {"Content-Type": "application/json"}}

    def _value(self, schema: Mapping[str, Any], rng: random.Random) -> Any:
        """A value that the schema describes, or nearly."""
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rpartition("/")[2]], rng)
        if "enum" in schema or "const" in schema:
            return rng.choice(schema.get("enum") or [schema["const"]])
        if "anyOf" in schema:
            return self._value(rng.choice(schema["anyOf"]), rng)
        kind = schema.get("type")
        if kind == "object":
            given, needed = schema.get("properties", {}), schema.get("required", ())
            chosen = [name for name in given if name in needed or rng.random() < 0.5]
            made = {name: self._value(given[name], rng) for name in chosen}
            more = schema.get("additionalProperties")
            return {rng.choice(WORDS): self._value(more, rng) for _ in range(2)} if isinstance(more, Mapping) else made
        if kind == "array":
            if "prefixItems" in schema:
                return [self._value(item, rng) for item in schema["prefixItems"]]
            least = min(int(schema.get("minItems", 0)), 4)
            size = 16 if rng.random() < 0.3 else least + rng.randrange(4)  # 16: an embedding's dimension
            return [self._value(schema.get("items", {}), rng) for _ in range(size)]
        if kind == "integer":
            return rng.choice((0, 1, 3, 11, 160, -1, 10**12))
        if kind == "number":
            return rng.choice((0.0, 0.5, 1.0, -2.5, 1e308, 1e-300))
        if kind == "boolean":
            return rng.random() < 0.5
        return rng.choice(WORDS) if kind == "string" else rng.choice(VALUES)


def one_connection(servers: Servers, rng: random.Random) -> None:
    """Bytes that are nearly a request, after which the server still answers others."""
    body = b'{"embeddings": [[' + b",".join([b"1.0"] * 16) + b"]]}"
    head = b"POST /v1/predict/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    whole = rng.choice(
        (
            head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
            head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n",
            head + b"Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
            b"GET /v1/model?x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2,
            b"GET /health HTTP/1.0\r\n\r\n",
        )
    )
    with socket.create_connection(servers.address, timeout=30) as connection:
        connection.sendall(damaged_bytes(whole, rng) if rng.random() < 0.8 else whole)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert not servers.log.stories, servers.log.stories.pop()
    for line in re.findall(rb"^HTTP/1\.[01] (\d{3})", answer):
        assert int(line) < 500 or int(line) == 503, answer[:500]
    with socket.create_connection(servers.address, timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200"), "it does not answer any more"


def _latin(headers: Mapping[str, str]) -> dict[str, bytes]:
    return {name: value.encode("latin-1") for name, value in headers.items()}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
