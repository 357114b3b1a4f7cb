"""The fits of a sweep or a comparison as tasks of a Ray cluster, one fit a task."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import astuple
from pathlib import Path
from typing import Any, NoReturn

from sklearn.base import clone

from ccr.classifier import ConceptClassifier
from ccr.errors import CCRError, MissingExtraError, UnreachableError
from ccr.io.files import check_writable
from ccr.io.remote import as_place
from ccr.refine import Callback, Epoch
from ccr.refine.measure import CheckpointFolder
from ccr.utils.processes import Done

# `fit`: one whole fit as a task of a Ray cluster, on one of its nodes. A fit of ImageNet's size takes minutes on two
# cores, so nodes do not share one (docs/scale.md). The task keeps every epoch in a folder that all nodes see; when
# its node is lost, Ray runs it again on another, where it goes on from there.
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
    model : ConceptClassifier
        What to fit; it is not changed.
    X, y, validation, sample_weight, callback
        As of `ConceptClassifier.fit`. A store is read by the node, so all nodes must see it; a store brings its labels.
    storage : str or Path
        URL, or a folder that all nodes see, for the checkpoint of the last epoch. The same call goes on from there,
        also after this process was killed; what it wrote is removed when the fit is done.
    address : str
        The cluster: HOST:PORT, "auto" (one that runs here, or a new one) or "local".
    cpus : int or None
        Cores of the node that the fit takes, and so threads; None: as many as the largest node has.
    """
    place = as_place(storage).absolute()
    check_writable(place)
    with connected(address) as ray, in_words(ray):
        cpus = _checked_cpus(ray, cpus)
        board = None if callback is None else beside_driver(ray, Board)
        task = ray.remote(num_cpus=cpus, max_retries=MAX_RETRIES)(fit_here)
        running = task.remote(clone(model), X, y, sample_weight, validation, str(place / KEPT), cpus, board)
        told = _follow(ray, running, board, callback)
        fitted: ConceptClassifier = deepcopy(ray.get(running))  # its arrays lie in Ray's memory, which ends with Ray
    if callback is not None:  # lines are lost where the board was out of reach; the last one always arrives
        for epoch in fitted.history_[told:]:
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
    told, done = 0, False
    try:
        while not done:
            done = bool(ray.wait([running], timeout=LOOK)[0])
            with suppress(ray.exceptions.RayError):  # the board is being started again: a line of progress is lost
                for values, epochs in [] if board is None else ray.get(board.take.remote(), timeout=10):
                    told = values[0]
                    callback(Epoch(*values), epochs)  # type: ignore[misc]
    except BaseException:
        ray.cancel(running, force=True)
        raise
    return told


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


# Ray actors on the driver's node (see `beside_driver`): workers send progress to them, or get items from them.
class Board:
    """Where workers write how far they are, for the process that waits for them."""

    def __init__(self) -> None:
        self.lines: list[tuple[tuple[Any, ...], int]] = []

    def tell(self, values: tuple[Any, ...], epochs: int) -> None:
        self.lines.append((values, epochs))

    def take(self) -> list[tuple[tuple[Any, ...], int]]:
        """Return the progress lines written since the last call, and clear them."""
        taken, self.lines = self.lines, []
        return taken


class ItemActor:
    """Hands out what belongs to chunks: photos, or what rows are called."""

    def __init__(self, items: Sequence[Any], size: int) -> None:
        self.items, self.size = items, size

    def chunk(self, number: int) -> list[Any]:
        """The items of chunk `number`."""
        return list(self.items[number * self.size : (number + 1) * self.size])


# Connecting to a Ray cluster, at an address or on this machine alone, and checking the versions on its nodes.
#: Seconds in which a cluster must answer, and in which its nodes must say what is installed on them.
ANSWER, VERSIONS = 5.0, 120.0
#: What all nodes must have in the same version: numbers, or what is sent between them, depend on it.
COMPARED = ("ccr-xai", "ray", "torch", "numpy", "pyarrow")
#: Memory of the object store of a cluster of this machine: what is sent between tasks is small.
OBJECT_STORE_BYTES = 400 << 20


@contextmanager
def connected(address: str = "auto") -> Iterator[Any]:
    """Ray, connected to the cluster at an address; "auto": to the one that runs on this machine, or else to a new one
    of all its cores, which ends with the block; "local": always a new one. A connection that there is stays."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    mode = os.environ.get("RAY_AUTH_MODE")
    try:
        _connect(ray, address)
        check_versions(ray)
        yield ray
    finally:
        ray.shutdown()
        if mode is None:  # another cluster may demand no token
            os.environ.pop("RAY_AUTH_MODE", None)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            'a Ray cluster needs the extra "scale": pip install -c constraints.txt "ccr-xai[scale]"'
        ) from error
    return ray


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    if address not in ("auto", "local"):
        _check_answers(address)
    try:
        if address == "local":
            raise ConnectionError
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        if address not in ("auto", "local"):
            _refuse(address, error)
        _start(ray, quiet)
    except (RuntimeError, ValueError) as error:
        _refuse(address, error)


def _start(ray: Any, quiet: dict[str, Any]) -> None:
    """A cluster of this machine. Ray's processes listen on every address of it: whoever reaches one of them without
    having to show a token could run code here, so that a Ray that demands none is not used unless it was told to."""
    chosen = os.environ.get("RAY_AUTH_MODE")
    ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
    # Ray 2.60 turns the token on by itself, and says so here. Set beforehand it would reach Ray's processes, but not
    # this one, where Ray has read its settings when it was imported.
    if chosen is None and os.environ.get("RAY_AUTH_MODE") != "token":
        ray.shutdown()
        raise CCRError(
            f"Ray {ray.__version__} would let whoever reaches this machine run code on it: install Ray 2.60 or newer, "
            "or set RAY_AUTH_MODE=disabled where nobody else can reach it"
        )


def _refuse(address: str, error: Exception) -> NoReturn:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        raise CCRError(
            f"the cluster at {address} and this machine differ in version ({text[:300]}): install the same Ray and "
            "Python on both"
        ) from None
    raise UnreachableError(
        f"the cluster at {address} cannot be used ({text[:300]}): check it with `ray status --address {address}`"
    ) from None


def _check_answers(address: str) -> None:
    """An error within seconds where nobody listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise CCRError(f"the address of a cluster is HOST:PORT, ray://HOST:PORT, auto or local, got {address!r}")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER):
            return
    except OSError as error:
        raise UnreachableError(
            f"there is no Ray cluster at {address} ({error.strerror or error}): start one with `ray start --head`, or "
            "leave the address out for one of this machine"
        ) from None


