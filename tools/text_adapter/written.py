"""The file of an adapter: written, and read again as inference does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ccr.data.encoders.adapter import load_adapter
from ccr.files import write_bytes
from tools.text_adapter.fitting import Adapter
from tools.text_adapter.texts import MODEL_SHA256, MiniLM, Pictures, TextMap


def write(path: Path, adapter: Adapter, image_mean: np.ndarray, seed: int) -> None:
    s = adapter.settings
    large = ("landmarks", "kernel_weight", "linear_weight", "picture_weight")
    tensors = {name: getattr(adapter, name).astype(np.float16) for name in large}
    small = {"bias": adapter.bias.reshape(-1), "image_mean": image_mean, "picture_mean": adapter.picture_mean}
    tensors |= {name: vector.astype(np.float32) for name, vector in small.items()}
    metadata = {
        "what": "text adapter: all-MiniLM-L6-v2 unit embedding, and embedding of a picture of the words -> unit "
        "direction from the image mean, OpenAI CLIP ViT-B/16 image space",
        "formula": "t = unit(mean over templates of MiniLM(template)); k = exp(-2 gamma (1 - landmarks t)); "
        "unit(unit(k kernel_weight + t linear_weight + bias) "
        "+ picture_share unit((picture - picture_mean) picture_weight))",
        "templates": json.dumps(s.templates),
        "gamma": str(s.gamma),
        "picture_template": s.picture_template,
        "picture_share": str(s.picture_share),
        "minilm_sha256": MODEL_SHA256,
        "seed": str(seed),
        "date": "2026-11-17",
        "made_by": "tools/train_text_adapter.py",
        "held_out": "CIFAR-10 (images, class names, their plurals), CUB-200-2011, Oxford Pets, Oxford Flowers, "
        "the fruit photos",
        "licence": "weights made by this project; derived from CLIP vectors of ImageNet, Tiny-ImageNet and Intel scene "
        "images (research use) and Visual Genome words; see docs/bundled-encoder.md",
    }
    write_bytes(path, save(tensors, metadata))


def written_maps(path: Path, minilm: MiniLM, pictures: Pictures) -> dict[str, TextMap]:
    """The text map of a written file and its two halves: what inference does, from the file alone."""
    adapter = load_adapter(path)
    sentences = lambda texts: minilm(texts, adapter.templates)  # noqa: E731
    pictured = lambda texts: pictures(texts, adapter.picture_template)  # noqa: E731
    return {
        "sentences alone": lambda texts: np.stack([adapter.of_sentence(row) for row in sentences(texts)]),
        "pictures alone": lambda texts: np.stack([adapter.of_picture(row) for row in pictured(texts)]),
        "shipped file: both": lambda texts: np.stack(
            [adapter.direction(*pair) for pair in zip(sentences(texts), pictured(texts), strict=True)]
        ),
    }
