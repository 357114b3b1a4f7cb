"""The first call after a fresh install: how long it takes, and what is said meanwhile.

    python -m benchmarks.first_call

A fit and a prediction, each in a process of its own, first with no compiled kernels at hand and then with those that
the first one left; "said" is what the logger `ccr` got.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import numpy as np
from ccr import ConceptClassifier, Concepts, HardThreshold
rng = np.random.default_rng(0)
X, y = rng.normal(size=(400, 64)).astype(np.float32), np.arange(400) % 4
concepts = Concepts([str(number) for number in range(200)], rng.normal(size=(200, 64)))
radius = {"fit": 0.1, "predict": 0.0}[sys.argv[1]]
options = {"coder": HardThreshold(length=8), "radius": radius, "weights_per_class": None, "max_iter": 2}
start = time.perf_counter()
model = ConceptClassifier(concepts, random_state=0, **options).fit(X, y)
if sys.argv[1] == "predict":
    start = time.perf_counter()
    model.predict(X[:1])
print(f"seconds {time.perf_counter() - start:.2f}")
"""


def main() -> None:
    print("| call | compiled kernels | seconds | said |\n|---|---|--:|---|")
    for call in ("fit", "predict"):
        with tempfile.TemporaryDirectory() as folder:
            for kernels in ("none", "on disk"):
                *said, last = _run(call, folder)
                print(f"| {call} | {kernels} | {last.split()[1]} | {'; '.join(said) or 'nothing'} |", flush=True)


def _run(call: str, folder: str) -> list[str]:
    """What the program prints, its seconds last, with compiled kernels kept in the folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, call], env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.splitlines()


if __name__ == "__main__":
    main()
