"""Shared data: real digits, real CLIP embeddings where they are beside the checkout, planted data."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Generator
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import torch
from benchmarks.private_data import SHARED, Skipped, require
from hypothesis import settings
from sklearn.datasets import load_digits

from ccr import Concepts
from ccr.geometry import unit_rows

# Tests never depend on the clock; one thread keeps small products fast on a busy machine.
settings.register_profile("ccr", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("ccr")
torch.set_num_threads(1)
# pytest-xdist tells its workers how wide its own terminal is, and a console keeps the first width it is told.
os.environ.pop("COLUMNS", None)


#: Files that may be skipped as a whole where everything is installed: open_clip has an environment of its own, Chromium
#: cannot be had everywhere, and tiles are for CPUs that have the faster kernels.
MAY_SKIP = ("test_openclip.py", "test_tiles.py", "test_browser", "test_accessible.py")


def imported(name: str, *_: object, **__: object) -> ModuleType:
    """A module that tests need. On the integration machine everything is installed: a package that went missing there
    would otherwise skip whole files without a word."""
    return importlib.import_module(name)


if os.environ.get("CI"):
    pytest.importorskip = imported  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """On the integration machine (`.ci/run`) a file that is skipped as a whole fails, whatever skips it: a loss of 384
    tests once went unseen, because pytest-xdist says nothing of such files."""
    report = yield
    if os.environ.get("CI") and report.skipped and not collector.path.name.startswith(MAY_SKIP):
        report.outcome = "failed"
        report.longrepr = f"{collector.path.name} must not be skipped as a whole here: {report.longrepr}"
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run side by side, kernels that are not on disk yet are compiled before, each by one process: the
    tests' own processes would all compile the same ones at once."""
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    program = "import sys; from ccr.kernels import warm_up; [warm_up(group=group) for group in sys.argv[1:]]"
    groups = (["training"], ["pursuit", "lasso"])
    for process in [subprocess.Popen([sys.executable, "-c", program, *names]) for names in groups]:
        process.wait()


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    concepts: Concepts


@pytest.fixture(scope="session")
def digits() -> Data:
    """scikit-learn's scanned digits with text labels; concepts are 40 real patches of strokes (mean-free images)."""
    X, y = load_digits(return_X_y=True)
    labels = np.array([f"digit {number}" for number in y])
    order = np.random.default_rng(0).permutation(len(X))
    X, labels = X[order], labels[order]
    strokes = unit_rows(X[:40] - X.mean(axis=0))
    concepts = Concepts([f"stroke {row}" for row in range(40)], strokes)
    return Data(X[40:1200], labels[40:1200], X[1200:], labels[1200:], concepts)


@pytest.fixture(scope="session")
def planted() -> Data:
    """Images that are sparse sums of orthonormal true concepts, classes that depend on them linearly, and concepts that
    start half a unit away from the truth."""
    rng = np.random.default_rng(1)
    d, n, m, classes = 16, 16, 3000, 4
    true = np.linalg.qr(rng.normal(size=(d, d)))[0]
    codes = np.zeros((m, n))
    for row in codes:
        row[rng.choice(n, 3, replace=False)] = rng.uniform(0.5, 1.0, 3) * rng.choice([-1, 1], 3)
    y = (codes @ rng.normal(size=(n, classes))).argmax(axis=1)
    error = unit_rows(rng.normal(size=(n, d)))
    start = unit_rows(true + 0.5 * error)
    X = codes @ true
    concepts = Concepts([f"concept {row}" for row in range(n)], start)
    return Data(X[:2000], y[:2000], X[2000:], y[2000:], concepts)


@pytest.fixture(scope="session")
def true_dictionary(planted: Data) -> np.ndarray:
    """The dictionary behind `planted`."""
    rng = np.random.default_rng(1)
    return np.linalg.qr(rng.normal(size=(16, 16)))[0]


@pytest.fixture(scope="session")
def clip() -> Data:
    """Real CLIP ViT-B/16: 4,000 CIFAR-10 images for training, 2,000 for test, 171 text embeddings of names."""
    try:
        images, texts = (
            np.load(require(SHARED / "embeddings" / f"{name}.npz")) for name in ("cifar10", "text_vit_b16_names")
        )
    except Skipped as reason:
        pytest.skip(str(reason))
    labels = images["names"][images["y"]]
    train, test = np.flatnonzero(images["is_train"])[:4000], np.flatnonzero(~images["is_train"])[:2000]
    concepts = Concepts([str(name) for name in texts["names"]], texts["X"])
    return Data(images["X"][train], labels[train], images["X"][test], labels[test], concepts)
