"""Measurements between epochs, the best epoch, and checkpoints, which continue a run bit for bit.

A checkpoint is safetensors and JSON, never pickle. The tensors are written under a new name and `progress.json`, which
names them, is replaced last: a crash at any moment leaves the epoch before.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from safetensors.numpy import load, save

from ccr.coding import (
    Encode,
    Entries,
    Panels,
    Rule,
    ScoreRule,
    map_codes,
    no_tie_break,
    root_mean_square,
    rule_to_dict,
    score_rule,
)
from ccr.coding.heads import entry_logits
from ccr.errors import CCRError, FormatError
from ccr.inputs import Embeddings
from ccr.io.files import ASIDE, MOST_TENSOR_BYTES, format_errors, read_object, read_regular, write_bytes
from ccr.io.remote import AnyPath, Place, as_place
from ccr.kernels import Criterion
from ccr.metrics import Deviation, distances
from ccr.refine.data import Candidates, Labelled, largest
from ccr.refine.engines import Engine, Predictor, State
from ccr.refine.options import Epoch, Training
from ccr.utils.threads import Workers

# Progress of a training run: measurements between epochs by all threads, history, best epoch, and checkpoints.

Result = TypeVar("Result")
#: Rows of the sample that a thread takes at once, a few hundred so that the kernels read a large dictionary seldom.
SPAN = 384


class Validation(NamedTuple):
    """Mean weighted loss and accuracy; NaN without validation data."""

    loss: float
    accuracy: float


def validate(
    state: Predictor, held_out: Labelled | None, workers: Workers | None = None, encode: Encode | None = None
) -> Validation:
    """Loss and accuracy on the held-out rows; `encode` is the state's encoder, if there is one already."""
    if held_out is None:
        return Validation(math.nan, math.nan)
    data = held_out

    def use(part: slice, codes: Entries) -> tuple[float, int]:
        logits, y = entry_logits(codes, state.weights, state.bias), data.y[part]
        right, top = logits.argmax(axis=1), logits.max(axis=1)
        true = logits[np.arange(len(y)), y].astype(np.float64)
        logits -= top[:, None]
        losses = np.log(np.exp(logits, out=logits).sum(axis=1, dtype=np.float64)) + top - true
        return float(losses @ data.weight[part]), int((right == y).sum())

    decide = None if encode is None else no_tie_break(encode)
    measured = map_codes(state.rule, data.X, state.dictionary, use, rows=data.rows, workers=workers, decide=decide)
    sums = np.array([(loss, right) for loss, right in measured], np.float64).reshape(-1, 2).sum(axis=0)
    loss, right = (float(value) / len(data.y) for value in sums)
    return Validation(loss, right)


def recalibrate(
    rule: ScoreRule, panels: Panels, sample: Embeddings, workers: Workers | None
) -> tuple[ScoreRule, float]:
    """The rule fitted again to a dictionary that moved, if it is held to a length, and its mean number of active
    concepts: both by one pass over the sample."""
    if rule.target_length is not None:
        levels = _with_panels(panels, rule.nearby(), sample, workers, rule.levels)
        fitted = rule.recalibrated_by(np.concatenate(levels), len(sample))
        if fitted is not None:
            return fitted
        rule = rule.recalibrated(sample, panels.dictionary)
    return rule, length_of(rule, panels, sample, workers)


def length_of(rule: ScoreRule, panels: Panels, sample: Embeddings, workers: Workers | None) -> float:
    """Mean number of active concepts, by a dictionary that is packed already."""
    counts = _with_panels(panels, rule.criterion(), sample, workers, lambda codes: len(codes.data))
    return sum(counts) / len(sample)


def _with_panels(
    panels: Panels,
    criterion: Criterion,
    sample: Embeddings,
    workers: Workers | None,
    use: Callable[[Entries], Result],
) -> list[Result]:
    if workers is None:
        with Workers() as threads:
            return _with_panels(panels, criterion, sample, threads, use)
    spans = [slice(start, start + SPAN) for start in range(0, len(sample), SPAN)]
    return workers.map(lambda part: use(panels.encoder(criterion)(sample.span(part.start, part.stop))), spans)


def measured_deviation(dictionary: np.ndarray, center: np.ndarray, workers: Workers | None) -> Deviation:
    """`deviation` of the dictionary from its centres, by all threads."""
    spans = [slice(start, start + SPAN) for start in range(0, len(center), SPAN)]
    parts = (workers or Workers(1)).map(lambda part: distances(dictionary[part], center[part]), spans)
    every = np.concatenate(parts)
    return Deviation(float(every.mean()), float(every.max()))


def mean_length(state: Predictor, sample: Embeddings, workers: Workers | None = None) -> float:
    """Mean number of active concepts."""
    counts = map_codes(state.rule, sample, state.dictionary, lambda _, codes: len(codes.data), workers=workers)
    return sum(counts) / len(sample)


