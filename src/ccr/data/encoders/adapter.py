"""The text adapter: from MiniLM's sentence space to directions from the mean in CLIP's image space.

`tools/train_text_adapter.py` makes the file and says how; this is what its formula needs at run time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccr.data.assets import file_sha256
from ccr.data.encoders.protocol import fill_template, unit
from ccr.errors import FormatError

ADAPTER_FILE = Path(__file__).parent.parent / "text_adapter.safetensors"


@dataclass(frozen=True)
class TextAdapter:
    """Unit sentence vectors (n, 384) to unit directions (n, 512): a kernel part, a linear part and a bias.

    `templates` are the prompts that it was trained with: a text's vector is the mean over them. `image_mean` is the
    mean of the images that it was trained against.
    """

    landmarks: np.ndarray
    kernel_weight: np.ndarray
    linear_weight: np.ndarray
    bias: np.ndarray
    image_mean: np.ndarray
    gamma: float
    templates: tuple[str, ...]
    sha256: str

    def __call__(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray], template: str | None = None
    ) -> np.ndarray:
        """Directions of texts, with `embed` for their sentences; a `template` stands in for the trained ones."""
        prompts = self.templates if template is None else (template,)
        sentences = unit(np.sum([embed(fill_template(prompt, texts)) for prompt in prompts], axis=0))
        kernel = np.exp(-2 * self.gamma * (1 - sentences @ self.landmarks.T))
        return unit(kernel @ self.kernel_weight + sentences @ self.linear_weight + self.bias)


def load_adapter(path: Path = ADAPTER_FILE) -> TextAdapter:
    """The adapter that ships with the package, or another one of the same form."""
    from safetensors import SafetensorError, safe_open

    names = ("landmarks", "kernel_weight", "linear_weight", "bias", "image_mean")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in names}
        templates = tuple(str(template) for template in json.loads(metadata["templates"]))
        return TextAdapter(**tensors, gamma=float(metadata["gamma"]), templates=templates, sha256=file_sha256(path))
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise FormatError(
            f"{path} must be a text adapter as tools/train_text_adapter.py writes it: {error}; install ccr-xai again"
        ) from error
