"""Object stores: moto's S3 server, behind a proxy that fails as networks do."""

import csv
import io
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ccr.io.remote
from ccr.classifier import ConceptClassifier
from ccr.coding import TopK
from ccr.data.datasets import open_dataset, open_photos
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.data.store import matrix as matrix_file
from ccr.errors import CCRError, FormatError, MissingPlaceError, UnreachableError
from ccr.io.remote import Place, as_place, is_url
from ccr.model import ConceptModel
from ccr.photos.run import predict_photos
from ccr.vocab import embed_concepts
from tests.data.failing_proxy import CREDENTIALS, Proxy, sometimes, upload
from tests.data.helpers import PixelEncoder, folder_files, picture, write_image
from tests.data.test_sharded import img2dataset

moto_server = pytest.importorskip("moto.server", reason="needs the dev extra")


@pytest.fixture(scope="module")
def proxy():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    made = Proxy(server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        host, port = made.server_address
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        patch.setattr(ccr.io.remote, "PAUSE", 0.01)
        patch.setattr(ccr.io.remote, "AMAZON_TRIES", 2)
        ccr.io.remote.filesystem.cache_clear()
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT"))
        yield made
        ccr.io.remote.filesystem.cache_clear()
    made.shutdown()
    server.stop()


@pytest.fixture
def bucket(proxy, request):
    proxy.plan, proxy.seen[:] = (lambda method, path: None), []
    yield as_place(f"s3://bucket/{request.node.name}")
    proxy.plan = lambda method, path: None


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for row in range(12):
        write_image(root / f"class {row % 3}" / f"{row:02}.png", row)
    return root


@pytest.fixture(scope="module")
def stored(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("stores") / "s"
    embed_dataset(open_dataset(images), PixelEncoder(), out, workers=0, batch_size=2, shard_size=5, dtype="float32")
    return out


@pytest.mark.parametrize("fault", ["503", "slow", "cut"])
def test_a_store_is_read_by_ranges_whatever_the_network_does(proxy, bucket, stored, fault):
    upload(stored, bucket)
    proxy.plan = sometimes(fault)
    store, local = EmbeddingStore.open(str(bucket)), EmbeddingStore.open(stored)
    assert np.array_equal(store[[7, 0, 11, 4, 7]], local[[7, 0, 11, 4, 7]])
    assert np.array_equal(store[1:3], local[1:3])
    assert list(store.y) == list(local.y)
    assert list(store.splits) == list(local.splits)
    assert np.array_equal(np.asarray(store.select("train")), np.asarray(local.select("train")))


def test_opening_reads_the_description_alone_and_rows_their_bytes_alone(proxy, bucket, stored):
    upload(stored, bucket)
    proxy.seen.clear()
    store = EmbeddingStore.open(str(bucket))
    assert {path.rpartition("/")[2] for method, path, _ in proxy.seen if method == "GET"} == {"store.json"}
    proxy.seen.clear()
    assert store[6].shape == (16,)
    ranges = [one for method, path, one in proxy.seen if method == "GET"]
    assert ranges[-1] == "bytes=192-255"  # the second row of the second shard, behind a heading of 128 bytes
    assert len(ranges) == 2


def test_a_store_of_many_shards_opens_without_looking_at_them(stored, tmp_path, monkeypatch):
    import json

    from ccr.data.store.layout import DESCRIPTION, array_bytes, embeddings_path

    description = json.loads((stored / DESCRIPTION).read_text())
    description["shards"] = [{**description["shards"][0], "rows": 1} for _ in range(5000)]
    (tmp_path / "img_emb").mkdir()
    (tmp_path / DESCRIPTION).write_text(json.dumps(description))
    for shard in (0, 3999, 4999):
        embeddings_path(tmp_path, shard).write_bytes(array_bytes(np.full((1, 16), shard, np.float32)))
    opened = []
    real = matrix_file._opened
    monkeypatch.setattr(matrix_file, "_opened", lambda file: opened.append(file) or real(file))
    store = EmbeddingStore.open(tmp_path)
    assert len(store) == 5000
    assert not opened
    assert store[3999, 0] == 3999
    assert len(opened) == 1
    with pytest.raises(FormatError, match=r"img_emb_77\.npy"):
        store[77]


@pytest.mark.parametrize("kind", ["folder", "tar", "manifest"])
def test_data_are_embedded_from_and_into_an_object_store(proxy, bucket, images, tmp_path, kind):
    source, data = images, bucket / "data"
    if kind == "tar":
        source, data = img2dataset(tmp_path / "tar"), bucket / "data"
    upload(source, data)
    given, local = str(data), source
    if kind == "manifest":
        rows = [f"{sample.key},{sample.label}" for sample in open_dataset(images)]
        (data / "m.csv").write_bytes("\n".join(["path,label", *rows]).encode())
        given = str(data / "m.csv")
    proxy.plan = sometimes("503", every=30, methods=("GET", "PUT", "POST"))
    embed_dataset(open_dataset(given), PixelEncoder(), str(bucket / "store"), workers=0, batch_size=2, dtype="float32")
    embed_dataset(open_dataset(local), PixelEncoder(), tmp_path / "here", workers=0, batch_size=2, dtype="float32")
    ours = {entry.name: (bucket / "store" / entry.name).read_bytes() for entry in (bucket / "store").list()}
    theirs = folder_files(tmp_path / "here")
    assert set(ours) == set(theirs)
    assert {name for name in ours if ours[name] != theirs[name]} == {"store.json"}  # which says where the images are
    store = EmbeddingStore.open(str(bucket / "store"))
    assert store.image(1).size == picture(1).size
    again = embed_dataset(
        open_dataset(given), PixelEncoder(), str(bucket / "store"), workers=0, batch_size=2, dtype="float32"
    )
    assert again.images_per_second == 0.0


def test_images_with_a_table_beside_them_are_a_folder_as_on_disk(bucket, images):
    upload(images, bucket / "data")
    stream = io.BytesIO()
    pq.write_table(pa.table({"path": ["class 0/00.png"], "label": ["x"]}), stream)
    (bucket / "data" / "list.parquet").write_bytes(stream.getvalue())
    found = open_dataset(str(bucket / "data"))
    assert (len(found), found.origin["kind"]) == (12, "folder")


def test_a_model_at_a_url(bucket, stored):
    store = EmbeddingStore.open(stored)
    concepts = embed_concepts(["red", "green", "round", "long"], PixelEncoder())
    model = ConceptClassifier(concepts, coder=TopK(2), max_iter=2, random_state=0).fit(store, store.y)
    model.save(str(bucket / "model"))
    loaded = ConceptModel.load(str(bucket / "model"))
    assert np.array_equal(loaded.predict(store), model.predict(store))
    with pytest.raises(FormatError, match="is not a model"):
        ConceptModel.load(str(bucket / "nothing"))


@pytest.mark.parametrize("kind", ["folder", "tar", "one", "manifest"])
def test_photos_at_a_url_are_predicted_as_those_here(proxy, bucket, images, stored, tmp_path, kind):
    store = EmbeddingStore.open(stored)
    concepts = embed_concepts(["red", "green", "round", "long"], PixelEncoder())
    model = ConceptClassifier(concepts, coder=TopK(2), max_iter=2, random_state=0).fit(store, store.y).model_
    source = img2dataset(tmp_path / "tar") if kind == "tar" else images
    upload(source, bucket)
    (bucket / "m.csv").write_bytes(b"path\nclass 2/05.png\nclass 0/06.png")
    there = {"folder": bucket, "tar": bucket, "one": bucket / "class 2" / "05.png", "manifest": bucket / "m.csv"}[kind]
    here = {"folder": [images], "tar": [source], "one": [images / "class 2" / "05.png"]}.get(
        kind, [images / "class 2" / "05.png", images / "class 0" / "06.png"]
    )
    if kind in ("folder", "one"):  # what cannot be fetched now is no bad photo
        proxy.plan = lambda method, path: "cut" if method == "GET" and "05.png" in path else None
        with pytest.raises(UnreachableError, match=r"05\.png"):
            predict_photos(model, open_photos([str(there)]), PixelEncoder(), tmp_path / "there.csv", workers=0)
        proxy.plan = lambda method, path: None
    found = {}
    for name, given in (("there", [str(there)]), ("here", here)):
        predict_photos(model, open_photos(given), PixelEncoder(), tmp_path / f"{name}.csv", workers=0)
        found[name] = list(csv.DictReader(io.StringIO((tmp_path / f"{name}.csv").read_text())))
    assert all(row["path"].startswith(str(there if kind != "manifest" else bucket)) for row in found["there"])
    assert len(found["here"]) > 0
    drop = [{**row, "path": ""} for row in found["there"]], [{**row, "path": ""} for row in found["here"]]
    assert drop[0] == drop[1]
    with pytest.raises(CCRError, match="written to a file of this machine"):
        predict_photos(model, open_photos(here), PixelEncoder(), str(bucket / "p.csv"), workers=0)


def test_what_goes_wrong_is_said_in_words(proxy, bucket, stored):
    with pytest.raises(MissingPlaceError, match="there is no s3://bucket/"):
        (bucket / "nothing").read_bytes()
    upload(stored, bucket)
    proxy.plan = lambda method, path: "403"
    with pytest.raises(CCRError, match="may not be used with these credentials"):
        EmbeddingStore.open(str(bucket))
    proxy.plan = lambda method, path: "cut" if method == "GET" else None
    with pytest.raises(UnreachableError, match="run the same command again"):
        (bucket / "store.json").read_bytes()


def test_a_listing_with_a_name_that_is_no_text_is_said_in_words(monkeypatch):
    class Listing:
        is_file, size = True, 1
        path = property(lambda self: b"bucket/\xd4.png".decode())

        def get_file_info(self, _):
            return [self]

    monkeypatch.setattr(ccr.io.remote, "filesystem", lambda *_: Listing())
    monkeypatch.setattr(ccr.io.remote, "PAUSE", 0.0)
    with pytest.raises(UnreachableError, match=r"cannot be read or written now .*can't decode byte 0xd4"):
        open_dataset("s3://bucket")


def test_an_image_that_cannot_be_fetched_now_is_no_bad_image(proxy, bucket, images, tmp_path):
    upload(images, bucket)
    dataset = open_dataset(str(bucket))
    proxy.plan = lambda method, path: "cut" if method == "GET" and "05.png" in path else None
    with pytest.raises(UnreachableError, match=r"05\.png"):
        embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0, batch_size=2)
    proxy.plan = lambda method, path: "403" if method == "GET" and "05.png" in path else None
    with pytest.raises(UnreachableError, match=r"05\.png may not be used with these credentials"):
        embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0, batch_size=2)
    proxy.plan = lambda method, path: None
    summary = embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0, batch_size=2)
    assert summary.rows == 12
    assert not summary.skipped


