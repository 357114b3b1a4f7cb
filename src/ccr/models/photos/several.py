"""Photos in memory's reach: predicted and explained in one call."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from ccr.core.explain import Explanations
from ccr.core.frames import paths_of
from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, BadImage, decode, load_image, open_photos
from ccr.data.datasets.decode import to_rgb, upright
from ccr.data.encoders import Encoder
from ccr.data.encoders.protocol import batches, checked_batch_size
from ccr.data.store.workers import Decoders, Limits
from ccr.errors import CCRError
from ccr.models.photos.chunk import predict_samples
from ccr.models.photos.prediction import Prediction, Predictions, checked_explain
from ccr.models.photos.reading import encoder_of_model
from ccr.progress import Tell

#: Largest side of the photo beside a sum in a notebook.
THUMBNAIL = 240


def predict_several(
    model: Any, paths: Any, encoder: Encoder | str | None, *, explain: int, workers: int, batch_size: int, tell: Tell
) -> Predictions:
    """As `ConceptModel.predict_images` says."""
    explain = checked_explain(explain, model)
    samples, loaded = open_photos(paths_of(paths)), encoder_of_model(model, encoder)
    found: list[Prediction] = []
    with Decoders(workers, crop=loaded.crop, limits=Limits(MAX_PIXELS, MAX_BYTES)) as decoders:
        decoded = decoders.decode(samples)
        for part in batches(samples, checked_batch_size(batch_size)):
            found += predict_samples(model, loaded, part, decoded, explain=explain, batch_size=batch_size)
            tell(len(found), len(samples), "predicting photos")
    return Predictions(found, explained=explain)


def explain_several(model: Any, images: Any, encoder: Encoder | str | None) -> Explanations:
    """As `ConceptModel.explain_images` says."""
    given, names = pictures(images)
    rows = encoder_of_model(model, encoder).embed_images(given)
    explained = model.explain_many(rows)
    return Explanations(
        [replace(item, thumbnail=thumbnail(image)) for item, image in zip(explained, given, strict=True)], names
    )


def thumbnail(image: Image.Image) -> str:
    """The image, made small, as a `data:` address."""
    small = image.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def pictures(images: Any) -> tuple[list[Image.Image], list[str]]:
    """Upright RGB images, and what they are called."""
    listed = list(_each(images))
    names = [f"image {number}" if _has_pixels(image) else image for number, image in enumerate(listed)]
    return [_opened(image) for image in listed], names


def _opened(image: Any) -> Image.Image:
    """A file, an image of Pillow or an array of pixels, as `decode` gives files, and within the same limits."""
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise BadImage(f"an image must have pixels, got one of {image.width} x {image.height}")
        image = np.asarray(to_rgb(upright(image)))
    return decode(image) if isinstance(image, np.ndarray) else load_image(image)


def _each(images: Any) -> Iterator[Any]:
    if _has_pixels(images):
        yield images
    elif _is_path(images) or hasattr(images, "columns"):
        yield from paths_of(images)
    else:
        for image in images:
            if not (_has_pixels(image) or _is_path(image)):
                raise CCRError(
                    "an image must be a path, an image of Pillow or an array (height, width, 3) of uint8, got "
                    f"{type(image).__name__}: convert it first"
                )
            yield image if _has_pixels(image) else str(image)


def _has_pixels(given: Any) -> bool:
    return isinstance(given, Image.Image) or (isinstance(given, np.ndarray) and given.dtype.kind not in "OU")


def _is_path(given: Any) -> bool:
    return isinstance(given, str) or hasattr(given, "__fspath__")
