"""Photos to predictions: the encoder, resumable runs over many files, and explanations with a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccr.utils.processes import OnProgress, no_progress

if TYPE_CHECKING:
    from ccr.encoders.registry import Encoder
    from ccr.explain import Explanation, Explanations
    from ccr.photos.run import Predictions


class OnPhotos:
    """`predict_images` and `explain_image` of a `ConceptModel`; what reads photos is imported when it is used."""

    def predict_images(
        self,
        paths: Any,
        *,
        encoder: Encoder | str | None = None,
        explain: int = 5,
        workers: int = 0,
        batch_size: int = 32,
        tell: OnProgress = no_progress,
    ) -> Predictions:
        """Predict photos: class, probability, runner-up, and the concepts that contribute most.

        Parameters
        ----------
        paths : image files, folders or patterns: one, a list, a series, or a data frame with a column "path".
        encoder : the model's encoder, by itself or by its spec; None: the one that the model names.
        explain : concepts per photo, from 0.
        workers : processes that read and decode ahead of the encoder.
        batch_size : images that the encoder gets at a time.
        tell : called as photos pass.

        A photo that cannot be read has an `error` instead of a class.
        """
        from ccr.photos.on_photos import predict_several

        options: dict[str, Any] = {"explain": explain, "workers": workers, "batch_size": batch_size, "tell": tell}
        return predict_several(self, paths, encoder, **options)

    def explain_image(self, image: Any, *, encoder: Encoder | str | None = None, where: bool = False) -> Explanation:
        """Explanation of the prediction of a photo; a notebook shows the photo next to the sum. It is a path, an image
        of Pillow, or an array (height, width, 3) of uint8.

        `where` adds which parts of the picture each contribution comes from (docs/where.md).
        """
        if not where:
            return self.explain_images([image], encoder=encoder)[0]
        from ccr.photos.on_photos import explain_photo

        return explain_photo(self, image, encoder)

    def explain_images(self, images: Any, *, encoder: Encoder | str | None = None) -> Explanations:
        """Explanations of several photos, as `explain_image` gives them; one that cannot be read is an error."""
        from ccr.photos.on_photos import explain_several

        return explain_several(self, images, encoder)
