"""Processes that read and decode ahead of the encoder, and the chunks of embeddings that a killed run keeps."""

from __future__ import annotations

import io
import json
import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from ccr.data.datasets import BadImage, Sample, content_hash, decode
from ccr.data.datasets.base import printable
from ccr.encoders import Encoder
from ccr.encoders.registry import Crop, batches
from ccr.errors import CCRError, UnreachableError
from ccr.explain.terms import PlainResult
from ccr.io.files import read_arrays, write_bytes
from ccr.io.remote import AnyPath, Place
from ccr.utils.arrays import unit_rows
from ccr.utils.processes import isolated_python

if TYPE_CHECKING:
    from ccr.data.store.store import EmbeddingStore

# Near-duplicates: pictures that look the same although their files differ, found by a perceptual hash. The hash is a
# difference hash: the picture in grey, shrunk to 9 x 8 and to 8 x 9 pixels, and for each pair of neighbours whether
# it becomes brighter, to the right and downwards; 128 bits. On the demo's photos, copies that were compressed again,
# halved, brightened by 15 % or trimmed by 2 % on each side differ in at most 17 bits, other photos in at least 34. But
# any round thing before white has nearly the hash of any other: there, pictures must also be alike to the encoder.
#: Pictures whose hashes differ in at most so many of the 128 bits may look the same.
MOST_BITS = 20
#: Up to so many they do whatever the encoder says, which small copies confuse; else their embeddings must have at least
#: this cosine. On photos of balls before white, copies compressed to a quality of 60 have at least 0.93.
SURE_BITS, LEAST_COSINE = 6, 0.9
#: A picture with fewer set bits is nearly of one colour: all such pictures would look the same.
LEAST_BITS = 8
#: Pairs of pictures that are compared at a time, and in all: of more, a sample of the measured images is compared.
AT_ONCE, MOST_PAIRS = 1 << 22, 10**10
#: Pairs whose embeddings are read at a time, and those that are shown.
PAIRS_READ, EXAMPLES = 4096, 5


@dataclass(frozen=True)
class NearCopy:
    """An image of a split that is measured on, and a training image that looks the same."""

    image: str
    split: str
    training_image: str
    bits: int


@dataclass(frozen=True)
class NearCopies(PlainResult):
    """Images outside the training split that look like a training image: `found` of `compared`, the first of them as
    `examples`, most alike first; alike means at most `most_bits` different bits of 128, and embeddings alike where they
    are more than a few."""

    compared: int
    found: int
    most_bits: int
    examples: tuple[NearCopy, ...]


def look_of(image: Image.Image) -> str:
    """The perceptual hash of a picture as 32 hexadecimal digits."""
    grey = image.convert("L")
    across = np.asarray(grey.resize((9, 8), Image.Resampling.BOX), np.int16)
    down = np.asarray(grey.resize((8, 9), Image.Resampling.BOX), np.int16)
    bits = np.concatenate([(across[:, 1:] > across[:, :-1]).ravel(), (down[1:] > down[:-1]).ravel()])
    return np.packbits(bits).tobytes().hex()


