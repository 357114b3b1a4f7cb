import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.classifier import ConceptClassifier
from ccr.coding import TopK
from ccr.data.datasets import open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.vocab import embed_concepts
from tests.data.helpers import PixelEncoder, folder_files, picture, write_image, write_store

ROWS = 23


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for row in range(ROWS):
        write_image(root / f"class {row % 3}" / f"{row:02}.png", row)
    return root


@pytest.fixture(scope="module")
def stored(images, tmp_path_factory):
    """A store of several shards."""
    out = tmp_path_factory.mktemp("stores") / "s"
    embed_dataset(open_dataset(images), PixelEncoder(), out, workers=0, batch_size=4, shard_size=7, dtype="float32")
    return out


@pytest.fixture
def store(stored):
    return EmbeddingStore.open(stored)


@pytest.fixture(scope="module")
def plain(stored):
    """The same rows as one plain array."""
    return np.concatenate([np.load(stored / f"img_emb/img_emb_{n}.npy") for n in range(4)])


def test_layout_is_clip_retrievals(stored):
    assert sorted(folder_files(stored)) == sorted(
        [f"img_emb/img_emb_{n}.npy" for n in range(4)]
        + [f"metadata/metadata_{n}.parquet" for n in range(4)]
        + ["store.json"]
    )
    description = json.loads((stored / "store.json").read_text())
    assert [shard["rows"] for shard in description["shards"]] == [7, 7, 7, 2]
    assert description["encoder"]["spec"] == "test:pixels"
    assert description["classes"] == ["class 0", "class 1", "class 2"]
    assert sum(description["splits"].values()) == ROWS


def test_a_store_is_a_matrix(store, plain):
    assert store.shape == plain.shape == (ROWS, 16)
    assert store.dtype == np.float32
    assert len(store) == ROWS
    assert np.array_equal(np.asarray(store), plain)
    assert np.array_equal(store.X, plain)
    assert np.allclose(np.linalg.norm(plain, axis=1), 1, atol=1e-6)


indices = st.one_of(
    st.integers(-ROWS, ROWS - 1),
    st.slices(ROWS),
    st.lists(st.integers(-ROWS, ROWS - 1), max_size=30),
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
)


@given(index=indices)
def test_indexing_is_numpys(stored, plain, index):
    store = EmbeddingStore.open(stored)
    wanted = np.asarray(index, dtype=int) if index == [] else index
    assert np.array_equal(store[wanted], plain[wanted])
    half = store.select(rows=np.arange(ROWS)[::-2])
    mask_like = isinstance(index, list) and index and isinstance(index[0], bool)
    if not mask_like:
        kept = plain[::-2]
        inside = isinstance(index, slice) or np.all(np.abs(np.asarray(wanted)) < len(kept))
        if inside:
            assert np.array_equal(half[wanted], kept[wanted])


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1, [0, ROWS], [True], [0.5]])
def test_wrong_rows_are_refused(store, index):
    with pytest.raises(IndexError):
        store[index]


def test_a_slice_within_a_shard_stays_on_disk(store):
    assert isinstance(store[8:12], np.memmap)
    assert store[3, 2] == store[3][2]
    assert store[2:9, 1:3].shape == (7, 2)


def test_labels_splits_paths(store, images):
    assert list(store.labels[:2]) == ["class 0", "class 0"]
    assert store.y.dtype.kind == "U"
    assert store.classes == ("class 0", "class 1", "class 2")
    assert store.paths[0] == "class 0/00.png"
    parts = [store.select(split) for split in ("train", "val", "test")]
    assert sum(map(len, parts)) == ROWS
    train = parts[0]
    assert set(train.splits) == {"train"}
    assert np.array_equal(np.asarray(train), np.asarray(store)[store.splits == "train"])
    assert np.array_equal(train.image(2), store.image(int(np.flatnonzero(store.splits == "train")[2])))
    assert len(train.select(rows=[0, 2])) == 2
    with pytest.raises(CCRError, match="no rows in the split 'dev'"):
        store.select("dev")


def test_images_come_back(store, images, tmp_path):
    assert np.array_equal(np.asarray(store.image(0)), np.asarray(picture(0)))
    moved = tmp_path / "moved"
    shutil.copytree(images, moved)
    again = EmbeddingStore.open(store.path, data=moved)
    assert np.array_equal(np.asarray(again.image(1)), np.asarray(picture(3)))
    shutil.rmtree(moved)
    with pytest.raises(CCRError, match="which is not there"):
        again.image(0)


def test_another_encoder_is_refused(store):
    store.check_encoder(PixelEncoder().fingerprint)
    with pytest.raises(CCRError, match="made by the encoder 'test:pixels'"):
        store.check_encoder(PixelEncoder(1).fingerprint)


