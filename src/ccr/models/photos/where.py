"""From a picture to its explanation with `where`: the one call that the command line, pages and the studio share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from PIL import Image

from ccr.core.explain import Explanation, PatchTerms, Way
from ccr.data.encoders.occlusion import occluded_terms
from ccr.data.encoders.protocol import Encoder, PatchEncoder
from ccr.errors import CCRError
from ccr.models.photos.reading import encoder_of_model
from ccr.models.photos.several import pictures, thumbnail
from ccr.progress import Tell, no_progress

if TYPE_CHECKING:
    from ccr.models.classifier import ConceptClassifier
    from ccr.models.concept_model import ConceptModel

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
    tell: Tell = no_progress,
) -> Explanation:
    """Why a picture is predicted as it is, and where: the explanation's `where` has a map for each contribution.

    Parameters
    ----------
    model : ConceptModel or ConceptClassifier
        A fitted model.
    encoder : Encoder
        The encoder that the model was fitted with.
    image : Image
        RGB, of any size.
    way : str
        "exact" (the encoder's last layer taken apart), "values" (MaskCLIP), "occlusion" (parts covered, 50 times the
        work), or "auto": exact where the encoder can, else occlusion.
    smoothing : float
        How far, in patches, each patch shares its term with its neighbours, at least 0; sums stay what they are.
    tell : callable
        Told about progress while parts are covered.
    """
    fitted: ConceptModel = getattr(model, "model_", model)
    expected = fitted.provenance.encoder_fingerprint
    if expected not in (None, encoder.fingerprint):
        raise CCRError(
            f"the model reads embeddings of encoder {expected} ({fitted.provenance.encoder}), but {encoder.name} is "
            f"{encoder.fingerprint}: give the encoder that the model was fitted with"
        )
    if not 0.0 <= smoothing < float("inf"):
        raise CCRError(f"smoothing must be at least 0, got {smoothing}: it is a width in patches; try {SMOOTHING}")
    patches = split_image(encoder, image, way=way, tell=tell)
    return fitted.explain_patches(patches.smoothed(smoothing) if smoothing else patches)


def explain_photo(model: Any, photo: Any, encoder: Encoder | str | None) -> Explanation:
    """As `ConceptModel.explain_image` says, with `where`."""
    image = pictures([photo])[0][0]
    explained = explain_image(model, encoder_of_model(model, encoder), image)
    return replace(explained, thumbnail=thumbnail(image))


def split_image(encoder: Encoder, image: Image.Image, *, way: Wanted = "auto", tell: Tell = no_progress) -> PatchTerms:
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
    """Why the encoder's last layer cannot be taken apart; None: it can."""
    if not isinstance(encoder, PatchEncoder):
        return f"{getattr(encoder, 'name', type(encoder).__name__)} does not offer it"
    return encoder.why_no_patches()
