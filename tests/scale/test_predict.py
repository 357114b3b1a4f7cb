"""`ccr predict --ray`: whatever is killed, the file has the bytes of the one-machine run."""

import subprocess
import sys

import pytest

from ccr import ConceptClassifier
from ccr.data.datasets import open_photos
from ccr.data.store import EmbeddingStore
from ccr.photos.run import predict_photos, progress_folder
from ccr.photos.run import predict_store as predict_store_here
from ccr.scale import predict, predict_store
from tests.scale.conftest import kill_driver, kill_worker, wait_for

pytestmark = pytest.mark.scale
OPTIONS = {"batch_size": 4, "explain": 3}


@pytest.fixture(scope="module")
def fitted(unfitted, one_machine, tmp_path_factory):
    """A folder with a model of the photos."""
    folder = tmp_path_factory.mktemp("models") / "model"
    options = unfitted.get_params(deep=False)
    ConceptClassifier(**options).fit(EmbeddingStore.open(one_machine)).save(folder)
    return folder


@pytest.fixture(scope="module")
def model(fitted):
    return ConceptClassifier.load(fitted).model_


@pytest.fixture(scope="module")
def expected_table(model, photos, encoder, tmp_path_factory):
    """The file that one machine writes."""
    out = tmp_path_factory.mktemp("tables") / "one.csv"
    predict_photos(model, open_photos([photos]), encoder, out, workers=0, **OPTIONS)
    return out.read_bytes()


def test_a_lost_driver_and_a_lost_worker_change_nothing(
    cluster, fitted, model, photos, encoder_folder, encoder, expected_table, tmp_path
):
    """One run: its driver is killed, and a worker of the run that goes on."""
    out, told, killed = tmp_path / "p.csv", [], []
    command = [
        sys.executable, "-c", "from ccr.cli import main; main()", "predict", str(fitted), str(photos), "--out",
        str(out), "--encoder", f"hf:{encoder_folder}", "--batch-size", "4", "--explain", "3", "--workers", "1",
        "--ray", cluster.address, "--json",
    ]  # fmt: skip
    driver = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(progress_folder(out).glob("chunk_*.json"))) >= 2 or driver.poll() is not None)
    kill_driver(driver)
    assert not out.exists()

    def tell(done, total, what):
        told.append((done, total))
        if len(told) == 3:
            killed.append(kill_worker("MapWorker"))

    summary = predict(model, open_photos([photos]), encoder, out, address=cluster.address, tell=tell, **OPTIONS)
    assert killed == [1]
    assert out.read_bytes() == expected_table
    assert (summary.photos, summary.predicted) == (242, 240)
    assert 0 < summary.resumed < 242
    assert (told[0], told[-1]) == ((summary.resumed, 242), (242, 242))
    assert [done for done, _ in told] == sorted({done for done, _ in told}), "no chunk is counted twice"
    assert not progress_folder(out).exists()


def test_a_store_is_predicted_alike(cluster, model, one_machine, tmp_path, monkeypatch):
    monkeypatch.setattr("ccr.photos.run._ROWS_PER_CHUNK", 32)
    store = EmbeddingStore.open(one_machine)
    predict_store(model, store, tmp_path / "there.parquet", address=cluster.address, workers=1)
    predict_store_here(model, store, tmp_path / "here.parquet")
    assert (tmp_path / "there.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()
