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
from ccr.core.threads import threads_for
from ccr.data.assets import CLIP_IMAGE_TOWER, MINILM, Log, cache_folder, fetch, fetch_group
from ccr.data.encoders import bundled_layer
from ccr.data.encoders.adapter import TextAdapter, load_adapter
from ccr.data.encoders.preprocess import ClipPreprocess
from ccr.data.encoders.progress_bars import no_bars
from ccr.data.encoders.protocol import Crop, batches, checked_template, digest_of, fill_template, unit, warn_cut
from ccr.data.encoders.rendering import render, rendering
from ccr.data.encoders.text_cache import TextCache
from ccr.errors import MissingExtraError

_LONGEST_TEXT = 256  # tokens; what all-MiniLM-L6-v2 was trained with


class BundledEncoder:
    """OpenAI's CLIP ViT-B/16 image tower (int8 ONNX); a text is what MiniLM says that it means, mapped into the tower's
    space, and what the tower reads in a picture of its words. Embeddings of texts are kept on disk.

    Every image is run on its own: the weights are dynamically quantised, so the embedding of an image in a batch would
    depend on its neighbours.

    Parameters
    ----------
    template : str, optional
        What texts are put into, with {} once where the text goes. None: the templates that the map was trained with.
    threads : int, optional
        Images that are run side by side, from 1, which is as fast as a batch and changes no number. None: one per core.
    log : callable, optional
        Called with a message when something is downloaded.
    """

    name = "bundled"
    dimension = 512

    def __init__(self, *, template: str | None = None, threads: int | None = None, log: Log | None = None) -> None:
        self.template = checked_template(template)
        self.threads = threads
        self._log = log
        self.keep_texts = True  # whoever may write nothing sets it to False
        self._preprocess = ClipPreprocess()

    @property
    def preprocessing(self) -> dict[str, Any]:
        return self._preprocess.describe()

    @cached_property
    def fingerprint(self) -> str:
        return digest_of(kind="bundled", images=CLIP_IMAGE_TOWER.sha256, preprocessing=self.preprocessing)

    @cached_property
    def text_fingerprint(self) -> str:
        return digest_of(texts=self._text_side, template=self.template)

    @property
    def image_mean(self) -> np.ndarray:
        """Mean of the images that the text adapter was trained against: texts are directions from it."""
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
        template = template or self.template
        rows = {text: self._kept.get(template, text) for text in fill_template(None, texts)}
        new = [text for text, row in rows.items() if row is None]
        for text, row in zip(new, self._embed_new(new, template), strict=True):
            if self.keep_texts:
                self._kept.keep(row, template, text)
            rows[text] = row
        return np.array([rows[text] for text in texts], dtype=np.float32).reshape(-1, self.dimension)

    def embed_sentences(self, texts: Sequence[str]) -> np.ndarray:
        """Unit rows (n, d) of what texts mean, without the pictures of their words: a tenth of the time, for choosing
        between long texts. Nothing is put around them, and nothing is kept on disk."""
        meant = [self._adapter.of_sentence(row) for row in self._sentences.embed(texts)] if texts else []
        return np.array(meant, dtype=np.float32).reshape(-1, self.dimension)

    def _embed_new(self, texts: Sequence[str], template: str | None) -> list[np.ndarray]:
        """What a text means and what its picture reads. Texts that cannot be drawn have their meaning alone."""
        if not texts:
            return []
        prompts = self._adapter.templates if template is None else (template,)
        sentences = unit(np.sum([self._sentences.embed(fill_template(prompt, texts)) for prompt in prompts], axis=0))
        pictures = [render(text) for text in fill_template(template or self._adapter.picture_template, texts)]
        read = iter(self.embed_images(picture for picture in pictures if picture is not None))
        return [
            self._adapter.direction(sentence, None if picture is None else next(read))
            for sentence, picture in zip(sentences, pictures, strict=True)
        ]

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
    def _text_side(self) -> str:
        """Everything but the template that the embedding of a text depends on."""
        sentences = [asset.sha256 for asset in MINILM.assets]
        return digest_of(
            space=self.fingerprint, sentences=sentences, pictures=rendering(), adapter=self._adapter.sha256
        )

    @cached_property
    def _kept(self) -> TextCache:
        return TextCache(cache_folder() / f"texts-{self._text_side}", self.dimension)

    @cached_property
    def _sentences(self) -> _MiniLM:
        return _MiniLM(fetch_group(MINILM, log=self._log))


class _MiniLM:
    """all-MiniLM-L6-v2: texts to (n, 384) unit sentence vectors, mean over tokens."""

    def __init__(self, folder: os.PathLike[str]) -> None:
        try:
            import transformers
        except ImportError as error:
            raise MissingExtraError('texts need transformers: pip install "ccr-xai[bundled]"') from error
        with no_bars():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, local_files_only=True)
        self._model = model.float().eval()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        with threads_for(0):  # a few tokens at a time: a second thread would only be waited for
            return unit(np.concatenate([self._embed_one(text) for text in texts]))

    def _embed_one(self, text: str) -> np.ndarray:
        """One text per run: no padding, so a text's vector never depends on which texts came with it."""
        import torch

        counts = [len(tokens) for tokens in self._tokenizer([text], truncation=False, verbose=False)["input_ids"]]
        warn_cut([text], counts, _LONGEST_TEXT)
        tokens = self._tokenizer([text], truncation=True, max_length=_LONGEST_TEXT, return_tensors="pt")
        with torch.inference_mode():
            states = self._model(**tokens).last_hidden_state
        return states.mean(dim=1).numpy()


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
