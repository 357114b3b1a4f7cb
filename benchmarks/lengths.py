"""From which length down do names win? CCR on named concepts, on unrelated words and on random vectors, by length.

    python -m benchmarks.lengths STORE --concepts FILE [--lengths 1,2,3,4,5,8,12,20] [--seeds 3] [--out DIR]

Every model is trained at its length (NEC 1 to 5 cut a model that was trained for twelve: those are in `ccr compare`).
Finished runs are kept in DIR.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ccr.data.store import EmbeddingStore
from ccr.encoders import load_encoder
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.compare import MethodComparison, methods_named, run_comparison, store_task

METHODS = ("ccr", "baseline", "random-words", "random-vectors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--concepts", type=Path, required=True)
    parser.add_argument("--lengths", default="1,2,3,4,5,8,12,20")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("lengths"))
    given = parser.parse_args()
    store = EmbeddingStore.open(given.store)
    encoder = load_encoder(store.encoder or "bundled")
    methods = methods_named(METHODS)
    print("| length | " + " | ".join(method.title for method in methods) + " | CCR less random vectors |")
    print("|--:|" + "--:|" * (len(methods) + 1))
    for length in given.lengths.split(","):
        task = store_task(store, given.concepts, encoder, length=float(length))
        comparison = run_comparison(task, methods, seeds=range(given.seeds), cache=RunCache(given.out / "runs"))
        print(f"| {length} | {_line(comparison)} |", flush=True)


def _line(comparison: MethodComparison) -> str:
    cells = [f"{100 * row.accuracy:.1f}" for row in comparison.rows]
    last = comparison.rows[-1]
    # Differences are to the first method, CCR.
    cells.append(f"{-100 * last.difference:+.1f} ({-100 * last.apart.high:+.1f} to {-100 * last.apart.low:+.1f})")
    return " | ".join(cells)


if __name__ == "__main__":
    main()