def installed() -> dict[str, str]:
    """Versions of `COMPARED` here."""
    from importlib.metadata import version

    return {name: version(name) for name in COMPARED}


def check_versions(ray: Any) -> None:
    """An error when a node has another version of something than this machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(nodes) < 2 and ray.get_runtime_context().get_node_id() in nodes:
        return
    look = ray.remote(num_cpus=0)(installed)
    asked = {
        node: look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in nodes
    }
    for node, answer in asked.items():
        try:
            compare_versions(installed(), ray.get(answer, timeout=VERSIONS), node)
        except ray.exceptions.RayError as error:  # noqa: PERF203
            reason = " ".join(str(error).split())[-300:]
            raise CCRError(
                f"node {node[:8]} of the cluster cannot run ccr ({reason}): install ccr-xai[scale] on every node"
            ) from None


def compare_versions(here: Mapping[str, str], there: Mapping[str, str], node: str) -> None:
    """An error that names what differs."""
    other = [f"{name} {there.get(name)} (here {here[name]})" for name in here if there.get(name) != here[name]]
    if other:
        raise CCRError(
            f"node {node[:8]} of the cluster has {', '.join(other)}: install the same versions on every node "
            "(pip install -c constraints.txt), or results would differ"
        )


@contextmanager
def in_words(ray: Any) -> Iterator[None]:
    """Errors of tasks as the errors that they raised."""
    try:
        yield
    except CCRError:
        raise
    except Exception as error:
        raise_original(error)
        if isinstance(error, ray.exceptions.RayError):
            text = " ".join(str(error).split())[:400]
            raise UnreachableError(f"the cluster failed ({text}): run the same command again, it goes on") from error
        raise


def raise_original(error: BaseException) -> None:
    """Raise the error in words that a task raised, wherever it is wrapped."""
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, CCRError):
            # Ray makes an error of two classes of it; one of the plain class is raised.
            kind = next(base for base in type(one).__mro__ if base.__module__ == "ccr.errors")
            raise (kind if kind is not CCRError else CCRError)(_message(one)) from None
        waiting += [getattr(one, "cause", None), one.__cause__, one.__context__]
        failures = getattr(one, "worker_failures", None)
        waiting += list(failures.values()) if isinstance(failures, dict) else []


def _message(error: BaseException) -> str:
    cause = getattr(error, "cause", None)
    return str(cause if isinstance(cause, BaseException) else error)


def workers_of(ray: Any, wanted: int | None) -> tuple[int, bool]:
    """How many encoders can work at once, and whether on GPUs."""
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    return wanted or gpus or max(1, int(resources.get("CPU", 1))), gpus > 0


def beside_driver(ray: Any, kind: type, *arguments: Any) -> Any:
    """An actor on the node of this process, so that what it holds is lost with this process and not before."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(kind)
    return actor.options(scheduling_strategy=here).remote(*arguments)


class RayPool:
    """A `ccr.utils.processes.Pool`: `cpus` cores, and so threads, for each task.

    A task whose worker or node is lost is run again. `ray` is what `connected` gives.
    """

    def __init__(self, ray: Any, cpus: int = 1) -> None:
        self.ray, self.cpus = ray, cpus

    def map(self, work: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[Done]:
        """`work(shared, item)` of all items, each as it is done; what is shared is sent once."""
        task = self.ray.remote(num_cpus=self.cpus, max_retries=-1)(_answer)
        sent = self.ray.put(shared)
        waiting = {task.remote(work, sent, item, number, self.cpus): number for number, item in enumerate(items)}
        while waiting:
            ready, _ = self.ray.wait(list(waiting), num_returns=1)
            for one in ready:
                del waiting[one]
                yield self.ray.get(one)


def _answer(work: Callable[[Any, Any], Any], shared: Any, item: Any, number: int, threads: int) -> Done:
    import torch

    torch.set_num_threads(threads)
    try:
        return Done(number, work(shared, item))
    except Exception as error:  # one fit must not lose the others' results
        refused = isinstance(error, CCRError)
        return Done(number, reason=str(error) if refused else f"{type(error).__name__}: {error}", refused=refused)
