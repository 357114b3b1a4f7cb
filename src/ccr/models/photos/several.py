"""Photos in memory's reach: predicted and explained in one call."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from PIL import Image

from ccr.core.explain import Explanations
from ccr.core.frames import paths_of
from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, load_image, open_photos
from ccr.data.datasets.decode import to_rgb
from ccr.data.encoders import Encoder
from ccr.data.encoders.protocol import batches, checked_batch_size
from ccr.data.store.workers import Decoders, Limits
from ccr.models.photos.chunk import predict_samples
from ccr.models.photos.prediction import Prediction, Predictions
from ccr.models.photos.reading import encoder_of_model
from ccr.progress import Tell

#: Largest side of the photo beside a sum in a notebook.
THUMBNAIL = 240


def predict_several(
    model: Any, paths: Any, encoder: Encoder | str | None, *, explain: int, workers: int, batch_size: int, tell: Tell
) -> Predictions:
    """As `ConceptModel.predict_images` says."""
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
    opened = [to_rgb(image) if isinstance(image, Image.Image) else load_image(image) for image in listed]
    names = [f"image {number}" if isinstance(image, Image.Image) else image for number, image in enumerate(listed)]
    return opened, names


def _each(images: Any) -> Iterator[Any]:
    if isinstance(images, Image.Image):
        yield images
    elif isinstance(images, (list, tuple)):
        yield from (image if isinstance(image, Image.Image) else str(image) for image in images)
    else:
        yield from paths_of(images)
