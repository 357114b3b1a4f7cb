"""`ccr.scale.fit` on two nodes: equal to the fit of one process, whatever is killed; sweeps by tasks; errors."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from ccr import ConceptClassifier, Concepts
from ccr.core.coding import HardThreshold
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, UnreachableError
from ccr.scale import RayPool, connected, fit
from ccr.scale.cluster import compare_versions, installed
from ccr.study.experiments.part import Part
from ccr.study.experiments.settings import Setting
from ccr.study.experiments.sweep import run_sweep
from tests.scale.conftest import kill_workers, wait_for

pytestmark = pytest.mark.scale
EPOCHS = 8


@pytest.fixture(scope="module")
def store(one_machine):
    return EmbeddingStore.open(one_machine)


@pytest.fixture(scope="module")
def model(store):
    concepts = Concepts([f"c{row}" for row in range(20)], np.asarray(store[:20], np.float32))
    return ConceptClassifier(concepts, coder=HardThreshold(length=4), max_iter=EPOCHS, random_state=0)


@pytest.fixture(scope="module")
def alone(model, store):
    return ConceptClassifier(**model.get_params(deep=False)).fit(store)


def same(fitted, alone):
    assert list(fitted.concepts_.names) == list(alone.concepts_.names)
    np.testing.assert_allclose(fitted.concepts_.embeddings, alone.concepts_.embeddings, atol=1e-3)
    np.testing.assert_allclose(fitted.coef_, alone.coef_, atol=1e-2 * np.abs(alone.coef_).max())
    assert [epoch.epoch for epoch in fitted.history_] == [epoch.epoch for epoch in alone.history_]
    assert fitted.best_epoch_ == alone.best_epoch_


def test_a_lost_worker_and_a_lost_node_change_nothing(cluster, node, model, store, alone, tmp_path):
    told, killed = [], []

    def callback(epoch, epochs):
        told.append(epoch.epoch)
        if epoch.epoch == 2 and not killed:
            killed.append(kill_workers("TrainWorker"))
        if epoch.epoch == 5 and len(killed) == 1:
            killed.append("node")
            cluster.remove_node(node, allow_graceful=False)

    fitted = fit(model, store, storage=tmp_path / "kept", address=cluster.address, workers=2, callback=callback)
    assert killed == [1, "node"]
    assert told[-1] == EPOCHS
    same(fitted, alone)
    assert not (tmp_path / "kept").exists()


PROGRAM = """
import sys
from tests.scale.test_fit import *
store, concepts = EmbeddingStore.open(sys.argv[1]), None
concepts = Concepts([f"c{row}" for row in range(20)], np.asarray(store[:20], np.float32))
model = ConceptClassifier(concepts, coder=HardThreshold(length=4), max_iter=EPOCHS, random_state=0)
fit(
    model, store, storage=sys.argv[2], address=sys.argv[3], workers=2,
    callback=lambda epoch, _: print(epoch.epoch, flush=True),
)
"""


def test_a_killed_driver_goes_on(cluster, model, one_machine, alone, tmp_path):
    storage = tmp_path / "kept"
    command = [sys.executable, "-c", PROGRAM, str(one_machine), str(storage), cluster.address]
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: driver.stdout.readline().strip() == "3" or driver.poll() is not None)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    assert any(storage.rglob("epoch-*.safetensors"))
    told = []
    store = EmbeddingStore.open(one_machine)
    fitted = fit(
        model, store, storage=storage, address=cluster.address, workers=2,
        callback=lambda epoch, _: told.append(epoch.epoch),
    )  # fmt: skip
    assert told[0] > 1
    same(fitted, alone)


def test_a_sweep_by_tasks_has_the_same_table(cluster, model, store):
    parts = {name: Part.of(store.select(name)) for name in ("train", "val", "test")}
    settings = [Setting(length=length) for length in (3, 4)] + [Setting(length=-1)]
    options = {"settings": settings, "options": {"max_iter": 2}}
    with connected(cluster.address) as ray:
        there = run_sweep(model.concepts, **parts, **options, pool=RayPool(ray))
    here = run_sweep(model.concepts, **parts, **options)
    for ours, theirs in zip(there.outcomes, here.outcomes, strict=True):
        ours, theirs = (vars(outcome.runs[0]).copy() for outcome in (ours, theirs))
        assert ours.pop("fit_seconds") > 0
        theirs.pop("fit_seconds")
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
    assert [failure.reason for failure in there.failures] == [failure.reason for failure in here.failures]


def test_errors_in_words(cluster, model, store, tmp_path):
    with pytest.raises(CCRError, match="do not fit on the cluster"):
        fit(model, store, storage=tmp_path / "k", address=cluster.address, workers=99)
    with pytest.raises(CCRError, match=r"numpy 1\.0 .here"):
        compare_versions(installed(), {**installed(), "numpy": "1.0"}, "abcdef")
    script = "from ccr.scale import connected\nwith connected('127.0.0.1:1'): pass"
    code = f"import sys\ntry:\n exec({script!r})\nexcept Exception as e: print(type(e).__name__, e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert UnreachableError.__name__ in said
    assert "there is no Ray cluster at 127.0.0.1:1" in said
