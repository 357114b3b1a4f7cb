"""Out-of-fold predictions: what refits say of photos that they have not seen, computed in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.errors import FormatError
from ccr.io.files import map_array, write_bytes
from ccr.io.provenance import whole_list
from ccr.model import ConceptModel
from ccr.review import out_of_fold
from ccr.review.rounds import FEWEST_IMAGES
from ccr.utils.processes import end_with_parent, isolated_python
from ccr_studio.cache import npy
from ccr_studio.seen import SeenModel

#: Five refits of more photos than this take too long to be made unasked.
MOST_PHOTOS = 20_000
PROGRAM = "from ccr_studio.work.folds import main; main()"
#: none: there are none, and none can be computed; possible: they are computed once somebody asks.
FoldState = Literal["none", "possible", "computing", "ready"]


@dataclass(frozen=True, eq=False)
class Held:
    """Predictions of the photos `rows` by refits that have not seen them: class numbers and their probability."""

    rows: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray


class Folds:
    """The out-of-fold predictions of the last model that was asked about; kept in `folder`, by what they depend on.

    A studio that only shows (`compute` False) has them where they were computed before.
    """

    def __init__(self, folder: Path, *, compute: bool = True) -> None:
        self._folder, self._compute = folder, compute
        self._lock = threading.Lock()
        self._found: tuple[str, Held] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._computing, self._failed = "", ""

    def state(self, seen: SeenModel) -> FoldState:
        """Whether they are there, or on their way."""
        if self.of(seen, begin=False) is not None:
            return "ready"
        if self._computing == seen.fit_digest:
            return "computing"
        return "possible" if self._compute and _fits(seen) and self._failed != seen.fit_digest else "none"

    def of(self, seen: SeenModel, *, begin: bool = True) -> Held | None:
        """The predictions by refits with the model's settings; None while they are being computed, or cannot be.
        Asking begins them."""
        if not _fits(seen):
            return None
        key, rows = seen.fit_digest, seen.rows("shown")
        with self._lock:
            if self._found is not None and self._found[0] == key:
                return self._found[1]
            kept = self._read(key, rows, len(seen.classes))
            if kept is not None:
                self._found = (key, kept)
                return kept
            if begin and self._compute and key not in (self._computing, self._failed):
                self._begin(key, seen, rows)
        return None

    def close(self) -> None:
        """Stop computing."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        process, self._process, self._computing = self._process, None, ""
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def _begin(self, key: str, seen: SeenModel, rows: np.ndarray) -> None:
        self._stop()
        place = self._folder / f"job-{key}"
        seen.model.save(place / "model")
        write_bytes(place / "rows.npy", npy(rows))
        write_bytes(place / "labels.npy", npy(seen.truth[rows].astype(np.int64)))
        order = {"store": str(seen.photos.store.path.resolve()), "folder": str(place), "file": str(self._file(key))}
        process = subprocess.Popen(
            isolated_python(PROGRAM),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the studio, which then ends it
        )
        self._process, self._computing = process, key
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()  # and stays open: its end is the sign that the studio is gone
        threading.Thread(target=self._wait, args=(process, key), daemon=True).start()

    def _wait(self, process: subprocess.Popen[str], key: str) -> None:
        process.wait()
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with self._lock:
            if self._process is process:
                self._process, self._computing = None, ""
                self._failed = "" if self._file(key).is_file() else key

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.npy"

    def _read(self, key: str, rows: np.ndarray, classes: int) -> Held | None:
        try:
            found = np.array(map_array(self._file(key), "be out-of-fold predictions", "delete it"))
        except FormatError:
            return None
        if found.shape != (2, len(rows)) or found.dtype.kind != "f":
            return None
        if not ((found >= 0).all() and (found[0] < classes).all() and (found[1] <= 1).all()):  # also NaN
            return None
        return Held(rows, found[0].astype(np.int32), found[1].astype(np.float32))


def _fits(seen: SeenModel) -> bool:
    """Whether refits can be made, and do not take too long."""
    return FEWEST_IMAGES <= len(seen.rows("shown")) <= MOST_PHOTOS and whole_list(seen.model.provenance) is not None


def main() -> None:
    """Read one order, and write the predictions (2, m) that it asks for: class numbers, and their probability."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    end_with_parent()
    folder = Path(order["folder"])
    model = ConceptModel.load(folder / "model")
    rows, labels = (
        np.array(map_array(folder / f"{name}.npy", "be numbers", "try again")) for name in ("rows", "labels")
    )
    found = out_of_fold(model, EmbeddingStore.open(order["store"]).select(rows=rows), model.classes[labels])
    numbers = found.probabilities.argmax(axis=1)
    sure = np.take_along_axis(found.probabilities, numbers[:, None], axis=1)[:, 0]
    write_bytes(Path(order["file"]), npy(np.stack([numbers.astype(np.float64), sure])))