def strongest_weights(
    state: Predictor,
    sample: Embeddings,
    keep: int,
    candidates: Candidates | None = None,
    workers: Workers | None = None,
    *,
    preference: np.ndarray | None = None,
) -> np.ndarray:
    """The `strongest` weights (n, C) by the root mean square of the concepts' codes, times a `preference` (n, C)."""
    squares, one_sided = np.zeros(len(state.dictionary)), True

    def use(_: slice, codes: Entries) -> tuple[np.ndarray, bool]:
        powers = np.bincount(codes.indices, codes.data.astype(np.float64) ** 2, minlength=len(squares))
        return powers, bool((codes.data >= 0).all())

    for part, positive in map_codes(state.rule, sample, state.dictionary, use, workers=workers):
        squares, one_sided = squares + part, one_sided and positive
    weights = state.weights if preference is None else state.weights * preference
    return strongest(weights, np.sqrt(squares / len(sample)), keep, candidates, one_sided=one_sided)


def strongest(
    weights: np.ndarray, size: np.ndarray, keep: int, candidates: Candidates | None = None, *, one_sided: bool
) -> np.ndarray:
    """Mask (n, C) of the `keep` weights of each class of largest |weight| x size, for codes of these sizes
    (n,); weights without effect never are. Of one-sided codes, which say what an image shows, only positive weights
    are: a class keeps what speaks for it, and no image is left without a word. Where there are `candidates`, only their
    weights are, unless none of them speaks for the class."""
    worth = np.abs(weights) * size[:, None]
    speaking = np.where(weights > 0, worth, 0.0) if one_sided else worth.copy()
    if candidates is not None:
        mask = candidates.mask(one_sided=one_sided)
        others = ~mask & ((speaking > 0) & mask).any(axis=0)
        worth[others] = speaking[others] = 0.0
    if keep >= len(worth):
        return worth > 0
    return largest(speaking, keep) & (speaking > 0)


def sample_code_size(rule: Rule, sample: Embeddings, dictionary: np.ndarray, workers: Workers | None = None) -> float:
    """`code_size` of the codes of a sample."""

    def use(_: slice, codes: Entries) -> tuple[float, int]:
        return float((codes.data.astype(np.float64) ** 2).sum()), len(codes.data)

    measured = map_codes(rule, sample, dictionary, use, workers=workers)
    squares, count = (sum(column) for column in zip(*measured, strict=True))
    return root_mean_square(float(squares), int(count))


#: Why a run ended: all epochs are done; none improved for `n_iter_no_change` epochs; the head alone was solved.
Stop = Literal["max_iter", "no_change", "solved"]


@dataclass(frozen=True, eq=False)
class Refinement(Predictor):
    """The result: the parameters of the best epoch, what happened on the way, which engine took the steps, and why it
    stopped (see `Stop`). `kept` are the rows of the dictionary that are left: concepts that a sparse head gave no
    weight are not in it, where others' codes do not depend on them."""

    kept: np.ndarray
    history: tuple[Epoch, ...]
    best_epoch: int
    engine: Literal["dense", "sparse", "head"]
    stopped: Stop


class BestEpoch:
    """The epoch to keep: the latest of those that validation cannot tell from the best (see `Training.tol`)."""

    def __init__(self, training: Training, n: int) -> None:
        self.training, self.n = training, n
        self.epoch, self.improved, self.record = 0, 0, -math.inf

    def offer(self, number: int, accuracy: float, *, final: bool = True) -> bool:
        """Whether this epoch is now the one to keep; without validation data the last one always is, and so it is while
        the head is not `final`ly sparse."""
        if not final:
            self.epoch = self.improved = number
            return True
        if self.n == 0 or accuracy > self.record:
            self.improved = number
        if self.n:
            self.record = max(self.record, accuracy)
            if accuracy < self.record - self.training.tolerance(self.record, self.n):
                return False
        self.epoch = number
        return True


@dataclass
class Progress:
    """A run after epoch `number`: `kept` is the state of the epoch to keep."""

    best: BestEpoch
    kept: State
    number: int = 0
    history: list[Epoch] = field(default_factory=list)


class Saved(NamedTuple):
    """A run as a checkpoint holds it: arrays by name, and everything else as JSON types; and where it is."""

    arrays: dict[str, np.ndarray]
    values: dict[str, Any]
    place: AnyPath | str = "the checkpoint"


class Checkpoint(Protocol):
    """Checkpoint of a run, saved after every epoch; `run` identifies the run (see `fingerprint`)."""

    def load(self, run: str) -> Saved | None:
        """The last epoch that was saved, None where nothing was; another run's is refused."""
        ...

    def save(self, run: str, number: int, saved: Saved) -> None:
        """Keep the state after epoch `number` in place of the one before."""
        ...


