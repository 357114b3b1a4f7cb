"""What is said when a cluster, a node, a bucket or a shard is not as it must be."""

import os
import subprocess
import sys
import tarfile

import pytest

from ccr.data.datasets import open_samples
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, FormatError, MissingExtraError, UnreachableError
from ccr.io.remote import as_place
from ccr.scale import cluster as cluster_file
from ccr.scale import embed, fit
from ccr.scale.cluster import check_versions, compare_versions, connected, installed
from tests.data.failing_proxy import upload
from tests.data.helpers import write_image
from tests.scale.conftest import HANGS


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_no_cluster_at_the_address(address):
    with (
        pytest.raises(UnreachableError, match=rf"there is no Ray cluster at {address} .*ray start --head"),
        connected(address),
    ):
        pass


def test_an_address_that_is_none():
    with (
        pytest.raises(CCRError, match=r"the address of a cluster is HOST:PORT.*got 'somewhere'"),
        connected("somewhere"),
    ):
        pass


def test_versions_that_differ_are_named_with_their_node():
    compare_versions(installed(), installed(), "abcdef0123")
    there = {**installed(), "numpy": "1.0", "torch": "2.0"}
    with pytest.raises(CCRError, match=r"node abcdef01 of the cluster has .*numpy 1\.0 \(here .*same versions"):
        compare_versions(installed(), there, "abcdef0123")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ccr-xai\[scale\]"), connected("local"):
        pass


def damaged_shard(folder):
    """A tar shard that ends in the middle of an image."""
    write_image(folder / "0.png", 0)
    with tarfile.open(folder / "whole.tar", "w") as archive:
        archive.add(folder / "0.png", "0.png")
    (folder / "00000.tar").write_bytes((folder / "whole.tar").read_bytes()[:700])
    (folder / "whole.tar").unlink()
    return folder / "00000.tar"


def test_a_damaged_shard_is_named(tmp_path):
    with pytest.raises(FormatError, match=r"00000\.tar"):
        open_samples(damaged_shard(tmp_path))


@pytest.mark.scale
def test_another_python_package_on_a_node_is_found_by_asking_it(cluster, node, monkeypatch):
    """The nodes are really asked: this process, and no other, takes everything for another version."""
    import ray

    check_versions(ray)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1")
    with pytest.raises(CCRError, match=r"\(here 0\.1\)"):
        check_versions(ray)


@pytest.mark.scale
def test_a_cluster_that_is_too_small(cluster, unfitted, one_machine, tmp_path):
    store = EmbeddingStore.open(one_machine)
    for cpus, said in (
        (99, r"99 cores does not fit on any .*ask for at most 2"),
        (0, "cpus must be at least 1, got 0"),
    ):
        with pytest.raises(CCRError, match=said):
            fit(unfitted, store, storage=tmp_path / "k", address=cluster.address, cpus=cpus)


@pytest.mark.scale
def test_a_bucket_without_rights(cluster, s3, photos, encoder, tmp_path):
    """Of the output: before anything is embedded. Of the photos: from the workers, in the same words."""
    bucket = as_place("s3://bucket")
    upload(photos / "class 0", bucket / "refused")
    dataset = open_samples(bucket / "refused")
    s3.plan = lambda method, path: "403"
    try:
        with pytest.raises(CCRError, match=r"may not be used with these credentials .*ask for rights to the bucket"):
            embed(open_samples(photos), encoder, "s3://bucket/out", address=cluster.address, workers=1)
        with pytest.raises(CCRError, match="may not be used with these credentials"):
            embed(dataset, encoder, tmp_path / "s", address=cluster.address, workers=1)
    finally:
        s3.plan = lambda method, path: None
    assert not (tmp_path / "s" / "store.json").exists()


def test_a_cluster_that_ccr_starts_demands_a_token(tmp_path):
    """Ray's processes listen on every address of the machine."""
    program = (
        "import os, subprocess, sys\n"
        "from ccr.scale.cluster import connected\n"
        "with connected('local') as ray:\n"
        "    address = ray.get_runtime_context().gcs_address\n"
        "    join = f\"import ray; ray.init(address='{address}', log_to_driver=False); print('joined')\"\n"
        "    for mode in ({'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN': 'x' * 64}, {'RAY_AUTH_MODE': 'disabled'}, {}):\n"
        "        command = [sys.executable, '-c', join]\n"
        "        done = subprocess.run(command, env={**os.environ, **mode}, capture_output=True, text=True)\n"
        "        print('joined' in done.stdout)\n"
        "print(os.environ.get('RAY_AUTH_MODE'))\n"
    )
    names = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**names, "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert done.stdout.split() == ["False", "False", "True", "None"], done.stderr[-2000:]


@pytest.mark.parametrize("version", ["2.0.1", "2.59.3", "2.60.0", "3.0.0.dev0"])
def test_a_ray_that_demands_no_token_is_not_used(monkeypatch, version):
    """One that is too old for tokens is not even started: until it ended, whoever reached it could run code."""
    started = []

    class Open:
        __version__ = version
        init = staticmethod(lambda **options: started.append(options))
        shutdown = staticmethod(lambda: started.append("ended"))

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(CCRError, match=rf"Ray {version} would let whoever reaches this machine run code"):
        cluster_file._start(Open, {})
    assert started[1:] == ["ended"] if version >= "2.60" else started == []
