"""A training run kept in a folder after every epoch, to be continued bit for bit: safetensors and JSON, never pickle.

The tensors are written under a new name and `progress.json`, which names them, is replaced last: a crash at any moment
leaves the epoch before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ccr.errors import CCRError, FormatError

FORMAT, FORMAT_VERSION = "ccr-checkpoint", 1
PROGRESS = "progress.json"


class Saved(NamedTuple):
    """Arrays by name, and everything else as JSON types."""

    arrays: dict[str, np.ndarray]
    progress: dict[str, Any]


class Checkpoint:
    """The folder of one run; `run` tells runs apart (see `fingerprint`)."""

    def __init__(self, folder: str | os.PathLike[str], run: str) -> None:
        self.folder, self.run = Path(folder), run

    def save(self, number: int, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Keep the state after epoch `number` in place of the one before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        blob = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        tensors = f"epoch-{number:05d}.safetensors"
        header = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": self.run}
        named = {"tensors": tensors, "tensors_sha256": hashlib.sha256(blob).hexdigest()}
        _replace(self.folder / tensors, blob)
        _replace(self.folder / PROGRESS, json.dumps({**header, **named, **progress}, indent=1).encode())
        for old in self.folder.glob("epoch-*.safetensors"):
            if old.name != tensors:
                old.unlink()

    def load(self) -> Saved | None:
        """The last state saved, None where nothing was; another run's and damaged ones are refused."""
        path = self.folder / PROGRESS
        if not path.exists():
            self._check_free()
            return None
        try:
            progress = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(f"{path} is damaged ({error}): delete {self.folder} to start again") from None
        if not isinstance(progress, dict) or progress.get("format") != FORMAT:
            raise FormatError(f"{path} is not of a ccr checkpoint: choose another folder")
        if progress.get("format_version") != FORMAT_VERSION:
            raise FormatError(f"{path} is of another version of ccr: delete {self.folder} to start again")
        if progress.get("run") != self.run:
            raise CCRError(
                f"{self.folder} holds a checkpoint of a run with other data or settings: choose another folder, or "
                "delete it to start again"
            )
        return Saved(self._arrays(progress), progress)

    def _arrays(self, progress: Mapping[str, Any]) -> dict[str, np.ndarray]:
        path = self.folder / Path(str(progress.get("tensors"))).name
        try:
            blob = path.read_bytes()
            if hashlib.sha256(blob).hexdigest() == progress.get("tensors_sha256"):
                return dict(load(blob))
            reason = "its checksum is not the one in progress.json"
        except (OSError, SafetensorError) as error:
            reason = str(error)
        raise FormatError(f"{path} is damaged ({reason}): delete {self.folder} to start again")

    def _check_free(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise CCRError(f"a checkpoint is a folder, but {self.folder} is a file: choose another name")
        ours = ("epoch-", f"{PROGRESS}.tmp")
        if self.folder.is_dir() and any(not entry.name.startswith(ours) for entry in self.folder.iterdir()):
            raise CCRError(
                f"{self.folder} is not empty and not a checkpoint, so it is left alone: choose another folder"
            )


def fingerprint(*parts: Any) -> str:
    """A number that differs whenever an array or a setting differs."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


def _replace(path: Path, data: bytes) -> None:
    aside = path.with_name(f"{path.name}.tmp")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
