"""The state of the session as the API tells it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ccr.metrics import wilson_interval
from ccr_studio.api.schemas import bench as schemas
from ccr_studio.edits import plain_entry
from ccr_studio.refits import Job
from ccr_studio.settings import settings_of
from ccr_studio.workbench import Workbench, step_words


def state_of(bench: Workbench) -> schemas.State:
    """Where the session stands."""
    seen, _, session = bench.snapshot()
    photos, rows = bench.photos, bench.photos.validation
    known = rows[seen.truth[rows] >= 0]
    right = int(seen.right[known].sum())
    counts = np.bincount(photos.split, minlength=len(photos.splits)).tolist()
    steps = [
        schemas.StepInfo(id=str(step.id), words=step_words(step), edit=plain_entry(step.edit), at=step.at)
        for step in session.steps
    ]
    return schemas.State(
        version=seen.version,
        title=bench.title,
        store=str(photos.store.path),
        photos=len(photos),
        pictures=bench.thumbnails.digest,
        classes=list(seen.classes),
        splits={name or "none": count for name, count in zip(photos.splits, counts, strict=True)},
        training=len(photos.training),
        validation=len(rows),
        test=len(photos.test),
        held_out=not len(photos.of_split("val")),
        concepts=len(seen.model.concepts),
        threshold=seen.threshold(),
        accuracy=right / len(known) if len(known) else None,
        interval=list(wilson_interval(right, len(known))) if len(known) else None,
        length=seen.codes.nnz / max(len(photos), 1),
        settings=settings_of(seen.model),
        encoder=bench.words.status,
        read_only=bench.read_only,
        decides=bench.decides,
        signed=seen.model.is_signed,
        steps=steps,
        position=session.position,
        looks=session.looks,
        can_undo=session.can_undo,
        can_redo=session.can_redo,
        job=job_info(bench.refits.job),
        flattered=session.flattered(),
        where=bench.places.available,
    )


def job_info(job: Job | None) -> schemas.JobInfo | None:
    """A refit as the API tells it."""
    if job is None:
        return None
    curve: list[Any] = list(job.curve)
    seconds = time.monotonic() - job.started if job.seconds is None else job.seconds
    return schemas.JobInfo(
        id=job.id,
        kind=job.kind,
        settings=job.settings,
        state=job.state,
        epochs=job.epochs,
        curve=curve,
        message=job.message,
        version=job.version,
        seconds=seconds,
    )
