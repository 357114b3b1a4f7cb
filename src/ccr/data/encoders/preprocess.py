"""CLIP's image preprocessing with Pillow alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ccr.core.explain import Frame

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ClipPreprocess:
    """Short side to `size` (bicubic), centre square, values to [0, 1], minus `mean`, over `std`."""

    size: int = 224
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD

    def crop(self, image: Image.Image) -> Image.Image:
        """The square of `size` pixels that is embedded; the crop of a crop is itself."""
        image = image.convert("RGB")
        width, height = image.size
        scale = self.size / min(width, height)
        if scale != 1:
            width, height = max(self.size, round(width * scale)), max(self.size, round(height * scale))
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))

    def frame(self, image: Image.Image) -> Frame:
        """Which part of the image `crop` cuts out."""
        return centre_frame(*image.size, short_side=self.size, crop=(self.size, self.size))

    def __call__(self, image: Image.Image) -> np.ndarray:
        """(1, 3, size, size) float32."""
        pixels = np.asarray(self.crop(image), dtype=np.float32) / np.float32(255)
        scaled = (pixels - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])

    def describe(self) -> dict[str, Any]:
        """The same in JSON's words."""
        return {
            "resize": f"short side {self.size}, bicubic",
            "crop": f"centre {self.size}",
            "mean": list(self.mean),
            "std": list(self.std),
        }


def centre_frame(width: int, height: int, *, short_side: int, crop: tuple[int, int]) -> Frame:
    """The part of a picture that is left when its short side is brought to so many pixels and `crop` (width, height) is
    cut out of its centre."""
    scale = short_side / min(width, height)
    across, down = crop[0] / max(width * scale, 1.0), crop[1] / max(height * scale, 1.0)
    return Frame((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)
