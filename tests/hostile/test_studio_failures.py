"""The studio on a disk that fills up or fails, killed in the middle of refits; readers of a model that is replaced."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from ccr.data.store import EmbeddingStore
from ccr.edit import EditSession
from ccr.io import files
from ccr.io.files import read_regular
from ccr.model import ConceptModel
from ccr_studio.work.session import StudioSession
from ccr_studio.work.workbench import Workbench
from tests.serve.conftest import small_model
from tests.serve.test_runner import started
from tests.studio.helpers import (
    ask,
    children_end,
    children_of,
    client_of,
    finish,
    fit_model,
    make_bench,
    make_store,
    start,
    tell,
)

if os.name != "posix":
    pytest.skip("signals and renames of POSIX", allow_module_level=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    return make_store(tmp_path_factory.mktemp("failing"))


@pytest.fixture(scope="module")
def model(store: EmbeddingStore) -> ConceptModel:
    return fit_model(store)


@pytest.fixture
def bench(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    opened = make_bench(store, model, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def client(bench: Workbench) -> TestClient:
    return client_of(bench)


class Failing:
    """A call of the system that fails from its k-th use on."""

    def __init__(self, real: Any, first: int, code: int) -> None:
        self.real, self.left, self.code, self.used = real, first, code, 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.used += 1
        if self.left <= 0:
            raise OSError(self.code, os.strerror(self.code))
        self.left -= 1
        return self.real(*arguments, **options)


#: What changes the session's or a model's folder.
CHANGES = (
    ("edits", {"action": "scale", "concept": "word 3", "factor": 0.5}),
    ("save", {"name": "mine"}),
    ("undo", {}),
    ("selections", {"rows": [1, 2, 3]}),
)


@pytest.mark.parametrize(("name", "code"), [("fsync", errno.ENOSPC), ("replace", errno.EIO), ("rename", errno.EIO)])
@pytest.mark.parametrize("first", [0, 1, 2, 4])
def test_a_disk_that_fails_is_said_in_words_and_loses_no_step(
    client: TestClient, bench: Workbench, store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch,
    name: str, code: int, first: int,
) -> None:  # fmt: skip
    """Full, or its renames fail: the studio goes on with what stands on disk, and the same call works afterwards."""
    concept = bench.now().model.names[0]
    assert client.post("/api/edits", json={"action": "pin", "concept": concept}).status_code == 200
    for path, body in CHANGES:
        body = {**body, "concept": concept} if "concept" in body else body
        before = client.get("/api/state").json()
        with monkeypatch.context() as patch:
            patch.setattr(files.os, name, Failing(getattr(os, name), first, code))
            answer = client.post(f"/api/{path}", json=body)
        if answer.status_code != 200:
            assert answer.status_code == 422, answer.text
            assert "cannot be written" in answer.json()["error"]
            after = client.get("/api/state").json()
            assert (after["version"], after["position"]) == (before["version"], before["position"])
        read = StudioSession.open(bench.folder, None, read_only=True)[0]
        assert str(read.current.id) == client.get("/api/state").json()["version"]
    assert client.post("/api/edits", json={"action": "scale", "concept": concept, "factor": 2.0}).status_code == 200
    left = list(bench.models.glob(f"{files.ASIDE}*")) if bench.models.exists() else []
    assert not left


def test_a_refit_on_a_full_disk_fails_in_words(client: TestClient, bench: Workbench) -> None:
    folder = bench.refits.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in its place")  # what cannot be written, whatever the user's rights
    answer = client.post("/api/refit", json={"kind": "head"})
    assert answer.status_code == 422
    assert "cannot be written" in answer.json()["error"]
    folder.unlink()
    assert client.get("/api/state").json()["job"] is None
    assert client.post("/api/refit", json={"kind": "head"}).status_code == 200
    finish(bench)
    assert bench.refits.job is not None
    assert bench.refits.job.state == "done", bench.refits.job.message


@pytest.mark.parametrize("wait", [0.0, 0.4, 1.5])
def test_the_process_that_refits_may_be_killed_at_any_moment(bench: Workbench, wait: float) -> None:
    version = bench.now().version
    job = bench.refit("full", {})
    time.sleep(wait)
    worker = bench.refits._worker
    assert worker is not None
    worker.kill()
    finish(bench)
    if job.state == "done":  # it had finished already
        return
    assert job.state == "failed"
    assert "try again" in job.message
    assert bench.now().version == version
    bench.refit("head", {})
    finish(bench)
    assert bench.refits.job is not None
    assert bench.refits.job.state == "done", bench.refits.job.message


@pytest.mark.parametrize("wait", [0.1, 1.0, 2.5])
def test_a_studio_killed_in_the_middle_of_a_refit_opens_where_it_was(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path, wait: float
) -> None:
    model.save(tmp_path / "model")
    command = (str(store.path), str(tmp_path / "model"), "--session", str(tmp_path / "sessions"))
    process, said = start(*command)
    children = children_of(process)
    tell(said["url"], "api/edits", {"action": "suppress", "concept": model.names[0]})
    tell(said["url"], "api/refit", {"kind": "full"})
    time.sleep(wait)
    process.kill()
    process.wait(60)
    children_end(children)
    again, said = start(*command)
    try:
        state = json.loads(ask(said["url"], "api/state"))
        actions = [step["edit"]["action"] for step in state["steps"]]
        assert actions in (["open", "suppress"], ["open", "suppress", "fit"])
        assert state["position"] == len(actions) - 1
        assert tell(said["url"], "api/undo", {})["position"] == len(actions) - 2
    finally:
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == 0


def test_readers_see_one_whole_model_while_it_is_replaced(model: ConceptModel, tmp_path: Path) -> None:
    """Loaded over and over while another thread saves two models in turn: always one of the two."""
    other = EditSession(model).scale(model.names[0], 0.5).model()
    sums = {float(np.abs(one.head.coef).sum()) for one in (model, other)}
    assert len(sums) == 2
    model.save(tmp_path / "model")
    done = threading.Event()

    def replace() -> None:
        for number in range(40):
            (other, model)[number % 2].save(tmp_path / "model")
        done.set()

    writer, seen, loads = threading.Thread(target=replace), set(), 0
    writer.start()
    while not done.is_set() or loads < 5:
        seen.add(float(np.abs(ConceptModel.load(tmp_path / "model").head.coef).sum()))
        loads += 1
    writer.join()
    assert seen <= sums


def test_a_model_replaced_twice_between_its_two_files_is_read_again(
    model: ConceptModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model comes and goes between the two reads: the configuration is as before, the tensors are another's."""
    other = EditSession(model).scale(model.names[0], 0.5).model()
    model.save(tmp_path / "model")
    turns = [other]

    def read(path: Path, most: int) -> bytes:
        if not turns:
            return read_regular(path, most)
        turns.pop().save(tmp_path / "model")
        blob = read_regular(path, most)
        model.save(tmp_path / "model")
        return blob

    monkeypatch.setattr("ccr.io.format.read_regular", read)
    assert np.array_equal(ConceptModel.load(tmp_path / "model").head.coef, model.head.coef)
    assert not turns


def test_a_served_model_that_is_replaced_answers_as_it_was_loaded(tmp_path: Path) -> None:
    """The folder is read once: a running service never mixes two models, whatever becomes of the folder."""
    model = small_model()
    model.save(tmp_path / "model")
    child, said = started(tmp_path / "model")
    body = {"embeddings": np.random.default_rng(0).standard_normal((3, model.dimension)).tolist()}
    url = f"{said['url']}/v1/predict/embeddings"
    try:
        before = httpx.post(url, json=body, timeout=60).json()
        EditSession(model).scale(model.names[0], 0.5).model().save(tmp_path / "model")
        assert httpx.post(url, json=body, timeout=60).json() == before
        for path in (tmp_path / "model").iterdir():
            path.unlink()
        assert httpx.post(url, json=body, timeout=60).json() == before
    finally:
        child.terminate()
        child.communicate(timeout=60)
