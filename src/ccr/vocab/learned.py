"""Concepts learned from photos, in files that a list can be joined with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccr.concepts import Concepts
from ccr.data.datasets import BadImage, decode
from ccr.data.datasets.sources import FileImage
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder
from ccr.errors import CCRError, FormatError
from ccr.inputs import Embeddings
from ccr.io.files import read_regular, write_json
from ccr.knowledge.grounding import learn_direction
from ccr.utils.processes import OnProgress, no_progress
from ccr.vocab.lists import random_words

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
#: Words from whose mean a concept's text is measured.
CONTROL_WORDS = 64
#: Photos embedded between two steps of a progress bar.
BATCH = 16


@dataclass(frozen=True, eq=False)
class LearnedConcept:
    """A concept's name, its unit direction (d,) in the space of the encoder with this fingerprint, the share of photos
    that were wrong when left out, and the names of those photos."""

    name: str
    direction: np.ndarray
    fingerprint: str
    error: float
    wrong: tuple[str, ...]

    def write(self, path: Path) -> None:
        content = {"format": 1, "name": self.name, "direction": self.direction.tolist(), "error": self.error}
        write_json(path, {**content, "encoder_fingerprint": self.fingerprint, "wrong": list(self.wrong)})

    @classmethod
    def read(cls, path: Path) -> LearnedConcept:
        try:
            content: Any = json.loads(read_regular(path))
            direction = np.array(content["direction"], dtype=np.float64)
            texts = str(content["name"]), str(content["encoder_fingerprint"])
            concept = cls(texts[0], direction, texts[1], float(content["error"]), tuple(map(str, content["wrong"])))
        except OSError as error:
            raise FormatError(f"the learned concept {path} cannot be read: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path} is not what `ccr concepts learn` wrote: learn it again") from error
        if direction.ndim != 1 or not np.isclose(np.linalg.norm(direction), 1.0, atol=1e-3):
            raise FormatError(f"{path} holds no unit direction: learn it again")
        return concept


def learn_concept(
    name: str,
    shows: Sequence[Path],
    lacks: Sequence[Path],
    store: EmbeddingStore,
    encoder: Encoder,
    *,
    tell: OnProgress = no_progress,
) -> LearnedConcept:
    """A concept out of photos (files, or folders of them), in the metric of the store's images, drawn toward the text
    that is its name, the more the fewer the photos."""
    files = [_photos(paths) for paths in (shows, lacks)]
    for photos, option, what in ((files[0], "--shows", "that show it"), (files[1], "--lacks", "that do not")):
        if len(photos) < 2:
            least = f"a concept is learned from at least 2 photos {what}"
            raise CCRError(f"{least}, got {len(photos)}: give more by {option}")
    both = [path for path in files[0] if path in files[1]]
    if both:
        raise CCRError(f"a photo cannot both show {name!r} and lack it, got {both[0]}: take it out of one")
    rows = _embedded([*files[0], *files[1]], encoder, tell)
    tell(0, 0, "reading the store")
    moments = Embeddings(store).moments()
    showing, lacking = np.split(rows, [len(files[0])])
    learned = learn_direction(
        showing, lacking, text=_text_direction(name, encoder), mean=moments.mean, covariance=moments.covariance
    )
    wrong = [str(path) for path, is_wrong in zip([*files[0], *files[1]], learned.wrong, strict=True) if is_wrong]
    return LearnedConcept(name, learned.direction, encoder.fingerprint, learned.error, tuple(wrong))


def join_learned(concepts: Concepts, learned: Sequence[LearnedConcept], fingerprint: str | None) -> Concepts:
    """A list and learned concepts, all of the encoder with this fingerprint, if it is known."""
    for concept in learned:
        if fingerprint is not None and concept.fingerprint != fingerprint:
            raise CCRError(
                f"{concept.name!r} was learned with another encoder ({concept.fingerprint}) than the store's "
                f"({fingerprint}): learn it again with `ccr concepts learn`"
            )
        if len(concept.direction) != concepts.dimension:
            raise CCRError(f"{concept.name!r} has {len(concept.direction)} dimensions, the list {concepts.dimension}")
        concepts = concepts.with_direction(concept.name, concept.direction)
    return concepts


def _embedded(paths: Sequence[Path], encoder: Encoder, tell: OnProgress) -> np.ndarray:
    """Embeddings (m, d) of photos, a few at a time."""
    rows = []
    for start in range(0, len(paths), BATCH):
        tell(start, len(paths), "embedding photos")
        rows.append(encoder.embed_images([_image(path) for path in paths[start : start + BATCH]]))
    return np.concatenate(rows)


def _text_direction(name: str, encoder: Encoder) -> np.ndarray:
    rows = encoder.embed_texts([name, *random_words(CONTROL_WORDS, seed=0, exclude=[name])])
    return np.asarray(rows[0] - rows[1:].mean(axis=0), dtype=np.float64)


def _photos(paths: Sequence[Path]) -> list[Path]:
    photos: list[Path] = []
    for path in paths:
        inside = sorted(file for file in path.iterdir() if _is_photo(file)) if path.is_dir() else [path]
        if not inside:
            raise CCRError(f"{path} holds no photos ({', '.join(sorted(SUFFIXES))}): give another folder")
        photos += inside
    return list(dict.fromkeys(photos))


def _is_photo(file: Path) -> bool:
    """Whether a file is a photo by its name; hidden ones, such as those that macOS leaves beside photos, are none."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def _image(path: Path) -> Any:
    try:
        return decode(FileImage(path).read())
    except (OSError, BadImage) as error:
        raise CCRError(f"the photo {path} cannot be read: {error}") from error
