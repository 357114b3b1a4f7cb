"""ImageNet (ILSVRC2012): Kaggle's folders, folders of classes, or flat validation images with the devkit."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy  # its parts are imported when they are first used

from ccr.data.datasets.base import Dataset, Sample, make_dataset
from ccr.errors import FormatError
from ccr_lab.published.listing import (
    ClassFolder,
    ListedImages,
    bad_line,
    class_folders,
    find_root,
    lines,
    not_found,
    pairs,
    unique_names,
)

KIND = "imagenet"
_KAGGLE = "ILSVRC/Data/CLS-LOC"
_SUBFOLDERS = (_KAGGLE, "Data/CLS-LOC", "imagenet", "ImageNet", "ILSVRC2012")
_REQUIRED = ("train", "val")
_DEVKIT = "ILSVRC2012_devkit_t12/data"
_MAPPING, _SOLUTION = "LOC_synset_mapping.txt", "LOC_val_solution.csv"
_META, _TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
_WNID = re.compile(r"n[0-9]{8}")

Words = dict[str, Sequence[str]]


def find_imagenet(folder: Path) -> Path | None:
    """The folder of `train` and `val`: `folder`, or one of its usual subfolders."""
    return find_root(folder, _SUBFOLDERS, _REQUIRED)


def open_imagenet(folder: Path) -> Dataset:
    """ImageNet of 2012; the official validation images are `test`. Classes are in order of their WordNet ids
    and called by their first word in LOC_synset_mapping.txt or meta.mat, or by their id without these.
    """
    root = find_imagenet(folder)
    if root is None:
        raise not_found("ImageNet", folder, _SUBFOLDERS, _REQUIRED)
    root = root.resolve()
    folders = _folders_of_lists(folder.resolve(), root)
    train = _class_folders(root, "train")
    words = _words(folders)
    names = unique_names(words) if words else {wnid: wnid for wnid in train}
    for wnid in train:
        if wnid not in names:
            raise FormatError(f"{root / 'train' / wnid} is no class of {_MAPPING} or {_META}")
    samples = [sample for wnid, images in train.items() for sample in images.samples(names[wnid], "train")]
    classes = {wnid: names[wnid] for wnid in sorted(train)}
    samples += _validation(root, folders, classes)
    return make_dataset({"kind": KIND, "path": str(root)}, samples, classes.values())


def _folders_of_lists(folder: Path, root: Path) -> list[Path]:
    """Folders in which the lists of classes and labels may lie."""
    folders = [folder, root]
    if root.as_posix().endswith(_KAGGLE):
        folders.append(root.parents[2])
    return [*folders, *(parent / _DEVKIT for parent in folders)]


def _file(folders: Sequence[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _class_folders(root: Path, split: str) -> dict[str, ClassFolder]:
    by_wnid = class_folders(root, split)
    for wnid in by_wnid:
        if not _WNID.fullmatch(wnid):
            raise FormatError(f"the folders in {root / split} are WordNet ids such as n01440764, got {wnid!r}")
    return by_wnid


def _validation(root: Path, folders: Sequence[Path], names: Mapping[str, str]) -> Iterator[Sample]:
    if _has_folders(root / "val"):
        for wnid, images in _class_folders(root, "val").items():
            if wnid not in names:
                raise FormatError(f"{root / 'val'} has the class {wnid}, which {root / 'train'} does not have")
            yield from images.samples(names[wnid], "test")
        return
    listed = ListedImages(root, "val")
    for path, number, image, wnid in _truth(root, folders):
        if wnid not in names:
            raise bad_line(path, number, f"has the class {wnid!r}, which {root / 'train'} does not have")
        yield listed.sample(f"{image}.JPEG", names[wnid], "test", path=path, number=number)


def _has_folders(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_dir() and not entry.name.startswith(".") for entry in entries)
    except OSError as error:
        raise FormatError(f"{folder} must be a folder that can be read: {error}") from error


def _truth(root: Path, folders: Sequence[Path]) -> Iterator[tuple[Path, int, str, str]]:
    """List, line, image and WordNet id of every validation image."""
    if solution := _file(folders, _SOLUTION):
        yield from ((solution, *row) for row in _solution(solution))
        return
    truth, meta = _file(folders, _TRUTH), _file(folders, _META)
    if truth is None or meta is None:
        raise FormatError(
            f"{root / 'val'} has no folders of classes, so the labels must come from {_SOLUTION}, or from {_TRUTH} and "
            f"{_META} of the devkit; looked for them in {', '.join(map(str, dict.fromkeys(folders)))}"
        )
    wnids = [wnid for wnid, _ in _synsets(meta)]
    for position, (number, label) in enumerate(lines(truth), start=1):
        if not (label.isascii() and label.isdecimal() and 1 <= int(label) <= len(wnids)):
            raise bad_line(truth, number, f"has the label {label!r}; labels are 1 to {len(wnids)}")
        yield truth, number, f"ILSVRC2012_val_{position:08}", wnids[int(label) - 1]


def _solution(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, image and WordNet id of Kaggle's answers: `image,id x y x y [id x y x y ...]`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, strict=True)
            for row in reader:
                image, answer = row.get("ImageId"), (row.get("PredictionString") or "").split()
                if not image or not answer:
                    raise bad_line(path, reader.line_num, "must have an ImageId and a PredictionString")
                yield reader.line_num, image, answer[0]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path} must be a CSV table of ImageId and PredictionString: {error}") from error


def _words(folders: Sequence[Path]) -> Words:
    """The words for every WordNet id; empty when no file tells them."""
    if path := _file(folders, _MAPPING):
        return _mapping(path)
    if path := _file(folders, _META):
        return dict(_synsets(path))
    return {}


def _mapping(path: Path) -> Words:
    words: Words = {}
    for number, wnid, text in pairs(path):
        if not _WNID.fullmatch(wnid) or wnid in words:
            raise bad_line(path, number, f"must begin with a WordNet id of its own, such as n01440764, got {wnid!r}")
        words[wnid] = _split(text)
    return words


def _synsets(path: Path) -> list[tuple[str, Sequence[str]]]:
    """WordNet id and words of the classes of the devkit, in the order of their numbers from 1."""
    try:
        rows = np.atleast_1d(scipy.io.loadmat(path, squeeze_me=True)["synsets"])
        leaves = {
            int(row["ILSVRC2012_ID"]): (str(row["WNID"]).strip(), _split(str(row["words"])))
            for row in rows
            if int(row["num_children"]) == 0
        }
    except Exception as error:  # a damaged file makes the reader raise anything: all of it means "not that file"
        raise FormatError(f"{path} must be the devkit's table of synsets: {error!r}") from error
    synsets: list[tuple[str, Sequence[str]]] = [leaves[number] for number in sorted(leaves)]
    if sorted(leaves) != list(range(1, len(leaves) + 1)) or len({wnid for wnid, _ in synsets}) != len(synsets):
        raise FormatError(f"{path} must number its classes from 1 without gaps, each with a WordNet id of its own")
    return synsets


def _split(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word] or [text]
