"""WebDataset's tar shards: members of one name are one sample, as img2dataset writes them (.jpg, .json, .txt, .cls).

Nothing is unpacked: an image is some bytes of its shard. Names and contents of members are data.
"""

from __future__ import annotations

import json
import re
import tarfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ccr.data.datasets.base import Coded, Dataset, SampleTable, label_text, make_dataset, split_name
from ccr.data.datasets.files import IMAGE_SUFFIXES, Shards, inside, refuse_some_splits, split_of_name
from ccr.data.datasets.sources import MemberImage
from ccr.errors import CCRWarning, FormatError
from ccr.io.files import open_regular, understood
from ccr.io.remote import AnyPath, Place, as_place
from ccr.utils.texts import counted, visible

KIND = "tar"
#: Shards that are indexed at once.
READERS = 8
#: Of a member that may hold a label.
MOST_LABEL_BYTES = 1 << 20
#: Characters of a label.
MOST_LABEL = 1000
LABEL_NAMES = ("label", "labels", "class", "cls", "target", "class_name")
_BLOCK = 512
_SHARD = re.compile(r"(\.tar)/", re.IGNORECASE)


class TarIndex(NamedTuple):
    """The images of a shard: member names, (m, 2) offset and size, and the labels and splits that members beside them
    give."""

    names: list[str]
    where: np.ndarray
    labels: list[str | None]
    splits: list[str | None]
    unusable: list[str]  # members beside images whose label is no text and no number, or far too long


def open_tar(
    shards: Shards,
    origin: str,
    *,
    label_column: str | None = None,
    labelled: bool = True,
    index: Callable[[Sequence[AnyPath], str | None], Iterable[TarIndex]] | None = None,
) -> Dataset:
    """The images of tar shards, in the order of shards and members; `index` indexes them, None: threads of this
    process.

    The label is that of the sample's `.cls`, or of `label` (or `label_column`) in its `.json`, or the folder that its
    name begins with, after the split if every first folder is one. `label_column="txt"` takes the text that
    img2dataset keeps in `.txt`. Some images with a split and some without are refused, unless labels do not matter
    (`labelled`).
    """
    found = list((index or index_here)(shards.files, label_column))
    unusable = [f"{name}/{member}" for name, one in zip(shards.names, found, strict=True) for member in one.unusable]
    if unusable and labelled:
        warnings.warn(
            f"{counted(len(unusable), 'label')} of {origin} cannot be used, such as that of {visible(unusable[0])!r}: "
            f"a label is a text or a number of at most {MOST_LABEL} characters; write it again",
            CCRWarning,
            stacklevel=2,
        )
    has_splits = _has_splits(found, origin, labelled)
    keys: list[pa.Array] = []
    where: list[np.ndarray] = []
    labels: list[str | None] = []
    splits: list[str | None] = []
    for number, (name, one) in enumerate(zip(shards.names, found, strict=True)):
        keys.append(pa.array([f"{name}/{member}" for member in one.names], pa.large_string()))
        where.append(np.column_stack([np.full(len(one.where), number, np.int64), one.where]).reshape(-1, 3))
        above = [_split_and_label(member, has_splits) for member in one.names]
        labels += [own or label for own, (_, label) in zip(one.labels, above, strict=True)]
        splits += [own or split or split_of_name(name) for own, (split, _) in zip(one.splits, above, strict=True)]
    if len({split is None for split in splits}) > 1:
        splits = _without_splits(splits, keys, origin, labelled)
    table = SampleTable(
        shards.files, MemberImage, pa.concat_arrays(keys), np.concatenate(where), Coded.of(labels), Coded.of(splits)
    )
    return make_dataset({"kind": KIND, "path": origin, "label_column": label_column}, table)


