"""`fit`: one whole fit as a task of a Ray cluster, on one of its nodes.

A fit of ImageNet's size takes minutes on two cores, so nodes do not share one (docs/scale.md). The task keeps every
epoch in a folder that all nodes see; when its node is lost, Ray runs it again on another, where it goes on from there.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import astuple
from pathlib import Path
from typing import Any

from sklearn.base import clone

from ccr.classifier import ConceptClassifier
from ccr.errors import CCRError
from ccr.io.files import check_writable
from ccr.io.remote import as_place
from ccr.refine import Callback, Epoch
from ccr.refine.measure import CheckpointFolder
from ccr.scale.cluster import ProgressActor, connected, driver_actor, task_errors

#: How often the worker or its node may be lost before the fit is given up; it goes on when it is called again.
MAX_RETRIES = 10
#: Seconds between looks at how far the fit is.
LOOK = 0.5
#: The checkpoint's folder in the storage.
KEPT = "ccr-fit"


def fit(
    model: ConceptClassifier,
    X: Any,
    y: Any = None,
    *,
    storage: str | Path,
    address: str = "auto",
    cpus: int | None = None,
    validation: Any = None,
    sample_weight: Any | None = None,
    callback: Callback | None = None,
) -> ConceptClassifier:
    """Fit `model` on X (m, d) and labels y (m,) on one node of a Ray cluster; the fitted model.

    As `model.fit(X, y, ...)`: the same model to the bit as on this machine with as many threads.

    Parameters
    ----------
    model : what to fit; it is not changed.
    X, y, validation, sample_weight, callback
        As of `ConceptClassifier.fit`. A store is read by the node, so all nodes must see it; a store brings its labels.
    storage : URL, or a folder that all nodes see, for the checkpoint of the last epoch. The same call goes on from
        there, also after this process was killed; what it wrote is removed when the fit is done.
    address : the cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    cpus : cores of the node that the fit takes, and so threads; None: as many as the largest node has.
    """
    place = as_place(storage).absolute()
    check_writable(place)
    with connected(address) as ray, task_errors(ray):
        cpus = _checked_cpus(ray, cpus)
        board = None if callback is None else driver_actor(ray, ProgressActor)
        task = ray.remote(num_cpus=cpus, max_retries=MAX_RETRIES)(fit_here)
        running = task.remote(clone(model), X, y, sample_weight, validation, str(place / KEPT), cpus, board)
        reported = _follow(ray, running, board, callback)
        fitted: ConceptClassifier = deepcopy(ray.get(running))  # its arrays lie in Ray's memory, which ends with Ray
    if callback is not None:  # lines are lost where the board was out of reach; the last one always arrives
        for epoch in fitted.history_[reported:]:
            callback(epoch, len(fitted.history_))
    CheckpointFolder(place / KEPT).remove()
    if isinstance(place, Path):
        with suppress(OSError):  # something else is in it
            place.rmdir()
    return fitted


def fit_here(
    model: ConceptClassifier, X: Any, y: Any, sample_weight: Any, validation: Any, kept: str, threads: int, board: Any
) -> ConceptClassifier:
    """The task: fit with so many threads, every epoch kept in a folder and told to the board."""
    import torch
    from threadpoolctl import threadpool_limits

    def tell(epoch: Epoch, epochs: int) -> None:
        if board is not None:
            board.tell.remote(astuple(epoch), epochs)

    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        return model.fit(X, y, sample_weight, validation=validation, callback=tell, checkpoint=kept)


def _follow(ray: Any, running: Any, board: Any, callback: Callback | None) -> int:
    """Wait for the task and tell the callback what it tells the board; the number of the last epoch that was told."""
    reported, done = 0, False
    try:
        while not done:
            done = bool(ray.wait([running], timeout=LOOK)[0])
            with suppress(ray.exceptions.RayError):  # the board is being started again: a line of progress is lost
                for values, epochs in [] if board is None else ray.get(board.take.remote(), timeout=10):
                    reported = values[0]
                    callback(Epoch(*values), epochs)  # type: ignore[misc]
    except BaseException:
        ray.cancel(running, force=True)
        raise
    return reported


def _checked_cpus(ray: Any, cpus: int | None) -> int:
    """How many cores the fit takes; an error instead of waiting for ever where no node has as many."""
    nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if cpus is not None and cpus < 1:
        raise CCRError(f"cpus must be at least 1, got {cpus}")
    if (cpus or 1) > max(nodes):
        raise CCRError(
            f"a fit of {cpus or 1} cores does not fit on any of the cluster's {len(nodes)} nodes of "
            f"{', '.join(map(str, nodes))} cores: ask for at most {max(nodes)}, or add a larger node"
        )
    return cpus or max(nodes)
