"""IP-OMP against direct batched projection."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.measuring import Line, at_least, on_threads, take_turns
from benchmarks.opponents import project_by_basis, project_with_matrices
from ccr import IPOMP
from ccr.geometry import unit_rows

N, DIMENSION, LENGTH = 824, 512, 20
ROWS, DIRECT_ROWS = 8192, 8


def run(rounds: int = 3) -> list[Line]:
    rng = np.random.default_rng(0)
    D = unit_rows(rng.standard_normal((N, DIMENSION), dtype=np.float32))
    X = unit_rows(rng.standard_normal((ROWS, DIMENSION), dtype=np.float32))
    few, rows = torch.from_numpy(X[:DIRECT_ROWS]), torch.from_numpy(D)
    codes = IPOMP(LENGTH).encode(X[:DIRECT_ROWS], D)
    for direct in (project_with_matrices, project_by_basis):
        same = np.array_equal(np.sort(direct(few, rows, LENGTH).numpy(), axis=1), codes.indices.reshape(-1, LENGTH))
        assert same, f"{direct.__name__} selects other concepts"
    works = {"ours": lambda: IPOMP(LENGTH).encode(X, D)}
    for count in sorted({1, torch.get_num_threads()}):
        works[f"matrices {count}"] = on_threads(count, lambda: project_with_matrices(few, rows, LENGTH))
        works[f"basis {count}"] = on_threads(count, lambda: project_by_basis(few, rows, LENGTH))
    seconds = take_turns(works, rounds=rounds)
    ours = seconds["ours"] / ROWS * 1e6
    lines = []
    for kind, text in (("matrices", "projectors as matrices"), ("basis", "rows projected afresh by a basis")):
        other = min(value for name, value in seconds.items() if name.startswith(kind)) / DIRECT_ROWS * 1e6
        wanted = 500.0 if kind == "matrices" else None
        ratio = at_least(other / ours, 500.0) if wanted else (f"{other / ours:.1f} times faster", "", None)
        against = f"direct batched projection, {text}: {other / 1000:.1f} ms"
        lines.append(Line(f"IP-OMP, n={N}, k={LENGTH}, per image", f"{ours:.1f} us", against, *ratio))
    return lines
