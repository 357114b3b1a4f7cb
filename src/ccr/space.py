"""The space in which images meet concepts: centring and dispersion, fitted once, applied alike to what comes later."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.geometry import ConeWidening, centered, fit_cone, symmetric_map, unit_rows, widen
from ccr.inputs import Embeddings
from ccr.utils.arrays import LazyModule, as_array
from ccr.utils.parameters import Parameters, is_number
from ccr.utils.threads import threads_for

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

Center = Literal["data"] | None


class Angular(Parameters):
    """Dispersion that widens the cone of concepts (Algorithm 3, docs/method.md).

    Parameters
    ----------
    factor : by which angles to the concepts' mean direction are multiplied, > 0; None: automatic.
    """

    def __init__(self, factor: float | None = None) -> None:
        self.factor = factor

    def fit(self, rows: torch.Tensor) -> ConeWidening:
        """The widening of these unit rows (n, d)."""
        return fit_cone(rows, self.factor)


class Symmetric(Parameters):
    """Dispersion toward the nearest orthonormal concepts (Symmetric dispersion, docs/method.md).

    Parameters
    ----------
    strength : in [0, 1]: 1 goes there, 0 stays.
    """

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, rows: torch.Tensor) -> torch.Tensor:
        """The (d, d) matrix that these unit rows (n, d) are multiplied by."""
        return symmetric_map(rows, self.strength)


Dispersion = Angular | Symmetric


def parse_dispersion(text: str) -> Dispersion | None:
    """`none`, `angular`, `angular:FACTOR`, `symmetric` or `symmetric:STRENGTH`, a strength in [0, 1]."""
    kind, colon, number = text.partition(":")
    if text == "none":
        return None
    try:
        value = float(number) if colon else None
    except ValueError:
        value = math.nan
    if value is None or math.isfinite(value):
        if kind == "angular":
            return Angular(value)
        if kind == "symmetric" and (value is None or 0 <= value <= 1):
            return Symmetric(1.0 if value is None else value)
    raise CCRError(
        f"dispersion is none, angular, angular:FACTOR, symmetric or symmetric:STRENGTH with a strength in [0, 1], got "
        f"{text!r}: try symmetric:0.9"
    )


def check_shrinkage(shrinkage: float) -> None:
    if not (is_number(shrinkage) and 0.0 < shrinkage <= 1.0):
        raise CCRError(
            f"shrinkage must be in (0, 1], got {shrinkage!r}: 1 takes images as equally spread in all directions, "
            "small ones follow the data; try 0.5"
        )


def shrunk_for(shrinkage: float, images: int, dimensions: int) -> float:
    """The shrinkage for so many images: the one asked for, or nearer to 1 where there are fewer than dimensions. Their
    covariance then leaves directions out, along which whitening would set new images apart from those it knows."""
    return 1.0 - (1.0 - shrinkage) * min(1.0, 2.0 * images / (images + dimensions))


class ImageMetric(NamedTuple):
    """The images' own metric: `whiten` = S^(-1/2) for images, `color` = S^(1/2) for concepts, both (d, d) float32.

    S is the shrunk covariance of the centred images, so that <whiten x, color t> = <x, t>.
    """

    whiten: np.ndarray
    color: np.ndarray

    @classmethod
    def fit(cls, covariance: np.ndarray, shrinkage: float) -> ImageMetric:
        """Metric of S = (1 - shrinkage) covariance + shrinkage trace/d I, with shrinkage in (0, 1]."""
        check_shrinkage(shrinkage)
        # Both powers from one decomposition, so that whitening and colouring cancel to rounding: but for norms,
        # products of images and texts are the same in the metric and out of it.
        values, vectors = np.linalg.eigh(covariance)
        values = values if np.trace(covariance) > 0 else np.ones_like(values)  # images without any difference
        values = (1.0 - shrinkage) * np.maximum(values, 0.0) + shrinkage * values.mean()
        whiten, color = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
        return cls(whiten.astype(np.float32), color.astype(np.float32))


class Readouts(NamedTuple):
    """Linear functions of one embedding x (d,) as its encoder gives it: `directions` (n, d) @ x + `constants` (n,)."""

    directions: np.ndarray
    constants: np.ndarray


@dataclass(frozen=True, eq=False)
class Space:
    """The space in which images and concepts are compared: centring, dispersion and metric.

    Parameters
    ----------
    image_mean, concept_mean : what images and concepts are measured from, (d,) each, or None: as they are.
    dispersion : None, a `ConeWidening`, or the (d, d) matrix of symmetric dispersion; arrays, not tensors.
    metric : None, or the images' metric, in which the cosine of two concepts is the correlation of their scores.
    """

    image_mean: np.ndarray | None
    concept_mean: np.ndarray | None
    dispersion: ConeWidening | np.ndarray | None
    metric: ImageMetric | None = None

    @classmethod
    def fit(cls, texts: np.ndarray, X: Any, *, center: Center, dispersion: Dispersion | None) -> Space:
        """Fit on the concepts' text embeddings (n, d) and the training images X (m, d), read in chunks."""
        check_dispersion(dispersion)
        image_mean, concept_mean = cls.of_images(X, center=center).image_mean, None
        if center:
            concept_mean = _common_part(unit_rows(texts))
        plain = cls(image_mean, concept_mean, None)
        if dispersion is None:
            return plain
        with threads_for(texts.size * texts.shape[1]):
            return cls(image_mean, concept_mean, _as_arrays(dispersion.fit(torch.from_numpy(plain.texts(texts)))))

    @classmethod
    def fit_metric(cls, texts: np.ndarray, X: Any, *, shrinkage: float) -> Space:
        """The space of the images' metric (The images' metric, docs/method.md), fitted on texts (n, d) and images X (m,
        d): both centred, nothing dispersed. Fewer images than dimensions are shrunk more."""
        check_shrinkage(shrinkage)
        plain = cls.fit(texts, X, center="data", dispersion=None)
        images = plain.images(X)
        return replace(plain, metric=ImageMetric.fit(images.moments().covariance, shrunk_for(shrinkage, *images.shape)))

    @classmethod
    def of_images(cls, X: Any, *, center: Center) -> Space:
        """A space for images alone, fitted on X (m, d)."""
        check_center(center)
        return cls(Embeddings(X).unit_mean() if center else None, None, None)

    def images(self, X: Any) -> Embeddings:
        """Images X (m, d) in this space: unit rows, measured from the mean, in the metric; nothing is read yet."""
        metric = None if self.metric is None else self.metric.whiten
        return Embeddings(X, mean=self.image_mean, metric=metric, wide_metric=self._wide_metric)

    @cached_property
    def _wide_metric(self) -> np.ndarray | None:
        """Whitening matrix in float64 for single rows, cached: converting it takes as long as placing a row."""
        return None if self.metric is None else self.metric.whiten.astype(np.float64)

    def readouts(self, embedding: np.ndarray, rows: np.ndarray) -> Readouts:
        """The products of `rows` (n, d) with the image in this space as linear functions of its `embedding` (d,), of
        any norm: the two norms that images are divided by are those of this image, and what the mean takes away is
        the constant."""
        # An image is divided by its norm, centred, whitened and divided by the norm that it has then. With both norms
        # held at this image's, the product with a row is linear in the embedding, and splits over its patches.
        x, weights = np.asarray(embedding, np.float64), np.asarray(rows, np.float64)
        norm = float(np.linalg.norm(x))
        if not norm > 0.0:
            raise CCRError("the embedding is all zeros: it needs a norm above 0; embed the image again")
        mean = np.zeros_like(x) if self.image_mean is None else self.image_mean.astype(np.float64)
        placed = x / norm - mean
        if self.metric is not None:
            whiten = self.metric.whiten.astype(np.float64)
            placed, weights = placed @ whiten, weights @ whiten.T
        directions = weights / float(np.linalg.norm(placed))
        return Readouts(directions / norm, -(directions @ mean))

    def texts(self, texts: Any) -> np.ndarray:
        """Initial concepts for text embeddings (n, d): centred, dispersed, unit, float32."""
        return _spread(torch.from_numpy(self.own_texts(texts)), self.dispersion).numpy()

    def own_texts(self, texts: Any) -> np.ndarray:
        """Unit rows (n, d) whose products with images of this space are the texts' own scores: centred, in the metric,
        not dispersed."""
        # Texts are coloured (S^(1/2)) where images are whitened (S^(-1/2)): whitening both would square the metric.
        rows = torch.tensor(np.asarray(texts), dtype=torch.float32)
        with threads_for(rows.numel() * rows.shape[1]):
            rows = unit_rows(rows) if self.concept_mean is None else centered(unit_rows(rows), self.concept_mean)
            if self.metric is not None:
                rows = unit_rows(rows @ torch.from_numpy(self.metric.color))
        return rows.numpy()


