"""Memory does not grow with images x concepts."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
import numpy as np
from ccr import Concepts, ConceptClassifier, HardThreshold
rng = np.random.default_rng(0)
m, d, n = 200_000, 512, 4523
X = np.empty((m, d), np.float32)
for start in range(0, m, 10_000):
    X[start : start + 10_000] = rng.standard_normal((10_000, d), dtype=np.float32)
concepts = Concepts([str(i) for i in range(n)], rng.standard_normal((n, d)))
model = ConceptClassifier(concepts, coder=HardThreshold(length=47), radius=0, max_iter=1, random_state=0)
model.fit(X[:500], np.arange(500) % 10)
codes = model.transform(X)
assert codes.shape == (m, n)
assert 30 < codes.nnz / m < 60, codes.nnz / m
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def test_transform_of_200_000_images_over_4523_concepts_stays_under_one_and_a_half_gigabytes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.5
