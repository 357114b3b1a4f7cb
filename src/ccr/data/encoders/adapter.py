"""The text adapter: from a text's sentence vector, and from a picture of its words, to one direction in CLIP's space.

`tools/train_text_adapter.py` makes the file and says how; this is what its formula needs at run time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccr.data.assets import file_sha256
from ccr.data.encoders.protocol import unit
from ccr.errors import FormatError

ADAPTER_FILE = Path(__file__).parent.parent / "text_adapter.safetensors"


@dataclass(frozen=True)
class TextAdapter:
    """One text's unit sentence vector (384,), and the embedding (512,) of a picture of its words, to a unit direction
    (512,) from `image_mean`, the mean of the images that it was trained against.

    `templates` are the prompts that it was trained with: a sentence vector is the mean over them; `picture_template`
    is the prompt that is drawn. Texts come one by one, so that none depends on its neighbours, to the last bit.
    """

    landmarks: np.ndarray
    kernel_weight: np.ndarray
    linear_weight: np.ndarray
    bias: np.ndarray
    image_mean: np.ndarray
    picture_mean: np.ndarray
    picture_weight: np.ndarray
    gamma: float
    picture_share: float
    templates: tuple[str, ...]
    picture_template: str
    sha256: str

    def direction(self, sentence: np.ndarray, picture: np.ndarray | None) -> np.ndarray:
        """What the sentence means and what the picture reads, added; the sentence alone where there is no picture."""
        meant = self.of_sentence(sentence)
        if picture is None:
            return meant
        return _unit(meant + self.picture_share * self.of_picture(picture))

    def of_sentence(self, sentence: np.ndarray) -> np.ndarray:
        kernel = np.exp(-2 * self.gamma * (1 - self.landmarks @ sentence))
        return _unit(kernel @ self.kernel_weight + sentence @ self.linear_weight + self.bias)

    def of_picture(self, picture: np.ndarray) -> np.ndarray:
        return _unit((picture - self.picture_mean) @ self.picture_weight)


def load_adapter(path: Path = ADAPTER_FILE) -> TextAdapter:
    """The adapter that ships with the package, or another one of the same form."""
    from safetensors import SafetensorError, safe_open

    names = ("landmarks", "kernel_weight", "linear_weight", "bias", "image_mean", "picture_mean", "picture_weight")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in names}
        return TextAdapter(
            **tensors,
            gamma=float(metadata["gamma"]),
            picture_share=float(metadata["picture_share"]),
            templates=tuple(str(template) for template in json.loads(metadata["templates"])),
            picture_template=metadata["picture_template"],
            sha256=file_sha256(path),
        )
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise FormatError(
            f"{path} must be a text adapter as tools/train_text_adapter.py writes it: {error}; install ccr-xai again"
        ) from error


def _unit(vector: np.ndarray) -> np.ndarray:
    return unit(vector[None])[0]
