"""A store that is begun: its plan, kept in its folder, and one run at a time at work there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ccr.data.store import layout
from ccr.data.store.plan import begun_at, check_same_plan
from ccr.errors import CCRError
from ccr.files import locked, write_json
from ccr.places import AnyPath, Place


@contextmanager
def prepared(folder: AnyPath, plan: Mapping[str, Any]) -> Iterator[float]:
    """The folder with this plan in it and no other run at work; another plan or foreign files are refused. Gives since
    when a touched file may not be the one embedded (`begun_at`)."""
    progress = folder / layout.PROGRESS
    if folder.exists() and not progress.is_dir() and any(folder.iterdir()):
        raise CCRError(f"{folder} exists and is not a store begun by ccr: choose a new or empty folder")
    if not isinstance(progress, Place):
        progress.mkdir(parents=True, exist_ok=True)
    with _one_run(progress):
        file = progress / layout.PLAN
        if not file.is_file():
            write_json(file, plan)
        begun = layout.read_json(file)
        check_same_plan(folder, begun, plan)
        yield begun_at(file, begun.get("origin"), plan["origin"])


def note_plan(folder: AnyPath, plan: Mapping[str, Any]) -> None:
    """Have the plan of a begun store say where the data are now; its time stays that of the first run's begin."""
    file = folder / layout.PROGRESS / layout.PLAN
    if layout.read_json(file) == plan:
        return
    begun = None if isinstance(file, Place) else file.stat()
    write_json(file, plan)
    if begun is not None:
        os.utime(file, ns=(begun.st_atime_ns, begun.st_mtime_ns))


def _one_run(progress: AnyPath) -> AbstractContextManager[None]:
    """One run at a time in the folder of a store's progress. An object store has no locks: two runs there do
    work twice, and write the same."""
    if isinstance(progress, Place):
        return nullcontext()
    return locked(progress, f"another run is embedding into {progress.parent}: wait for it or choose another folder")