def near_copies(store: EmbeddingStore) -> NearCopies | None:
    """Images of `test`, `val` and other splits that look like one of `train`; None for stores without hashes, which
    older versions made, or without both kinds of splits. Copies of the very same file are not counted."""
    looks, splits = store.looks, store.splits
    known = np.array([look is not None for look in looks], bool)
    train, measured = (np.flatnonzero(known & part) for part in (splits == "train", splits != "train"))
    if not len(train) or not len(measured):
        return None
    if len(train) * len(measured) > MOST_PAIRS:
        measured = np.random.default_rng(0).permutation(measured)[: max(1, MOST_PAIRS // len(train))]
    compared = len(measured)
    train, measured = (rows[_is_lively(_words(looks[rows]))] for rows in (train, measured))
    if not len(train) or not len(measured):
        return NearCopies(compared, 0, MOST_BITS, ())
    bits, nearest = _nearest(_words(looks[measured]), _words(looks[train]))
    contents = store.contents
    close = np.flatnonzero((bits <= MOST_BITS) & (contents[measured] != contents[train[nearest]]))
    alike = _cosines(store, measured[close], train[nearest[close]]) >= LEAST_COSINE
    close = close[alike | (bits[close] <= SURE_BITS)]
    order = close[np.argsort(bits[close], kind="stable")]
    shown = tuple(
        NearCopy(
            str(store.paths[measured[at]]),
            str(splits[measured[at]]),
            str(store.paths[train[nearest[at]]]),
            int(bits[at]),
        )
        for at in order[:EXAMPLES]
    )
    return NearCopies(compared, len(order), MOST_BITS, shown)


def _cosines(store: EmbeddingStore, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of each of these rows with the other one beside it (a,)."""
    cosines = np.empty(len(rows))
    for start in range(0, len(rows), PAIRS_READ):
        part = slice(start, start + PAIRS_READ)
        needed, places = np.unique([rows[part], others[part]], return_inverse=True)
        vectors = unit_rows(np.asarray(store.select(rows=needed), np.float64))
        one, other = places.reshape(2, -1)
        cosines[part] = (vectors[one] * vectors[other]).sum(axis=1)
    return cosines


def _words(looks: np.ndarray) -> np.ndarray:
    """Hashes as two numbers each (m, 2)."""
    return np.array([np.frombuffer(bytes.fromhex(look), np.uint64) for look in looks]).reshape(len(looks), 2)


def _is_lively(hashes: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_count(hashes).sum(axis=1) >= LEAST_BITS)


def _nearest(hashes: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest neighbours of hashes (a, 2) among others (b, 2): the number of different bits, and the neighbour's
    row."""
    bits, nearest = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    step = max(1, AT_ONCE // len(others))
    for start in range(0, len(hashes), step):
        part = hashes[start : start + step]
        differing = sum(np.bitwise_count(part[:, None, word] ^ others[None, :, word]) for word in (0, 1))
        nearest[start : start + step] = differing.argmin(axis=1)
        bits[start : start + step] = differing.min(axis=1)
    return bits, nearest


# Worker processes that read and decode images ahead of the encoder.
_SAMPLES_PER_TASK = 8  # few messages between processes, and still small steps
_PROGRAM = "from ccr.data.store.workers import serve; serve()"


class Limits(NamedTuple):
    """Largest image that is decoded: pixels, and bytes of the file."""

    pixels: int
    bytes: int


@dataclass(frozen=True)
class Decoded:
    """A sample's content hash, perceptual hash and image, or the reason why there is none; `failure` says why it could
    not be had now, which is no fault of the image's."""

    content: str = ""
    look: str = ""
    image: Image.Image | None = None
    reason: str | None = None
    failure: str | None = None


def decode_sample(sample: Sample, *, crop: Crop | None, limits: Limits) -> Decoded:
    """Read, hash, decode and crop one sample."""
    try:
        sample.key.encode()
        content = sample.source.read(limits.bytes)
        image = decode(content, max_pixels=limits.pixels)
        image = image if crop is None else crop(image)
        return Decoded(content_hash(content), look_of(image), image)
    except BadImage as error:
        return Decoded(reason=str(error))
    except UnreachableError as error:
        return Decoded(failure=str(error))
    except UnicodeEncodeError:
        return Decoded(reason="its name is not valid UTF-8")
    except Exception as error:  # one sample must never stop a run of a million
        return Decoded(reason=f"{type(error).__name__}: {error}"[:300])


class Decoders:
    """Decodes samples in order, some ahead of the reader; `workers=0` does it in this process, when asked."""

    def __init__(self, workers: int, *, crop: Crop | None, limits: Limits) -> None:
        self._workers = workers
        self._crop = crop
        self._limits = limits
        self._pool: ThreadPoolExecutor | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def __enter__(self) -> Decoders:
        if self._workers:
            self._pool = ThreadPoolExecutor(self._workers)  # a thread waits for each child
            self._children = [_start() for _ in range(self._workers)]
            for child in self._children:
                self._idle.put(child)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()  # it holds nothing but what was read
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for child in self._children:
            child.communicate()

    def decode(self, samples: Iterable[Sample]) -> Iterator[Decoded]:
        """One result for each sample, in order; at most a few chunks for each worker are in memory."""
        if self._pool is None:
            for sample in samples:
                yield decode_sample(sample, crop=self._crop, limits=self._limits)
            return
        waiting: deque[Future[list[Decoded]]] = deque()
        for chunk in batches(samples, _SAMPLES_PER_TASK):
            waiting.append(self._pool.submit(self._ask, chunk))
            if len(waiting) > 2 * self._workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()

    def _ask(self, samples: Sequence[Sample]) -> list[Decoded]:
        """Decode these samples in an idle child process."""
        child = self._idle.get()
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            _send(child.stdin, (samples, self._crop, self._limits))
            return pickle.load(child.stdout)  # noqa: S301 (from our own child, as multiprocessing would)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise CCRError(
                "a decoding process died: the machine may be out of memory, or the data set or the encoder has parts "
                "that another process cannot import; workers=0 decodes without processes"
            ) from error
        finally:
            self._idle.put(child)


def serve() -> None:
    """A worker process: decodes what comes on stdin until that ends, which it does with the process that writes."""
    tasks, results = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not print into the results
    while True:
        try:
            samples, crop, limits = pickle.load(tasks)  # noqa: S301 (from the process that started this one)
        except EOFError:
            return
        _send(results, [decode_sample(sample, crop=crop, limits=limits) for sample in samples])


def _start() -> subprocess.Popen[bytes]:
    # In a session of its own, Ctrl-C reaches the parent alone, which then ends its children.
    pipe, command = subprocess.PIPE, isolated_python(_PROGRAM)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


_COLUMNS = {"image_path", "label", "split", "content"}
_MORE_COLUMNS = {"group", "look"}  # rows of data without groups, and of older versions, lack them


@dataclass(frozen=True)
class FirstRow:
    """The first row with a content: its embedding (d,) as stored, and its split."""

    embedding: np.ndarray
    split: str | None


Kind = TypeVar("Kind", bound="Chunk")


@dataclass(frozen=True)
class Chunk:
    """Embeddings (rows, d) of the samples that could be read, their metadata, and why the others were skipped.

    `reused` rows have the content of an earlier row, and `crossing` of them have that row in another split.
    """

    embeddings: np.ndarray
    metadata: list[dict[str, Any]]
    skipped: list[dict[str, str]]
    reused: int
    crossing: int

    def save(self, path: AnyPath) -> None:
        arrays: dict[str, Any] = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in vars(self).items() if name not in arrays}
        stream = io.BytesIO()
        np.savez(stream, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
        write_bytes(path, stream.getvalue())

    @classmethod
    def load(cls: type[Kind], path: AnyPath, dimension: int, dtype: str) -> Kind | None:
        """Read a saved chunk with embeddings (rows, `dimension`) of this `dtype`; None when there is none, or a
        damaged one in whatever way: then it is made again."""
        try:
            if isinstance(path, Place) and not path.is_file():
                return None
            arrays: dict[str, Any] = dict(read_arrays(path))
            facts = json.loads(arrays.pop("facts").tobytes())
            chunk = cls(**arrays, **facts)
            whole = chunk.embeddings.shape == (len(chunk.metadata), dimension) and chunk.embeddings.dtype == dtype
            return chunk if whole and chunk.is_sound() else None
        except UnreachableError:
            raise
        except Exception:
            return None

    def is_sound(self) -> bool:
        """Whether there is a number everywhere, and the rows and counts are such as `save` writes."""
        rows = all(
            _COLUMNS <= set(row) <= _COLUMNS | _MORE_COLUMNS and isinstance(row["content"], str)
            for row in self.metadata
        )
        texts = all(value is None or isinstance(value, str) for row in self.metadata for value in row.values())
        skipped = all(isinstance(item[name], str) for item in self.skipped for name in ("path", "reason"))
        counts = isinstance(self.reused, int) and isinstance(self.crossing, int)
        return rows and texts and skipped and counts and bool(np.isfinite(self.embeddings).all())


@dataclass
class ChunkBuilder:
    """Collects samples in order, embeds new contents `batch_size` at a time, and gives the chunk.

    Batches begin anew with every chunk, so a row's numbers never depend on where a run was interrupted.
    """

    encoder: Encoder
    batch_size: int
    dtype: str
    metadata: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    reused: int = 0
    crossing: int = 0
    _slots: list[int | np.ndarray] = field(default_factory=list)
    _new: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    _pending: list[Image.Image] = field(default_factory=list)
    _embedded: list[np.ndarray] = field(default_factory=list)

    def add(self, sample: Sample, decoded: Decoded, first: FirstRow | None) -> None:
        """Add the next sample; `first` is the first row with its content, if that is in an earlier chunk."""
        if decoded.image is None:
            self.skipped.append({"path": printable(sample.key), "reason": decoded.reason or "no reason known"})
            return
        self.metadata.append(_row(sample, decoded))
        if first is not None:
            self._reuse(first.embedding, sample.split, first.split)
        elif decoded.content in self._new:
            slot, split = self._new[decoded.content]
            self._reuse(slot, sample.split, split)
        else:
            self._slots.append(len(self._new))
            self._new[decoded.content] = (len(self._new), sample.split)
            self._pending.append(decoded.image)
            if len(self._pending) == self.batch_size:
                self._embed()

    def build(self) -> Chunk:
        """The chunk of all samples that were added."""
        self._embed()
        fresh = np.concatenate(self._embedded) if self._embedded else np.empty((0, self.encoder.dimension), self.dtype)
        rows = [fresh[slot] if isinstance(slot, int) else slot for slot in self._slots]
        embeddings = np.stack(rows) if rows else np.empty((0, self.encoder.dimension), dtype=self.dtype)
        return Chunk(embeddings, self.metadata, self.skipped, self.reused, self.crossing)

    def _reuse(self, slot: int | np.ndarray, split: str | None, first_split: str | None) -> None:
        self._slots.append(slot)
        self.reused += 1
        self.crossing += split != first_split

    def _embed(self) -> None:
        if self._pending:
            rows = self.encoder.embed_images(self._pending, batch_size=self.batch_size)
            self._embedded.append(rows.astype(self.dtype))
            self._pending.clear()


def _row(sample: Sample, decoded: Decoded) -> dict[str, Any]:
    row = {"image_path": sample.key, "label": sample.label, "split": sample.split}
    row |= {"content": decoded.content, "look": decoded.look}
    return row if sample.group is None else {**row, "group": sample.group}
