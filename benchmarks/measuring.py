"""Times of several things, taken in turns so that all see the same machine, and the table they end up in."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from ccr import kernels
from ccr.utils.threads import Workers

#: Seconds after which the threads of the work before no longer spin: those of OpenMP and OpenBLAS wait for more.
PAUSE = 0.05


@dataclass(frozen=True)
class Line:
    """One result. `wanted` is the bound that the project set itself, `met` whether it is kept."""

    work: str
    ours: str
    other: str
    ratio: str
    wanted: str
    met: bool | None


def take_turns(works: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The least seconds of each, over rounds in which each runs once, after a pause; the first is not counted."""
    best = dict.fromkeys(works, float("inf"))
    for number in range(rounds + 1):
        for name, work in works.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            work()
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def on_threads(count: int, work: Callable[[], object]) -> Callable[[], None]:
    """The same work with so many threads of torch."""

    def run() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            work()
        finally:
            torch.set_num_threads(before)

    return run


def bare_products(X: torch.Tensor, D: torch.Tensor) -> dict[str, Callable[[], object]]:
    """X D^T by everything at hand: torch on one thread and on all, in pieces by our threads, and NumPy's BLAS."""
    out = torch.empty(len(X), len(D))
    pieces = [slice(start, start + 1024) for start in range(0, len(X), 1024)]

    def shared() -> None:
        with Workers() as workers:
            workers.map(lambda part: torch.mm(X[part], D.T, out=out[part]), pieces)

    works: dict[str, Callable[[], object]] = {
        "floor, NumPy": lambda: np.matmul(X.numpy(), D.numpy().T, out=out.numpy()),
        "floor, pieces": shared,
    }
    for count in sorted({1, torch.get_num_threads()}):
        works[f"floor, torch {count}"] = on_threads(count, lambda: torch.mm(X, D.T, out=out))
    return works


def least(seconds: Mapping[str, float], kind: str) -> float:
    """The least of all whose name begins so."""
    return min(value for name, value in seconds.items() if name.startswith(kind))


def at_least(factor: float, wanted: float) -> tuple[str, str, bool]:
    return f"{factor:.1f} times faster", f"at least {wanted:g}", factor >= wanted


def at_most(factor: float, wanted: float) -> tuple[str, str, bool]:
    return f"{factor:.2f} times the time", f"at most {wanted:g}", factor <= wanted


def table(lines: list[Line]) -> str:
    """As Markdown."""
    head = "| work | ours | against | ratio | wanted | met |\n|---|---|---|---|---|---|\n"
    met = {True: "yes", False: "**no**", None: ""}
    rows = [
        f"| {line.work} | {line.ours} | {line.other} | {line.ratio} | {line.wanted} | {met[line.met]} |"
        for line in lines
    ]
    return head + "\n".join(rows)


def cpu_model() -> str:
    """The kind of CPU: its name, and the best instructions that the kernels may use on it."""
    model = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        names = [line.split(":")[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model.replace('(R)', '')}, {kernels.VARIANT} kernels"


def machine() -> str:
    """What it was measured on."""
    model = cpu_model()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numba", "numpy", "scikit-learn"))
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{when}. {model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; load at the start {load} (other "
        f"work on the machine counts in). Python {platform.python_version()}, {versions}."
    )
