"""Calibration: what a model knows about its own certainty, measured on images that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ccr.core import conformal
from ccr.core.heads import LinearHead
from ccr.errors import CCRError, FormatError
from ccr.models.labels import Labels, validation_rows
from ccr.models.model_checks import share, tensor

#: Share of the training images that is held out for it, where there are no validation images to take.
SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Calibration:
    """How sure a model is, on images held out.

    Parameters
    ----------
    temperature : what the head's weights and intercept were divided by, so that probabilities, which are the softmax of
        the logits as ever, are as high as they are right. It is in the head already. 1 where it could not be measured:
        the images have no mistakes, or too few for a temperature to lower the cross-validated log loss.
    coverage : the share of sets that was asked to hold the true class.
    least_probability : how probable a class must be to be in a set.
    images : how many images the sets were calibrated on.
    typical : (n,), each concept's mean code over those of them that show it; 0 where none does.
    """

    temperature: float
    coverage: float
    least_probability: float
    images: int
    typical: np.ndarray


class Coded(NamedTuple):
    """Codes (m, n), CSR, with class numbers (m,)."""

    codes: sparse.csr_matrix
    y: np.ndarray

    def take(self, rows: np.ndarray) -> Coded:
        """These rows alone."""
        return Coded(self.codes[rows], self.y[rows])


class Calibrated(NamedTuple):
    """A head at its temperature, and what was found."""

    head: LinearHead
    calibration: Calibration


def calibrate(head: LinearHead, warm: Coded, held: Coded, coverage: float) -> Calibrated:
    """The head at the temperature that fits `warm`, and sets of this coverage by `held`, which are other images."""
    temperature = conformal.measured_temperature(head.logits(warm.codes), warm.y)
    cooled = LinearHead(head.coef / head.coef.dtype.type(temperature), head.intercept / temperature)
    cooled = cooled.astype(head.coef.dtype)
    own = conformal.shares(cooled.logits(held.codes))[np.arange(len(held.y)), held.y]
    least = conformal.least_probability(own, coverage)
    return Calibrated(cooled, Calibration(temperature, coverage, least, len(own), typical_codes(held.codes)))


def half_rows(y: np.ndarray, classes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two parts of every class, at random."""
    first = validation_rows(Labels(classes, y), 0.5, seed=seed, most=len(y))
    return first, np.setdiff1d(np.arange(len(y)), first)


def halves(labelled: Coded, classes: np.ndarray, seed: int) -> tuple[Coded, Coded]:
    """Two parts of every class, at random."""
    first, second = half_rows(labelled.y, classes, seed)
    if not len(first):
        raise CCRError(
            f"calibrating needs two images of at least one class, got {len(second)} images, each of another class: one "
            "half of a class's images gives the temperature, the other the prediction sets; give more images"
        )
    return labelled.take(first), labelled.take(second)


def typical_codes(codes: sparse.csr_matrix) -> np.ndarray:
    """The mean of each column's positive codes (n,); 0 where there are none."""
    shown = codes.data > 0
    columns, values = codes.indices[shown], codes.data[shown].astype(np.float64)
    counts = np.bincount(columns, minlength=codes.shape[1])
    return np.asarray(np.bincount(columns, values, minlength=codes.shape[1]) / np.maximum(counts, 1))


def pack_calibration(found: Calibration | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Its part of a model's configuration and tensors; nothing for a model without."""
    if found is None:
        return {}, {}
    numbers = {key: value for key, value in vars(found).items() if key != "typical"}
    return {"calibration": numbers}, {"typical": found.typical}


def unpack_calibration(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], n: int) -> Calibration | None:
    """What `pack_calibration` packed; None for models without, as those of older versions are."""
    found = config.get("calibration")
    if found is None:
        return None
    temperature, images = found["temperature"], found["images"]
    if not isinstance(temperature, float) or not 0 < temperature < 1e6:
        raise FormatError(f"the model's temperature must be a number above 0, got {temperature!r}: save it again")
    if not isinstance(images, int) or isinstance(images, bool) or images < 1:
        raise FormatError(f"the model's calibration must be on at least one image, got {images!r}: save it again")
    typical = tensor(tensors, "typical", (n,), narrow=False)
    return Calibration(temperature, share(found, "coverage"), share(found, "least_probability"), images, typical)
