"""A hub and an object store that answer wrongly: errors, other bytes, other lengths, hostile headers, now and then the
truth. Whatever they do, a read ends with what was there or with an error in words."""

from __future__ import annotations

import os
import random
import shutil
import time
import urllib.request
import warnings
from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from tests.data.failing_proxy import CREDENTIALS, Proxy, upload
from tests.io.hub_server import running_hub

import ccr.io.remote
from ccr.data.datasets import open_dataset
from ccr.data.datasets.sources import BadImage
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.io.remote import as_place
from ccr.model import ConceptModel
from tools.fuzz.mutate import damaged_bytes
from tools.fuzz.seeds import SmallEncoder

#: The headers that a hub's library makes paths and lengths of.
HOSTILE_HEADERS: tuple[tuple[str, str], ...] = (
    ("ETag", '"../../../escaped"'), ("ETag", ""), ("ETag", '"' + "x" * 300 + '"'), ("ETag", "/escaped"),
    ("X-Repo-Commit", "../../../../escaped"), ("X-Repo-Commit", ""), ("X-Repo-Commit", "d" * 40),
    ("X-Linked-Size", "-1"), ("X-Linked-Size", "x"), ("X-Linked-Size", "1" * 30), ("X-Linked-Etag", "../escaped"),
    ("Location", "/api/models/me/model"), ("X-Error-Code", "\t"), ("X-Error-Message", "x" * 5000),
)  # fmt: skip
LENGTHS = ("0", "1", "-1", "x", "99999999999999999999")


class Remote:
    """A hub with one model, and an object store with photos, a store and a model; opened when they are first asked."""

    def __init__(self, photos: Path, shards: Path, store: Path, model: Path) -> None:
        self.parts = {"photos": photos, "shards": shards, "store": store, "model": model}
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    @cached_property
    def hub(self) -> Any:
        hub = self._open.enter_context(running_hub())
        hub.repositories["me/model"] = {path.name: path.read_bytes() for path in self.parts["model"].iterdir()}
        return hub

    @cached_property
    def proxy(self) -> Proxy:
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self._open.callback(server.stop)
        proxy = Proxy(server.get_host_and_port())
        self._open.callback(proxy.shutdown)
        host, port = proxy.server_address
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT"))
        self._open.callback(ccr.io.remote.filesystem.cache_clear)
        with self._credentials(proxy):
            ccr.io.remote.filesystem.cache_clear()
            for name, folder in self.parts.items():
                upload(folder, as_place(f"s3://bucket/{name}"))
        return proxy

    def _credentials(self, proxy: Proxy) -> ExitStack:
        host, port = proxy.server_address
        stack = ExitStack()
        stack.enter_context(mock.patch.dict(os.environ, {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}))
        stack.enter_context(mock.patch.multiple(ccr.io.remote, PAUSE=0.001, AMAZON_TRIES=1))
        return stack

    def one_hub(self, rng: random.Random, folder: Path, X: np.ndarray) -> None:
        """Fetch the model from a hub that lies; nothing may be written but into the hub's cache."""
        awake = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
        seed, share, asked = rng.random(), rng.choice((0.2, 0.5, 1.0)), Counter[str]()

        def spoil(
            command: str, path: str, status: int, content: bytes, headers: dict[str, str]
        ) -> tuple[int, bytes, dict[str, str]]:
            asked[command + path] += 1
            dice = random.Random(f"{seed} {command} {path} {asked[command + path]}")
            if dice.random() > share:
                return status, content, headers
            kind = dice.randrange(5)
            if kind == 0:
                return dice.choice((200, 204, 206, 302, 401, 403, 404, 416, 429, 500, 503)), content, headers
            if kind == 1:
                return status, damaged_bytes(content, dice), headers
            if kind == 2:
                return status, content, {**headers, "Content-Length": dice.choice(LENGTHS)}
            if kind == 3:
                return status, content[: len(content) // 2], {**headers, "Content-Length": str(len(content))}
            return status, content, {**headers, **dict([dice.choice(HOSTILE_HEADERS)])}

        environment = {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": "hf_something", "NO_PROXY": "127.0.0.1"}
        self.hub.spoil = spoil
        try:
            with (
                warnings.catch_warnings(),
                mock.patch.dict(os.environ, environment),
                mock.patch("huggingface_hub.file_download.time", awake),
                mock.patch("huggingface_hub.utils._http.time", awake),
            ):
                warnings.simplefilter("ignore")  # a length that fits on no disk
                model = ConceptModel.from_pretrained("me/model", cache_dir=folder / "a" / "b" / "cache")
                assert np.isfinite(model.predict_proba(X)).all()
        finally:
            self.hub.spoil = None
            cache = folder / "a" / "b" / "cache"
            escaped = [path for path in folder.rglob("*") if path.is_file() and cache not in path.parents]
            assert not escaped, f"written outside of the cache: {escaped}"
            shutil.rmtree(folder, ignore_errors=True)

    def one_object(self, rng: random.Random, folder: Path, X: np.ndarray) -> None:
        """Read data, a store or a model from an object store whose network fails or whose bytes are damaged."""
        proxy, seed, asked = self.proxy, rng.random(), Counter[str]()
        share, damaged = rng.choice((0.1, 0.3, 0.8)), rng.random() < 0.4
        faults = ("503", "503", "403", "cut", "cut", "cut", *(["damaged"] * 6 if damaged else ()))

        def plan(method: str, path: str) -> Any:
            asked[method + path] += 1
            dice = random.Random(f"{seed} {method} {path} {asked[method + path]}")
            if method not in ("GET", "HEAD") or dice.random() > share:
                return None
            fault = dice.choice(faults)
            return fault if fault != "damaged" else lambda data: damaged_bytes(data, dice)

        kind = rng.choice(("photos", "shards", "store", "model", "embedded"))
        proxy.plan = plan
        proxy.seen.clear()
        try:
            with self._credentials(proxy):
                self._read(kind, f"s3://bucket/{kind}", folder, X, damaged=damaged)
        finally:
            proxy.plan = lambda method, path: None

    def _read(self, kind: str, url: str, folder: Path, X: np.ndarray, *, damaged: bool) -> None:
        if kind in ("photos", "shards"):
            whole = [sample.source.read() for sample in open_dataset(self.parts[kind])]
            for sample, content in zip(open_dataset(url), whole, strict=not damaged):
                try:
                    sample.image(max_pixels=1_000_000)
                except BadImage:
                    assert damaged, "an image that cannot be fetched now is not a bad one"
                assert damaged or sample.source.read() == content, "other bytes"
        elif kind == "store":
            store, here = EmbeddingStore.open(url), EmbeddingStore.open(self.parts["store"])
            _ = store.y, store.splits, store.paths, store.encoder
            rows = np.asarray(store)
            assert damaged or np.array_equal(rows, np.asarray(here)), "other rows"
        elif kind == "model":
            ConceptModel.load(url).predict_proba(X)
        else:
            out = folder / "store"
            done = embed_dataset(open_dataset("s3://bucket/photos"), SmallEncoder(), out, workers=0, batch_size=2)
            assert damaged or not done.skipped, "an image that cannot be fetched now is not a bad one"
