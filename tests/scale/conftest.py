"""A real Ray cluster of this machine, with ports, folders and processes of its own, whose parts can be killed."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
import urllib.request

import psutil
import pytest

from tests.data.failing_proxy import CREDENTIALS, Proxy
from tests.data.helpers import folder_files, write_image

#: Bytes of the object store of a node, and seconds after which a test hangs.
MEMORY, HANGS = 100 << 20, 240
#: Read by Ray's processes; the memory of a machine that others use, too, is no reason to end workers.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "OMP_NUM_THREADS": "1",
}
#: Ports that are free, and a node that answers no more is gone after 15 looks.
HEAD = {
    "num_cpus": 2,
    "object_store_memory": MEMORY,
    "include_dashboard": False,
    "dashboard_agent_listen_port": 0,
    "_system_config": {"health_check_period_ms": 300, "health_check_failure_threshold": 15},
}


@pytest.fixture(scope="session")
def s3():
    """An S3 server with the bucket `bucket`, behind a proxy that can fail (`plan`); workers know it, too."""
    moto = pytest.importorskip("moto.server", reason="needs the dev extra")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    made = Proxy(server.get_host_and_port())
    host, port = made.server_address
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT"))
        yield made
    made.shutdown()
    server.stop()


@pytest.fixture(scope="session")
def cluster(s3):
    """A head with two cores, to which nodes may be added; everything ends with it, whatever tests left running."""
    folder, before = tempfile.mkdtemp(prefix="ccr-", dir="/tmp"), set(psutil.Process().children(recursive=True))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, "RAY_TMPDIR": folder}.items():  # short: names of sockets have 107 bytes
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        made = None
        try:
            made = Cluster(initialize_head=True, head_node_args=HEAD)
            # Now, while there is one node: this process is then attached to the head, which is never killed.
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            yield made
        finally:
            # Listed first: a worker whose node is gone is nobody's child.
            mine = [child for child in psutil.Process().children(recursive=True) if child not in before]
            ray.shutdown()
            if made is not None:  # on a busy machine it may not start within Ray's 30 seconds
                made.shutdown()
            for child in mine:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(mine, timeout=10)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node(cluster):
    """A second node of two cores; lost or not, it is gone afterwards."""
    made = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    yield made
    if made in cluster.list_all_nodes():
        cluster.remove_node(made, allow_graceful=False)


@pytest.fixture(autouse=True)
def does_not_hang():
    """A test that waits for ever fails, so that what it started is ended."""

    def stop(*_):
        raise TimeoutError(f"the test did not end within {HANGS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def workers(word, of=None):
    """The processes of workers whose title has this word, of this test run's cluster or of one of its nodes."""
    root = psutil.Process() if of is None else psutil.Process(of.all_processes["raylet"][0].process.pid)
    found = []
    for process in root.children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if title.startswith("ray::") and word in title:
            found.append(process)
    return found


def kill_worker(word, of=None):
    """SIGKILL one of those workers; how many were killed."""
    for process in workers(word, of)[:1]:
        process.kill()
        return 1
    return 0


def kill_node(cluster, node, word):
    """SIGKILL everything of a node as soon as such a worker is at work there; the others are halted until then, so that
    they leave it something to do."""
    halted = []

    def at_work():
        there = workers(word, of=node)
        for process in workers(word):
            if process not in there and process not in halted:
                process.suspend()
                halted.append(process)
        return there

    try:
        wait_for(at_work)
        cluster.remove_node(node, allow_graceful=False)
    finally:
        for process in halted:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def kill_driver(driver):
    """SIGKILL a process that was started in a session of its own."""
    assert driver.poll() is None, "it ended before it could be killed"
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A real CLIP of tiny size and random weights."""
    from tests.encoders.test_hf import build, processor

    folder = tmp_path_factory.mktemp("encoder")
    build("clip").save_pretrained(folder)
    processor("clip").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(encoder_folder):
    from ccr.encoders import load_encoder

    return load_encoder(f"hf:{encoder_folder}", batch_size=4)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """240 images, some of them copies of others far away, and two that are none."""
    root = tmp_path_factory.mktemp("photos")
    for row in range(240):
        write_image(root / f"class {row % 3}" / f"{row:03}.png", row if row % 11 else 11)
    (root / "class 1" / "050-bad.png").write_bytes(b"no image")
    (root / "class 2" / "bad.png").write_bytes(b"")
    return root


@pytest.fixture(scope="session")
def one_machine(photos, encoder, tmp_path_factory):
    """The store that one machine makes."""
    from ccr.data.datasets import open_dataset
    from ccr.data.store import embed_dataset

    out = tmp_path_factory.mktemp("one") / "store"
    embed_dataset(open_dataset(photos), encoder, out, batch_size=4, shard_size=50, workers=0)
    return out


@pytest.fixture(scope="session")
def expected(one_machine):
    return folder_files(one_machine)


@pytest.fixture(scope="session")
def unfitted(one_machine):
    return classifier_of(one_machine)


def classifier_of(folder):
    """A classifier for a store, with some of its images as concepts, not fitted yet."""
    import numpy as np

    from ccr import ConceptClassifier, Concepts
    from ccr.coding import HardThreshold
    from ccr.data.store import EmbeddingStore

    rows = np.asarray(EmbeddingStore.open(folder)[:20], np.float32)
    concepts = Concepts([f"c{row}" for row in range(20)], rows)
    return ConceptClassifier(concepts, coder=HardThreshold(length=4), max_iter=10, random_state=0)
