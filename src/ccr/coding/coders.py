"""Coders: the user's choice of a coding method, such as `HardThreshold(length=12)`; and rules as JSON, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

import numpy as np

from ccr.coding.codes import apply_rule
from ccr.coding.pursuit import LassoRule, PursuitRule, calibrate_alpha
from ccr.coding.rules import Rule, ScoreRule, ThresholdRule, TopRule, calibrate
from ccr.errors import CCRError, FormatError
from ccr.inputs import Embeddings
from ccr.utils.arrays import LazyModule
from ccr.utils.parameters import Parameters, is_number

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")

_LARGEST = float(np.finfo(np.float32).max)
_SWITCHES = ("positive", "information")  # entries of rules that are true or false

# Coders: the user's choice of a coding method, such as `HardThreshold(length=12)` (Information pursuit and
# Algorithm 2, docs/method.md).

Sign = Literal["both", "positive"]


class Coder(Protocol):
    """A user's choice of coding. `differentiable`: its rules are score rules, and a dictionary can be refined
    through them (`ScoreCoder`)."""

    differentiable: bool

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> Rule:
        """The coder fitted to X and the dictionary (n, d)."""
        ...

    def encode(self, X: Any, dictionary: Any) -> sparse.csr_matrix:
        """Codes (m, n) of the rows of X over the dictionary's unit rows (n, d), the coder fitted to X."""
        ...


class ScoreCoder(Coder, Protocol):
    """A coder whose rules keep scores or drop them."""

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> ScoreRule: ...


def is_differentiable(coder: Coder) -> TypeGuard[ScoreCoder]:
    """Whether a dictionary can be refined through this coder."""
    if not hasattr(coder, "differentiable"):
        raise CCRError(f"coder must be one of this package, such as HardThreshold(length=12), got {coder!r}")
    return coder.differentiable


class _FittedToX:
    """Codes of X under the coder fitted to X."""

    def encode(self: Any, X: Any, dictionary: Any) -> sparse.csr_matrix:
        """Codes (m, n) of the rows of X as they are, over the dictionary's unit rows (n, d); a length is calibrated on
        X."""
        if hasattr(dictionary, "detach"):
            dictionary = dictionary.detach().cpu().numpy()
        rows = np.asarray(getattr(dictionary, "embeddings", dictionary), dtype=np.float32)
        embeddings = Embeddings(X, normalize=False)
        embeddings.check_dimension(rows.shape[1])
        return apply_rule(self.rule(embeddings, rows), embeddings, rows)


