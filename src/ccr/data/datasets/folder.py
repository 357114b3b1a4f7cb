"""Image folders: `split/class/image`, `class/image`, `split/image`, or images alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path, PurePosixPath

from ccr.data.datasets.base import Dataset, Sample, label_text, make_dataset, split_name
from ccr.data.datasets.sources import FileImage, ObjectImage, Source
from ccr.errors import FormatError
from ccr.places import Place

# fmt: off
IMAGE_SUFFIXES = frozenset([
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
    ".avif", ".jp2", ".ico",
])
# fmt: on


def open_folder(path: Path, *, labelled: bool = True) -> Dataset:
    """The images below `path`, in order of their names. Hidden files and other kinds of files are left out; links are
    followed.

    The first folder name is the split when every folder at the top is called train, val, test or the like;
    the next one is the class. Splits beside another folder are refused, unless labels do not matter (`labelled`).
    """
    root = path.resolve()
    return _dataset({key: FileImage(root / key) for key in sorted(_image_keys(root))}, str(root), labelled)


def open_remote_folder(place: Place, *, labelled: bool = True) -> Dataset:
    """The images below a URL, as `open_folder`."""
    sources = {
        entry.name: ObjectImage(place / entry.name, entry.size)
        for entry in place.list()
        if _is_image(entry.name) and not any(part.startswith(".") for part in entry.name.split("/"))
    }
    return _dataset(sources, str(place), labelled)


def _dataset(sources: Mapping[str, Source], path: str, labelled: bool) -> Dataset:
    folders = {PurePosixPath(key).parts[:-1] for key in sources if "/" in key}
    tops = {parts[0] for parts in folders}
    has_splits = bool(tops) and all(split_name(top) for top in tops)
    if labelled and not has_splits:
        refuse_some_splits(folders, path)
    samples = (_sample(key, source, has_splits) for key, source in sources.items())
    return make_dataset({"kind": "folder", "path": path}, samples)


def refuse_some_splits(folders: Set[tuple[str, ...]], path: str) -> None:
    """An error when splits lie beside another folder: two of them, or one with folders of classes in it. A class may
    well be called test."""
    splits = sorted({parts[0] for parts in folders if split_name(parts[0])})
    odd = sorted({parts[0] for parts in folders} - set(splits))
    nested = any(len(parts) > 1 for parts in folders if parts[0] in splits)
    if len({split_name(name) for name in splits}) > 1 or nested:
        raise FormatError(
            f"either every folder at the top of {path} is a split (train, val, test) or none; {', '.join(splits)} are "
            f"splits and {odd[0]!r} is not: move {odd[0]!r} elsewhere, or rename the others if they are classes"
        )


def has_images(root: Path) -> bool:
    """Is there any image file in the folder or below?"""
    return next(_image_keys(root), None) is not None


def locate_in_folder(root: Path, key: str) -> FileImage:
    """The file of a key, which always lies below `root`."""
    return FileImage(inside(root, key))


def inside(root: Path, name: str) -> Path:
    """`root / name`; an error if that is not below `root`. Links are not followed: whoever made them may point
    anywhere, a name may not.
    """
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, name))
    if os.path.commonpath([base, path]) != base:
        raise FormatError(f"{name!r} lies outside {base}")
    return Path(path)


def below(root: Place, name: str) -> Place:
    """`root / name` for a relative name that stays below `root`."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise FormatError(f"{name!r} lies outside {root}")
    return root / name


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _image_keys(root: Path) -> Iterator[str]:
    """Images below `root`, links followed unless they lead back to a folder above."""
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        parent, above = waiting.pop()
        folder = root / parent
        try:
            found = folder.stat()
            with os.scandir(folder) as entries:
                listed = [(entry.name, _is_folder(entry)) for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            raise FormatError(
                f"{error.filename or folder} cannot be read ({error.strerror}): allow reading it, or move it elsewhere"
            ) from error
        here = (found.st_dev, found.st_ino)
        if here not in above:
            waiting += [(f"{parent}{name}/", above | {here}) for name, is_folder in listed
                        if is_folder and name != "lost+found"]  # fmt: skip
            yield from (parent + name for name, is_folder in listed if not is_folder and _is_image(name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return False
        raise


def _sample(key: str, source: Source, has_splits: bool) -> Sample:
    folders = list(PurePosixPath(key).parts[:-1])
    split = split_name(folders.pop(0)) if has_splits and folders else None
    return Sample(key, source, label_text(folders[0]) if folders else None, split)
