"""WebDataset's tar shards: members of one name are one sample, as img2dataset writes them (.jpg, .json, .txt, .cls).

Nothing is unpacked: an image is some bytes of its shard. Names and contents of members are data.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ccr.data.datasets.base import Coded, Dataset, SampleTable, make_dataset, split_name
from ccr.data.datasets.folder import IMAGE_SUFFIXES, inside
from ccr.data.datasets.patterns import Shards, split_of_name
from ccr.data.datasets.sources import MemberImage
from ccr.errors import FormatError
from ccr.places import AnyPath, Place, as_place
from ccr.reading import understood

KIND = "tar"
#: Shards that are indexed at once.
READERS = 8
#: Of a member that may hold a label.
MOST_LABEL_BYTES = 1 << 20
LABEL_NAMES = ("label", "labels", "class", "cls", "target", "class_name")
_BLOCK = 512


class TarIndex(NamedTuple):
    """The images of a shard: member names, (m, 2) offset and size, labels and splits."""

    names: list[str]
    where: np.ndarray
    labels: list[str | None]
    splits: list[str | None]


def open_tar(
    shards: Shards,
    origin: str,
    *,
    label_column: str | None = None,
    index: Callable[[Sequence[AnyPath], str | None], Iterable[TarIndex]] | None = None,
) -> Dataset:
    """The images of tar shards, in the order of shards and members; `index` indexes them, None: threads of this
    process.

    The label is that of the sample's `.cls`, or of `label` (or `label_column`) in its `.json`, or the folder that its
    name begins with. `label_column="txt"` takes the text that img2dataset keeps in `.txt`.
    """
    found = list((index or index_here)(shards.files, label_column))
    keys: list[pa.Array] = []
    where, labels, splits = [], [], []
    for number, (name, one) in enumerate(zip(shards.names, found, strict=True)):
        keys.append(pa.array([f"{name}/{member}" for member in one.names], pa.large_string()))
        where.append(np.column_stack([np.full(len(one.where), number, np.int64), one.where]).reshape(-1, 3))
        labels += one.labels
        splits += [split or split_of_name(name) for split in one.splits]
    if len({split is None for split in splits}) > 1:
        splits = [None] * len(splits)  # as if none had one: all are divided alike
    table = SampleTable(
        shards.files, MemberImage, pa.concat_arrays(keys), np.concatenate(where), Coded.of(labels), Coded.of(splits)
    )
    return make_dataset({"kind": KIND, "path": origin, "label_column": label_column}, table)


def index_here(files: Sequence[AnyPath], label_column: str | None) -> list[TarIndex]:
    """The indices of shards, several at a time."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda file: index_tar(file, label_column), files))


def index_tar(path: AnyPath, label_column: str | None) -> TarIndex:
    """What images a shard holds, and where. A shard that is cut off or damaged anywhere is refused."""
    with (
        understood(path, "be a tar shard that is whole", "fetch or write it again, or leave it out"),
        path.open() if isinstance(path, Place) else path.open("rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        members, labels = _members(archive, label_column)
        _check_end(path, stream, archive.offset)
    groups = [_group(name) for name, _, _ in members]
    names = [name.encode("utf-8", "backslashreplace").decode() for name, _, _ in members]
    known = [labels.get(group, (None, None)) for group in groups]
    where = np.array([(offset, size) for _, offset, size in members], np.int64).reshape(-1, 2)
    return TarIndex(
        names,
        where,
        [label or _folder_label(name) for (label, _), name in zip(known, names, strict=True)],
        [split or _folder_split(name) for (_, split), name in zip(known, names, strict=True)],
    )


def locate_in_tar(path: str, key: str) -> MemberImage:
    """The member that a data set's key names."""
    shard, _, member = key.partition(".tar/")
    root = _root(path)
    name = f"{shard}.tar"
    if isinstance(root, Place) and any(part in ("..", "", ".") for part in name.split("/")):
        raise ValueError(f"{name!r} is no shard")
    file = root / name if isinstance(root, Place) else inside(root, name)
    return MemberImage(file, *_known_members(file)[member])


def _root(path: str) -> AnyPath:
    place = as_place(path)
    if place.name.endswith(".tar"):
        return Shards.of_pattern(path).root if "{" in path else place.parent
    return place


@lru_cache(maxsize=64)
def _known_members(file: AnyPath) -> dict[str, tuple[int, int]]:
    index = index_tar(file, None)
    return {name: (int(offset), int(size)) for name, (offset, size) in zip(index.names, index.where, strict=True)}


def _members(
    archive: tarfile.TarFile, label_column: str | None
) -> tuple[list[tuple[str, int, int]], dict[str, tuple[str | None, str | None]]]:
    """Images as (name, offset, size), and label and split of each group that says so."""
    images: list[tuple[str, int, int]] = []
    known: dict[str, tuple[str | None, str | None]] = {}
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # of which tarfile remembers all
        if not member.isreg() or member.issparse() or PurePosixPath(member.name).name.startswith("."):
            continue
        kind = "." + PurePosixPath(member.name).name.partition(".")[2].lower()
        if kind in IMAGE_SUFFIXES:
            images.append((member.name, member.offset_data, member.size))
        elif kind in (".json", ".cls", ".txt") and member.size <= MOST_LABEL_BYTES:
            if kind == ".txt" and label_column != "txt":
                continue
            content = archive.extractfile(member)
            label, split = _label(kind, b"" if content is None else content.read(), label_column)
            old = known.get(_group(member.name), (None, None))
            first = kind == ".cls" or label_column is not None  # .cls says it better than .json
            known[_group(member.name)] = ((label or old[0]) if first else (old[0] or label), split or old[1])
    return images, known


def _label(kind: str, content: bytes, label_column: str | None) -> tuple[str | None, str | None]:
    """Label and split that a member beside an image gives."""
    text = content.decode("utf-8", "replace").strip()
    if kind != ".json":
        return text or None, None
    try:
        facts: Any = json.loads(text)
    except ValueError:
        return None, None
    if not isinstance(facts, dict):
        return None, None
    names = (label_column,) if label_column else LABEL_NAMES
    label = next((facts[name] for name in names if facts.get(name) is not None), None)
    split = facts.get("split")
    plain = str(label) if isinstance(label, (str, int, float)) and str(label) else None
    return plain, split_name(split) if isinstance(split, str) else None


def _check_end(path: AnyPath, stream: IO[bytes], offset: int) -> None:
    """A tar ends with blocks of zeros; where it is cut off or a heading is damaged, tarfile stops without a word."""
    stream.seek(offset)
    if stream.read(_BLOCK) != bytes(_BLOCK):
        raise FormatError(f"{path} is damaged or cut off at byte {offset:,}: fetch or write it again, or leave it out")


def _group(name: str) -> str:
    """The name up to the first dot of its last part, which a sample's members share."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _folders(name: str) -> list[str]:
    return [part for part in PurePosixPath(name).parts[:-1] if part not in ("/", ".", "..")]


def _folder_split(name: str) -> str | None:
    folders = _folders(name)
    return split_name(folders[0]) if folders else None


def _folder_label(name: str) -> str | None:
    folders = _folders(name)
    if folders and split_name(folders[0]):
        folders.pop(0)
    return folders[0].strip() or None if folders else None
