import shutil

import numpy as np
import pytest

from ccr.data.datasets import locate, open_dataset
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError, FormatError
from ccr_lab.published import PUBLISHED, PUBLISHED_SIZES, open_published
from ccr_lab.published.listing import unique_names
from tests.data.helpers import PixelEncoder
from tests.lab.published_files import (
    change_line,
    check_files,
    facts,
    write,
    write_cifar10,
    write_cifar100,
    write_cub,
    write_lines,
)


def test_names_are_unique_whatever_the_words():
    assert unique_names({"1": ["a", "b"], "2": ["A", "b"], "3": ["c", "d"]}) == {"1": "a (1)", "2": "A (2)", "3": "c"}
    with pytest.raises(FormatError, match="a name of its own"):
        unique_names({"1": ["a"], "2": ["a"], "3": ["a (1)"]})


LOOKED_FOR = {
    "cifar10": "data_batch_1.bin, .*test_batch.bin in it, in cifar-10-batches-bin",
    "cifar100": "train.bin, test.bin, fine_label_names.txt in it, in cifar-100-binary",
    "cub": "images.txt, .*classes.txt, images in it, in CUB_200_2011",
    "imagenet": "train, val in it, in ILSVRC/Data/CLS-LOC",
    "places365": "train, val in it, in places365_standard",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_folder_of_another_layout_is_refused(tmp_path, name):
    write(tmp_path / "pear/1.png", 1)
    with pytest.raises(FormatError, match=f"does not hold .*: looked for {LOOKED_FOR[name]}.*; .* has no "):
        open_published(name, tmp_path)


def test_the_error_names_the_one_file_that_is_missing(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin/data_batch_4.bin").unlink()
    with pytest.raises(FormatError, match=r"cifar-10-batches-bin has no data_batch_4\.bin\. Unpack"):
        open_published("cifar10", tmp_path)


def test_unknown_names_and_places_are_refused(tmp_path):
    with pytest.raises(CCRError, match="one of cifar10, cifar100, cub, imagenet, places365; got 'mnist'"):
        open_published("mnist", tmp_path)
    with pytest.raises(CCRError, match=r"there is no folder .*nowhere"):
        open_published("cub", tmp_path / "nowhere")
    assert tuple(PUBLISHED_SIZES) == PUBLISHED


@pytest.mark.parametrize("key", ["../classes.txt", "/etc/passwd"])
def test_a_key_outside_the_folder_is_refused(tmp_path, key):
    write_cub(tmp_path)
    with pytest.raises(FormatError, match="lies outside"):
        locate(open_published("cub", tmp_path).origin, key)


def test_other_folders_beside_are_no_published_data_set(tmp_path):
    write_cub(tmp_path / "CUB_200_2011")
    write(tmp_path / "pears/1.png", 1)
    assert open_dataset(tmp_path).classes == ("CUB_200_2011", "pears")


def test_a_store_finds_its_records_again(tmp_path):
    made = write_cifar100(tmp_path / "data/cifar-100-binary")
    dataset = open_published("cifar100", tmp_path / "data")
    summary = embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0, batch_size=4)
    assert (summary.rows, summary.skipped) == (10, ())
    store = EmbeddingStore.open(tmp_path / "s")
    assert np.array_equal(np.asarray(store.image(5)), made["train.bin"][0][5])
    shutil.move(tmp_path / "data", tmp_path / "moved")
    again = EmbeddingStore.open(tmp_path / "s", data=tmp_path / "moved")
    assert np.array_equal(np.asarray(again.image(9)), made["test.bin"][0][3])


@pytest.mark.parametrize("given", ["CUB_200_2011", "."])
def test_cub(tmp_path, given):
    seeds = write_cub(tmp_path / "CUB_200_2011")
    write_lines(tmp_path / "attributes.txt", ["1 has_bill_shape::curved"])  # the archive has it beside
    dataset = open_published("cub", tmp_path / given)
    assert dataset.classes == ("Black footed Albatross", "Laysan Albatross", "Red.winged Blackbird")
    assert [sample.split for sample in dataset] == ["train", "test"] * 3
    assert [sample.label for sample in dataset] == [name for name in dataset.classes for _ in range(2)]
    check_files(dataset, seeds)
    assert facts(open_dataset(tmp_path / given)) == facts(dataset)
    moved = {**dataset.origin, "path": str(tmp_path)}
    assert locate(moved, dataset.samples[0].key).read() == dataset.samples[0].source.read()


def test_birds_of_one_name_keep_their_numbers(tmp_path):
    write_cub(tmp_path)
    change_line(tmp_path / "classes.txt", 2, "2 002.Black_footed_Albatross")
    assert open_published("cub", tmp_path).classes[:2] == (
        "Black footed Albatross (001.Black_footed_Albatross)",
        "Black footed Albatross (002.Black_footed_Albatross)",
    )


BAD_CUB = [
    ("images.txt", 2, "2 ../images.txt", "line 2 of .*images.txt names an image that may not be used: .*lies outside"),
    ("images.txt", 2, "2 /etc/passwd", "line 2 of .*images.txt .*no plain folder"),
    ("images.txt", 2, "2 a/../001.Black_footed_Albatross/x.jpg", "line 2 of .*images.txt .*no plain folder"),
    ("images.txt", 2, "2 ..", "line 2 of .*images.txt names an image that is not there"),
    ("images.txt", 3, "3 002.Laysan_Albatross/none.jpg", "line 3 of .*not there: '002.Laysan_Albatross/none.jpg'"),
    ("images.txt", 3, "3 nowhere/none.jpg", "line 3 of .*not there"),
    ("images.txt", 3, "3 001.Black_footed_Albatross/Black_footed_Albatross_7.jpg", "line 3 .* for the second time"),
    ("images.txt", 4, "3 x.jpg", "line 4 of .*images.txt repeats the id '3' of line 3"),
    ("images.txt", 4, "4", "line 4 of .*images.txt must hold two fields, got '4'"),
    ("images.txt", 4, None, "line 4 of .*image_class_labels.txt is about an image '4'"),
    ("image_class_labels.txt", 5, "5 4", "line 5 of .*image_class_labels.txt has the class '4', .* none of the 3"),
    ("image_class_labels.txt", 5, None, "image_class_labels.txt must have a line for every image, .* '5'"),
    ("train_test_split.txt", 1, "1 2", "line 1 of .*train_test_split.txt has the split '2'"),
    ("classes.txt", 3, "3 001.Black_footed_Albatross", "classes.txt must name every class once"),
]


@pytest.mark.parametrize(("file", "number", "text", "message"), BAD_CUB)
def test_bad_lists_of_cub_are_refused(tmp_path, file, number, text, message):
    write_cub(tmp_path)
    change_line(tmp_path / file, number, text)
    with pytest.raises(FormatError, match=message):
        open_published("cub", tmp_path)


def test_a_list_that_is_no_text_is_refused(tmp_path):
    write_cub(tmp_path)
    (tmp_path / "classes.txt").write_bytes(b"1 \xff\xfe\n")
    with pytest.raises(FormatError, match=r"classes\.txt must be a text file in UTF-8"):
        open_published("cub", tmp_path)


def test_they_are_opened_by_the_readers_that_entry_points_name_and_by_nothing_else(tmp_path, monkeypatch):
    write_cub(tmp_path)
    dataset = open_dataset(tmp_path)
    key = dataset.samples[0].key
    assert dataset.origin["kind"] == "cub"
    assert locate(dataset.origin, key).read() == dataset.samples[0].source.read()
    monkeypatch.setattr("ccr.data.datasets.open._readers", lambda: ())
    with pytest.raises(FormatError, match=r"kind 'cub' is not known here: .* its reader is not installed"):
        locate(dataset.origin, key)
    assert open_dataset(tmp_path).origin["kind"] == "folder"
