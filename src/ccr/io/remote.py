"""Places of files: a path of this machine, or a URL of an object store (s3://, gs://), read by ranges through pyarrow.

A `Place` answers the few calls of a `Path` that readers here make, so that both are read by the same code.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from ccr.errors import CCRError, MissingPlaceError, RefusedError, UnreachableError, without_credentials
from ccr.utils.texts import visible

# Buckets of object stores: pyarrow's file system for each, and its errors as messages for people. Credentials, region
# and endpoint come from the environment or the cloud's own files, never from a URL: a store or data set from elsewhere
# must not choose to whom requests go.

#: Parts of pyarrow's messages when permissions are missing.
REFUSED = (
    "ACCESS_DENIED",
    "HTTP status 403",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "ExpiredToken",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
)
#: Attempts that Amazon's client makes by itself, after pauses of seconds.
AMAZON_TRIES = 5
#: Time for which Google's client retries by itself; its default is 15 minutes.
GOOGLE_TRIES = timedelta(seconds=20)


@lru_cache(maxsize=64)
def filesystem(scheme: str, bucket: str) -> Any:
    """The file system of a bucket, one in each process."""
    return _amazon(bucket) if scheme == "s3" else _google()


def words(error: Exception) -> str:
    """Message of an error: one line of at most 240 characters, harmless to print."""
    return visible(without_credentials(" ".join(str(error).split())))[:240]


def _amazon(bucket: str) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options = {"endpoint_override": endpoint, "scheme": "http" if endpoint.startswith("http://") else "https"}
    elif not {"AWS_REGION", "AWS_DEFAULT_REGION"} & set(os.environ):
        options["region"] = _region(bucket)
    options["anonymous"] = _is_set("AWS_NO_SIGN_REQUEST")
    return fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=AMAZON_TRIES))


def _google() -> Any:
    from pyarrow import fs

    endpoint = os.environ.get("STORAGE_EMULATOR_HOST", "")
    scheme, slashes, host = endpoint.rpartition("://")
    options: dict[str, Any] = {"anonymous": bool(endpoint) or _is_set("CLOUDSDK_AUTH_DISABLE_CREDENTIALS")}
    if endpoint:
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme if slashes else "http"}
    return fs.GcsFileSystem(**options, retry_time_limit=GOOGLE_TRIES)


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


def _region(bucket: str) -> str:
    from pyarrow import fs

    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as error:
        raise UnreachableError(
            f"the region of the bucket {bucket!r} cannot be found ({words(error)}): set AWS_REGION, or "
            "AWS_ENDPOINT_URL for an object store that is not Amazon's"
        ) from None


# Reading an object of an object store: by ranges, or as a seekable stream.
class Ranges:
    """An object open for reading; several threads may read."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._handle: Any = None

    def size(self) -> int:
        """Bytes of the object."""
        return self.place.tried(lambda: int(self._opened().size()))

    def read(self, start: int, stop: int | None) -> bytes:
        """The bytes from start to stop, None: the end. Fewer than there should be are asked for again."""

        def read() -> bytes:
            handle = self._opened()
            try:
                end = handle.size() if stop is None else stop
                data: bytes = handle.read_at(end - start, start)
                if len(data) != end - start:
                    raise OSError(f"got {len(data)} of {end - start} bytes")
            except Exception:
                self._handle = None
                raise
            return data

        return self.place.tried(read)

    def _opened(self) -> Any:
        if self._handle is None:
            self._handle = self.place.filesystem().open_input_file(self.place.key)
        return self._handle


