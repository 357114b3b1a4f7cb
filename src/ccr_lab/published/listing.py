"""CUB-200-2011 and Places365, and what all published layouts share: finding their folder, reading their lists, naming
their classes.

CUB has lists of ids, paths, classes and splits beside the folder of images; Places365 the folders of classes of the
"easy" archive, or the official lists beside `data_256` and `val_256`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ccr.data.datasets.base import Dataset, Sample, make_dataset
from ccr.data.datasets.files import IMAGE_SUFFIXES, inside
from ccr.data.datasets.sources import FileImage
from ccr.errors import FormatError

_DEEPEST = 3  # letter/class/kind, as Places365 has it; a bound, so that links cannot lead in a circle


def find_root(folder: Path, subfolders: Sequence[str], required: Sequence[str]) -> Path | None:
    """`folder` or the first of its `subfolders` that holds every required file and folder."""
    candidates = (folder, *(folder / name for name in subfolders))
    return next((candidate for candidate in candidates if not _lacking(candidate, required)), None)


def not_found(what: str, folder: Path, subfolders: Sequence[str], required: Sequence[str]) -> FormatError:
    """The error that says what was looked for, where, and what was not there."""
    candidates = [folder, *(folder / name for name in subfolders)]
    nearest = min(candidates, key=lambda candidate: len(_lacking(candidate, required)))
    return FormatError(
        f"{folder} does not hold {what}: looked for {', '.join(required)} in it"
        + "".join(f", in {name}" for name in subfolders)
        + f"; {nearest} has no {', no '.join(_lacking(nearest, required))}. Unpack the data set as it was published"
    )


def _lacking(folder: Path, required: Sequence[str]) -> list[str]:
    return [name for name in required if not (folder / name).exists()]


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if line := line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} must be a text file in UTF-8: {error}") from error


def pairs(path: Path, *, last: bool = False) -> Iterator[tuple[int, str, str]]:
    """Number, first word and the rest of every line that is not blank; with `last`, all before the last word and that
    word.
    """
    for number, line in lines(path):
        fields = line.rsplit(maxsplit=1) if last else line.split(maxsplit=1)
        if len(fields) != 2:
            raise bad_line(path, number, f"must hold two fields, got {line!r}")
        yield number, fields[0], fields[1]


def table(path: Path) -> dict[str, tuple[int, str]]:
    """Line number and value of every id of a list `id value`; an id may occur once."""
    entries: dict[str, tuple[int, str]] = {}
    for number, key, value in pairs(path):
        if key in entries:
            raise bad_line(path, number, f"repeats the id {key!r} of line {entries[key][0]}")
        entries[key] = (number, value)
    return entries


def bad_line(path: Path, number: int, rule: str) -> FormatError:
    return FormatError(f"line {number} of {path} {rule}")


def unique_names(words: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A name for every class id: its first word; where others have that too (in any case of letters) with the second
    word behind it; where that is no help, with the id.
    """
    names = {key: synonyms[0] for key, synonyms in words.items()}
    for key in _repeated(names):
        names[key] = ", ".join(words[key][:2])
    for key in _repeated(names):
        names[key] = f"{words[key][0]} ({key})"
    if repeated := _repeated(names):
        raise FormatError(f"every class needs a name of its own, got {names[repeated[0]]!r} more than once")
    return names


def _repeated(names: Mapping[str, str]) -> list[str]:
    count = Counter(name.casefold() for name in names.values())
    return [key for key, name in names.items() if count[name.casefold()] > 1]


class ListedImages:
    """Samples of the images that a list names below `root/folder`. Each folder is read once: asking the disk for every
    image would be slow for a million of them.
    """

    def __init__(self, root: Path, folder: str) -> None:
        self._root = root / folder
        self._prefix = folder
        self._folders: dict[str, tuple[str, frozenset[str]]] = {}
        self._seen: set[str] = set()

    def sample(self, name: str, label: str, split: str, *, path: Path, number: int) -> Sample:
        """The image `name` of line `number` of the list `path`; it must be there, and be named once."""
        folder, _, file = name.rpartition("/")
        try:
            directory, present = self._folders.get(folder) or self._list(folder)
        except FormatError as error:
            raise bad_line(path, number, f"names an image that may not be used: {error}") from None
        if file not in present:
            raise bad_line(path, number, f"names an image that is not there: {name!r} in {self._root}")
        if name in self._seen:
            raise bad_line(path, number, f"names {name!r} for the second time")
        self._seen.add(name)
        return Sample(f"{self._prefix}/{name}", FileImage(Path(f"{directory}{os.sep}{file}")), label, split)

    def _list(self, folder: str) -> tuple[str, frozenset[str]]:
        if folder and (os.path.isabs(folder) or folder != os.path.normpath(folder).replace(os.sep, "/")):
            raise FormatError(f"{folder!r} is no plain folder below {self._root}")
        resolved = inside(self._root, folder)
        try:
            with os.scandir(resolved) as entries:
                present = frozenset(entry.name for entry in entries if entry.is_file())
        except (OSError, ValueError):
            present = frozenset()
        self._folders[folder] = (str(resolved), present)
        return self._folders[folder]


