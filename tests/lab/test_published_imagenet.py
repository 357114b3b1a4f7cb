import shutil

import numpy as np
import pytest
from scipy.io import savemat

from ccr.data.datasets import locate
from ccr.errors import FormatError
from ccr_lab.published import open_published
from tests.lab.published_files import change_line, check_files, write, write_lines

WORDS = {
    "n01440764": "tench, Tinca tinca",
    "n02012849": "crane",
    "n02113186": "Cardigan, Cardigan Welsh corgi",
    "n02963159": "cardigan",
    "n03126707": "crane",
    "n03710637": "maillot",
    "n03710721": "maillot, tank suit",
}
NAMES = (
    "tench",
    "crane (n02012849)",
    "Cardigan, Cardigan Welsh corgi",
    "cardigan",
    "crane (n03126707)",
    "maillot",
    "maillot, tank suit",
)
# The devkit's numbers are not in order of the ids.
DEVKIT = ["n02963159", "n01440764", "n03710721", "n02012849", "n03126707", "n03710637", "n02113186"]
VALIDATION = ["n03710721", "n01440764", "n02012849", "n03710721"]


def write_train(folder):
    seeds = {f"train/{wnid}/{wnid}_{9 - row}.JPEG": 10 * row for row, wnid in enumerate(WORDS)}
    seeds |= {f"train/{wnid}/{wnid}_{30 + row}.JPEG": 10 * row + 1 for row, wnid in enumerate(WORDS)}
    for key, seed in seeds.items():
        write(folder / key, seed)
    return seeds


def write_flat_validation(folder):
    seeds = {f"val/ILSVRC2012_val_{row:08}.JPEG": 100 + row for row in range(1, 5)}
    for key, seed in seeds.items():
        write(folder / key, seed)
    return seeds


def write_mapping(folder):
    write_lines(folder / "LOC_synset_mapping.txt", [f"{wnid} {words}" for wnid, words in WORDS.items()])


