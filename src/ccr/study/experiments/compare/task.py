"""Task: what every method of a comparison gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccr.core.concepts import Concepts
from ccr.errors import CCRError
from ccr.study.experiments.gain import Part
from ccr.study.experiments.sweep import hold_out


@dataclass(frozen=True, eq=False)
class Task:
    """Concepts, data and the length that all methods are matched at.

    `validation` None: a share of the training images is held out, another one for each seed. `class_texts` are the
    classes' names embedded as concepts (zero-shot needs them), `random_words` as many embedded words that have
    nothing to do with the images.
    """

    concepts: Concepts
    train: Part
    test: Part
    validation: Part | None = None
    length: float = 12.0
    radius: float = 0.1
    center: Any = "data"
    max_iter: int | None = None
    class_texts: Concepts | None = None
    random_words: Concepts | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.length <= len(self.concepts):
            raise CCRError(
                f"methods are compared at a length from 1 to the number of concepts, {len(self.concepts)}, "
                f"got {self.length:g}"
            )
        unknown = np.setdiff1d(self.test.y, self.train.y)
        if len(unknown):
            raise CCRError(f"the test images have a class that the training images have not: {unknown[0].item()!r}")

    def split(self, seed: int) -> tuple[Part, Part]:
        """Training and validation images for this seed."""
        if self.validation is not None:
            return self.train, self.validation
        return hold_out(self.train, seed=seed)
