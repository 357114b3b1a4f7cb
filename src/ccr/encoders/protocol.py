"""What every encoder can do, and the few steps that all of them share."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from PIL import Image

from ccr.errors import CCRError, CCRWarning
from ccr.explain import Frame
from ccr.utils.texts import counted, visible

if TYPE_CHECKING:
    from ccr.explain import Frame, PatchTerms

# CLIP's image preprocessing with Pillow alone.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ClipPreprocess:
    """Short side to `size` (bicubic), centre square, values to [0, 1], minus `mean`, over `std`."""

    size: int = 224
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD

    def crop(self, image: Image.Image) -> Image.Image:
        """The square of `size` pixels that is embedded; the crop of a crop is itself."""
        image = image.convert("RGB")
        width, height = image.size
        scale = self.size / min(width, height)
        if scale != 1:
            width, height = max(self.size, round(width * scale)), max(self.size, round(height * scale))
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))

    def frame(self, image: Image.Image) -> Frame:
        """Which part of the image `crop` cuts out."""
        return centre_frame(*image.size, short_side=self.size, crop=(self.size, self.size))

    def __call__(self, image: Image.Image) -> np.ndarray:
        """(1, 3, size, size) float32."""
        pixels = np.asarray(self.crop(image), dtype=np.float32) / np.float32(255)
        scaled = (pixels - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])

    def describe(self) -> dict[str, Any]:
        """The same in JSON's words."""
        return {
            "resize": f"short side {self.size}, bicubic",
            "crop": f"centre {self.size}",
            "mean": list(self.mean),
            "std": list(self.std),
        }


def centre_frame(width: int, height: int, *, short_side: int, crop: tuple[int, int]) -> Frame:
    """The part of a picture that is left when its short side is brought to so many pixels and `crop` (width, height) is
    cut out of its centre."""
    scale = short_side / min(width, height)
    across, down = crop[0] / max(width * scale, 1.0), crop[1] / max(height * scale, 1.0)
    return Frame((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)


Item = TypeVar("Item")
Crop = Callable[[Image.Image], Image.Image]


class Encoder(Protocol):
    """Images and texts into one space of unit vectors."""

    @property
    def name(self) -> str:
        """The spec that `load_encoder` makes the encoder from."""

    @property
    def dimension(self) -> int:
        """The length d of an embedding."""

    @property
    def fingerprint(self) -> str:
        """A text that names the space: weights and image preprocessing. Two encoders with the same fingerprint embed an
        image to the same vector, whatever their device or batch size.
        """

    @property
    def text_fingerprint(self) -> str:
        """The fingerprint together with what only texts depend on: the text tower and the template."""

    @property
    def template(self) -> str | None:
        """What texts are put into, with {} once where the text goes; None if the encoder does so in its own way."""

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How an image is brought to the encoder's input, in words and numbers that JSON can hold."""

    @property
    def crop(self) -> Crop | None:
        """Cuts out of an image the part that the encoder looks at: embedding that is embedding the image. Workers
        call it so that little is sent between processes; it can be pickled. None: complete images are sent.
        """

    def embed_images(self, images: Iterable[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        """Unit rows (m, d), float32, one for each image.

        Parameters
        ----------
        images : iterable of Image, m of them
            RGB images of any size.
        batch_size : int, optional
            How many are embedded at a time, from 1. None: as many as the encoder was made for.
        """

    def embed_texts(self, texts: Sequence[str], *, template: str | None = None) -> np.ndarray:
        """Unit rows (n, d), float32, one for each text.

        Parameters
        ----------
        texts : sequence of str, length n
            Words or sentences.
        template : str, optional
            What each is put into first, with {} once where the text goes. None: the encoder's own.
        """


@runtime_checkable
class PatchEncoder(Protocol):
    """An encoder that can say what each patch of a picture adds to its embedding."""

    def frame(self, image: Image.Image) -> Frame:
        """The part of the image that the encoder looks at."""

    def why_no_patches(self) -> str | None:
        """Why these weights cannot be taken apart after all; None: they can."""

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        """The embedding of one RGB image as a sum over its patches and a rest (docs/where.md).

        Parameters
        ----------
        image : Image
            RGB, of any size.
        way : str
            "exact": what the last layer's attention carries from each patch into the embedding. "values": the last
            layer's values, as MaskCLIP takes them, which is no split of the embedding.
        """


def digest_of(**parts: Any) -> str:
    """Short text that changes when any part does: 16 hexadecimal digits of the sha256 of their JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def checked_template(template: str | None) -> str | None:
    """The template itself if it has exactly one `{}`."""
    if template is not None and template.count("{}") != 1:
        raise CCRError(
            f"a template must hold {{}} exactly once, where the text goes, got {template!r}: try 'a photo of {{}}'"
        )
    return template


def checked_batch_size(batch_size: int) -> int:
    if batch_size < 1:
        raise CCRError(f"batch_size must be at least 1, got {batch_size}: it is how many images are embedded at a time")
    return batch_size


def fill_template(template: str | None, texts: Sequence[str]) -> list[str]:
    """Each text put where the template has `{}`. Texts are data: braces in them mean nothing."""
    if isinstance(texts, str):
        raise CCRError(f"texts must be a list of texts, got the one text {texts!r}: put it in a list")
    checked = checked_template(template)
    return list(texts) if checked is None else [checked.replace("{}", text) for text in texts]


def warn_cut(texts: Sequence[str], tokens: Sequence[int], most: int) -> None:
    """A warning where texts have more tokens than an encoder reads: their ends would be cut off in silence."""
    long = [text for text, count in zip(texts, tokens, strict=True) if count > most]
    if long:
        warnings.warn(
            f"{counted(len(long), 'text')} of more than the {most} tokens that the encoder reads, so that the end is "
            f"cut off, such as {visible(long[0][:60])!r}...: use fewer words",
            CCRWarning,
            stacklevel=3,
        )


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Consecutive lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their norms, as float32."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)