class ClassFolder(NamedTuple):
    """The images of one class in order of their names; `key` is the folder's path within the data set."""

    key: str
    path: str
    files: list[str]

    def samples(self, label: str, split: str) -> Iterator[Sample]:
        for file in self.files:
            yield Sample(f"{self.key}/{file}", FileImage(Path(f"{self.path}{os.sep}{file}")), label, split)


def class_folders(root: Path, split: str) -> dict[str, ClassFolder]:
    """Every folder of images below `root/split`, by its path there, in order of names."""
    folders: dict[str, ClassFolder] = {}
    for name, path, files in _walk(str(root / split), "", _DEEPEST):
        if files and not name:
            raise FormatError(f"{files[0]} lies in {path} itself: every image belongs in the folder of its class")
        if files:
            folders[name] = ClassFolder(f"{split}/{name}", path, files)
    return folders


def _walk(path: str, name: str, depth: int) -> Iterator[tuple[str, str, list[str]]]:
    """Name, path and image files of a folder and those below it. Hidden and other files are left out."""
    folders, files = _entries(path)
    if not folders and not files:
        raise FormatError(f"{path} holds no images: unpack the data set again, or take the folder away")
    if folders and not depth:
        raise FormatError(f"{path} holds folders: class folders are nested at most {_DEEPEST} deep")
    yield name, path, files
    for folder in folders:
        yield from _walk(f"{path}{os.sep}{folder}", f"{name}/{folder}" if name else folder, depth - 1)


def _entries(path: str) -> tuple[list[str], list[str]]:
    folders, files = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
                    files.append(entry.name)
    except OSError as error:
        raise FormatError(f"{path} must be a folder that can be read: {error}") from error
    return sorted(folders), sorted(files)


CUB = "cub"
CUB_FOLDER = "CUB_200_2011"
_CUB_IMAGES, _CUB_LABELS, _CUB_SPLITS, _CUB_CLASSES = (
    "images.txt",
    "image_class_labels.txt",
    "train_test_split.txt",
    "classes.txt",
)
_CUB_REQUIRED = (_CUB_IMAGES, _CUB_LABELS, _CUB_SPLITS, _CUB_CLASSES, "images")
_CUB_SPLIT_NAMES = {"1": "train", "0": "test"}


def find_cub(folder: Path) -> Path | None:
    """The folder of the lists: `folder`, or CUB_200_2011 in it."""
    return find_root(folder, (CUB_FOLDER,), _CUB_REQUIRED)


def open_cub(folder: Path) -> Dataset:
    """CUB-200-2011 with its official splits. `001.Black_footed_Albatross` is called `Black footed Albatross`."""
    root = find_cub(folder)
    if root is None:
        raise not_found("CUB-200-2011", folder, (CUB_FOLDER,), _CUB_REQUIRED)
    root = root.resolve()
    names = _cub_class_names(root / _CUB_CLASSES)
    labels, splits, images = (table(root / name) for name in (_CUB_LABELS, _CUB_SPLITS, _CUB_IMAGES))
    listed = ListedImages(root, "images")
    samples = []
    for key, (number, name) in images.items():
        label = _cub_value(labels, key, root / _CUB_LABELS, names, "class")
        split = _cub_value(splits, key, root / _CUB_SPLITS, _CUB_SPLIT_NAMES, "split")
        samples.append(listed.sample(name, label, split, path=root / _CUB_IMAGES, number=number))
    for listed_ids, path in ((labels, root / _CUB_LABELS), (splits, root / _CUB_SPLITS)):
        for key in sorted(listed_ids.keys() - images.keys()):
            raise bad_line(path, listed_ids[key][0], f"is about an image {key!r} that {_CUB_IMAGES} does not have")
    return make_dataset({"kind": CUB, "path": str(root)}, samples, names.values())


