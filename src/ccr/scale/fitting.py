"""`fit`: one fit shared by workers all over a cluster, through `ray.train`'s TorchTrainer.

Every worker runs the same `ConceptClassifier.fit` on rows that it shares with the others (`ccr.core.team`): it reads
its own part of the store, and means, moments, derivatives and validation are sums over all parts. Ray keeps a
checkpoint of every epoch; when a worker or node is lost it starts the group again, which goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from ccr.core.arrays import as_array
from ccr.core.refine import Callback, Epoch, Saved
from ccr.core.team import Team
from ccr.errors import CCRError
from ccr.files import check_writable
from ccr.models.checkpoint import CheckpointFolder
from ccr.models.classifier import ConceptClassifier
from ccr.models.labels import fit_parts, labels_of, validation_pair
from ccr.places import Place, as_place
from ccr.scale.cluster import beside_driver, connected, in_words
from ccr.scale.desks import Board
from ccr.scale.rows import SharedRows
from ccr.scale.team import TorchTeam

#: How often workers may be lost before the fit is given up; it goes on when it is called again.
MAX_FAILURES = 10
#: Seconds between looks at how far the workers are.
LOOK = 0.5
#: Seconds after which Ray takes the next report of the workers, who wait for it after every epoch; its own are 2.
REPORTS_TAKEN = "0.2"


def fit(
    model: ConceptClassifier,
    X: Any,
    y: Any = None,
    *,
    storage: str | Path,
    address: str = "auto",
    workers: int = 2,
    cpus: int = 1,
    validation: tuple[Any, Any] | None = None,
    sample_weight: Any | None = None,
    callback: Callback | None = None,
) -> ConceptClassifier:
    """Fit `model` on X (m, d) and labels y (m,) with several workers of a Ray cluster; the fitted model.

    As `model.fit(X, y, ...)`: the same batches in the same order, and a result that is equal to rounding.

    Parameters
    ----------
    model : ConceptClassifier
        What to fit; it is not changed.
    X, y, validation, sample_weight, callback
        As of `ConceptClassifier.fit`. A store is read by the workers, so all nodes must see it; a store brings its
        labels.
    storage : str or Path
        URL, or a folder that all nodes see, for the checkpoints of every epoch. The same call goes on from there, also
        after this process was killed; what it wrote is removed when the fit is done.
    address : str
        The cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    workers, cpus : int
        Processes that share the fit, and cores, and so threads, of each.
    """
    X, validation = fit_parts(X, y, sample_weight, validation, model.validation_fraction)
    _check_counts(workers, cpus)
    place = as_place(storage).absolute()
    check_writable(place)
    with connected(address) as ray, in_words(ray):
        _check_room(ray, workers, cpus)
        board = beside_driver(ray, Board)
        config = {
            "model": clone(model),
            "X": _rows(X),
            "y": y,
            "validation": None if validation is None else _validation(validation),
            "sample_weight": sample_weight,
            "board": board,
            "threads": cpus,
        }
        told: list[int] = []

        def tell(epoch: Epoch, epochs: int) -> None:
            assert callback is not None
            callback(epoch, epochs)
            told.append(epoch.epoch)

        result = _run(ray, _trainer(config, place, workers, cpus), board, None if callback is None else tell)
        with result.checkpoint.as_directory() as folder:
            fitted = ConceptClassifier.load(Path(folder) / "model")
    if callback is not None:  # lines are lost where the board was out of reach; the last one always arrives
        for epoch in fitted.history_[told[-1] if told else 0 :]:
            callback(epoch, len(fitted.history_))
    fitted.set_params(**clone(model).get_params(deep=False))
    _remove(place, _name(config, workers))
    return fitted


def _validation(given: Any) -> tuple[Any, Any]:
    """The rows and labels that choose the epoch."""
    X, y = validation_pair(given)
    return _rows(X), labels_of(X, y)


def _rows(X: Any) -> Any:
    """X as workers can share it: a store, or an array."""
    return X if isinstance(X, np.ndarray) or hasattr(type(X), "y") else as_array(X)


def _trainer(config: dict[str, Any], place: Path | Place, workers: int, cpus: int) -> Any:
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", REPORTS_TAKEN)
    where: dict[str, Any] = {"storage_path": str(place)}
    if isinstance(place, Place):
        where = {"storage_path": place.key, "storage_filesystem": place.filesystem()}
    return TorchTrainer(
        train_together,
        train_loop_config=config,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=workers, resources_per_worker={"CPU": cpus}, placement_strategy="SPREAD"
        ),
        run_config=RunConfig(
            name=_name(config, workers),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            **where,
        ),
    )


def _name(config: dict[str, Any], workers: int) -> str:
    """A name for the run: another model, other data or another number of workers begin another one."""
    X, model = config["X"], config["model"]
    about = (repr(sorted(model.get_params().items(), key=str)), str(getattr(X, "path", "")), tuple(X.shape), workers)
    return "fit-" + hashlib.sha256(repr(about).encode()).hexdigest()[:16]


def _run(ray: Any, trainer: Any, board: Any, callback: Callback | None) -> Any:
    """Run the trainer in a thread, and tell the callback here what its workers tell the board."""
    done: dict[str, Any] = {}

    def run() -> None:
        try:
            done["result"] = trainer.fit()
        except BaseException as error:
            done["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(LOOK)
        _tell(ray, board, callback)
    _tell(ray, board, callback)
    if "error" in done:
        raise done["error"]
    return done["result"]


def _tell(ray: Any, board: Any, callback: Callback | None) -> None:
    if callback is None:
        return
    try:
        lines = ray.get(board.take.remote(), timeout=10)
    except ray.exceptions.RayError:  # it is being started again: nothing but a line of progress is lost
        return
    for values, epochs in lines:
        callback(Epoch(*values), epochs)


def train_together(config: dict[str, Any]) -> None:
    """What every worker runs."""
    import torch

    torch.set_num_threads(config["threads"])
    team = TorchTeam()
    kept = TeamCheckpoint(team)
    model: ConceptClassifier = clone(config["model"])
    validation = config["validation"]
    if validation is not None:
        validation = (_shared(validation[0], team), validation[1])

    def told(epoch: Epoch, epochs: int) -> None:
        if team.rank == 0:
            config["board"].tell.remote(astuple(epoch), epochs)

    model.fit(
        _shared(config["X"], team),
        config["y"],
        config["sample_weight"],
        validation=validation,
        callback=told,
        checkpoint=kept,
    )
    kept.finish(model)


def _shared(X: Any, team: Team) -> SharedRows:
    return SharedRows(X if hasattr(X, "dtype") else np.asarray(X), team)


class TeamCheckpoint:
    """A `ccr.core.refine.Checkpoint` that Ray keeps: member 0 writes, all read."""

    def __init__(self, team: Team, folder: Path | None = None, name: str = "fit") -> None:
        self.team, self.name = team, name
        self.folder = _own_folder(team) if folder is None else folder
        if folder is None:
            self._fetch()

    def part(self, name: str) -> TeamCheckpoint:
        """That of a part of the run, kept with the others'."""
        return TeamCheckpoint(self.team, self.folder, name)

    def load(self, run: str) -> Saved | None:
        return CheckpointFolder(self.folder / self.name).load(run)

    def save(self, run: str, number: int, saved: Saved) -> None:
        if self.team.rank == 0:
            CheckpointFolder(self.folder / self.name).save(run, number, saved)
        self._report(number)

    def finish(self, model: ConceptClassifier) -> None:
        """Hand in the fitted model."""
        if self.team.rank == 0:
            model.save(self.folder / "model")
        self._report(-1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _report(self, number: int) -> None:
        import ray.train

        first = self.team.rank == 0
        ray.train.report(
            {"epoch": number}, checkpoint=ray.train.Checkpoint.from_directory(self.folder) if first else None
        )

    def _fetch(self) -> None:
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                shutil.copytree(folder, self.folder, dirs_exist_ok=True)


def _own_folder(team: Team) -> Path:
    """A new folder of this member of the run; those of a member that was killed are removed."""
    import ray.train

    prefix = f"ccr-{ray.train.get_context().get_experiment_name()}-{team.rank}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if left.lstat().st_uid == os.getuid() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix))


def _check_counts(workers: int, cpus: int) -> None:
    for name, value in (("workers", workers), ("cpus", cpus)):
        if value < 1:
            raise CCRError(f"{name} must be at least 1, got {value}")


def _check_room(ray: Any, workers: int, cpus: int) -> None:
    """An error instead of waiting for ever where the cluster is too small."""
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    room = sum(int(cores // cpus) for cores in nodes)
    if room < workers:
        raise CCRError(
            f"{workers} workers of {cpus} cores do not fit on the cluster's {len(nodes)} nodes of "
            f"{', '.join(f'{cores:g}' for cores in nodes)} cores: ask for at most {room} workers, or add nodes"
        )


def _remove(place: Path | Place, name: str) -> None:
    """Remove a run's own folder, and the one that it is in if nothing else is there."""
    if isinstance(place, Place):
        (place / name).remove_below()
        return
    shutil.rmtree(place / name, ignore_errors=True)
    with suppress(OSError):
        place.rmdir()
