"""`ccr.scale.fit` on two nodes: the model of one machine, to the bit, whatever is killed; sweeps by tasks."""

import subprocess
import sys

import pytest
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import ccr.scale.embedding as embedding
import ccr.scale.fitting as fitting
from ccr import ConceptClassifier
from ccr.data.datasets import open_samples
from ccr.data.store import EmbeddingStore
from ccr.io.remote import as_place
from ccr.labels import Part
from ccr.scale import RayPool, connected, embed, fit
from ccr.scale.cluster import ProgressActor
from ccr_lab.experiments.sweep import Setting, run_sweep
from tests.data.failing_proxy import sometimes, upload
from tests.data.helpers import folder_files
from tests.scale.conftest import kill_driver, kill_worker, wait_for, workers

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def store(one_machine):
    return EmbeddingStore.open(one_machine)


def fitted_here(model, store, threads):
    """The same fit by this process alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return ConceptClassifier(**model.get_params(deep=False)).fit(store)
    finally:
        torch.set_num_threads(before)


def files_of(model, folder):
    """The saved model, file by file."""
    model.save(folder)
    return folder_files(folder)


PROGRAM = """
import sys
from ccr.data.store import EmbeddingStore
from ccr.scale import fit, fitting
from tests.scale.conftest import classifier_of
store, storage, address, epochs = sys.argv[1:]
fitting.LOOK = 0.02
told = lambda epoch, _: print(epoch.epoch, flush=True)
model = classifier_of(store).set_params(max_iter=int(epochs), n_iter_no_change=int(epochs))
fit(model, EmbeddingStore.open(store), storage=storage, address=address, cpus=1, callback=told)
"""
#: Long enough for three interruptions.
EPOCHS = 400


def test_a_lost_driver_a_lost_worker_and_a_lost_node_change_nothing(
    cluster, node, unfitted, store, one_machine, tmp_path, monkeypatch
):
    """One fit: its driver is killed, and of the fit that goes on, first the worker, then the node. While the head has
    no core that is free, the fit is on the node."""
    import ray

    monkeypatch.setattr(fitting, "LOOK", 0.02)
    storage, told, killed = tmp_path / "kept", [], []
    command = [sys.executable, "-c", PROGRAM, str(one_machine), str(storage), cluster.address, str(EPOCHS)]
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: driver.stdout.readline().strip() not in ("", "1") or driver.poll() is not None)
    kill_driver(driver)
    assert any(storage.rglob("epoch-*.safetensors"))
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    busy = ray.remote(num_cpus=2, scheduling_strategy=here)(ProgressActor).remote()
    ray.get(busy.take.remote())

    def callback(epoch, epochs):
        told.append(epoch.epoch)
        if not killed:
            killed.append(kill_worker("fit_here", of=node))
        elif len(killed) == 1 and epoch.epoch > told[0] + 20:
            killed.append(len(workers("fit_here", of=node)))
            ray.kill(busy)
            cluster.remove_node(node, allow_graceful=False)

    model = ConceptClassifier(**unfitted.get_params(deep=False)).set_params(max_iter=EPOCHS, n_iter_no_change=EPOCHS)
    fitted = fit(model, store, storage=storage, address=cluster.address, cpus=1, callback=callback)
    assert told[0] > 1, "it began anew"
    assert killed == [1, 1]
    assert told[-1] == EPOCHS
    assert files_of(fitted, tmp_path / "there") == files_of(fitted_here(model, store, 1), tmp_path / "here")
    assert not storage.exists()


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


def test_data_store_and_checkpoints_in_an_object_store(
    cluster, s3, photos, encoder, unfitted, expected, tmp_path, monkeypatch
):
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
    model, stopped = ConceptClassifier(**settings), []

    def stop(epoch, epochs):
        stopped.append([entry.name for entry in (bucket / "kept").list()])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, store, storage=bucket / "kept", address=cluster.address, callback=stop)
    assert "ccr-fit/progress.json" in stopped[0]
    fitted = fit(model, store, storage=bucket / "kept", address=cluster.address)
    assert files_of(fitted, tmp_path / "there") == files_of(fitted_here(model, store, 2), tmp_path / "here")
    assert (bucket / "kept").list() == []
