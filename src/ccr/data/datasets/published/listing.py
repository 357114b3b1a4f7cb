"""What the published layouts share: finding their folder, reading their lists, naming their classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ccr.data.datasets.base import Sample
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
