"""A training run kept in a folder after every epoch, to be continued bit for bit: safetensors and JSON, never pickle.

The tensors are written under a new name and `progress.json`, which names them, is replaced last: a crash at any moment
leaves the epoch before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from ccr.errors import CCRError, FormatError
from ccr.io.files import ASIDE, MOST_TENSOR_BYTES, read_object, read_regular, understood, write_bytes
from ccr.io.remote import Place, as_place
from ccr.refine.measure import Saved

FORMAT, FORMAT_VERSION = "ccr-checkpoint", 1
PROGRESS, SEED = "progress.json", "seed.json"


class CheckpointFolder:
    """The folder of one run, or the URL of one, a `ccr.refine.Checkpoint`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = as_place(folder)

    def part(self, name: str) -> CheckpointFolder:
        """That of a part of the run, in a folder below."""
        return CheckpointFolder(self.folder / name)

    def seed(self, fresh: int) -> int:
        """The seed of a run that was given none: the one that the run here began with, or the fresh one, now kept."""
        path = self.folder / SEED
        if path.exists():
            kept = read_object(path, "be the JSON of a seed", f"delete {self.folder} to start again")
            with understood(path, "hold a seed", f"delete {self.folder} to start again"):
                return int(kept["seed"])
        if not (self.folder / PROGRESS).exists():
            self._check_free()
            write_bytes(path, json.dumps({"seed": fresh}).encode())
        return fresh

    def save(self, run: str, number: int, saved: Saved) -> None:
        """Keep the state after epoch `number` in place of the one before."""
        blob = save({name: np.ascontiguousarray(array) for name, array in saved.arrays.items()})
        tensors = f"epoch-{number:05d}.safetensors"
        header = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": run}
        named = {"tensors": tensors, "tensors_sha256": hashlib.sha256(blob).hexdigest()}
        write_bytes(self.folder / tensors, blob)
        write_bytes(self.folder / PROGRESS, json.dumps({**header, **named, **saved.values}, indent=1).encode())
        names = [entry.name for entry in self.folder.iterdir()]
        for old in names:
            if old.startswith("epoch-") and old != tensors:
                (self.folder / old).unlink()

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        if isinstance(self.folder, Place):
            self.folder.remove_below()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, run: str) -> Saved | None:
        """The last state saved, None where nothing was; another run's and damaged ones are refused."""
        path = self.folder / PROGRESS
        if not path.exists():
            self._check_free()
            return None
        progress = read_object(path, "be the JSON of a checkpoint", f"delete {self.folder} to start again")
        if progress.get("format") != FORMAT:
            raise FormatError(f"{path} is not of a ccr checkpoint: choose another folder")
        if progress.get("format_version") != FORMAT_VERSION:
            raise FormatError(f"{path} is of another version of ccr: delete {self.folder} to start again")
        if progress.get("run") != run:
            raise CCRError(
                f"{self.folder} holds a checkpoint of a run with other data or settings: choose another folder, or "
                "delete it to start again"
            )
        return Saved(self._arrays(progress), progress)

    def _arrays(self, progress: Mapping[str, Any]) -> dict[str, np.ndarray]:
        path = self.folder / Path(str(progress.get("tensors"))).name
        with understood(path, "hold an epoch of the run", f"delete {self.folder} to start again"):
            blob = read_regular(path, MOST_TENSOR_BYTES)
            if hashlib.sha256(blob).hexdigest() != progress.get("tensors_sha256"):
                raise ValueError("its checksum is not the one in progress.json")
            return dict(load(blob))

    def _check_free(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise CCRError(f"a checkpoint is a folder, but {self.folder} is a file: choose another name")
        ours = ("epoch-", SEED, f"{PROGRESS}.tmp", ASIDE)  # .tmp: of older versions
        if self.folder.is_dir() and any(not entry.name.startswith(ours) for entry in self.folder.iterdir()):
            raise CCRError(
                f"{self.folder} is not empty and not a checkpoint, so it is left alone: choose another folder"
            )
