"""Validation of numbers, and scikit-learn's parameters without scikit-learn, whose import takes a second."""

from __future__ import annotations

import inspect
import sys
from numbers import Real
from typing import Any, TypeGuard, TypeVar

from ccr.errors import CCRError


# Validation of user-supplied numbers.
def as_number(what: str, value: Any) -> float:
    """The number that is given, also as an array or a tensor of one; an error where it is none, or not finite."""
    plain = value.item() if getattr(value, "shape", None) == () else value
    if not is_number(plain):
        raise CCRError(f"{what} must be a finite number, got {value!r}")
    return float(plain)


def is_number(value: Any) -> TypeGuard[float]:
    """Is it a finite number? Texts are not, nor are booleans, NaN, infinities, and integers beyond all floats."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real and bool(abs(value) <= sys.float_info.max)


Self = TypeVar("Self", bound="Parameters")


class Parameters:
    """Keeps what `__init__` was given, so that `clone` copies it and a search may name it (`coder__length`)."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; they hold no others, so that `deep` changes nothing."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self: Self, **values: Any) -> Self:
        """Change parameters in place, as a search of scikit-learn does with its own copy."""
        known = self._defaults()
        for name, value in values.items():
            if name not in known:
                raise CCRError(f"{type(self).__name__} has the parameters {', '.join(known)}, got {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = [
            f"{name}={value!r}" for name, value in self.get_params().items() if not _same(value, self._defaults()[name])
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """The parameters of `__init__`, sorted by name, and their defaults."""
        parameters = dict(list(inspect.signature(cls.__init__).parameters.items())[1:])
        return {name: parameters[name].default for name in sorted(parameters)}


def _same(value: Any, default: Any) -> bool:
    return bool(value is default or (type(value) is type(default) and value == default))
