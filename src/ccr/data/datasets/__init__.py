"""Data sets: folders, manifests, arrays, saved data sets and the demo photos, as samples with labels and
splits.
"""

from ccr.data.datasets.arrow import open_demo
from ccr.data.datasets.base import Dataset, Sample
from ccr.data.datasets.decode import MAX_PIXELS, BadImage, content_hash, decode
from ccr.data.datasets.opening import load_image, locate, open_dataset
from ccr.data.datasets.splits import split_dataset

__all__ = [
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
    "split_dataset",
]
