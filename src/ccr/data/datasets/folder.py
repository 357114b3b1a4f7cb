"""Image folders: `split/class/image`, `class/image`, `split/image`, or images alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ccr.data.datasets.base import Dataset, Sample, make_dataset, split_name
from ccr.data.datasets.sources import FileImage
from ccr.errors import FormatError

# fmt: off
IMAGE_SUFFIXES = frozenset([
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
    ".avif", ".jp2", ".ico",
])
# fmt: on


def open_folder(path: Path) -> Dataset:
    """The images below `path`, in order of their names. Hidden files and other kinds of files are left out.

    The first folder name is the split when every folder at the top is called train, val, test or the like;
    the next one is the class.
    """
    root = path.resolve()
    keys = sorted(_image_keys(root))
    tops = {PurePosixPath(key).parts[0] for key in keys if "/" in key}
    has_splits = bool(tops) and all(split_name(top) for top in tops)
    samples = (_sample(root, key, has_splits) for key in keys)
    return make_dataset({"kind": "folder", "path": str(root)}, samples)


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


def _image_keys(root: Path) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        parent = Path(folder).relative_to(root)
        for name in files:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield (parent / name).as_posix()


def _sample(root: Path, key: str, has_splits: bool) -> Sample:
    folders = list(PurePosixPath(key).parts[:-1])
    split = split_name(folders.pop(0)) if has_splits and folders else None
    return Sample(key, FileImage(root / key), folders[0] if folders else None, split)
