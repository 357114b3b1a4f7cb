"""Data sets of every kind as samples with labels and splits: folders, manifests, arrays, the demo photos, ..."""

from ccr.data.datasets.base import Dataset, Sample, split_dataset
from ccr.data.datasets.open import load_image, locate, open_dataset, open_photos, open_samples
from ccr.data.datasets.shards import open_demo
from ccr.data.datasets.sources import MAX_BYTES, MAX_PIXELS, BadImage, content_hash, decode

__all__ = [
    "MAX_BYTES",
    "MAX_PIXELS",
    "BadImage",
    "Dataset",
    "Sample",
    "content_hash",
    "decode",
    "load_image",
    "locate",
    "open_dataset",
    "open_demo",
    "open_photos",
    "open_samples",
    "split_dataset",
]
