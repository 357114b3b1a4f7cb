"""`ccr.scale.fit` on two nodes: equal to the fit of one process, whatever is killed; sweeps by tasks; errors."""

import os
import subprocess
import sys

import numpy as np
import pytest

import ccr.scale.embedding as embedding
import ccr.scale.fitting as fitting
from ccr import ConceptClassifier
from ccr.data.datasets import open_samples
from ccr.data.store import EmbeddingStore
from ccr.models.part import Part
from ccr.places import as_place
from ccr.scale import RayPool, connected, embed, fit
from ccr.scale.rows import SharedRows
from ccr_lab.experiments.settings import Setting
from ccr_lab.experiments.sweep import run_sweep
from tests.core.test_shared_engine import together
from tests.data.failing_proxy import sometimes, upload
from tests.scale.conftest import kill_driver, kill_node, kill_worker, wait_for

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def store(one_machine):
    return EmbeddingStore.open(one_machine)


@pytest.fixture(scope="module")
def alone(unfitted, store):
    """The fit of one process."""
    return ConceptClassifier(**unfitted.get_params(deep=False)).fit(store)


@pytest.fixture(scope="module")
def undisturbed(unfitted, store):
    """The fit of two workers that nothing happens to: threads, which add in the same order."""
    options = unfitted.get_params(deep=False)
    return together(2, lambda team: ConceptClassifier(**options).fit(SharedRows(store, team)))[0]


def same(fitted, undisturbed, alone):
    """To the bit as if nothing had been killed, and to rounding as one process fits."""
    assert list(fitted.concepts_.names) == list(undisturbed.concepts_.names) == list(alone.concepts_.names)
    for name in ("coef_", "intercept_"):
        assert np.array_equal(getattr(fitted, name), getattr(undisturbed, name)), name
    assert np.array_equal(fitted.concepts_.embeddings, undisturbed.concepts_.embeddings)
    assert fitted.history_ == undisturbed.history_
    np.testing.assert_allclose(fitted.concepts_.embeddings, alone.concepts_.embeddings, atol=1e-3)
    np.testing.assert_allclose(fitted.coef_, alone.coef_, atol=1e-2 * np.abs(alone.coef_).max())
    assert fitted.best_epoch_ == alone.best_epoch_


PROGRAM = """
import sys
from ccr.data.store import EmbeddingStore
from ccr.scale import fit
from tests.data.failing_proxy import sometimes, upload
from tests.scale.conftest import classifier_of
store, storage, address = sys.argv[1:]
told = lambda epoch, _: print(epoch.epoch, flush=True)
fit(classifier_of(store), EmbeddingStore.open(store), storage=storage, address=address, workers=2, callback=told)
"""


def test_a_lost_driver_a_lost_worker_and_a_lost_node_change_nothing(
    cluster, node, unfitted, store, one_machine, undisturbed, alone, tmp_path
):
    """One fit: its driver is killed, and of the fit that goes on, first a worker, then a node."""
    storage, told, killed = tmp_path / "kept", [], []
    command = [sys.executable, "-c", PROGRAM, str(one_machine), str(storage), cluster.address]
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: driver.stdout.readline().strip() == "2" or driver.poll() is not None)
    kill_driver(driver)
    assert any(storage.rglob("epoch-*.safetensors"))

    def callback(epoch, epochs):
        told.append(epoch.epoch)
        if epoch.epoch >= 3 and not killed:
            killed.append(kill_worker("TrainWorker"))
        elif epoch.epoch >= 5 and len(killed) == 1:
            killed.append("node")
            kill_node(cluster, node, "TrainWorker")

    fitted = fit(unfitted, store, storage=storage, address=cluster.address, workers=2, callback=callback)
    assert told[0] > 1
    assert killed == [1, "node"]
    assert told[-1] == unfitted.max_iter
    same(fitted, undisturbed, alone)
    assert not storage.exists()


def test_ray_takes_reports_soon_or_when_it_is_told_to(unfitted, store, tmp_path, monkeypatch):
    """Workers wait after every epoch until Ray has taken their report: by its own settings, up to two seconds."""
    from ray.train.v2._internal import constants

    name, config = constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR, {"model": unfitted, "X": store}
    assert name in constants.ENV_VARS_TO_PROPAGATE
    monkeypatch.setenv(name, "5")
    fitting._trainer(config, tmp_path, 2, 1)
    assert os.environ[name] == "5"
    monkeypatch.delenv(name)
    fitting._trainer(config, tmp_path, 2, 1)
    assert 0 < float(os.environ[name]) <= constants.DEFAULT_HEALTH_CHECK_INTERVAL_S / 4


def test_a_sweep_by_tasks_has_the_same_table(cluster, unfitted, store):
    parts = {name: Part.of(store.select(name)) for name in ("train", "val", "test")}
    settings = [Setting(length=length) for length in (3, 4)] + [Setting(length=-1)]
    options = {"settings": settings, "options": {"max_iter": 2}}
    with connected(cluster.address) as ray:
        there = run_sweep(unfitted.concepts, **parts, **options, pool=RayPool(ray))
    here = run_sweep(unfitted.concepts, **parts, **options)
    for ours, theirs in zip(there.outcomes, here.outcomes, strict=True):
        ours, theirs = (vars(outcome.runs[0]).copy() for outcome in (ours, theirs))
        assert ours.pop("fit_seconds") > 0
        theirs.pop("fit_seconds")
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
    assert [failure.reason for failure in there.failures] == [failure.reason for failure in here.failures]


def test_data_store_and_checkpoints_in_an_object_store(cluster, s3, photos, encoder, unfitted, expected, monkeypatch):
    """All at URLs, and some requests of the embedding answered by 503: embedded, then fitted, on the cluster."""
    monkeypatch.setattr(embedding, "PART", 64)
    bucket = as_place("s3://bucket")
    upload(photos, bucket / "photos")
    s3.plan = sometimes("503", every=60, methods=("GET", "PUT"))
    options = {"address": cluster.address, "workers": 2}
    embed(open_samples(bucket / "photos"), encoder, str(bucket / "store"), batch_size=4, shard_size=50, **options)
    s3.plan = lambda method, path: None
    made = {entry.name: (bucket / "store" / entry.name).read_bytes() for entry in (bucket / "store").list()}
    assert set(made) == set(expected)
    assert {name for name in made if made[name] != expected[name]} == {"store.json"}  # which says where the images are
    store, settings = EmbeddingStore.open(bucket / "store"), {**unfitted.get_params(deep=False), "max_iter": 2}
    fitted = fit(ConceptClassifier(**settings), store, storage=bucket / "kept", **options)
    here = together(2, lambda team: ConceptClassifier(**settings).fit(SharedRows(store, team)))[0]
    assert np.array_equal(fitted.coef_, here.coef_)
    assert (bucket / "kept").list() == []