def pack(now: Progress, rows: np.ndarray, engine: dict[str, np.ndarray], rule: ScoreRule) -> Saved:
    """Progress, the rows of the concepts that are left, and an engine's `state_dict` and rule, for a checkpoint."""
    best, kept = now.best, now.kept
    arrays = {f"engine.{name}": array for name, array in engine.items()}
    arrays |= {"kept.dictionary": kept.dictionary, "kept.weights": kept.weights, "kept.bias": kept.bias}
    # As an array: JSON has no NaN.
    arrays["history"] = np.array([astuple(epoch) for epoch in now.history], np.float64)
    arrays["rows"] = rows
    arrays["best"] = np.array([best.epoch, best.improved, best.record], np.float64)
    return Saved(arrays, {"number": now.number, "rule": rule_to_dict(rule), "kept_rule": rule_to_dict(kept.rule)})


def unpack(saved: Saved, now: Progress, engine: Engine) -> tuple[np.ndarray, dict[str, np.ndarray], ScoreRule]:
    """Bring `now`, the start of the run with this `engine`, to where the checkpoint is; the rows that are left, the
    engine's `state_dict` and its rule. A checkpoint with parts that no epoch of the run could have is refused."""
    with format_errors(saved.place, "hold an epoch of the run", "delete it to start again"):
        arrays, values, start = dict(saved.arrays), saved.values, now.kept
        rows, number = _part(arrays, "rows", (None,), np.int64), int(values["number"])
        inside = len(rows) > 0 and rows[0] >= 0 and rows[-1] < len(start.dictionary) and bool((np.diff(rows) > 0).all())
        history = _part(arrays, "history", (number, len(fields(Epoch))), np.float64, unknown=True)
        epoch, improved, record = _part(arrays, "best", (3,), np.float64, unknown=True).tolist()
        if not inside or history[:, 0].tolist() != list(range(1, number + 1)):
            raise ValueError("its rows or epochs are not in order")
        if epoch not in range(1, number + 1) or improved not in range(number + 1):
            raise ValueError(f"its best epoch is {epoch:g} of {number}")
        kept = {
            name: _part(arrays, f"kept.{name}", (*(() if name == "bias" else (len(rows),)), own.shape[-1]), own.dtype)
            for name, own in (("dictionary", start.dictionary), ("weights", start.weights), ("bias", start.bias))
        }
        state = {
            name: _part(
                arrays,
                f"engine.{name}",
                (len(rows), *own.shape[1:]) if name in engine.by_concept and len(own) else own.shape,
                own.dtype,
                unknown=bool(np.isnan(own).any()),
            )
            for name, own in engine.state_dict().items()
        }
        for part in (kept["dictionary"], state["dictionary"]):
            if not np.allclose(np.linalg.norm(part, axis=1), 1.0, atol=1e-3):
                raise ValueError("its concepts are not unit vectors")
        kept_rule, rule = (score_rule(values[name], len(rows)) for name in ("kept_rule", "rule"))
        if {type(kept_rule), type(rule)} != {type(start.rule)}:
            raise ValueError("its rules are of another kind")
        now.number, now.kept = number, State(**kept, rule=kept_rule)
        now.history = [Epoch(int(line[0]), *map(float, line[1:])) for line in history]
        now.best.epoch, now.best.improved, now.best.record = int(epoch), int(improved), record
    return rows, state, rule


def _part(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...], kind: Any, *, unknown: bool = False
) -> np.ndarray:
    """The array of this name, which has this shape (None: any number of rows) and type; finite unless `unknown`."""
    array = arrays[name]
    fits = array.ndim == len(shape) and all(most in (None, size) for most, size in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != kind or not (unknown or np.isfinite(array).all()):
        raise ValueError(f"{name} must be {np.dtype(kind)} {shape} and finite, got {array.dtype} {array.shape}")
    return array


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


FORMAT, FORMAT_VERSION = "ccr-checkpoint", 1
PROGRESS, SEED = "progress.json", "seed.json"


class CheckpointFolder:
    """The folder of one run, or the URL of one, a `ccr.refine.Checkpoint`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = as_place(folder)

    def part(self, name: str) -> CheckpointFolder:
        """Checkpoint of a part of the run, in a subfolder."""
        return CheckpointFolder(self.folder / name)

    def seed(self, fresh: int) -> int:
        """The seed of a run that was given none: the one that the run here began with, or the fresh one, now kept."""
        path = self.folder / SEED
        if path.exists():
            kept = read_object(path, "be the JSON of a seed", f"delete {self.folder} to start again")
            with format_errors(path, "hold a seed", f"delete {self.folder} to start again"):
                if not 0 <= int(kept["seed"]) < 1 << 63:
                    raise ValueError(f"no seed is {kept['seed']}")
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
        return Saved(self._arrays(progress), progress, self.folder)

    def _arrays(self, progress: Mapping[str, Any]) -> dict[str, np.ndarray]:
        path = self.folder / Path(str(progress.get("tensors"))).name
        with format_errors(path, "hold an epoch of the run", f"delete {self.folder} to start again"):
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
