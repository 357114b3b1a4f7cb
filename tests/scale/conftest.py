"""Real Ray clusters of two nodes on this machine, and parts small enough to be killed between."""

import os
import signal
import time

import psutil
import pytest

from tests.data.helpers import folder_files, write_image

pytestmark = pytest.mark.scale
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", OMP_NUM_THREADS="1", RAY_AUTH_MODE="disabled")
os.environ.update(RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S="20", RAY_memory_monitor_refresh_ms="0")
MEMORY = 100 << 20


@pytest.fixture(scope="session")
def cluster():
    """A head with two cores, to which nodes may be added; everything ends with it."""
    import ray
    from ray.cluster_utils import Cluster

    before = set(psutil.Process().children(recursive=True))
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": MEMORY,
            "include_dashboard": False,
            "_system_config": {"health_check_period_ms": 1000, "health_check_failure_threshold": 15},
        },
    )
    # Now, while there is one node: this process is then attached to the head, which is never killed.
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    if ray.is_initialized():
        ray.shutdown()
    made.shutdown()
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    for child in left:
        child.kill()
    psutil.wait_procs(left, timeout=10)


@pytest.fixture
def node(cluster):
    """A second node of two cores; lost or not, it is gone afterwards."""
    made = cluster.add_node(num_cpus=2, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    yield made
    if made in cluster.list_all_nodes():
        cluster.remove_node(made, allow_graceful=False)


def kill_workers(word, most=1):
    """SIGKILL so many of the workers whose title has this word; how many there were."""
    killed = 0
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or [])
        if title.startswith("ray::") and word in title and killed < most:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A real CLIP of tiny size and random weights."""
    from tests.data.test_hf import build, processor

    folder = tmp_path_factory.mktemp("encoder")
    build("clip").save_pretrained(folder)
    processor("clip").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(encoder_folder):
    from ccr.data.encoders import load_encoder

    return load_encoder(f"hf:{encoder_folder}", batch_size=4)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """120 images, some of them copies of others far away, and two that are none."""
    root = tmp_path_factory.mktemp("photos")
    for row in range(120):
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
