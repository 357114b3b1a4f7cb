"""`bundled`: CLIP ViT-B/16 images and stand-in texts from registry packages alone, no model hub needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal

import numpy as np
from PIL import Image

from ccr.core.explain import Frame, PatchTerms
from ccr.data.assets import CLIP_IMAGE_TOWER, MINILM, Log, fetch, fetch_group
from ccr.data.encoders import bundled_layer
from ccr.data.encoders.bundled_texts import SentenceModel, TextAdapter, load_adapter
from ccr.data.encoders.preprocess import ClipPreprocess
from ccr.data.encoders.protocol import Crop, batches, checked_template, digest_of, fill_template, unit


class BundledEncoder:
    """OpenAI's CLIP ViT-B/16 image tower (int8 ONNX), and texts by a sentence model (MiniLM) whose vectors are mapped
    to CLIP's text directions, corrected by the words of a text whose CLIP vectors are known.

    Every image is run on its own: the weights are dynamically quantised, so the embedding of an image in a batch would
    depend on its neighbours.

    Parameters
    ----------
    template : str, optional
        What texts are put into, with {} once where the text goes. None: texts as they are.
    threads : int, optional
        Images, and blocks of texts, that are run side by side, from 1, which changes no number. None: one per core.
    log : callable, optional
        Called with a message when something is downloaded.
    """

    name = "bundled"
    dimension = 512

    def __init__(self, *, template: str | None = None, threads: int | None = None, log: Log | None = None) -> None:
        self.template = checked_template(template)
        self.threads = threads
        self._log = log
        self._preprocess = ClipPreprocess()

    @property
    def preprocessing(self) -> dict[str, Any]:
        return self._preprocess.describe()

    @cached_property
    def fingerprint(self) -> str:
        return digest_of(kind="bundled", images=CLIP_IMAGE_TOWER.sha256, preprocessing=self.preprocessing)

    @cached_property
    def text_fingerprint(self) -> str:
        sentences = [asset.sha256 for asset in MINILM.assets]
        return digest_of(
            space=self.fingerprint, sentences=sentences, adapter=self._adapter.sha256, template=self.template
        )

    @property
    def image_mean(self) -> np.ndarray:
        """Mean of ImageNet sample photos: what a single image is centred on before it is compared with texts."""
        return self._adapter.image_mean

    @property
    def crop(self) -> Crop:
        return self._preprocess.crop

    def embed_images(self, images: Iterable[Image.Image], *, batch_size: int | None = None) -> np.ndarray:
        threads = self.threads or _available_cores()
        rows: list[np.ndarray] = []
        with ThreadPoolExecutor(threads) as pool:
            for batch in batches(images, batch_size or 8 * threads):
                rows.extend(pool.map(self._embed_image, batch))
        return unit(np.concatenate(rows)) if rows else np.empty((0, self.dimension), dtype=np.float32)

    def frame(self, image: Image.Image) -> Frame:
        return self._preprocess.frame(image)

    def why_no_patches(self) -> str | None:
        return None

    def patch_terms(self, image: Image.Image, *, way: Literal["exact", "values"] = "exact") -> PatchTerms:
        return self._patches.terms(self._preprocess(image), self.frame(image), way)

    def embed_texts(self, texts: Sequence[str], *, template: str | None = None) -> np.ndarray:
        """Unit rows (n, d), directions from the mean of texts; each depends on nothing but its text, to the last bit.
        Known words are looked up in the texts themselves, not in the template around them."""
        prompts = dict(zip(texts, fill_template(template or self.template, texts), strict=True))
        places = {text: place for place, text in enumerate(prompts)}
        threads = self.threads or _available_cores()
        sentences = self._sentences.embed(list(prompts.values()), threads=threads)
        return self._adapter.directions(sentences, list(prompts), threads=threads)[[places[text] for text in texts]]

    def _embed_image(self, image: Image.Image) -> np.ndarray:
        (row,) = self._session.run(["image_embeds"], {"pixel_values": self._preprocess(image)})
        return np.asarray(row)

    @cached_property
    def _session(self) -> Any:
        return bundled_layer.session(str(fetch(CLIP_IMAGE_TOWER, log=self._log)))

    @cached_property
    def _patches(self) -> bundled_layer.BundledPatches:
        return bundled_layer.BundledPatches(fetch(CLIP_IMAGE_TOWER, log=self._log).read_bytes())

    @cached_property
    def _adapter(self) -> TextAdapter:
        return load_adapter()

    @cached_property
    def _sentences(self) -> SentenceModel:
        return SentenceModel(fetch_group(MINILM, log=self._log))


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
