"""Data sets that cannot be what their user means: refused by name, before any work."""

import numpy as np
import pytest

from ccr.data.datasets import open_dataset, open_photos
from ccr.errors import CCRError, FormatError
from tests.data.helpers import write_image
from tests.data.test_sharded import write_tar


@pytest.mark.parametrize(
    "keys",
    [
        ["train/pear/1.png", "test/pear/2.png", "extra/3.png"],
        ["train/pear/1.png", "extra/pear/3.png"],
        ["train/1.png", "test/2.png", "extra/3.png"],
    ],
)
def test_a_folder_beside_splits_is_refused_by_name(tmp_path, keys):
    for seed, key in enumerate(keys):
        write_image(tmp_path / key, seed)
    with pytest.raises(FormatError, match="'extra' is not: move 'extra' elsewhere"):
        open_dataset(tmp_path)
    assert len(open_photos([tmp_path])) == len(keys)  # for predictions, folders do not matter


@pytest.mark.parametrize("options", [{"label_column": "Species"}, {"labels": "labels.npy"}])
def test_labels_are_not_asked_for_where_folders_are_labels(tmp_path, options):
    write_image(tmp_path / "pear/1.png", 1)
    with pytest.raises(CCRError, match="have its folders' names as labels, got the label"):
        open_dataset(tmp_path, **options)


@pytest.mark.parametrize("column", ["Species", "species", " SPECIES "])
def test_a_label_column_is_found_whatever_its_case(tmp_path, column):
    write_image(tmp_path / "1.png", 1)
    (tmp_path / "list.csv").write_text("Path,Species\n1.png,pear\n")
    assert open_dataset(tmp_path / "list.csv", label_column=column).classes == ("pear",)
    with pytest.raises(FormatError, match="has no column 'genus'; it has path, species"):
        open_dataset(tmp_path / "list.csv", label_column="genus")


@pytest.mark.parametrize("name", ["new-photos/", "new-photos", "photos.jpg/", "notes.txt"])
def test_a_folder_of_photos_that_is_not_there_is_refused(tmp_path, name):
    write_image(tmp_path / "1.png", 1)
    with pytest.raises(CCRError, match=r"there is no .*: check the path"):
        open_photos([tmp_path / "1.png", f"{tmp_path}/{name}"])


def test_a_photo_that_is_not_there_is_only_unreadable(tmp_path):
    assert [sample.key for sample in open_photos([tmp_path / "no.JPG"])] == [str(tmp_path / "no.JPG")]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            "m.csv",
            {"labels": "nowhere.npy"},
            "goes with .npy images alone.*got the labels 'nowhere.npy' for .*m.csv",
        ),
        ("a.tar", {"labels": "nowhere.npy"}, "a file of labels goes with .npy images alone"),
        ("x.npy", {"label_column": "kind"}, "not in a column, got the label column 'kind' for .*: give that file"),
        ("arrays", {"label_column": "kind"}, "not in a column, got the label column 'kind'"),
        ("demo", {"label_column": "kind"}, "has labels of its own, got the label column 'kind' for demo: leave it out"),
    ],
)
def test_options_that_a_kind_of_data_has_no_use_for_are_refused(tmp_path, monkeypatch, source, options, message):
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "1.png", 1)
    (tmp_path / "m.csv").write_text("path,label\n1.png,a\n")
    write_tar(tmp_path / "a.tar", {"a/1.png": (tmp_path / "1.png").read_bytes()})
    (tmp_path / "arrays").mkdir()
    for name in ("x.npy", "arrays/images.npy"):
        np.save(tmp_path / name, np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(CCRError, match=message):
        open_dataset(source, **options)
