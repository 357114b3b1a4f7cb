"""Files and folders written whole or not at all, and read so that damage is an error that names the file."""

from __future__ import annotations

import errno
import glob
import io
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ccr.errors import CCRError, FormatError, WriteError
from ccr.io.remote import Place, as_place
from ccr.utils.texts import visible

if TYPE_CHECKING:
    import numpy as np

    from ccr.io.remote import AnyPath

# Atomic writes of files and folders: written under another name, synced to the disk, renamed into place.
ASIDE = ".ccr-aside-"  # begins the names of files and folders being written, or left by a process that was killed
OLD = ".ccr-old-"  # begins the names of folders that are being replaced in two steps
_ABANDONED = 3600.0  # seconds after which a file or folder aside is abandoned


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Make `path`, a file or the URL of an object, exactly `data`, durably; when anything fails, what stood there still
    does.

    Missing parent folders are made. A file that is replaced keeps its permissions, a new one gets those that `open`
    gives. Where `path` is a symbolic link, the link is replaced, not the file that it points to.
    """
    write_stream(path, lambda stream: stream.write(data))


def write_stream(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Make `path` a file of what `write` writes into the stream that it is called with, which need not be in memory at
    once, unless `path` is a URL; otherwise as `write_bytes`."""
    target = as_place(path)
    if isinstance(target, Place):
        whole = io.BytesIO()
        write(whole)
        target.write_bytes(whole.getvalue())
        return
    with _aside(target) as aside:
        with aside.open("xb") as stream:  # x: made anew, so that no link lying there is followed
            _copy_mode(target, aside)
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Make `path` a text file in UTF-8, its line ends as they are in `text`; otherwise as `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Make `path` a JSON file of `content`, indented, in ASCII; NaN and infinities are a ValueError, for JSON has none.

    Otherwise as `write_bytes`. ASCII: names of files that are not valid UTF-8 come back as they were.
    """
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def replace_folder(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Make `path` a folder of exactly what `write` writes, durably; when anything fails, the old folder still stands.

    `write` is called once with a new, empty folder beside `path`. What stood there is removed with everything in it, so
    the caller checks first that it may go. On Linux the two are exchanged in one step, so that a reader always sees one
    of them complete; where the file system cannot, there is a moment with neither, and if the process is killed then,
    `recover_folder` brings the old one back. Permissions and links as for `write_bytes`.
    """
    target = as_place(path)
    if isinstance(target, Place):
        _put_folder(target, write)
        return
    if target.exists() and not target.is_dir():
        raise CCRError(f"{target} must be a folder to be replaced by one, but it is a file: choose another name")
    recover_folder(target)
    with _aside(target) as aside:
        aside.mkdir()
        _copy_mode(target, aside)
        write(aside)
        _sync_tree(aside)
        if not os.path.lexists(target):
            os.rename(aside, target)
        elif not _exchange(aside, target):
            _swap(aside, target)


def recover_folder(path: str | os.PathLike[str]) -> None:
    """Bring the old folder back to `path` where a process was killed between the two steps of replacing it.

    A process that still lives needs a moment between the two, for which this waits up to a second.
    """
    target = as_place(path)
    if isinstance(target, Place):
        return
    for _ in range(100):
        replaced = [] if target.exists() else sorted(target.parent.glob(f"{OLD}*-{glob.escape(target.name)}"))
        if not replaced:
            return
        time.sleep(0.01)
    with suppress(OSError):
        os.rename(replaced[0], target)


def check_writable(path: str | os.PathLike[str]) -> None:
    """A WriteError now if `path`, a file or a folder, could not be written later; nothing stays behind."""
    target = as_place(path)
    if isinstance(target, Place):
        target.check_writable()
        return
    with _named(target):
        existing = next(place for place in (target, *target.absolute().parents) if os.path.lexists(place))
        if existing != target and not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        probe = (existing if existing.is_dir() else existing.parent) / _name_aside()
        try:
            with probe.open("xb") as stream:
                stream.write(b"\0")
        finally:
            _remove(probe)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove what killed processes left half-written in `folder`, where no other process may be writing."""
    for leftover in Path(folder).glob(f"{ASIDE}*"):
        _remove(leftover)


def _put_folder(target: Place, write: Callable[[Path], None]) -> None:
    """Upload the files that `write` writes, as objects below a URL. Each is there whole or not at all; JSON comes last,
    because it describes the others and must not be there before them."""
    with tempfile.TemporaryDirectory(prefix="ccr-put-") as name:
        write(Path(name))
        files = sorted(
            (path for path in Path(name).rglob("*") if path.is_file()), key=lambda path: path.suffix == ".json"
        )
        for path in files:
            (target / path.relative_to(name).as_posix()).write_bytes(path.read_bytes())


def lock(handle: int, busy: str | None = None) -> None:
    """Lock an open file or folder until it is closed or the process ends; while another process has it, wait, or raise
    an error that says `busy`. Windows has no such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
    except OSError as error:
        raise error if busy is None else CCRError(busy) from error


@contextmanager
def locked(folder: str | os.PathLike[str], busy: str) -> Iterator[None]:
    """One process at a time in `folder`; another one gets an error that says `busy`. The lock goes with the process,
    however it ends."""
    # Neither emptied nor followed: the maker of the folder may have made it a link to something of worth.
    handle = os.open(Path(folder) / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        lock(handle, busy)
        yield
    finally:
        os.close(handle)


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """An unused name beside `target`. Whatever has it in the end is removed, and the renaming synced."""
    aside = target.with_name(_name_aside())
    with _named(target):
        try:
            _make_folder(target.parent)
            _collect_abandoned(target.parent)
            yield aside
            _sync_folder(target.parent)
        finally:
            _remove(aside)


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Errors of the system as one that names `target`, the reason and a remedy."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        remedy = "check the path, its permissions and the free space, or choose another folder"
        raise WriteError(error.errno, f"{target} cannot be written ({reason}): {remedy}") from error


def _name_aside() -> str:
    return ASIDE + secrets.token_hex(8)


@lru_cache(maxsize=1024)
def _collect_abandoned(folder: Path) -> None:
    """Remove what killed processes left in the folder long ago; looked for once in each process."""
    for leftover in [*folder.glob(f"{ASIDE}*"), *folder.glob(f"{OLD}*")]:
        replaced = leftover.name.removeprefix(OLD).partition("-")[2]
        with suppress(OSError):
            is_only_one = leftover.name.startswith(OLD) and not (folder / replaced).exists()
            if time.time() - leftover.lstat().st_mtime > _ABANDONED and not is_only_one:
                _remove(leftover)


def _make_folder(folder: Path) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _copy_mode(target: Path, aside: Path) -> None:
    """Give `aside`, still empty, the permissions of what it will replace, so that private files stay private."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISLNK(mode) and mode != aside.stat().st_mode:
        aside.chmod(stat.S_IMODE(mode))


def _swap(aside: Path, target: Path) -> None:
    """Rename `aside` to `target` and remove what stood there; go back when that fails in the middle."""
    old = target.with_name(f"{OLD}{secrets.token_hex(8)}-{target.name}")  # killed here, it is the only one
    os.rename(target, old)
    try:
        os.rename(aside, target)
    except BaseException:
        os.rename(old, target)
        raise
    _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, if the system and the file system can."""
    if sys.platform != "linux":
        return False
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)  # absent before glibc 2.28
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2 is not None and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            _sync(Path(parent, name))
        _sync_folder(Path(parent))


def _sync_folder(folder: Path) -> None:
    try:
        _sync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems sync files alone
            raise


def _sync(path: Path) -> None:
    if os.name != "posix":  # what is open for reading cannot be synced there, and folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


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
def format_errors(path: str | os.PathLike[str] | AnyPath, must: str, remedy: str) -> Iterator[None]:
    """Around the parsing of a file: whatever it raises becomes `path` must ..., the reason, the remedy.

    A parser that is fed damaged or hostile bytes may raise anything. Errors in words stay.
    """
    try:
        yield
    except CCRError:
        raise
    except Exception as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        reason = getattr(error, "strerror", None) or " ".join(text.split())[:200] or type(error).__name__
        raise FormatError(f"{path} must {must} ({visible(reason)}): {remedy}") from error


def open_regular(path: Path, most: int | None = None) -> IO[bytes]:
    """A regular file open for reading, of at most `most` bytes; anything else is an OSError before a byte is read.

    A folder from elsewhere may have a pipe, on which a reader waits for ever, or a link to a device without an end.
    """
    check_regular(os.stat(path), most, path)  # opening a device may do something already
    # Not waiting for another process to open the other end of a pipe; means nothing for regular files.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_regular(os.fstat(handle), most, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(status: os.stat_result, most: int | None, path: str | os.PathLike[str]) -> None:
    """An OSError for anything but a regular file, and for one of more than `most` bytes."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than the limit of {most:,}", str(path))


def read_regular(path: AnyPath, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file, or of an object of an object store: at most `most`, or an OSError."""
    if not isinstance(path, Path):
        ranges = path.ranges()  # whose size is that of what is read, whatever a listing says
        if (size := ranges.size()) > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than the limit of {most:,}", str(path))
        return ranges.read(0, size)
    with open_regular(path, most) as stream:
        return stream.read(os.fstat(stream.fileno()).st_size)  # no more, should it grow


def read_arrays(path: AnyPath) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` file that `np.savez` wrote; compressed ones, which may have any size, are a ValueError."""
    import numpy as np

    data = read_regular(path, MOST_TENSOR_BYTES)
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        if sum(part.file_size for part in archive.zip.infolist()) > len(data):
            raise ValueError("its arrays have more bytes than the file")
        return dict(archive)


def check_rows(rows: int, size: int) -> None:
    """A ValueError for a table that says it has far more rows than its bytes could hold anything of: nulls and repeated
    values take no bytes in Parquet, and terabytes in memory."""
    if rows > max(1_000_000, size):
        raise ValueError(f"it says that it has {rows:,} rows in {size:,} bytes")


def read_object(path: AnyPath, must: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file."""
    with format_errors(path, must, remedy):
        content = json.loads(read_regular(path), parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
        return content


def map_array(path: Path, must: str, remedy: str) -> np.ndarray:
    """The array of a `.npy` file, memory-mapped."""
    import numpy as np

    with format_errors(path, must, remedy):
        check_regular(os.stat(path), None, path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive of arrays")
        return array


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
