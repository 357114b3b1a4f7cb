"""What a number given from outside must be."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    """Is it a finite number? Texts are not, nor are booleans, NaN and infinities."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
