"""Photos to predictions: the encoder, resumable runs over many files, and explanations with a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccr.utils.arrays import paths_of
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
        from ccr.data.datasets import MAX_BYTES, MAX_PIXELS, open_photos
        from ccr.data.store.workers import Decoders, Limits
        from ccr.encoders.registry import batches, checked_batch_size
        from ccr.photos.run import Prediction, Predictions, checked_explain, encoder_of_model, predict_samples

        explain = checked_explain(explain, self)
        samples, loaded = open_photos(paths_of(paths)), encoder_of_model(self, encoder)
        predictions: list[Prediction] = []
        with Decoders(workers, crop=loaded.crop, limits=Limits(MAX_PIXELS, MAX_BYTES)) as decoders:
            decoded = decoders.decode(samples)
            for part in batches(samples, checked_batch_size(batch_size)):
                predictions += predict_samples(self, loaded, part, decoded, explain=explain, batch_size=batch_size)
                tell(len(predictions), len(samples), "predicting photos")
        return Predictions(predictions, explained=explain)

    def explain_image(
        self: Any, image: Any, *, encoder: Encoder | str | None = None, where: bool = False
    ) -> Explanation:
        """Explanation of the prediction of a photo; a notebook shows the photo next to the sum. It is a path, an image
        of Pillow, or an array (height, width, 3) of uint8.

        `where` adds which parts of the picture each contribution comes from (docs/where.md).
        """
        if not where:
            return self.explain_images([image], encoder=encoder)[0]
        from ccr.photos import on_photos

        photo = on_photos.pictures([image])[0][0]
        explained = on_photos.explain_image(self, on_photos.encoder_of_model(self, encoder), photo)
        return on_photos.with_thumbnail(explained, photo)

    def explain_images(self: Any, images: Any, *, encoder: Encoder | str | None = None) -> Explanations:
        """Explanations of several photos, as `explain_image` gives them; one that cannot be read is an error."""
        from ccr.explain import Explanations
        from ccr.photos import on_photos

        opened, names = on_photos.pictures(images)
        explained = self.explain_many(on_photos.encoder_of_model(self, encoder).embed_images(opened))
        return Explanations([*map(on_photos.with_thumbnail, explained, opened)], names)