def _split_and_label(name: str, has_splits: bool) -> tuple[str | None, str | None]:
    """Split and label from the folders in a member's name; the first folder is a split if `has_splits`."""
    folders = _folders(name)
    split = split_name(folders.pop(0)) if has_splits and folders else None
    return split, label_text(folders[0]) if folders else None


def _has_splits(found: Sequence[TarIndex], origin: str, labelled: bool) -> bool:
    """Is the first folder of every image in one a split? As in a folder of images, splits beside others are refused
    where folders are labels."""
    folders = {tuple(_folders(name)) for one in found for name in one.names} - {()}
    if folders and all(split_name(parts[0]) for parts in folders):
        return True
    if labelled and not all(label for one in found for label in one.labels):
        refuse_some_splits(folders, origin)
    return False


def _without_splits(
    splits: Sequence[str | None], keys: Sequence[pa.Array], origin: str, labelled: bool
) -> list[str | None]:
    """No splits at all, where only some images have one and splits do not matter; else an error."""
    if not labelled:
        return [None] * len(splits)
    key = pa.concat_arrays(keys)[list(splits).index(None)].as_py()
    raise FormatError(
        f"either every image of {origin} has a split or none, and {key!r} has none: give it one, by the name of its "
        "shard or folder or in its .json, or leave it out"
    )


def index_here(files: Sequence[AnyPath], label_column: str | None) -> list[TarIndex]:
    """The indices of shards, several at a time."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda file: index_tar(file, label_column), files))


def index_tar(path: AnyPath, label_column: str | None) -> TarIndex:
    """Index of the images in a shard: names, offsets, labels, splits. A truncated or damaged shard is refused."""
    with (
        understood(path, "be a tar shard that is whole", "fetch or write it again, or leave it out"),
        path.open() if isinstance(path, Place) else open_regular(path) as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        members, labels, unusable = _members(archive, label_column)
        _check_end(path, stream, archive.offset)
    names = [name.encode("utf-8", "backslashreplace").decode() for name in members]
    known = [labels.get(_stem(name)) or labels.get(_group(name), (None, None)) for name in members]
    where = np.array(list(members.values()), np.int64).reshape(-1, 2)
    return TarIndex(names, where, [label for label, _ in known], [split for _, split in known], unusable)


def locate_in_tar(path: str, key: str) -> MemberImage:
    """The member that a data set's key names."""
    shard, tar, member = _SHARD.split(key, maxsplit=1)
    root = _root(path)
    name = shard + tar
    if isinstance(root, Place) and any(part in ("..", "", ".") for part in name.split("/")):
        raise ValueError(f"{name!r} is no shard")
    file = root / name if isinstance(root, Place) else inside(root, name)
    return MemberImage(file, *_known_members(file)[member])


def _root(path: str) -> AnyPath:
    place = as_place(path)
    if place.name.lower().endswith(".tar"):
        return Shards.of_pattern(path).root if "{" in path else place.parent
    return place


@lru_cache(maxsize=64)
def _known_members(file: AnyPath) -> dict[str, tuple[int, int]]:
    index = index_tar(file, None)
    return {name: (int(offset), int(size)) for name, (offset, size) in zip(index.names, index.where, strict=True)}


def _members(
    archive: tarfile.TarFile, label_column: str | None
) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[str | None, str | None]], list[str]]:
    """Offset and size of each image by its name, label and split by the stem or group that they are of, and names of
    members whose label cannot be used. Of members with one name the last counts, as when a tar is unpacked, and a hard
    link is the member that it leads to."""
    files: dict[str, tuple[int, int]] = {}
    sides: dict[str, tuple[str | None, str | None]] = {}
    unusable: dict[str, None] = {}
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # of which tarfile remembers all
        if not (member.isreg() or member.islnk()) or member.issparse():
            continue
        files.pop(member.name, None)
        sides.pop(member.name, None)
        nothing = (member.offset_data, 0)
        place = files.get(member.linkname, nothing) if member.islnk() else (member.offset_data, member.size)
        files[member.name] = place
        kind = _suffix(member.name)
        unusable.pop(member.name, None)
        if not _may_label(kind, label_column) or _is_hidden(member.name):
            continue
        side = None if place[1] > MOST_LABEL_BYTES else _label(kind, _content(archive, *place), label_column)
        sides[member.name] = (side.label, side.split) if side else (None, None)
        if side is None or not side.usable:
            unusable[member.name] = None
    known = _joined(sides, label_column)
    lacking = [name for name in unusable if known[_stem(name)][0] is None]
    return _images(files), known, lacking


