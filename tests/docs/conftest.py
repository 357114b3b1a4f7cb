"""One prepared folder for all documents, and a copy of it for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.workspace import copy_workspace, make_workspace, private_cache


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return private_cache(tmp_path_factory.mktemp("docs") / "cache")


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
