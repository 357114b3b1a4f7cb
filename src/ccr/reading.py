"""Files read so that damage is an error in words: which file, what is wrong with it, and what to do."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ccr.errors import CCRError, FormatError
from ccr.texts import visible

if TYPE_CHECKING:
    import numpy as np

    from ccr.places import AnyPath

#: Most bytes of a file that is read whole: a list, a table, an image's metadata; and of a model's tensors.
MOST_BYTES, MOST_TENSOR_BYTES = 512 << 20, 8 << 30
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


@contextmanager
def understood(path: str | os.PathLike[str] | AnyPath, must: str, remedy: str) -> Iterator[None]:
    """Around the parsing of a file: whatever it raises becomes `path` must ..., the reason, the remedy.

    A parser that is fed damaged or hostile bytes may raise anything. Errors in words stay.
    """
    try:
        yield
    except CCRError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{path} must {must} ({visible(reason)}): {remedy}") from error


def open_regular(path: Path, most: int | None = None) -> IO[bytes]:
    """A regular file open for reading, of at most `most` bytes; anything else is an OSError before a byte is read.

    A folder from elsewhere may have a pipe, on which a reader waits for ever, or a link to a device without an end.
    """
    check_regular(os.stat(path), most, path)  # opening a device may do something already
    # Not waiting for somebody to open the other end of a pipe; means nothing for regular files.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_regular(os.fstat(handle), most, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(found: os.stat_result, most: int | None, path: str | os.PathLike[str]) -> None:
    """An OSError for anything but a regular file, and for one of more than `most` bytes."""
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    if most is not None and found.st_size > most:
        raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, more than the limit of {most:,}", str(path))


def read_regular(path: AnyPath, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file, or of an object of an object store: at most `most`, or an OSError."""
    if not isinstance(path, Path):
        if path.size() > most:
            raise OSError(errno.EFBIG, f"it has {path.size():,} bytes, more than the limit of {most:,}", str(path))
        return path.read_bytes()
    with open_regular(path, most) as stream:
        return stream.read()


def check_rows(rows: int, size: int) -> None:
    """A ValueError for a table that says it has far more rows than its bytes could hold anything of: nulls and repeated
    values take no bytes in Parquet, and terabytes in memory."""
    if rows > max(1_000_000, size):
        raise ValueError(f"it says that it has {rows:,} rows in {size:,} bytes")


def read_object(path: AnyPath, must: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file."""
    with understood(path, must, remedy):
        content = json.loads(read_regular(path), parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
        return content


def map_array(path: Path, must: str, remedy: str) -> np.ndarray:
    """The array of a `.npy` file, memory-mapped."""
    import numpy as np

    with understood(path, must, remedy):
        check_regular(os.stat(path), None, path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive of arrays")
        return array


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
