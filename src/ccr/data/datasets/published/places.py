"""Places365: the folders of classes of the "easy" archive, or the official lists beside `data_256` and `val_256`."""

from __future__ import annotations

from pathlib import Path

from ccr.data.datasets.base import Dataset, Sample, make_dataset
from ccr.data.datasets.published.listing import (
    ListedImages,
    bad_line,
    class_folders,
    find_root,
    not_found,
    pairs,
    unique_names,
)
from ccr.errors import FormatError

KIND = "places365"
_EASY = "places365_standard"
_EASY_REQUIRED = ("train", "val")
_CATEGORIES = "categories_places365.txt"
_LISTS = {"train": "places365_train_standard.txt", "test": "places365_val.txt"}
_REQUIRED = (_CATEGORIES, *_LISTS.values())
_LISTS_FOLDER = "filelist_places365-standard"  # the archive of the lists, unpacked apart
_IMAGES = {
    "train": ("data_256", "data_256_standard", "data_large", "data_large_standard"),
    "test": ("val_256", "val_large"),
}


def find_places(folder: Path) -> Path:
    """Where the images are: `folder`, or places365_standard in it."""
    return folder if _has_images(folder) else find_root(folder, (_EASY,), _EASY_REQUIRED) or folder


def open_places(folder: Path) -> Dataset:
    """Places365-Standard; the official validation images are `test`. The lists are used where they and their
    images are there, the small images (256 x 256) before the large ones; else the folders of classes.
    """
    lists = find_root(folder, (_LISTS_FOLDER,), _REQUIRED)
    if lists is not None and _has_images(folder):
        return _open_lists(folder.resolve(), lists.resolve())
    root = find_root(folder, (_EASY,), _EASY_REQUIRED)
    if root is not None:
        return _open_folders(root.resolve())
    if lists is not None or _has_images(folder):
        wanted = ", ".join(" or ".join(names) for names in _IMAGES.values())
        raise FormatError(
            f"{folder} holds a part of Places365: looked for {', '.join(_REQUIRED)} in it and in {_LISTS_FOLDER}, and "
            f"for the folders {wanted} in it"
        )
    raise not_found(f"Places365 (nor {_CATEGORIES} with its lists)", folder, (_EASY,), _EASY_REQUIRED)


def place_name(category: str) -> str:
    """`/a/apartment_building/outdoor` and `apartment_building-outdoor` are both called `apartment building outdoor`."""
    parts = [part for part in category.split("/") if part]
    if len(parts) > 1 and len(parts[0]) == 1:
        del parts[0]
    return " ".join(" ".join(parts).replace("_", " ").replace("-", " ").split())


def _has_images(folder: Path) -> bool:
    return all(any((folder / name).is_dir() for name in names) for names in _IMAGES.values())


def _open_folders(root: Path) -> Dataset:
    folders = {"train": class_folders(root, "train"), "test": class_folders(root, "val")}
    if unknown := sorted(folders["test"].keys() - folders["train"].keys()):
        raise FormatError(f"{root / 'val'} has the class {unknown[0]!r}, which {root / 'train'} does not have")
    names = unique_names({category: [place_name(category) or category] for category in folders["train"]})
    samples = (
        sample
        for split, categories in folders.items()
        for category, images in categories.items()
        for sample in images.samples(names[category], split)
    )
    return make_dataset({"kind": KIND, "path": str(root)}, samples, names.values())


def _open_lists(root: Path, lists: Path) -> Dataset:
    classes = _categories(lists / _CATEGORIES)
    samples: list[Sample] = []
    for split, list_name in _LISTS.items():
        path = lists / list_name
        listed = ListedImages(root, next(name for name in _IMAGES[split] if (root / name).is_dir()))
        for number, image, label in pairs(path, last=True):
            if label not in classes:
                raise bad_line(path, number, f"has the label {label!r}; labels are 0 to {len(classes) - 1}")
            # The training list writes /a/airfield/1.jpg for what lies below the folder of images.
            samples.append(listed.sample(image.removeprefix("/"), classes[label], split, path=path, number=number))
    return make_dataset({"kind": KIND, "path": str(root)}, samples, classes.values())


def _categories(path: Path) -> dict[str, str]:
    """Name of every label, in the order of the labels."""
    categories: dict[str, str] = {}
    for number, category, label in pairs(path, last=True):
        if label != str(len(categories)):
            raise bad_line(path, number, f"must have the label {len(categories)}, got {label!r}")
        if category in categories.values():
            raise bad_line(path, number, f"names {category!r} for the second time")
        categories[label] = category
    names = unique_names({category: [place_name(category) or category] for category in categories.values()})
    return {label: names[category] for label, category in categories.items()}
