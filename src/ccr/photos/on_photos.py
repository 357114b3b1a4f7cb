"""Predictions and explanations of photos, for whatever model answers about their embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from PIL import Image

from ccr.data.datasets import BadImage, decode, load_image
from ccr.data.datasets.sources import to_rgb, upright
from ccr.encoders.patches import occluded_terms
from ccr.encoders.registry import Encoder, PatchEncoder
from ccr.errors import CCRError
from ccr.explain import Explanation, PatchTerms, Way
from ccr.explain.terms import jpeg_address
from ccr.photos.run import encoder_of_model
from ccr.utils.arrays import paths_of
from ccr.utils.processes import OnProgress, no_progress

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier
    from ccr.model import ConceptModel

# From a picture to its explanation with `where`: the one call that the command line, pages and the studio share.
#: "auto": exact where the encoder can, else by covering parts.
Wanted = Literal["auto"] | Way
#: Neighbouring patches share their terms by a bell curve of this width, in patches: docs/where.md says what it does.
SMOOTHING = 0.7


def explain_image(
    model: ConceptModel | ConceptClassifier,
    encoder: Encoder,
    image: Image.Image,
    *,
    way: Wanted = "auto",
    smoothing: float = SMOOTHING,
    tell: OnProgress = no_progress,
) -> Explanation:
    """Explanation of the prediction of a picture, with maps: its `where` has one for each contribution.

    Parameters
    ----------
    model : a fitted model.
    encoder : the encoder that the model was fitted with.
    image : RGB, of any size.
    way : "exact" (the encoder's last layer taken apart), "values" (MaskCLIP), "occlusion" (parts covered, 50 times the
        work), or "auto": exact where the encoder can, else occlusion.
    smoothing : how far, in patches, each patch shares its term with its neighbours, at least 0; sums stay what they
        are.
    tell : called with the progress while parts are covered.
    """
    fitted: ConceptModel = getattr(model, "model_", model)
    encoder_of_model(fitted, encoder)
    if not 0.0 <= smoothing < float("inf"):
        raise CCRError(f"smoothing must be at least 0, got {smoothing}: it is a width in patches; try {SMOOTHING}")
    patches = split_image(encoder, image, way=way, tell=tell)
    return fitted.explain_patches(patches.smoothed(smoothing) if smoothing else patches)


def split_image(
    encoder: Encoder, image: Image.Image, *, way: Wanted = "auto", tell: OnProgress = no_progress
) -> PatchTerms:
    """The embedding of a picture as a sum over its patches and a rest; `way` as in `explain_image`."""
    if way not in (known := ("auto", *get_args(Way))):
        raise CCRError(f"way must be one of {', '.join(known)}, got {way!r}: try auto")
    reason = why_not_exact(encoder)
    if way == "occlusion" or (way == "auto" and reason is not None):
        return occluded_terms(encoder, image, tell=tell)
    if reason is not None or not isinstance(encoder, PatchEncoder):
        raise CCRError(f"way={way!r} needs an encoder whose last layer can be taken apart; {reason}: use occlusion")
    return encoder.patch_terms(image, way="values" if way == "values" else "exact")


def why_not_exact(encoder: Encoder) -> str | None:
    """Reason why the encoder's last layer cannot be taken apart; None: it can."""
    if not isinstance(encoder, PatchEncoder):
        return f"{getattr(encoder, 'name', type(encoder).__name__)} does not offer it"
    return encoder.why_no_patches()


#: Largest side of the photo beside a sum in a notebook.
THUMBNAIL = 240


def with_thumbnail(explanation: Explanation, image: Image.Image) -> Explanation:
    """The explanation with its picture beside it, small."""
    return replace(explanation, thumbnail=jpeg_address(image, THUMBNAIL, quality=85))


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
