"""Unit rows, centring, dispersion, projections, coherence (Algorithms 3 and 4, docs/method.md).

Every function takes a NumPy array or a torch tensor with one item per row and returns the same kind, on the
same device and in the same floating type; other input becomes float64 NumPy. No argument is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ccr.errors import CCRError
from ccr.utils.arrays import LazyModule
from ccr.utils.parameters import is_number

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

Rows = TypeVar("Rows", np.ndarray, "torch.Tensor")


class Coherence(NamedTuple):
    """Mean and largest |correlation| between two different rows."""

    mean: float
    max: float


class ConeWidening(NamedTuple):
    """Angular dispersion as a map: angles to `axis` are multiplied by `factor`."""

    axis: np.ndarray | torch.Tensor
    factor: float


def unit_rows(rows: Rows) -> Rows:
    """Every row divided by its Euclidean norm; a row of zeros stays zero."""
    return _like(rows, _unit)


def centered(rows: Rows, mean: Any) -> Rows:
    """Unit directions of the rows from `mean` (d,); a row equal to the mean becomes zero."""
    return _like(rows, lambda tensor: _unit(tensor - _copied(mean).to(tensor)))


def coherence(embeddings: Rows) -> Coherence:
    """Mean and max off-diagonal |cosine| between rows (n, d); zeros when there is only one row."""
    unit = _unit(_tensor(embeddings).double())
    n = len(unit)
    if n < 2:
        return Coherence(0.0, 0.0)
    correlation = (unit @ unit.T).abs_()
    correlation.fill_diagonal_(0.0)
    return Coherence(float(correlation.sum()) / (n * (n - 1)), float(correlation.max()))


def disperse(embeddings: Rows, factor: float | None = None) -> Rows:
    """Angular dispersion (Algorithm 3, docs/method.md): every row's angle to the mean direction multiplied by `factor`.

    `factor=None` brings the farthest row to a right angle, but never contracts and never raises the mean
    correlation between rows (then nothing changes). Rows on the axis, and duplicates, stay as they are.
    """
    return _like(embeddings, lambda tensor: widen(tensor, fit_cone(tensor, factor)))


def fit_cone(embeddings: torch.Tensor, factor: float | None = None) -> ConeWidening:
    """The axis and the factor with which `disperse` widens these rows; `widen` applies them to any rows."""
    unit = _unit(embeddings)
    mean = unit.double().mean(dim=0)
    # A mean of random directions is about 1/sqrt(n d) long; one of rounding errors is near 1e-7.
    if float(mean.norm()) < 1e-6:
        raise CCRError(
            "angular dispersion needs a mean direction, but these concepts' mean is zero: they already point "
            "in all directions; use dispersion=None or Symmetric()"
        )
    axis = (mean / mean.norm()).to(unit)
    widest = float(_angles(unit, axis).max())
    if factor is None:
        return ConeWidening(axis, _automatic_factor(unit, axis, widest))
    if not (is_number(factor) and factor > 0):
        raise CCRError(f"the dispersion factor must be a positive number, got {factor!r}: 1 changes nothing")
    if factor * widest > math.pi + 1e-9:
        raise CCRError(
            f"dispersion factor {factor} would turn the farthest concept by {factor * widest:.2f} radians, past "
            f"pi: give at most {math.pi / widest:.3f}, or None to choose it automatically"
        )
    return ConeWidening(axis, float(factor))


def widen(embeddings: torch.Tensor, cone: ConeWidening) -> torch.Tensor:
    """`cos(a) c + sin(a) e` becomes `cos(r a) c + sin(r a) e` for every row, with the cone's `c` and `r`."""
    unit, axis = _unit(embeddings), _copied(cone.axis).to(embeddings)
    if cone.factor == 1.0:
        return unit
    across = unit - (unit @ axis)[:, None] * axis
    # Rounding leaves a little of the axis in short `across` rows; once more removes it.
    across = across - (across @ axis)[:, None] * axis
    angle = cone.factor * _angles(unit, axis)[:, None]
    turned = _unit(torch.cos(angle) * axis + torch.sin(angle) * _unit(across))
    on_axis = across.norm(dim=1, keepdim=True) <= torch.finfo(unit.dtype).eps
    return torch.where(on_axis, unit, turned)