def _images(files: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The members that are images. Side files of WebDataset, such as x.seg.png beside x.jpg, are left out."""
    images = [name for name in files if _suffix(name) in IMAGE_SUFFIXES and not _is_hidden(name)]
    plain = {_stem(name) for name in images if _stem(name) == _group(name)}
    return {name: files[name] for name in images if _stem(name) == _group(name) or _group(name) not in plain}


def _may_label(kind: str, label_column: str | None) -> bool:
    return kind in (".json", ".cls") or (kind == ".txt" and label_column == "txt")


def _joined(
    sides: Mapping[str, tuple[str | None, str | None]], label_column: str | None
) -> dict[str, tuple[str | None, str | None]]:
    """Label and split of each stem; .cls says the label better than .json, unless a column was asked for."""
    known: dict[str, tuple[str | None, str | None]] = {}
    for name, (label, split) in sides.items():
        old = known.get(_stem(name), (None, None))
        first = _suffix(name) == ".cls" or label_column is not None
        known[_stem(name)] = ((label or old[0]) if first else (old[0] or label), split or old[1])
    return known


def _content(archive: tarfile.TarFile, offset: int, size: int) -> bytes:
    """Some bytes of the archive; where it is read on does not change."""
    stream = archive.fileobj
    assert stream is not None
    stream.seek(offset)
    return stream.read(size)


class _Side(NamedTuple):
    """Label and split from a side file of an image; `usable` is False if its label is invalid."""

    label: str | None
    split: str | None = None
    usable: bool = True


def _label(kind: str, content: bytes, label_column: str | None) -> _Side:
    text = content.decode("utf-8", "replace").strip()
    if kind != ".json":
        return _Side(text or None) if len(text) <= MOST_LABEL else _Side(None, usable=False)
    try:
        facts: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _Side(None, usable=False)
    if not isinstance(facts, dict):
        return _Side(None, usable=False)
    names = (label_column,) if label_column else LABEL_NAMES
    label = next((facts[name] for name in names if facts.get(name) is not None), None)
    split = split_name(facts["split"]) if isinstance(facts.get("split"), str) else None
    if label is None:
        return _Side(None, split)
    try:
        plain = label_text(label) if isinstance(label, (str, int, float)) else None
    except ValueError:  # an integer of more digits than Python makes text of
        plain = None
    blank = isinstance(label, str) and not label.strip()
    if plain is None or len(plain) > MOST_LABEL:
        return _Side(None, split, usable=blank)
    return _Side(plain, split)


def _check_end(path: AnyPath, stream: IO[bytes], offset: int) -> None:
    """A tar ends with blocks of zeros; where it is cut off or a heading is damaged, tarfile stops without a word."""
    stream.seek(offset)
    if stream.read(_BLOCK) != bytes(_BLOCK):
        raise FormatError(f"{path} is damaged or cut off at byte {offset:,}: fetch or write it again, or leave it out")


def _group(name: str) -> str:
    """The name up to the first dot of its last part, which a sample's members share."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _stem(name: str) -> str:
    """The name without its last suffix."""
    return name.removesuffix(PurePosixPath(name).suffix)


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_hidden(name: str) -> bool:
    return PurePosixPath(name).name.startswith(".")


def _folders(name: str) -> list[str]:
    return [part for part in name.split("/")[:-1] if part not in ("", ".", "..")]
