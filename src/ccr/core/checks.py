"""What a number given from outside must be."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, TypeGuard

from ccr.errors import CCRError


def as_number(what: str, value: Any) -> float:
    """The number that is given, also as an array or a tensor of one; an error where it is none, or not finite."""
    plain = value.item() if getattr(value, "shape", None) == () else value
    if not is_number(plain):
        raise CCRError(f"{what} must be a finite number, got {value!r}")
    return float(plain)


def is_number(value: Any) -> TypeGuard[float]:
    """Is it a finite number? Texts are not, nor are booleans, NaN and infinities."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