class Stream(io.RawIOBase):
    """Ranges as a file of Python's."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges, self._size, self._at = ranges, ranges.size(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        data = self._ranges.read(self._at, stop) if stop > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


Result = TypeVar("Result")

#: Attempts of a request, each with the client's own retries, and the pause before the second in seconds.
ATTEMPTS, PAUSE = 4, 0.3
#: Bytes that a stream fetches at once.
STREAMED = 1 << 20
SCHEMES = ("s3", "gs", "gcs", "file")
# One slash is enough: `Path` of a URL drops the second.
_URL = re.compile(r"^(?P<scheme>[a-z0-9+.-]{2,}):/{1,3}(?=[^/])", re.IGNORECASE)


class Entry(NamedTuple):
    """A file below a place: its name from there, and its bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Place:
    """An object, or what lies below a prefix, of an object store: `url` is `scheme://bucket/key`.

    To whom requests go, and with which credentials, is not in it (`ccr.io.remote`).
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        raise CCRError(f"{self.url} is not on this machine: this command reads local files; copy it here first")

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.key.partition("/")[2].rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> Place:
        bucket, _, path = self.key.partition("/")
        return Place(f"{self.scheme}://{bucket}/{path.rpartition('/')[0]}".rstrip("/"))

    def with_name(self, name: str) -> Place:
        return self.parent / name

    def absolute(self) -> Place:
        return self

    def resolve(self) -> Place:
        return self

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def key(self) -> str:
        """Bucket and key, as pyarrow names objects. Every character of a key is its own: # and ? mean nothing in it."""
        return self.url.partition("://")[2].rstrip("/")

    def is_file(self) -> bool:
        return self._info().type.name == "File"

    def is_dir(self) -> bool:
        return self._info().type.name == "Directory"

    def exists(self) -> bool:
        return self._info().type.name != "NotFound"

    def size(self) -> int:
        """Bytes of the object."""
        return int(self._info().size or 0)

    def read_bytes(self) -> bytes:
        """The whole object."""
        return self.ranges().read(0, None)

    def ranges(self) -> Ranges:
        """The object open for reading, range by range."""
        return Ranges(self)

    def open(self) -> io.BufferedReader:
        """The object as a binary stream that can be sought in; what is passed over is not fetched."""
        return io.BufferedReader(Stream(self.ranges()), STREAMED)

    def list(self) -> list[Entry]:
        """All files below, in order of their names."""
        from pyarrow.fs import FileSelector

        def files() -> list[Entry]:  # a name that is no text is an error of the listing
            infos = self.filesystem().get_file_info(FileSelector(self.key, allow_not_found=True, recursive=True))
            return sorted(
                Entry(info.path[len(self.key) :].lstrip("/"), int(info.size)) for info in infos if info.is_file
            )

        return self.tried(files)

    def iterdir(self) -> Iterator[Place]:
        """Places directly below this one."""
        return (self / name for name in dict.fromkeys(entry.name.split("/")[0] for entry in self.list()))

    def write_bytes(self, data: bytes) -> None:
        """Make the object exactly `data`; an object store shows it whole or not at all."""

        def write() -> None:
            with self.filesystem().open_output_stream(self.key) as stream:
                stream.write(data)

        self.tried(write)

    def unlink(self) -> None:
        """Remove the object, if it is there."""
        with suppress(MissingPlaceError):
            self.tried(lambda: self.filesystem().delete_file(self.key))

    def remove_below(self) -> None:
        """Remove everything below the prefix."""
        for entry in self.list():
            (self / entry.name).unlink()

    def check_writable(self) -> None:
        """An error now if nothing could be written here later; nothing stays behind."""
        probe = self / ".ccr-probe"
        probe.write_bytes(b"")
        probe.unlink()

    def _info(self) -> Any:
        return self.tried(lambda: self.filesystem().get_file_info(self.key))

    def filesystem(self) -> Any:
        """pyarrow's file system of the bucket, one in each process."""
        return filesystem(self.scheme, self.key.partition("/")[0])

    def tried(self, call: Callable[[], Result]) -> Result:
        """The call's result; where the network fails, it is made again. Errors name the place and the remedy."""
        for attempt in count(1):
            try:
                return call()
            except CCRError:
                raise
            except (OSError, ValueError) as error:
                text = words(error)
                if isinstance(error, FileNotFoundError) or "NO_SUCH_BUCKET" in text:
                    raise MissingPlaceError(f"there is no {self.url}: check the name and the bucket") from None
                if any(word in text for word in REFUSED):
                    raise RefusedError(
                        f"{self.url} may not be used with these credentials ({text}): set AWS_ACCESS_KEY_ID and "
                        "AWS_SECRET_ACCESS_KEY (or GOOGLE_APPLICATION_CREDENTIALS), or ask for rights to the bucket"
                    ) from None
                if attempt == ATTEMPTS:
                    raise UnreachableError(
                        f"{self.url} cannot be read or written now ({text}): check the network and the endpoint, then "
                        "run the same command again"
                    ) from error
            time.sleep(PAUSE * 2**attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")


AnyPath = Path | Place


def is_url(text: object) -> bool:
    """Whether the text begins with a scheme such as s3://."""
    match = _URL.match(str(text))
    return match is not None and match["scheme"].lower() in SCHEMES


def as_place(text: str | os.PathLike[str] | Place) -> AnyPath:
    """A path of this machine, which file:// also names, or a `Place` for the URL of an object store."""
    if isinstance(text, Place):
        return text
    match = _URL.match(str(text))
    if match is None or (match["scheme"].lower() not in SCHEMES and Path(text).exists()):
        return Path(text)
    scheme, rest = match["scheme"].lower(), str(text)[match.end() :]
    if scheme == "file":
        return Path("/" + unquote(rest))
    if scheme not in SCHEMES:
        raise CCRError(f"a URL begins with one of {', '.join(f'{name}://' for name in SCHEMES)}, got {text}")
    parts = urlsplit(f"{scheme}://{rest}")
    if "@" in parts.netloc:
        raise CCRError("a URL must not hold credentials, because it is kept in stores and models: put them into the "
                       "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)")  # fmt: skip
    if parts.query or parts.fragment:
        raise CCRError(
            f"a URL must be scheme://bucket/key without ? and #, got {text}: an endpoint is AWS_ENDPOINT_URL"
        )
    if any(part in ("..", ".") for part in parts.path.split("/")):
        raise CCRError(f"a URL must not have . or .. in it, got {text}")
    return Place(f"{scheme}://{rest}".rstrip("/"))
