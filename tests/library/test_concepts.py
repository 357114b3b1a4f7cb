from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ccr import Concepts
from ccr.errors import CCRError


def test_rows_become_unit_float32_and_read_only() -> None:
    given = np.array([[3.0, 4.0], [0.0, 2.0]])
    concepts = Concepts(["red", " round "], given)
    assert concepts.names == ("red", "round")
    assert np.allclose(concepts.embeddings, [[0.6, 0.8], [0.0, 1.0]])
    assert concepts.embeddings.dtype == np.float32
    assert given[0, 0] == 3.0
    with pytest.raises(ValueError, match="read-only"):
        concepts.embeddings[0, 0] = 1.0
    with pytest.raises(AttributeError):
        concepts.names = ("other",)  # type: ignore[misc]


def test_lookup_subset_and_equality() -> None:
    concepts = Concepts(["a", "b", "c"], np.eye(3))
    assert concepts.index("b") == 1
    assert concepts.subset([2, 0]).names == ("c", "a")
    assert concepts.subset(np.array([True, False, True])).names == ("a", "c")
    assert copy.deepcopy(concepts) == concepts
    assert concepts != Concepts(["a", "b", "d"], np.eye(3))
    assert list(concepts) == ["a", "b", "c"]
    assert "3 x 3" in repr(concepts)
    with pytest.raises(CCRError, match="no concept is called 'z'"):
        concepts.index("z")
    with pytest.raises(CCRError, match="known by its name, a text, got 1"):
        concepts.index(1)


def test_torch_and_half_precision_are_taken() -> None:
    assert Concepts(["a"], torch.ones(1, 4, dtype=torch.float16)).dimension == 4


@pytest.mark.parametrize(
    ("names", "embeddings", "message"),
    [
        (["a", "a"], np.eye(2), "unique, got 'a' in rows 0 and 1"),
        (["a", " a"], np.eye(2), "unique"),
        (["a", "  "], np.eye(2), "needs a name"),
        (["a", None], np.eye(2), "needs a name"),
        (["a", "\u200b"], np.eye(2), r"must have a character that can be seen, got '\\u200b'"),
        (["a", "\u200b \u2060\ufeff"], np.eye(2), "can be seen"),
        (["a", "\u3164\u2800"], np.eye(2), "can be seen"),  # a letter and a sign that are drawn as nothing
        ("ab", np.eye(2), "list of texts"),
        (["a"], np.eye(2), "one name for each embedding"),
        (["a", "b"], [[1.0, np.nan], [0.0, 1.0]], "finite, got NaN or infinity in row 0"),
        (["a", "b"], [[1.0, 0.0], [0.0, np.inf]], "row 1"),
        (["a", "b"], [[0.0, 0.0], [0.0, 1.0]], "row 0 of the concepts is all zeros"),
        (["a"], np.ones(3), "shape"),
        ([], np.ones((0, 3)), "at least one"),
        (["a"], [["x"]], "matrix of numbers"),
    ],
)
def test_bad_concepts_are_refused(names: object, embeddings: object, message: str) -> None:
    with pytest.raises(CCRError, match=message):
        Concepts(names, embeddings)  # type: ignore[arg-type]
