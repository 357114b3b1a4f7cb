"""Mutations: of bytes, of JSON values, of arrays. The same generator gives the same damage."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

#: Values that stand where others are expected.
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, 10**400, 1e308, -0.5, "", "x", "\x1b[2J", "../../etc/passwd", [], [[]], [None], {},
    {"type": "os.system"}, "NaN", "1" * 5000, ["a", "a"], {"a": {"a": {}}},
)  # fmt: skip


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with bits flipped, a part cut out, repeated or overwritten, or the end missing."""
    mutable = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        place, size = rng.randrange(len(mutable) + 1), rng.choice((1, 2, 4, 8, 64))
        kind = rng.randrange(5)
        if kind == 0 and mutable:
            mutable[place % len(mutable)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutable[place : place + size] = rng.randbytes(size)
        elif kind == 2:
            del mutable[place : place + size]
        elif kind == 3:
            mutable[place:place] = mutable[place : place + size]
        elif rng.random() < 0.3:
            del mutable[place:]
    return bytes(mutable)


def damaged_json(content: Any, rng: random.Random) -> Any:
    """The value with one of its parts, at any depth, replaced, removed or added."""
    if isinstance(content, dict) and content and rng.random() < 0.9:
        changed, key = dict(content), rng.choice(sorted(content))
        if rng.random() < 0.15:
            del changed[key]
        else:
            changed[key] = damaged_json(content[key], rng)
        return changed
    if isinstance(content, list) and content and rng.random() < 0.7:
        listed, place = list(content), rng.randrange(len(content))
        listed[place : place + 1] = rng.choice(([], [damaged_json(content[place], rng)], [content[place]] * 2))
        return listed
    return rng.choice(VALUES)


def json_text(content: Any, rng: random.Random) -> str:
    """The JSON of a damaged value, now and then nested deeper than a parser can go, or with numbers that are none."""
    if rng.random() < 0.02:
        return "[" * 100_000
    text = json.dumps(damaged_json(content, rng))
    return text.replace("1", "NaN", 1) if rng.random() < 0.03 else text


def damaged_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """The array with another shape or type, or with numbers that are none."""
    kind = rng.randrange(7)
    if kind == 0:
        return array.reshape(-1)
    if kind == 1:
        return array[: len(array) // 2]
    if kind == 2:
        return np.concatenate([array, array])
    if kind == 3:
        return array.astype(rng.choice((np.float64, np.float16, np.int32, np.uint8, np.bool_)))
    if kind == 4:
        return array[..., None]
    spoilt = np.array(array)
    if kind == 5:
        values = (np.nan, np.inf, -np.inf, 1e30) if spoilt.dtype.kind == "f" else (-1, 0, 1, 100)
        if spoilt.size:
            spoilt.reshape(-1)[rng.randrange(spoilt.size)] = np.array(rng.choice(values)).astype(spoilt.dtype)
        return spoilt
    return ~spoilt if spoilt.dtype.kind in "ub" else spoilt * rng.choice((0, -1, 1e30))


def damage_file(folder: Path, rng: random.Random) -> None:
    """Damage the bytes of one file of a folder, or remove it."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    if rng.random() < 0.05:
        path.unlink()
    else:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