def orthogonalize(embeddings: Rows, strength: float = 1.0) -> Rows:
    """Symmetric dispersion (docs/method.md): the nearest orthonormal rows, or part of the way there.

    With `D = U diag(s) V^T`, strength 1 gives `U V^T` (for n > d as near to a tight frame as rows can be) and
    strength 0 gives D. Between, `s` becomes `s / sqrt(s^2 + eps)` with `eps = mean(s^2) (1/strength - 1)`.
    Rows are made unit again.
    """

    def spread(tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.float() if torch.finfo(tensor.dtype).bits < 32 else tensor  # or rounding hides directions
        return _unit(wide @ symmetric_map(wide, strength)).to(tensor)

    return _like(embeddings, spread)


def symmetric_map(embeddings: torch.Tensor, strength: float) -> torch.Tensor:
    """The symmetric (d, d) matrix by which `orthogonalize` multiplies unit rows, before renormalising.

    Directions in which these rows do not reach (a text added later may) pass with gain 1, as they would
    among orthonormal rows.
    """
    if not (is_number(strength) and 0.0 <= strength <= 1.0):
        raise CCRError(
            f"strength must be in [0, 1], got {strength!r}: 0 leaves the concepts as they are, 1 makes them orthonormal"
        )
    unit = _unit(embeddings).double()
    identity = torch.eye(unit.shape[1], dtype=unit.dtype, device=unit.device)
    if strength == 0.0:
        return identity.to(embeddings)
    _, s, vt = torch.linalg.svd(unit, full_matrices=False)
    reached = s > s.max() * max(unit.shape) * torch.finfo(embeddings.dtype).eps
    s, vt = s[reached], vt[reached]
    eps = (s**2).mean() * (1.0 - strength)  # here eps times strength, so that no strength divides by zero
    # Scaled so that orthonormal rows (s = 1) get gain 1 at every strength.
    gain = torch.sqrt((strength + eps) / (strength * s**2 + eps)) - 1.0
    return (identity + (vt.T * gain) @ vt).to(embeddings)


def project_to_cap(vectors: Rows, centers: Rows, radius: float) -> Rows:
    """Nearest unit vector to each row within chord distance `radius` in [0, 2] of its unit center (Algorithm 4,
    docs/method.md).

    A row of zeros becomes its center; a row opposite to its center goes to a fixed point of the cap's rim.
    """
    check_radius(radius)
    return _like(vectors, lambda tensor: cap(tensor, _centers(centers, tensor), radius))


def check_radius(radius: float) -> None:
    if not (is_number(radius) and 0.0 <= radius <= 2.0):
        raise CCRError(
            f"radius must be in [0, 2], got {radius!r}: it is how far a concept may move on the unit sphere; try 0.1"
        )


def fidelity_radius(fidelity: float) -> float:
    """The chord of the cap {<d, d0> >= fidelity} of the unit sphere, for fidelity in [0, 1]."""
    if not (is_number(fidelity) and 0.0 <= fidelity <= 1.0):
        raise CCRError(
            f"fidelity must be in [0, 1], got {fidelity!r}: it is the least correlation of a concept's scores with "
            "those of its own text; try 0.9"
        )
    return math.sqrt(2.0 * (1.0 - fidelity))


def cap(vectors: torch.Tensor, centers: torch.Tensor, radius: float) -> torch.Tensor:
    """`project_to_cap` without checks, for the training loop."""
    unit = _unit(vectors)
    unit = torch.where(unit.any(dim=1, keepdim=True), unit, centers)
    inside = (unit - centers).norm(dim=1, keepdim=True) <= radius
    if bool(inside.all()):
        return unit
    # The rim point in closed form; sqrt(1 - cos^2) instead would lose every digit at small radii.
    across = math.sqrt(1.0 - radius * radius / 4.0) * radius
    rim = (1.0 - radius * radius / 2.0) * centers + across * _away(unit, centers)
    if vectors.shape[1] == 1:
        rim = centers  # on a line the cap is the center alone, until the radius reaches 2
    return torch.where(inside, unit, rim)


def _centers(centers: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A center for each row of the tensor, of its kind; one (d,) or (1, d) is that of all."""
    center = _copied(centers).to(tensor)
    if tuple(center.shape) not in (tuple(tensor.shape), (1, tensor.shape[1]), (tensor.shape[1],)):
        raise CCRError(
            f"there must be a center for each row, of the same dimension, got rows of shape {tuple(tensor.shape)} and "
            f"centers of shape {tuple(center.shape)}"
        )
    return center.expand(tensor.shape)


def _away(unit: torch.Tensor, centers: torch.Tensor) -> torch.Tensor:
    """Unit directions orthogonal to the centers, toward `unit`; a fixed one where there is none."""
    across = unit - (unit * centers).sum(dim=1, keepdim=True) * centers
    # The coordinate axis least like the center always has an orthogonal part.
    fixed = torch.zeros_like(centers)
    fixed.scatter_(1, centers.abs().argmin(dim=1, keepdim=True), 1.0)
    fixed = fixed - (fixed * centers).sum(dim=1, keepdim=True) * centers
    lost = across.norm(dim=1, keepdim=True) <= 4 * torch.finfo(unit.dtype).eps
    direction = _unit(torch.where(lost, fixed, across))
    return _unit(direction - (direction * centers).sum(dim=1, keepdim=True) * centers)


def _automatic_factor(unit: torch.Tensor, axis: torch.Tensor, widest: float) -> float:
    if widest < 1e-12:
        return 1.0
    factor = max(1.0, (math.pi / 2) / widest)
    spread = widen(unit, ConeWidening(axis, factor))
    return factor if coherence(spread).mean < coherence(unit).mean else 1.0


def _angles(unit: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    # atan2 of the two parts: acos has no digits near angle 0.
    along = unit @ axis
    across = (unit - along[:, None] * axis).norm(dim=1)
    return torch.atan2(across, along)


def _unit(tensor: torch.Tensor) -> torch.Tensor:
    norm = tensor.norm(dim=1, keepdim=True)
    safe = bool(torch.isfinite(norm).all()) and bool((norm > 1e-18).all())
    if safe:
        return tensor / norm
    # Very small or very large rows: scale by the largest entry first, so that squares neither vanish nor overflow.
    largest = tensor.abs().amax(dim=1, keepdim=True)
    scaled = tensor / torch.where(largest > 0, largest, torch.ones_like(largest))
    norm = scaled.norm(dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, torch.ones_like(norm))


def _like(rows: Rows, function: Callable[[torch.Tensor], torch.Tensor]) -> Rows:
    result = function(_tensor(rows))
    return result if isinstance(rows, torch.Tensor) else result.numpy()


def _tensor(rows: Any) -> torch.Tensor:
    tensor = _copied(rows)
    if not tensor.is_floating_point():
        tensor = tensor.double()
    if tensor.ndim != 2:
        raise CCRError(f"embeddings must be a matrix with one item per row, got shape {tuple(tensor.shape)}")
    return tensor


def _copied(rows: Any) -> torch.Tensor:
    """A tensor as it is; anything else copied into one, in float64 if torch does not have its type."""
    if isinstance(rows, torch.Tensor):
        return rows
    array = np.array(rows, copy=True)
    foreign = array.dtype.kind == "f" and (array.dtype.itemsize > 8 or not array.dtype.isnative)
    return torch.from_numpy(array.astype(np.float64) if foreign else array)