class HardThreshold(_FittedToX, Parameters):
    """Codes are the scores `<x, d_i>` past a threshold, as they are; the rest is zero (Algorithm 2, docs/method.md).

    Give either `threshold`, or `length`: the average number of active concepts per image, to which the
    threshold is calibrated on the data at hand and held while the dictionary is refined.
    A vector of thresholds has one for each concept: a rare concept can have a higher one than a common one. Together
    with a length, the vector gives their ratios, and the length what they are multiplied with.
    `sign="both"` keeps |s| >= threshold; `"positive"` keeps s > threshold, as the paper's released code does.
    """

    differentiable = True

    def __init__(
        self,
        *,
        threshold: float | Sequence[float] | np.ndarray | None = None,
        length: float | None = None,
        sign: Sign = "positive",
    ) -> None:
        self.threshold = threshold
        self.length = length
        self.sign = sign

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> ThresholdRule:
        """This coder fitted to X and the dictionary (n, d)."""
        if self.sign not in ("both", "positive"):
            raise CCRError(f'sign must be "both" or "positive", got {self.sign!r}')
        positive = self.sign == "positive"
        vector = None if np.ndim(self.threshold) == 0 else self._vector(len(dictionary))  # type: ignore[arg-type]
        if (self.threshold is None) == (self.length is None) and vector is None:
            raise CCRError(
                f"give HardThreshold either a threshold or a length, got threshold={self.threshold} and "
                f"length={self.length}: length=12 asks for about 12 concepts per image"
            )
        if self.length is None:
            if vector is not None:
                return ThresholdRule.by_concept(vector, positive)
            if not (is_number(self.threshold) and self.threshold >= 0):
                raise CCRError(f"threshold must be a number >= 0, got {self.threshold!r}: try length=12 instead")
            return ThresholdRule(float(self.threshold), positive)
        check_length(self.length, len(dictionary))
        length = float(self.length)
        rule = ThresholdRule(0.0, positive, length)
        if vector is not None:
            rule = ThresholdRule.by_concept(vector, positive, length)
        threshold = calibrate(X, dictionary, length=length, positive=positive, factors=rule.factors)
        return rule.with_threshold(threshold)

    def of(self, rows: np.ndarray) -> HardThreshold:
        """The coder for these rows of the list alone."""
        if np.ndim(self.threshold) == 0:  # type: ignore[arg-type]
            return self
        return HardThreshold(threshold=np.asarray(self.threshold)[rows], length=self.length, sign=self.sign)

    def _vector(self, n: int) -> np.ndarray:
        """The thresholds by concept (n,), checked."""
        try:
            vector = np.asarray(self.threshold, np.float64)
        except (TypeError, ValueError):
            vector = np.array(np.nan)
        if vector.ndim != 1 or not np.isfinite(vector).all() or (vector < 0).any():
            raise CCRError(
                f"threshold must be a number >= 0, or one for each concept, got {self.threshold!r}: try length=12 "
                "instead"
            )
        if len(vector) != n:
            raise CCRError(f"there must be a threshold for each of the {n} concepts, got {len(vector)}")
        return vector


class TopK(_FittedToX, Parameters):
    """Codes keep each image's scores of largest absolute value (Algorithm 1, docs/method.md).

    Parameters
    ----------
    length : how many, a whole number from 1 to the number of concepts.
    """

    differentiable = True

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> TopRule:
        check_length(self.length, len(dictionary))
        if int(self.length) != self.length:
            raise CCRError(f"TopK keeps a whole number of concepts, got length={self.length}")
        return TopRule(int(self.length))


class OMP(_FittedToX, Parameters):
    """Codes are the least-squares coefficients of an image on at most `length` concepts, selected one by one by
    their product with what the others leave of the image (Information pursuit, docs/method.md).

    Its selection has no gradient: it codes for a head alone (`radius=0`).

    Parameters
    ----------
    length : most concepts per image, a whole number from 1 to the number of concepts.
    """

    differentiable = False
    _information = False

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> PursuitRule:
        if not (is_number(self.length) and 1 <= self.length <= len(dictionary) and int(self.length) == self.length):
            raise CCRError(
                f"length must be a whole number between 1 and the number of concepts, {len(dictionary)}, got "
                f"{self.length!r}: it is how many concepts explain an image at most; try 12"
            )
        return PursuitRule(int(self.length), self._information)


class IPOMP(OMP):
    """OMP that selects by correlation with what is left of the concept too: `|<P d, P x>| / (|P d| |P x|)`, which is
    the concept of most information about the image given those already selected (Information pursuit,
    docs/method.md)."""

    _information = True


class NonNegativeLasso(_FittedToX, Parameters):
    """Codes are the non-negative weights s whose sum of concepts comes near the image, as in SpLiCE (Bhalla et al.
    2024): the code of x minimises |x - s D|^2 / 2 + alpha |s|_1 over s >= 0.

    It codes for a head alone (`radius=0`).

    Parameters
    ----------
    alpha : strength of the penalty, > 0; give this or `length`.
    length : average number of active concepts per image, to which alpha is calibrated on the data at hand.
    """

    differentiable = False

    def __init__(self, *, alpha: float | None = None, length: float | None = None) -> None:
        self.alpha = alpha
        self.length = length

    def rule(self, X: Embeddings, dictionary: np.ndarray) -> LassoRule:
        """This coder fitted to X and the dictionary (n, d)."""
        if (self.alpha is None) == (self.length is None):
            raise CCRError(
                f"give NonNegativeLasso either an alpha or a length, got alpha={self.alpha} and length={self.length}: "
                "length=12 asks for about 12 concepts per image"
            )
        if self.alpha is not None:
            if not (is_number(self.alpha) and self.alpha > 0):
                raise CCRError(f"alpha must be a number > 0, got {self.alpha!r}: try length=12 instead")
            return LassoRule(float(self.alpha))
        assert self.length is not None
        check_length(self.length, len(dictionary))
        return LassoRule(calibrate_alpha(X, dictionary, length=float(self.length)), float(self.length))


