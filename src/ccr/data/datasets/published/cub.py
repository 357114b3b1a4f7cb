"""CUB-200-2011: lists of ids, paths, classes and splits beside the folder of images."""

from __future__ import annotations

from pathlib import Path

from ccr.data.datasets.base import Dataset, make_dataset
from ccr.data.datasets.published.listing import ListedImages, bad_line, find_root, not_found, table, unique_names
from ccr.errors import FormatError

KIND = "cub"
FOLDER = "CUB_200_2011"
_IMAGES, _LABELS, _SPLITS, _CLASSES = "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt"
_REQUIRED = (_IMAGES, _LABELS, _SPLITS, _CLASSES, "images")
_SPLIT_NAMES = {"1": "train", "0": "test"}


def find_cub(folder: Path) -> Path | None:
    """Where the lists are: `folder`, or CUB_200_2011 in it."""
    return find_root(folder, (FOLDER,), _REQUIRED)


def open_cub(folder: Path) -> Dataset:
    """CUB-200-2011 with its official splits. `001.Black_footed_Albatross` is called `Black footed Albatross`."""
    root = find_cub(folder)
    if root is None:
        raise not_found("CUB-200-2011", folder, (FOLDER,), _REQUIRED)
    root = root.resolve()
    names = _class_names(root / _CLASSES)
    labels, splits, images = (table(root / name) for name in (_LABELS, _SPLITS, _IMAGES))
    listed = ListedImages(root, "images")
    samples = []
    for key, (number, name) in images.items():
        label = _value(labels, key, root / _LABELS, names, "class")
        split = _value(splits, key, root / _SPLITS, _SPLIT_NAMES, "split")
        samples.append(listed.sample(name, label, split, path=root / _IMAGES, number=number))
    for listed_ids, path in ((labels, root / _LABELS), (splits, root / _SPLITS)):
        for key in sorted(listed_ids.keys() - images.keys()):
            raise bad_line(path, listed_ids[key][0], f"is about an image {key!r} that {_IMAGES} does not have")
    return make_dataset({"kind": KIND, "path": str(root)}, samples, names.values())


def _value(entries: dict[str, tuple[int, str]], key: str, path: Path, words: dict[str, str], what: str) -> str:
    """What the list `path` says of image `key`, in words."""
    if key not in entries:
        raise FormatError(f"{path} must have a line for every image, and has none for the id {key!r}")
    number, value = entries[key]
    if value not in words:
        raise bad_line(path, number, f"has the {what} {value!r}, which is none of the {len(words)} known")
    return words[value]


def _class_names(path: Path) -> dict[str, str]:
    """Name of every class id, in the list's order."""
    folders = {key: name for key, (_, name) in table(path).items()}
    names = unique_names({folder: [_words(folder)] for folder in folders.values()})
    if len(names) != len(folders):
        raise FormatError(f"{path} must name every class once, got {len(folders)} classes of {len(names)} names")
    return {key: names[folder] for key, folder in folders.items()}


def _words(folder: str) -> str:
    number, _, name = folder.partition(".")
    return (name if number.isdecimal() and name else folder).replace("_", " ")
