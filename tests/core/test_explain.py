from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr.core.explain import explain
from ccr.core.heads import LinearHead
from ccr.errors import CCRError


def one(seed: int, n: int = 12, classes: int = 4, density: float = 0.5) -> tuple[sparse.csr_matrix, LinearHead]:
    rng = np.random.default_rng(seed)
    code = sparse.random(1, n, density=density, random_state=seed, format="csr", dtype=np.float32)
    return code, LinearHead(
        rng.normal(size=(classes, n)).astype(np.float32), rng.normal(size=classes).astype(np.float32)
    )


NAMES = [f"concept {row}" for row in range(12)]


@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_bias_and_contributions_sum_to_the_logit(seed: int, density: float) -> None:
    code, head = one(seed, density=density)
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    total = found.bias + sum(term.contribution for term in found.contributions)
    assert total == pytest.approx(found.logit, rel=1e-12, abs=1e-12)
    assert found.logit == pytest.approx(float(head.logits(code).max()), rel=1e-5, abs=1e-6)
    assert found.probability == pytest.approx(float(head.probabilities(code).max()), rel=1e-5)
    assert len(found.contributions) == code.nnz
    for term in found.contributions:
        assert term.contribution == pytest.approx(term.code * term.weight)
    sizes = [abs(term.contribution) for term in found.contributions]
    assert sizes == sorted(sizes, reverse=True)


@given(st.integers(0, 10**6))
def test_contrast_sums_to_the_logit_difference(seed: int) -> None:
    code, head = one(seed)
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    for position, other in enumerate("abcd"):
        contrast = found.contrast(other)
        expected = found.logit - found.logits[position]
        assert contrast.difference == pytest.approx(expected, abs=1e-12)
        assert contrast.bias + sum(term.contribution for term in contrast.contributions) == pytest.approx(expected)


def test_to_dict_is_plain_json_and_unknown_classes_are_refused() -> None:
    code, head = one(0)
    found = explain(code, head, concepts=NAMES, classes=["ä", "<b>", '"', "d"])
    again = json.loads(json.dumps(found.to_dict()))
    assert again["prediction"] == found.prediction
    assert set(again["probabilities"]) == {"ä", "<b>", '"', "d"}
    with pytest.raises(CCRError, match="no class is called 'z'"):
        found.contrast("z")


def test_an_empty_code_is_explained_by_the_bias() -> None:
    _, head = one(0)
    found = explain(sparse.csr_matrix((1, 12)), head, concepts=NAMES, classes=list("abcd"))
    assert found.contributions == ()
    assert found.logit == found.bias == pytest.approx(float(head.intercept.max()))