def usual_length(n: int) -> int:
    """Default number of concepts per image: twelve, or a third of a short list of n, because hardly more than
    that many of an image's scores are positive."""
    return max(1, min(12, n // 3))


def check_length(length: float, n: int) -> None:
    if not (is_number(length) and 1 <= length <= n):
        raise CCRError(
            f"length must be between 1 and the number of concepts, {n}, got {length!r}: it is how many concepts "
            f"explain an image on average; try {usual_length(n)}"
        )


CODERS: dict[str, Any] = {kind.__name__: kind for kind in (HardThreshold, TopK, OMP, IPOMP, NonNegativeLasso)}
RULES: dict[str, Any] = {kind.__name__: kind for kind in (ThresholdRule, TopRule, PursuitRule, LassoRule)}


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """A rule as JSON types."""
    name = type(rule).__name__
    if RULES.get(name) is not type(rule):
        raise CCRError(f"a {name} cannot be saved: the rules that can are {', '.join(RULES)}")
    values = asdict(rule)  # type: ignore[call-overload]
    if values.get("factors") is None:  # as in files of versions that knew no thresholds by concept
        values.pop("factors", None)
    return {"type": name, **values}


def rule_from_dict(values: Mapping[str, Any]) -> Rule:
    """The rule of `rule_to_dict`."""
    fields = dict(values)
    kind = RULES.get(str(fields.pop("type", None)))
    if kind is None:
        raise FormatError(f"a rule is one of {', '.join(RULES)}, got {values.get('type')!r}: a newer ccr may know it")
    rule: Rule = kind(**fields)
    return rule


def check_rule(rule: Rule, concepts: int) -> None:
    """Refuse a rule from a file whose codes do not exist over this many concepts."""
    for name, value in asdict(rule).items():  # type: ignore[call-overload]
        if name in _SWITCHES:
            _require(isinstance(value, bool), f"{name} {value!r}, which must be true or false")
        elif name == "factors" and value is not None:
            count = len(value) if isinstance(value, (list, tuple)) else "no list of"
            _require(count == concepts, f"{count} factors of its threshold: it needs {concepts}")
            _require(all(map(_is_size, value)), f"factors that are not numbers from 0 to {_LARGEST:g}")
        elif value is not None or name not in ("length", "factors"):
            _require(_is_size(value), f"{name} {value!r}, which must be a number from 0 to {_LARGEST:g}")
    length, fewest = getattr(rule, "length", None), rule.fewest_concepts
    # A threshold or a penalty was calibrated to a mean length, and stays what it is when concepts leave.
    fits = isinstance(fewest, int) and 1 <= fewest <= concepts and (length is None or length > 0)
    _require(fits, f"length {length!r}, which must be above 0 and at most {concepts}")


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise FormatError(f"the model's rule has {what}: the file was changed after it was saved")


def score_rule(values: Mapping[str, Any], concepts: int) -> ScoreRule:
    """The rule of `rule_to_dict` over this many concepts, one that selects by scores."""
    rule = rule_from_dict(values)
    check_rule(rule, concepts)
    if not isinstance(rule, (ThresholdRule, TopRule)):
        raise FormatError(f"codes that are refined through are made by a threshold or the top k, got {rule!r}")
    return rule
