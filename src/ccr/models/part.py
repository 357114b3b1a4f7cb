"""Part: embeddings and labels of one split, and how a part is divided."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from ccr.core.inputs import RESIDENT_BYTES
from ccr.errors import CCRError
from ccr.models.labels import MOST_VALIDATION, number_labels, validation_rows

#: Share of the training images held out where there is no validation split.
HELD_OUT = 0.1
FOLDS = 3


class Part(NamedTuple):
    """Embeddings X (m, d), an array or a store, and their labels y (m,), of any kind."""

    X: Any
    y: np.ndarray

    @classmethod
    def of(cls, store: Any) -> Part:
        """A store, or a split of one, with its own labels."""
        return cls(store, store.y)

    def take(self, rows: np.ndarray) -> Part:
        """Only these rows (indices, or booleans (m,)); a part of a store stays on disk."""
        select = getattr(self.X, "select", None)
        return Part(self.X[rows] if select is None else select(rows=rows), np.asarray(self.y)[rows])

    def resident(self) -> Part:
        """The same in memory if it is small, since every epoch of every fit reads it; else where it lies."""
        small = 4 * self.X.shape[0] * self.X.shape[1] <= RESIDENT_BYTES // 2
        return Part(np.array(self.X) if small else self.X, self.y)


def store_parts(store: Any, purpose: str) -> dict[str, Part]:
    """The splits train and test of a store, and val where there is one; `purpose` is named where one is missing. Images
    of test and val that have no label do not count."""
    present = set(store.splits)
    missing = sorted({"train", "test"} - present)
    if missing:
        raise CCRError(
            f"{purpose} needs the splits train and test, {store.path} has no {' and no '.join(missing)}: embed the "
            "images again with folders train/ and test/, or let `ccr embed` split them"
        )
    rows = {name: store.select(name) for name in ("train", "val", "test") if name in present}
    return {name: Part.of(part if name == "train" else part.with_labels() or part) for name, part in rows.items()}


def with_validation(store: Any, purpose: str) -> dict[str, Part]:
    """The splits train, val and test of a store, in memory if small; without a val, a part of train is held out."""
    parts = {name: part.resident() for name, part in store_parts(store, purpose).items()}
    if "val" not in parts:
        parts["train"], parts["val"] = hold_out(parts["train"])
    return parts


def hold_out(train: Part, *, seed: int = 0) -> tuple[Part, Part]:
    """Training and validation images out of one part: a tenth of every class, always the same for one seed."""
    labels = number_labels(train.y, len(train.y))
    chosen = np.zeros(len(train.y), dtype=bool)
    chosen[validation_rows(labels, HELD_OUT, seed=seed, most=MOST_VALIDATION)] = True
    if not chosen.any():
        raise CCRError(f"{len(train.y)} images are too few to hold some out for validation: add a split val")
    return train.take(~chosen), train.take(chosen)


def stratified_folds() -> StratifiedKFold:
    """Three folds that every cross-validation here shares, classes in equal shares."""
    return StratifiedKFold(FOLDS, shuffle=True, random_state=0)
