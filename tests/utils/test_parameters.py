"""Parameters, against scikit-learn's own base class."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone

from ccr.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, TopK
from ccr.errors import CCRError
from ccr.space import Angular, Symmetric

PARTS = [
    HardThreshold(length=12),
    HardThreshold(threshold=0.5, sign="both"),
    TopK(7),
    TopK(),
    OMP(3),
    IPOMP(4),
    NonNegativeLasso(alpha=0.1),
    Angular(1.5),
    Angular(),
    Symmetric(0.25),
]


def twin(part: Any) -> Any:
    """The same part as a child of scikit-learn's base class."""
    made = type(type(part).__name__, (BaseEstimator,), {"__init__": type(part).__init__})
    return made(**vars(part))


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_parts_are_told_and_copied_as_scikit_learn_does(part: Any) -> None:
    theirs = twin(part)
    assert part.get_params() == theirs.get_params()
    assert repr(part) == repr(theirs)
    copied = clone(part)
    assert copied is not part
    assert type(copied) is type(part)
    assert copied.get_params() == part.get_params()
    name, value = next(iter(part.get_params().items()))
    assert copied.set_params(**{name: value}) is copied
    with pytest.raises(CCRError, match="has the parameters"):
        copied.set_params(nobody=1)
