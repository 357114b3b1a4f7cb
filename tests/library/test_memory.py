"""Memory does not grow with images x concepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")

# Not ru_maxrss: a new process starts with its parent's there.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e6

"""
PROGRAM = (
    PEAK
    + """
import sys
import numpy as np
from ccr import Concepts, ConceptClassifier, HardThreshold
rng = np.random.default_rng(0)
m, d, n = 100_000, 512, 4523
X = np.empty((m, d), np.float32)
X[:10_000] = rng.standard_normal((10_000, d), dtype=np.float32)
for start in range(10_000, m, 10_000):
    X[start : start + 10_000] = X[:10_000]
concepts = Concepts([str(i) for i in range(n)], rng.standard_normal((n, d)))
settings = {"radius": 0, "weights_per_class": None, "max_iter": 1, "random_state": 0}
model = ConceptClassifier(concepts, coder=HardThreshold(length=47), **settings)
model.fit(X[:500], np.arange(500) % 10)
codes = model.transform(X)
assert codes.shape == (m, n)
assert 30 < codes.nnz / m < 60, codes.nnz / m
print(peak())
"""
)


def test_transform_of_100_000_images_over_4523_concepts_stays_under_1400_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.4  # all scores alone would be 1.8 gigabytes


STREAMING = (
    PEAK
    + """
import sys
from pathlib import Path
import numpy as np
from ccr import Concepts, ConceptClassifier, HardThreshold
m, d, n, file = int(sys.argv[1]), 512, 8, Path(sys.argv[2])
rng = np.random.default_rng(0)
rows = rng.standard_normal((5_000, d), dtype=np.float32).tobytes()
with file.open("wb") as out:
    for start in range(0, m, 5_000):
        out.write(rows)
X = np.memmap(file, mode="r", dtype=np.float32, shape=(m, d))
concepts = Concepts([str(i) for i in range(n)], rng.standard_normal((n, d)))
model = ConceptClassifier(concepts, coder=HardThreshold(length=2), max_iter=1, random_state=0)
model.fit(X, np.arange(m) % 4)
model.predict(X)
print(peak())
"""
)


def test_training_and_predicting_from_a_file_take_the_same_memory_for_several_times_the_images(tmp_path: Path) -> None:
    def peak(m: int) -> float:
        command = [sys.executable, "-c", STREAMING, str(m), str(tmp_path / "x")]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert peak(170_000) < peak(70_000) + 0.1  # both are too large to be kept; the file is 0.2 gigabytes larger
