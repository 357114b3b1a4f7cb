"""The plan of a store: everything that its numbers depend on, compared before an unfinished run is continued; and
whether the files are still those that it was made of."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ccr.data.datasets import MAX_BYTES, BadImage, Dataset, Sample, content_hash
from ccr.data.store import layout
from ccr.data.store.layout import DESCRIPTION, FORMAT, FORMAT_VERSION, described_lengths, read_columns, read_description
from ccr.data.store.workers import Limits, decode_sample
from ccr.encoders import Encoder
from ccr.errors import CCRError
from ccr.io.files import locked, write_json
from ccr.io.remote import AnyPath, Place


# A store that is begun: its plan, kept in its folder, and one run at a time at work there.
@contextmanager
def prepared(folder: AnyPath, plan: Mapping[str, Any]) -> Iterator[float]:
    """The folder with this plan in it and no other run at work; another plan or foreign files are refused. Gives since
    when a touched file may not be the one embedded (`begun_at`)."""
    progress = folder / layout.PROGRESS
    if folder.exists() and not progress.is_dir() and any(folder.iterdir()):
        raise CCRError(f"{folder} exists and is not a store begun by ccr: choose a new or empty folder")
    if not isinstance(progress, Place):
        progress.mkdir(parents=True, exist_ok=True)
    # An object store has no locks: two runs there do work twice, and write the same.
    busy = f"another run is embedding into {folder}: wait for it or choose another folder"
    with nullcontext() if isinstance(progress, Place) else locked(progress, busy):
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


DTYPES = ("float16", "float32")
#: Since when every file counts as touched.
EVER = -math.inf
_ENTRIES = {
    "encoder": "encoder",
    "dtype": "dtype",
    "batch_size": "batch size",
    "shard_size": "shard size",
    "max_pixels": "pixel limit",
    "max_bytes": "byte limit",
    "samples": "number of images",
    "samples_sha256": "list of images, labels and splits",
}


def make_plan(
    dataset: Dataset, encoder: Encoder, *, dtype: str, batch_size: int, shard_size: int, max_pixels: int, max_bytes: int
) -> dict[str, Any]:
    """Settings that a resumed run must share with the first one, and the origin of the data. If only the origin
    differs, every file is read to see whether the data have merely moved."""
    if dtype not in DTYPES:
        raise CCRError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if shard_size < 1:
        raise CCRError(f"shard_size must be at least 1, got {shard_size}: it is the number of rows of a file")
    return {
        "encoder": encoder.fingerprint,
        "dtype": dtype,
        "batch_size": batch_size,
        "shard_size": shard_size,
        "max_pixels": max_pixels,
        "max_bytes": max_bytes,
        "samples": len(dataset),
        "samples_sha256": _digest(dataset),
        "origin": dict(dataset.origin),
    }


def check_same_plan(folder: AnyPath, plan: object, wanted: Mapping[str, Any]) -> None:
    """An error that names the differences when the store in `folder` was begun with another plan than `wanted`."""
    begun = {"max_bytes": MAX_BYTES, **(plan if isinstance(plan, dict) else {})}  # older plans do not say
    differences = [
        f"{words} ({begun.get(name)!r}, now {wanted[name]!r})"
        for name, words in _ENTRIES.items()
        if begun.get(name) != wanted[name]
    ]
    if differences:
        raise CCRError(
            f"{folder} holds a store made with another {', another '.join(differences)}: "
            "repeat the first call as it was, choose another folder, or delete this one"
        )


def check_same_files(folder: AnyPath, dataset: Dataset, limits: Limits) -> None:
    """An error that names a file which is not what the finished store in `folder` was made of. Only files that were
    touched after its run began are read, all of them if it was made from another place; an object store is believed."""
    description = read_description(folder)
    since = begun_at(folder / DESCRIPTION, description["source"], dataset.origin)
    touched = [] if since == math.inf else [sample for sample in dataset if _is_touched(sample, since)]
    if not touched:
        return
    columns = read_columns(folder, described_lengths(description), ("image_path", "content"))
    known = dict(zip(columns["image_path"], columns["content"], strict=True))
    changed = first_changed(touched, known, since, limits)
    if changed is not None:
        was = "was another file" if changed.key in known else "was left out"
        raise CCRError(
            f"{changed.key!r} {was} when the store {folder} was made from {description['source']['path']}: delete "
            f"{folder} to embed everything again, or choose another folder"
        )


def begun_at(file: AnyPath, origin: object, wanted: Mapping[str, Any]) -> float:
    """Since when a touched file of the data may not be the one embedded: since the time of `file`, which is when the
    run began; ever, if the data came from another `origin` than `wanted` or nobody noted it. An object store shows no
    times that could be compared, and is believed."""
    if origin != dict(wanted):
        return EVER
    return math.inf if isinstance(file, Place) else file.stat().st_mtime


def first_changed(samples: Iterable[Sample], known: Mapping[str, str], since: float, limits: Limits) -> Sample | None:
    """The first sample whose file was touched `since` and is another now: it has not the `known` hash of its content,
    or it was left out then and can be read."""
    for sample in samples:
        if _is_touched(sample, since) and _content(sample, sample.key in known, limits) != known.get(sample.key, ""):
            return sample
    return None


def _is_touched(sample: Sample, since: float) -> bool:
    """Was its file written, moved or copied to where it is then or later? No, if that cannot be seen."""
    if math.isinf(since):
        return since == EVER
    path = getattr(sample.source, "path", None)
    try:
        found = path.stat() if isinstance(path, Path) else None
    except (OSError, ValueError):
        return False
    return found is not None and max(found.st_mtime, found.st_ctime) >= since


def _content(sample: Sample, readable: bool, limits: Limits) -> str:
    """The hash of its content, empty if it is no image; what was `readable` is not decoded to know."""
    if not readable:
        return decode_sample(sample, crop=None, limits=limits).content
    try:
        return content_hash(sample.source.read(limits.bytes))
    except BadImage:
        return ""


def describe(dataset: Dataset, encoder: Encoder, plan: Mapping[str, Any], totals: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `store.json`. Nothing in it depends on when, or in how many runs, the store was made."""
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "encoder": {
            "spec": encoder.name,
            "fingerprint": encoder.fingerprint,
            "dimension": encoder.dimension,
            "preprocessing": encoder.preprocessing,
        },
        "dtype": plan["dtype"],
        "classes": list(dataset.classes),
        **totals,
        "source": dict(dataset.origin),
        "plan": {name: plan[name] for name in _ENTRIES},
    }


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for sample in dataset:
        facts = [sample.key, sample.label, sample.split]
        facts += [] if sample.group is None else [sample.group]  # older plans know no groups
        digest.update(json.dumps(facts).encode() + b"\n")
    return digest.hexdigest()
