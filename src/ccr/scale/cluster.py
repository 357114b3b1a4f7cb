"""Connecting to a Ray cluster, its actors and its errors; and the fits of a study as tasks, one fit a task."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ccr.errors import CCRError, UnreachableError
from ccr.utils.arrays import import_extra
from ccr.utils.processes import Done


# Ray actors on the driver's node (see `driver_actor`): workers send progress to them, or get items from them. This
# module does not import torch, so that each takes a moment to start and little memory.
class ProgressActor:
    """Actor that collects the progress of workers for the process that waits for them."""

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
#: Packages that all nodes must have in the same version: numbers, or what is sent between them, depend on it.
COMPARED = ("ccr-xai", "ray", "torch", "numpy", "pyarrow")
#: Memory of the object store of a cluster of this machine: what is sent between tasks is small.
OBJECT_STORE_BYTES = 400 << 20


@contextmanager
def connected(address: str = "auto") -> Iterator[Any]:
    """Ray, connected to the cluster at an address; "auto": to the one that runs on this machine, or else to a new one
    of all its cores, which ends with the block; "local": always a new one. A connection that there is stays."""
    ray = import_extra("ray", "scale", "a Ray cluster needs ray")
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
    """A cluster of this machine. Ray's processes listen on every address of it: anyone who reaches one of them without
    having to show a token could run code here, so that a Ray that demands none is not used unless it was told to."""
    chosen, number = os.environ.get("RAY_AUTH_MODE"), re.match(r"(\d+)\.(\d+)", ray.__version__)
    if chosen is None and number is not None and tuple(map(int, number.groups())) < (2, 60):
        _refuse_open(ray)  # before anything listens
    ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
    # Ray 2.60 turns the token on by itself, and says so here. Set beforehand it would reach Ray's processes, but not
    # this one, where Ray has read its settings when it was imported.
    if chosen is None and os.environ.get("RAY_AUTH_MODE") != "token":
        ray.shutdown()
        _refuse_open(ray)


def _refuse_open(ray: Any) -> NoReturn:
    raise CCRError(
        f"Ray {ray.__version__} would let whoever reaches this machine run code on it: install Ray 2.60 or newer, or "
        "set RAY_AUTH_MODE=disabled where nobody else can reach it"
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
    """An error within seconds where no process listens at HOST:PORT; Ray itself would try for minutes."""
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
def task_errors(ray: Any) -> Iterator[None]:
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
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if isinstance(cause, CCRError):
            # Ray makes an error of two classes of it; one of the plain class is raised.
            kind = next(base for base in type(cause).__mro__ if base.__module__ == "ccr.errors")
            raise (kind if kind is not CCRError else CCRError)(_message(cause)) from None
        waiting += [getattr(cause, "cause", None), cause.__cause__, cause.__context__]
        failures = getattr(cause, "worker_failures", None)
        waiting += list(failures.values()) if isinstance(failures, dict) else []


def _message(error: BaseException) -> str:
    cause = getattr(error, "cause", None)
    return str(cause if isinstance(cause, BaseException) else error)


def workers_of(ray: Any, wanted: int | None) -> tuple[int, bool]:
    """How many encoders can work at once, and whether on GPUs."""
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    return wanted or gpus or max(1, int(resources.get("CPU", 1))), gpus > 0


def driver_actor(ray: Any, kind: type, *arguments: Any) -> Any:
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
