"""The plan of a store: everything that its numbers depend on, compared before an unfinished run is continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ccr.data.datasets import MAX_BYTES, Dataset
from ccr.data.encoders import Encoder
from ccr.data.store.layout import FORMAT, FORMAT_VERSION
from ccr.errors import CCRError
from ccr.places import AnyPath

DTYPES = ("float16", "float32")
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
    """What two runs must agree on to write one store."""
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
        "plan": dict(plan),
    }


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256()
    for sample in dataset:
        digest.update(json.dumps([sample.key, sample.label, sample.split]).encode() + b"\n")
    return digest.hexdigest()