def dispersed(rows: np.ndarray, dispersion: Dispersion) -> np.ndarray:
    """Unit rows (n, d) after the dispersion that is fitted on them, float32."""
    check_dispersion(dispersion)
    tensor = torch.tensor(rows, dtype=torch.float32)
    with threads_for(tensor.numel() * tensor.shape[1]):
        return _spread(tensor, dispersion.fit(tensor)).numpy()


def check_center(center: Any) -> None:
    if center not in (None, "data"):
        raise CCRError(f'center must be None or "data", got {center!r}')


def check_dispersion(dispersion: Any) -> None:
    if dispersion is not None and not isinstance(dispersion, (Angular, Symmetric)):
        raise CCRError(f"dispersion must be None, Angular() or Symmetric(), got {dispersion!r}")


def _as_arrays(fitted: ConeWidening | torch.Tensor) -> ConeWidening | np.ndarray:
    """A fitted dispersion as a space keeps it: reading a model needs no torch."""
    if isinstance(fitted, ConeWidening):
        return ConeWidening(as_array(fitted.axis), fitted.factor)
    return as_array(fitted)


def _spread(rows: torch.Tensor, how: ConeWidening | np.ndarray | torch.Tensor | None) -> torch.Tensor:
    with threads_for(rows.numel() * rows.shape[1]):
        if isinstance(how, ConeWidening):
            return widen(rows, how)
        if how is None:
            return rows
        matrix = torch.from_numpy(np.array(how)) if isinstance(how, np.ndarray) else how
        return unit_rows(rows @ matrix.to(rows))


def _common_part(rows: np.ndarray) -> np.ndarray:
    """Common part (d,) of unit rows (n, d): their mean, shrunk by the positive-part James-Stein estimator, because the
    mean of n rows that have nothing in common has squared norm 1/n. Orthogonal concepts stay where they are."""
    mean = rows.mean(axis=0)
    distance = np.linalg.norm(rows - mean, axis=1)
    if distance.min() < 1e-6:
        raise CCRError(
            f"center='data' measures concepts from their mean, but concept {int(distance.argmin())} is the mean "
            "itself, so it has no direction left: add different concepts, or use center=None with a radius "
            "(ccr fit --no-center --radius 0.1)"
        )
    square = float(mean @ mean)
    return mean * max(0.0, 1.0 - 1.0 / (len(rows) * square)) if square > 0 else mean