def write_kaggle(folder):
    home = folder / "ILSVRC/Data/CLS-LOC"
    seeds = write_train(home) | write_flat_validation(home)
    write(home / "test/ILSVRC2012_test_00000001.JPEG", 0)
    write_mapping(folder)
    rows = [f"ILSVRC2012_val_{row:08},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for row, wnid in enumerate(VALIDATION, 1)]
    write_lines(folder / "LOC_val_solution.csv", ["ImageId,PredictionString", *reversed(rows)])
    return seeds


def write_devkit(folder, *, numbers=None):
    """The devkit as MATLAB writes it: a struct array whose last rows are groups of classes."""
    types = [(name, object) for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children")]
    rows = [
        (number, wnid, WORDS[wnid], "a thing", 0, np.zeros(0))
        for number, wnid in zip(numbers or range(1, 8), DEVKIT, strict=True)
    ]
    rows.append((8, "n00001740", "entity", "all", 2, np.array([1, 2])))
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "meta.mat", {"synsets": np.array(rows, dtype=types)[:, None]})
    write_lines(folder / "ILSVRC2012_validation_ground_truth.txt", [DEVKIT.index(wnid) + 1 for wnid in VALIDATION])


def check_imagenet(dataset, seeds, names=NAMES):
    assert dataset.classes == names
    label = dict(zip(WORDS, names, strict=True))
    for sample in dataset:
        if sample.split == "train":
            assert sample.label == label[sample.key.split("/")[1]]
    tests = sorted(dataset.select("test"), key=lambda sample: sample.key.split("/")[-1])
    assert [sample.label for sample in tests] == [label[wnid] for wnid in VALIDATION]
    assert dataset.splits == {"train": 14, "test": 4}
    check_files(dataset, seeds)


@pytest.mark.parametrize("given", [".", "ILSVRC", "ILSVRC/Data/CLS-LOC"])
def test_imagenet_from_kaggle(tmp_path, given):
    seeds = write_kaggle(tmp_path)
    check_imagenet(open_published("imagenet", tmp_path / given), seeds)


@pytest.mark.parametrize("given", [".", "imagenet"])
@pytest.mark.parametrize("mapped", [True, False])
def test_imagenet_in_folders_of_classes(tmp_path, given, mapped):
    seeds = write_train(tmp_path / "imagenet")
    for row, wnid in enumerate(VALIDATION):
        key = f"val/{wnid}/ILSVRC2012_val_{row:08}.JPEG"
        write(tmp_path / "imagenet" / key, 100 + row)
        seeds[key] = 100 + row
    if mapped:
        write_mapping(tmp_path / "imagenet")
    dataset = open_published("imagenet", tmp_path / given)
    check_imagenet(dataset, seeds, NAMES if mapped else tuple(WORDS))
    assert locate({**dataset.origin, "path": str(tmp_path / given)}, dataset.samples[0].key).read()


@pytest.mark.parametrize("place", [".", "ILSVRC2012_devkit_t12/data"])
def test_imagenet_with_the_devkit(tmp_path, place):
    seeds = write_train(tmp_path) | write_flat_validation(tmp_path)
    write_devkit(tmp_path / place)
    check_imagenet(open_published("imagenet", tmp_path), seeds)


def test_a_part_of_imagenet_keeps_the_names_of_the_whole(tmp_path):
    write_train(tmp_path)
    write_mapping(tmp_path)
    write(tmp_path / "val/n02012849/1.JPEG", 1)
    shutil.rmtree(tmp_path / "train/n03126707")
    dataset = open_published("imagenet", tmp_path)
    assert dataset.classes == tuple(name for name in NAMES if name != "crane (n03126707)")


def test_class_folders_may_be_links(tmp_path):
    seeds = write_train(tmp_path / "whole")
    (tmp_path / "part/train").mkdir(parents=True)
    (tmp_path / "part/train/n01440764").symlink_to(tmp_path / "whole/train/n01440764")
    write(tmp_path / "part/val/n01440764/1.JPEG", 100)
    expected = {key: seed for key, seed in seeds.items() if "n01440764" in key} | {"val/n01440764/1.JPEG": 100}
    check_files(open_published("imagenet", tmp_path / "part"), expected)


def test_links_in_a_circle_end(tmp_path):
    write_train(tmp_path)
    write(tmp_path / "val/n01440764/1.JPEG", 100)
    (tmp_path / "train/n01440764/again").symlink_to(tmp_path / "train")
    with pytest.raises(FormatError, match="nested at most"):
        open_published("imagenet", tmp_path)


def test_bad_folders_of_imagenet_are_refused(tmp_path):
    write_kaggle(tmp_path)
    home = tmp_path / "ILSVRC/Data/CLS-LOC"
    for name, message in [
        ("train/goldfish/1.JPEG", "WordNet ids such as n01440764, got 'goldfish'"),
        ("train/n00000001/1.JPEG", r"n00000001 is no class of LOC_synset_mapping\.txt"),
        ("train/loose.JPEG", r"loose\.JPEG lies in .*train itself"),
        ("val/n00000001/1.JPEG", r"ILSVRC2012_val_00000001\.JPEG lies in .*val itself"),
    ]:
        made = write(home / name, 1)
        with pytest.raises(FormatError, match=message):
            open_published("imagenet", tmp_path)
        made.unlink()
        if made.parent.name not in ("train", "val"):
            made.parent.rmdir()
    assert len(open_published("imagenet", tmp_path)) == 18
    (home / "train/n01440764x").mkdir()
    with pytest.raises(FormatError, match="n01440764x holds no images"):
        open_published("imagenet", tmp_path)


def test_validation_classes_without_training_images_are_refused(tmp_path):
    write_kaggle(tmp_path)
    shutil.rmtree(tmp_path / "ILSVRC/Data/CLS-LOC/train/n01440764")
    with pytest.raises(
        FormatError, match=r"line 4 of .*LOC_val_solution\.csv has the class 'n01440764', which .*train"
    ):
        open_published("imagenet", tmp_path)


BAD_KAGGLE = [
    ("LOC_val_solution.csv", 2, "../x,n01440764 1 2 3 4", "line 2 of .*may not be used: .*lies outside"),
    ("LOC_val_solution.csv", 2, "ILSVRC2012_val_00000009,n01440764 1 2 3 4", "line 2 of .*not there"),
    ("LOC_val_solution.csv", 3, "ILSVRC2012_val_00000004,n01440764 1 2 3 4", "line 3 of .*second time"),
    ("LOC_val_solution.csv", 3, "ILSVRC2012_val_00000003,", "line 3 of .*must have an ImageId"),
    ("LOC_val_solution.csv", 1, "a,b", "line 2 of .*must have an ImageId"),
    ("LOC_synset_mapping.txt", 2, "n01440764 crane", "line 2 of .*WordNet id of its own"),
    ("LOC_synset_mapping.txt", 2, "crane n01440764", "line 2 of .*WordNet id of its own"),
    ("LOC_synset_mapping.txt", 2, "n02012849", "line 2 of .*two fields"),
    ("LOC_synset_mapping.txt", 2, None, "n02012849 is no class of"),
]


@pytest.mark.parametrize(("file", "number", "text", "message"), BAD_KAGGLE)
def test_bad_lists_of_kaggle_are_refused(tmp_path, file, number, text, message):
    write_kaggle(tmp_path)
    change_line(tmp_path / file, number, text)
    with pytest.raises(FormatError, match=message):
        open_published("imagenet", tmp_path)


@pytest.mark.parametrize("label", ["0", "8", "-1", "x", "\u0661"])
def test_bad_devkit_labels_are_refused(tmp_path, label):
    write_train(tmp_path)
    write_flat_validation(tmp_path)
    write_devkit(tmp_path)
    change_line(tmp_path / "ILSVRC2012_validation_ground_truth.txt", 3, label)
    with pytest.raises(FormatError, match=r"line 3 of .*ground_truth\.txt has the label .*; labels are 1 to 7"):
        open_published("imagenet", tmp_path)


def test_bad_devkits_are_refused(tmp_path):
    write_train(tmp_path)
    write_flat_validation(tmp_path)
    with pytest.raises(FormatError, match=r"no folders of classes, .*LOC_val_solution\.csv, or from .*meta\.mat"):
        open_published("imagenet", tmp_path)
    write_devkit(tmp_path, numbers=[1, 2, 3, 4, 5, 6, 9])
    with pytest.raises(FormatError, match=r"meta\.mat must number its classes from 1 without gaps"):
        open_published("imagenet", tmp_path)
    savemat(tmp_path / "meta.mat", {"synsets": np.arange(3)})
    with pytest.raises(FormatError, match=r"meta\.mat must be the devkit's table of synsets"):
        open_published("imagenet", tmp_path)
    (tmp_path / "meta.mat").write_bytes(b"not MATLAB")
    with pytest.raises(FormatError, match=r"meta\.mat must be the devkit's table of synsets"):
        open_published("imagenet", tmp_path)
