"""One prepared folder for all documents, and a copy of it for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccr.data.assets import cache_folder
from ccr.data.encoders.text_cache import TextCache
from tests.docs.workspace import copy_workspace, lookup_also_in, make_workspace, private_cache, record_texts


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With CCR_RECORD_TEXTS set, texts that documents newly embed are kept for the next run: see workspace.py."""
    record, real = bool(os.environ.get("CCR_RECORD_TEXTS")), cache_folder()
    cache = private_cache(tmp_path_factory.mktemp("docs") / "cache")
    with pytest.MonkeyPatch.context() as patch:
        if record:
            patch.setattr(TextCache, "get", lookup_also_in(real))
        yield cache
    if record:
        record_texts(cache)


@pytest.fixture(scope="session")
def _made(_cache: Path) -> Path:
    folder = _cache.parent / "made"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCR_CACHE", str(_cache))
        make_workspace(folder)
    return folder


@pytest.fixture
def workspace(_made: Path, _cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared folder as the current one."""
    folder = tmp_path / "reader"
    copy_workspace(_made, folder)
    monkeypatch.setenv("CCR_CACHE", str(_cache))
    monkeypatch.chdir(folder)
    return folder