def test_a_store_goes_into_fit(store):
    concepts = embed_concepts(["red", "green", "round", "long", "soft"], PixelEncoder())
    model = ConceptClassifier(concepts, coder=TopK(2), max_iter=2, random_state=0).fit(store, store.y)
    assert list(model.classes_) == list(store.classes)
    assert len(model.predict(store.select("test"))) == len(store.select("test"))


def test_verify_finds_changed_files(stored, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(stored, copy)
    EmbeddingStore.open(copy).verify()
    file = copy / "img_emb/img_emb_1.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(FormatError, match=r"img_emb_1\.npy is missing or not what was written"):
        EmbeddingStore.open(copy).verify()


@pytest.fixture
def foreign(tmp_path):
    """A folder as clip-retrieval leaves it: zero-padded numbers, no store.json, more than ten shards."""
    (tmp_path / "img_emb").mkdir()
    (tmp_path / "metadata").mkdir()
    for n in range(12):
        np.save(tmp_path / f"img_emb/img_emb_{n}.npy", np.full((2, 3), n, np.float16))
        table = pa.table({"image_path": [f"/data/{n}_0.jpg", f"/data/{n}_1.jpg"], "caption": ["a", "b"]})
        pq.write_table(table, tmp_path / f"metadata/metadata_{n}.parquet")
    return tmp_path


def test_clip_retrieval_folders_open_as_they_are(foreign):
    store = EmbeddingStore.open(foreign)
    assert np.array_equal(np.asarray(store)[:, 0], np.repeat(np.arange(12), 2))
    assert store.dtype == np.float16
    assert store.paths[21] == "/data/10_1.jpg"
    assert store.encoder is None
    assert store.classes == ()
    with pytest.raises(CCRError, match="every row needs a label"):
        _ = store.y
    with pytest.raises(CCRError, match="does not say where"):
        store.image(0)
    with pytest.warns(CCRWarning, match="cannot be checked"):
        store.check_encoder("abc")


def test_clip_retrieval_folder_without_metadata(foreign):
    shutil.rmtree(foreign / "metadata")
    assert list(EmbeddingStore.open(foreign).labels) == [None] * 24


def test_bad_folders_are_explained(foreign, tmp_path):
    with pytest.raises(FormatError, match="is not an embedding store"):
        EmbeddingStore.open(tmp_path / "none")
    (foreign / "metadata/metadata_3.parquet").unlink()
    with pytest.raises(FormatError, match="12 shards of embeddings and 11 of metadata"):
        _ = EmbeddingStore.open(foreign).labels
    np.save(foreign / "img_emb/img_emb_3.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"must be a \.npy matrix"):
        EmbeddingStore.open(foreign)
    np.save(foreign / "img_emb/img_emb_3.npy", np.zeros((2, 4), np.float16))
    with pytest.raises(FormatError, match="all shards must be alike"):
        EmbeddingStore.open(foreign)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "store version 99"),
        ({"format": "x"}, "format 'ccr-store'"),
        ({"shards": []}, "must have shards of"),
    ],
)
def test_other_versions_are_refused(stored, tmp_path, change, message):
    copy = tmp_path / "copy"
    shutil.copytree(stored, copy)
    description = json.loads((copy / "store.json").read_text())
    (copy / "store.json").write_text(json.dumps({**description, **change}))
    with pytest.raises(FormatError, match=message):
        EmbeddingStore.open(copy)


def test_tables_of_other_shards_are_refused(foreign):
    (foreign / "metadata/metadata_3.parquet").unlink()
    (foreign / "img_emb/img_emb_11.npy").unlink()
    with pytest.raises(FormatError, match="got none for shard 3"):
        _ = EmbeddingStore.open(foreign).labels


def test_labels_of_a_foreign_store_are_texts_or_none(foreign):
    given = [[b"cat", b"dog"], [" cat", ""], ["cat ", None]]
    for n, values in enumerate(given):
        pq.write_table(pa.table({"label": values}), foreign / f"metadata/metadata_{n}.parquet")
    pq.write_table(pa.table({"label": [1.5, float("nan")]}), foreign / "metadata/metadata_3.parquet")
    store = EmbeddingStore.open(foreign)
    assert list(store.labels[:8]) == ["cat", "dog", "cat", None, "cat", None, "1.5", None]
    assert store.classes == ("1.5", "cat", "dog")


@pytest.mark.parametrize(
    ("splits", "rows"),
    [
        (["train", "val", "test", None], [0]),
        (["trainval", "val", "test", None], [0, 3]),
        (["trainval", "test"], [0]),
        ([None, None], [0, 1]),
        (["test", "val"], []),
    ],
)
def test_what_may_be_trained_on(tmp_path, splits, rows):
    write_store(tmp_path, np.eye(len(splits)), splits, splits)
    assert np.flatnonzero(EmbeddingStore.open(tmp_path).trainable).tolist() == rows
