"""Encoders by their specs, one line of text each; the protocol that they follow, and CLIP's image preprocessing."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from PIL import Image

from ccr.encoders.assets import Log, cache_folder
from ccr.errors import CCRError, CCRWarning, MissingExtraError
from ccr.explain import Frame
from ccr.io.files import read_regular
from ccr.utils.texts import counted, visible

if TYPE_CHECKING:
    from ccr.explain import Frame, PatchTerms

# CLIP's image preprocessing with Pillow alone: mean and standard deviation of each colour.
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
        """The part of the image that `crop` cuts out."""
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
        """Prompt template of texts, with {} once where the text goes; None if the encoder has a way of its own."""

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Description of the image preprocessing in JSON types."""

    @property
    def crop(self) -> Crop | None:
        """Cuts out of an image the part that the encoder looks at: embedding that is embedding the image. Workers
        call it so that little is sent between processes; it can be pickled. None: complete images are sent.
        """

    def embed_images(self, images: Iterable[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        """Unit rows (m, d), float32, one for each image.

        Parameters
        ----------
        images : m RGB images of any size.
        batch_size : how many are embedded at a time, from 1. None: as many as the encoder was made for.
        """

    def embed_texts(self, texts: Sequence[str], *, template: str | None = None) -> np.ndarray:
        """Unit rows (n, d), float32, one for each text.

        Parameters
        ----------
        texts : n words or sentences.
        template : what each is put into first, with {} once where the text goes. None: the encoder's own.
        """


@runtime_checkable
class PatchEncoder(Protocol):
    """An encoder that can say what each patch of a picture adds to its embedding."""

    def frame(self, image: Image.Image) -> Frame:
        """The part of the image that the encoder looks at."""

    def why_no_patches(self) -> str | None:
        """Reason why these weights cannot be taken apart after all; None: they can."""

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        """The embedding of one RGB image as a sum over its patches and a rest (docs/where.md).

        Parameters
        ----------
        image : RGB, of any size.
        way : "exact": what the last layer's attention carries from each patch into the embedding. "values": the last
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


# Encoders named by the user on this machine: a store or model from elsewhere may not choose a folder to load.
_FILE = "named-encoders.jsonl"  # in the user's cache: specs that were given on this machine


def is_local(spec: str) -> bool:
    """Whether the spec names a folder or file that is here, rather than a model on a hub."""
    kind, _, target = spec.strip().partition(":")
    place = target.partition("/")[2] if kind == "open_clip" else target
    return kind in ("hf", "open_clip") and bool(place) and Path(place).exists()


def remember(spec: str) -> None:
    """Note that the user named this encoder, if it is a local one. Where nothing can be noted, he is asked again.

    A line is appended in one write, so that commands that run at the same time keep each other's notes.
    """
    if is_local(spec) and spec not in _known():
        with suppress(OSError, MissingExtraError):
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _FILE).open("ab", buffering=0) as file:
                file.write(b"\n" + json.dumps(spec).encode() + b"\n")


def check_named(spec: str, where: str) -> None:
    """Refuse a local encoder that `where`, a store or a model, notes, and that the user never named himself."""
    if is_local(spec) and spec not in _known():
        raise CCRError(
            f"{where} says that its encoder is {spec}, which lies on this machine and was never named by you: if you "
            f"trust it, give --encoder {spec}"
        )


def _known() -> set[str]:
    try:
        lines = read_regular(cache_folder() / _FILE).splitlines()
    except (OSError, MissingExtraError):
        return set()
    known = set()
    for line in lines:
        if line.startswith(b'"'):
            with suppress(ValueError):
                known.add(json.loads(line))
    return known


DEFAULT_ENCODER = "hf:openai/clip-vit-base-patch16"
_FORMS = "hf:NAME_OR_FOLDER, open_clip:MODEL/TAG_OR_CHECKPOINT, bundled"


class EncoderSpec(NamedTuple):
    """`kind` is hf, open_clip or bundled; `target` is what stands after the colon ("" for bundled)."""

    kind: str
    target: str


def parse_spec(spec: str) -> EncoderSpec:
    """The parts of an encoder spec such as `hf:openai/clip-vit-base-patch16`."""
    kind, colon, target = spec.strip().partition(":")
    if kind == "bundled" and not colon:
        return EncoderSpec("bundled", "")
    if kind in ("hf", "open_clip") and target.strip():
        return EncoderSpec(kind, target.strip())
    raise CCRError(f"an encoder is one of {_FORMS}; got {spec!r}: try {DEFAULT_ENCODER!r} or 'bundled'")


def load_encoder(
    spec: str = DEFAULT_ENCODER,
    *,
    device: str = "auto",
    batch_size: int = 32,
    template: str | None = None,
    threads: int | None = None,
    log: Log | None = None,
) -> Encoder:
    """Load the encoder that `spec` names. Stores and models that note a local folder may name it from then on.

    Parameters
    ----------
    spec : hf:NAME_OR_FOLDER, open_clip:MODEL/TAG_OR_CHECKPOINT or bundled.
    device : for hf and open_clip: "cpu", "cuda", ... or "auto": a GPU if there is one. The bundled one runs on the CPU.
    batch_size : for hf and open_clip: images or texts that are embedded at a time, from 1.
    template : what texts are put into, with {} once where the text goes. None: the encoder's own way.
    threads : for bundled: images that are run side by side, from 1. None: one per core.
    log : called with a message when something is downloaded.
    """
    kind, target = parse_spec(spec)
    checked_batch_size(batch_size)
    if kind == "bundled" and device not in ("auto", "cpu"):
        raise CCRError(
            f"the bundled encoder runs on the CPU, got device {device!r}: leave it out, or take an hf: encoder"
        )
    remember(spec)
    if kind == "bundled":
        from ccr.encoders.bundled import BundledEncoder

        return BundledEncoder(template=template, threads=threads, log=log)
    if kind == "hf":
        from ccr.encoders.hf import HFEncoder

        return HFEncoder(target, device=device, batch_size=batch_size, template=template)
    from ccr.encoders.openclip import OpenClipEncoder

    return OpenClipEncoder(target, device=device, batch_size=batch_size, template=template)