@pytest.mark.parametrize(
    "text", ["s3://key:secret@bucket/x", "s3://b/../x", "s3://b/x?endpoint_override=evil", "ftp://x/y"]
)
def test_urls_that_are_refused(text):
    with pytest.raises(CCRError):
        as_place(text)


def test_paths_and_urls(tmp_path):
    from pathlib import Path

    assert as_place("photos/x") == Path("photos/x")
    assert as_place(tmp_path) == tmp_path
    assert as_place("file:///tmp/a%20b") == Path("/tmp/a b")
    assert as_place(Path("s3://bucket/a/b")) == Place("s3://bucket/a/b")
    assert as_place("gs://b/x").parent / "y" == Place("gs://b/y")
    assert is_url(Path("s3://bucket/a"))
    assert not is_url("c:/photos")
    assert not is_url("hf:name")


ODD = {"hash": "a#1.png", "question": "what?.png", "tab": "tab\there.png", "percent": "100%.png", "space": "a b.png"}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_every_character_of_a_key_is_its_own(bucket, name):
    place = bucket / "photos" / name
    assert (place.key, place.name) == (f"{bucket.key}/photos/{name}", name)
    assert (place.suffix, place.parent) == (".png", bucket / "photos")
    place.write_bytes(b"content")
    assert [(entry.name, entry.size) for entry in (bucket / "photos").list()] == [(name, 7)]
    assert place.read_bytes() == b"content"
    place.unlink()
    assert not place.exists()
    assert Place("s3://bucket").parent == Place("s3://bucket/photos").parent == Place("s3://bucket")
    assert Place("s3://bucket").name == ""
