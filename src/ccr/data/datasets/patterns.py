"""Names of many files in one: `shards/{00000..00099}.tar`, as WebDataset writes them."""

from __future__ import annotations

import re
from pathlib import Path

from ccr.data.datasets.base import split_name
from ccr.errors import CCRError
from ccr.places import AnyPath, Place, as_place

#: More files than this are a slip of the pen.
MOST = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_WORDS = re.compile(r"[-_./]")


def is_pattern(text: object) -> bool:
    """Does it name several files in braces?"""
    return _BRACES.search(str(text)) is not None


def expand(text: str) -> list[str]:
    """The names that a pattern stands for: `{00..11}` are numbers, as wide as the first, `{a,b}` words."""
    found = _BRACES.search(text)
    if found is None:
        return [text]
    count = _RANGE.fullmatch(found[1])
    if count is None:
        words = found[1].split(",")
        if len(words) < 2:
            raise CCRError(f"braces hold a range or words, such as {{00000..00099}} or {{train,val}}, got {found[0]}")
    else:
        first, last = int(count[1]), int(count[2])
        if not first <= last < first + MOST:
            raise CCRError(f"a range of files goes up, by less than {MOST:,}, got {found[0]}")
        words = [str(number).zfill(len(count[1])) for number in range(first, last + 1)]
    rest = expand(text[found.end() :])
    if len(words) * len(rest) > MOST:
        raise CCRError(f"a pattern stands for at most {MOST:,} files, got more: {text}")
    return [text[: found.start()] + word + tail for word in words for tail in rest]


class Shards:
    """Files that together are a data set: those of a pattern, of a folder, or one alone; `root` is their folder."""

    def __init__(self, root: AnyPath, names: list[str]) -> None:
        self.root, self.names = root, names

    @property
    def files(self) -> list[AnyPath]:
        return [self.root / name for name in self.names]

    @classmethod
    def of_pattern(cls, text: str) -> Shards:
        """Those that the pattern names; every one must be there when it is read."""
        before, _, _ = text.partition("{")
        head, slash, _ = before.rpartition("/")
        start = head + slash
        root = as_place(head) if head else Path("/" if slash else ".")
        return cls(root.resolve(), [name[len(start) :] for name in expand(text)])

    @classmethod
    def of_folder(cls, folder: AnyPath, suffix: str) -> Shards:
        """Files with this suffix directly in a folder, or in folders that are called as splits."""
        if isinstance(folder, Place):
            names = [entry.name for entry in folder.list()]
        else:
            below = [path for path in (*folder.glob("*.*"), *folder.glob("*/*.*")) if path.suffix.lower() == suffix]
            names = sorted(path.relative_to(folder).as_posix() for path in below if path.is_file())
        return cls(folder.resolve(), [name for name in names if name.lower().endswith(suffix) and _is_plain(name)])


def split_of_name(name: str) -> str | None:
    """The split that a shard's name says: `train/00000.tar`, `imagenet-val-000123.tar`."""
    words = {split_name(word) for word in _WORDS.split(name)} - {None}
    return words.pop() if len(words) == 1 else None


def _is_plain(name: str) -> bool:
    folders = name.split("/")[:-1]
    return not folders or (len(folders) == 1 and split_name(folders[0]) is not None)