def _cub_value(entries: dict[str, tuple[int, str]], key: str, path: Path, words: dict[str, str], what: str) -> str:
    """The value for image `key` in the list `path`, in words."""
    if key not in entries:
        raise FormatError(f"{path} must have a line for every image, and has none for the id {key!r}")
    number, value = entries[key]
    if value not in words:
        raise bad_line(path, number, f"has the {what} {value!r}, which is none of the {len(words)} known")
    return words[value]


def _cub_class_names(path: Path) -> dict[str, str]:
    """Name of every class id, in the list's order."""
    folders = {key: name for key, (_, name) in table(path).items()}
    names = unique_names({folder: [_cub_words(folder)] for folder in folders.values()})
    if len(names) != len(folders):
        raise FormatError(f"{path} must name every class once, got {len(folders)} classes of {len(names)} names")
    return {key: names[folder] for key, folder in folders.items()}


def _cub_words(folder: str) -> str:
    number, _, name = folder.partition(".")
    return (name if number.isdecimal() and name else folder).replace("_", " ")


PLACES = "places365"
_EASY = "places365_standard"
_EASY_REQUIRED = ("train", "val")
_CATEGORIES = "categories_places365.txt"
_LISTS = {"train": "places365_train_standard.txt", "test": "places365_val.txt"}
_PLACES_REQUIRED = (_CATEGORIES, *_LISTS.values())
_LISTS_FOLDER = "filelist_places365-standard"  # the archive of the lists, unpacked apart
_PLACES_IMAGES = {
    "train": ("data_256", "data_256_standard", "data_large", "data_large_standard"),
    "test": ("val_256", "val_large"),
}


def find_places(folder: Path) -> Path:
    """The folder of the images: `folder`, or places365_standard in it."""
    return folder if _has_images(folder) else find_root(folder, (_EASY,), _EASY_REQUIRED) or folder


def open_places(folder: Path) -> Dataset:
    """Places365-Standard; the official validation images are `test`. The lists are used where they and their
    images are there, the small images (256 x 256) before the large ones; else the folders of classes.
    """
    lists = find_root(folder, (_LISTS_FOLDER,), _PLACES_REQUIRED)
    if lists is not None and _has_images(folder):
        return _open_lists(folder.resolve(), lists.resolve())
    root = find_root(folder, (_EASY,), _EASY_REQUIRED)
    if root is not None:
        return _open_folders(root.resolve())
    if lists is not None or _has_images(folder):
        wanted = ", ".join(" or ".join(names) for names in _PLACES_IMAGES.values())
        raise FormatError(
            f"{folder} holds a part of Places365: looked for {', '.join(_PLACES_REQUIRED)} in it and in "
            f"{_LISTS_FOLDER}, and for the folders {wanted} in it"
        )
    raise not_found(f"Places365 (nor {_CATEGORIES} with its lists)", folder, (_EASY,), _EASY_REQUIRED)


def place_name(category: str) -> str:
    """`/a/apartment_building/outdoor` and `apartment_building-outdoor` are both called `apartment building outdoor`."""
    parts = [part for part in category.split("/") if part]
    if len(parts) > 1 and len(parts[0]) == 1:
        del parts[0]
    return " ".join(" ".join(parts).replace("_", " ").replace("-", " ").split())


def _has_images(folder: Path) -> bool:
    return all(any((folder / name).is_dir() for name in names) for names in _PLACES_IMAGES.values())


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
    return make_dataset({"kind": PLACES, "path": str(root)}, samples, names.values())


def _open_lists(root: Path, lists: Path) -> Dataset:
    classes = _categories(lists / _CATEGORIES)
    samples: list[Sample] = []
    for split, list_name in _LISTS.items():
        path = lists / list_name
        listed = ListedImages(root, next(name for name in _PLACES_IMAGES[split] if (root / name).is_dir()))
        for number, image, label in pairs(path, last=True):
            if label not in classes:
                raise bad_line(path, number, f"has the label {label!r}; labels are 0 to {len(classes) - 1}")
            # The training list writes /a/airfield/1.jpg for what lies below the folder of images.
            samples.append(listed.sample(image.removeprefix("/"), classes[label], split, path=path, number=number))
    return make_dataset({"kind": PLACES, "path": str(root)}, samples, classes.values())


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
