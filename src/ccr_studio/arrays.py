"""Arrays as the bytes of a file, and as places on a map."""

from __future__ import annotations

import io

import numpy as np


def npy(array: np.ndarray) -> bytes:
    """NumPy's own format, which `ccr.io.files.map_array` reads back."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def in_square(places: np.ndarray) -> np.ndarray:
    """Places (m, 2) moved and stretched into [0, 1]; the few farthest out stand at the edge."""
    low, high = np.percentile(places, [0.5, 99.5], axis=0)
    scaled = (places - low) / np.maximum(high - low, 1e-12)
    return np.clip(0.02 + 0.96 * scaled, 0.0, 1.0).astype(np.float32)
