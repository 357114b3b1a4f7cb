"""What is said when a cluster, a node, a bucket or a shard is not as it must be."""

import sys
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch

from ccr.core.team import ALONE
from ccr.data.datasets import open_samples
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, FormatError, MissingExtraError, UnreachableError
from ccr.places import as_place
from ccr.scale import embed, fit, fitting
from ccr.scale.cluster import check_versions, compare_versions, connected, installed
from ccr.scale.rows import SharedRows
from tests.data.failing_proxy import upload
from tests.data.helpers import write_image


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
    with pytest.raises(CCRError, match=r"99 workers of 1 cores do not fit on the cluster.*ask for at most \d workers"):
        fit(unfitted, store, storage=tmp_path / "k", address=cluster.address, workers=99)
    with pytest.raises(CCRError, match="workers must be at least 1, got 0"):
        fit(unfitted, store, storage=tmp_path / "k", address=cluster.address, workers=0)


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


def test_a_fit_removes_what_it_wrote_and_nothing_else(tmp_path):
    storage = tmp_path / "kept"
    for name in ("fit-mine/checkpoint", "fit-other/checkpoint"):
        (storage / name).mkdir(parents=True)
    fitting._remove(storage, "fit-mine")
    assert [path.name for path in storage.iterdir()] == ["fit-other"]
    fitting._remove(storage, "fit-other")
    assert not storage.exists()


def test_rows_of_any_kind_are_shared_as_an_array():
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    for X in (numbers, numbers.tolist(), torch.from_numpy(numbers), pd.DataFrame(numbers)):
        shared = SharedRows(fitting._rows(X), ALONE)
        assert shared.shape == (3, 2)
        assert np.array_equal(shared[:], numbers)
