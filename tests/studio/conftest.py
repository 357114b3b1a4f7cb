"""A store and a model for all tests of the studio, and a client on a fresh session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from ccr_studio.work.workbench import Workbench
from tests.studio.helpers import client_of, fit_model, make_bench, make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    return make_store(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="session")
def model(store: EmbeddingStore) -> ConceptModel:
    return fit_model(store)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thumbnails go to a folder of the tests."""
    monkeypatch.setenv("CCR_CACHE", str(tmp_path_factory.getbasetemp() / "studio-cache"))


@pytest.fixture
def bench(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> Iterator[Workbench]:
    bench = make_bench(store, model, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def client(bench: Workbench) -> TestClient:
    return client_of(bench)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.studio.browsing import opened_browser

    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(store: EmbeddingStore, model: ConceptModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A studio that tests look at and do not change."""
    running = Running(make_bench(store, model, tmp_path_factory.mktemp("shared")))
    yield running
    running.close()


@pytest.fixture
def look(browser: Any, shared: Running) -> Iterator[Any]:
    from tests.studio.browsing import studio_of

    yield from studio_of(browser, shared)


@pytest.fixture
def work(browser: Any, store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> Iterator[Any]:
    """A window on a studio of the test's own."""
    from tests.studio.browsing import studio_of

    running = Running(make_bench(store, model, tmp_path))
    yield from studio_of(browser, running)
    running.close()
