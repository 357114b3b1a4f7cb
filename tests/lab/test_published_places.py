import shutil

import pytest

from ccr.data.datasets import locate
from ccr.errors import FormatError
from ccr_lab.published import open_published
from ccr_lab.published.listing import place_name
from tests.lab.published_files import change_line, check_files, write, write_lines

PLACES = ["/a/airfield", "/a/apartment_building/outdoor", "/z/zen_garden"]
PLACE_NAMES = ("airfield", "apartment building outdoor", "zen garden")


def write_easy(folder, classes):
    seeds = {}
    for row, name in enumerate(classes):
        seeds |= {f"train/{name}/0000000{number}.jpg": 10 * row + number for number in (1, 2)}
        seeds[f"val/{name}/Places365_val_0000000{row}.jpg"] = 10 * row + 5
    for key, seed in seeds.items():
        write(folder / key, seed)
    return seeds


@pytest.mark.parametrize("given", [".", "places365_standard"])
@pytest.mark.parametrize(
    "classes",
    [
        ["airfield", "apartment_building-outdoor", "zen_garden"],
        ["airfield", "apartment_building/outdoor", "zen_garden"],
        ["a/airfield", "a/apartment_building/outdoor", "z/zen_garden"],
    ],
)
def test_places_in_folders_of_classes(tmp_path, given, classes):
    seeds = write_easy(tmp_path / "places365_standard", classes)
    write_lines(tmp_path / "places365_standard/train.txt", ["train/airfield/00000001.jpg"])  # the archive has it
    dataset = open_published("places365", tmp_path / given)
    assert dataset.classes == PLACE_NAMES
    label = dict(zip(classes, PLACE_NAMES, strict=True))
    for sample in dataset:
        split, _, rest = sample.key.partition("/")
        assert (sample.label, sample.split) == (
            label[rest.rpartition("/")[0]],
            {"train": "train", "val": "test"}[split],
        )
    check_files(dataset, seeds)
    assert locate({**dataset.origin, "path": str(tmp_path / given)}, dataset.samples[0].key).read()


def write_place_lists(folder, *, train="data_256", val="val_256", lists="."):
    """Two training images of every place, and four validation images."""
    seeds, rows = {}, []
    for label, place in enumerate(PLACES):
        for number in (2, 1):
            rows.append(f"{place}/0000000{number}.jpg {label}")
            seeds[f"{train}{place}/0000000{number}.jpg"] = 10 * label + number
    seeds |= {f"{val}/Places365_val_0000000{row}.jpg": 100 + row for row in range(1, 5)}
    for key, seed in seeds.items():
        write(folder / key, seed)
    write_lines(folder / lists / "places365_train_standard.txt", rows)
    answers = [f"Places365_val_0000000{row}.jpg {label}" for row, label in enumerate([2, 0, 1, 2], start=1)]
    write_lines(folder / lists / "places365_val.txt", answers)
    write_lines(folder / lists / "categories_places365.txt", [f"{place} {row}" for row, place in enumerate(PLACES)])
    return seeds


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"train": "data_large", "val": "val_large"},
        {"train": "data_256_standard"},
        {"lists": "filelist_places365-standard"},
    ],
)
def test_places_by_lists(tmp_path, layout):
    seeds = write_place_lists(tmp_path, **layout)
    dataset = open_published("places365", tmp_path)
    assert dataset.classes == PLACE_NAMES
    assert [sample.label for sample in dataset.select("train")] == [name for name in PLACE_NAMES for _ in range(2)]
    assert [sample.label for sample in dataset.select("test")] == [PLACE_NAMES[label] for label in (2, 0, 1, 2)]
    assert dataset.splits == {"train": 6, "test": 4}
    check_files(dataset, seeds)


def test_the_small_images_of_places_come_first(tmp_path):
    write_place_lists(tmp_path, train="data_large", val="val_large")
    seeds = write_place_lists(tmp_path)
    check_files(open_published("places365", tmp_path), seeds)


BAD_PLACES = [
    ("places365_train_standard.txt", 2, "/../val_256/Places365_val_00000001.jpg 0", "line 2 of .*lies outside"),
    ("places365_train_standard.txt", 2, "//etc/passwd 0", "line 2 of .*no plain folder"),
    ("places365_train_standard.txt", 2, "/etc/passwd 0", "line 2 of .*not there: 'etc/passwd'"),
    ("places365_train_standard.txt", 2, "/a/airfield/00000002.jpg 0", "line 2 of .*second time"),
    ("places365_train_standard.txt", 2, "/a/airfield/00000001.jpg 3", "line 2 of .*label '3'; labels are 0 to 2"),
    ("places365_train_standard.txt", 2, "/a/airfield/00000001.jpg -1", "line 2 of .*label '-1'"),
    ("places365_train_standard.txt", 2, "/a/airfield/00000001.jpg", "line 2 of .*two fields"),
    ("places365_val.txt", 4, "Places365_val_00000009.jpg 0", "line 4 of .*places365_val.txt .*not there"),
    ("categories_places365.txt", 2, "/a/apartment_building/outdoor 2", "line 2 of .*must have the label 1, got '2'"),
    ("categories_places365.txt", 2, "/a/airfield 1", "line 2 of .*second time"),
]


@pytest.mark.parametrize(("file", "number", "text", "message"), BAD_PLACES)
def test_bad_lists_of_places_are_refused(tmp_path, file, number, text, message):
    write_place_lists(tmp_path)
    change_line(tmp_path / file, number, text)
    with pytest.raises(FormatError, match=message):
        open_published("places365", tmp_path)


def test_parts_of_places_are_refused(tmp_path):
    write_place_lists(tmp_path / "lists")
    shutil.rmtree(tmp_path / "lists/val_256")
    with pytest.raises(FormatError, match=r"a part of Places365: .*val_256 or val_large"):
        open_published("places365", tmp_path / "lists")
    write_easy(tmp_path / "easy", ["airfield"])
    write(tmp_path / "easy/val/zen_garden/1.jpg", 1)
    with pytest.raises(FormatError, match=r"has the class 'zen_garden', which .*train does not have"):
        open_published("places365", tmp_path / "easy")


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("/a/airfield", "airfield"),
        ("/a/apartment_building/outdoor", "apartment building outdoor"),
        ("apartment_building-outdoor", "apartment building outdoor"),
        ("/t/television_room", "television room"),
        ("airfield", "airfield"),
    ],
)
def test_names_of_places(category, name):
    assert place_name(category) == name
