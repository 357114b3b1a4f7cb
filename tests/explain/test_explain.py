from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ccr import ConceptClassifier, HardThreshold
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain import explain
from ccr.utils.texts import percent
from tests.conftest import Data


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


HOSTILE = [
    "<script>alert(1)</script>",
    "'; DROP TABLE concepts; --",
    '"quoted" & <b>bold</b>',
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "🦊🏳️‍🌈",
    "x" * 200,
    "{name} %s \\n",
    "a\nb\tc",
    "../../etc/passwd",
    "=1+1",
    "\u200b",
    "concept 11",
]


def test_hostile_names_are_just_data() -> None:
    code, head = one(3, density=1.0)
    found = explain(code, head, concepts=HOSTILE, classes=HOSTILE[:4])
    assert {term.concept for term in found.contributions} == set(HOSTILE)
    other = found.classes[int(found.logits.argmin())]
    results = [
        found,
        found.contrast(other),
        found.counterfactual(),
        found.change_toward(other),
        found.mistake(other),
        found.compare(found),
        found.intervene({HOSTILE[0]: 0.0, HOSTILE[4]: 2.0}),
    ]
    for result in results:
        assert result is not None
        again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert again == result.to_dict()


def test_labels_that_are_numbers_or_booleans_are_plain() -> None:
    code, head = one(4, classes=2)
    for labels in (np.array([0, 1]), np.array([True, False]), np.array([0.5, 1.5])):
        found = explain(code, head, concepts=NAMES, classes=list(labels))
        for result in (found, found.contrast(labels[0]), found.mistake(labels[1]), found.compare(found)):
            json.dumps(result.to_dict(), allow_nan=False)


def test_explicit_zeros_are_not_active() -> None:
    _, head = one(0)
    code = sparse.csr_matrix((np.array([0.0, 0.5]), np.array([2, 5]), np.array([0, 2])), shape=(1, 12))
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    assert found.active == ("concept 5",)


@given(st.integers(0, 10**6))
def test_contributions_to_any_class_sum_to_its_logit(seed: int) -> None:
    code, head = one(seed)
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    for place, name in enumerate("abcd"):
        total = float(head.intercept[place]) + sum(t.contribution for t in found.contributions_to(name))
        assert total == pytest.approx(found.logits[place], abs=1e-12)
    assert found.contributions_to(found.prediction) == found.contributions


@given(st.integers(0, 10**6))
def test_a_mistake_is_the_true_classes_sum(seed: int) -> None:
    code, head = one(seed)
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    for place, truth in enumerate("abcd"):
        mistake = found.mistake(truth)
        assert mistake.is_wrong == (found.prediction != truth)
        assert all(term.contribution > 0 for term in mistake.spoke_for)
        assert all(term.contribution <= 0 for term in mistake.spoke_against)
        total = mistake.bias + sum(t.contribution for t in mistake.spoke_for + mistake.spoke_against)
        assert total == pytest.approx(mistake.logit, abs=1e-12)
        assert mistake.logit == pytest.approx(found.logits[place])
        assert mistake.rank == 1 + sum(found.logits > found.logits[place])
        assert mistake.contrast.other == truth
        assert mistake.missing is None


def test_two_explanations_side_by_side() -> None:
    (code, head), (other_code, other_head) = one(1), one(2)
    first = explain(code, head, concepts=NAMES, classes=list("abcd"))
    second = explain(other_code, other_head, concepts=NAMES[::-1], classes=list("dcba"))
    for of in (None, "c"):
        found = first.compare(second, of=of)
        assert found.of == (first.prediction if of is None else of)
        for side, explanation in enumerate((first, second)):
            terms = [(row.first, row.second)[side] for row in found.concepts]
            total = found.biases[side] + sum(term.contribution for term in terms if term is not None)
            place = explanation.classes.index(found.of)
            assert total == pytest.approx(found.logits[side], abs=1e-12)
            assert found.logits[side] == pytest.approx(explanation.logits[place])
            assert {term.concept for term in terms if term is not None} == set(explanation.active)
    mine, theirs = set(first.active), set(second.active)
    assert found.overlap == pytest.approx(len(mine & theirs) / len(mine | theirs))
    assert first.compare(first).overlap == 1.0
    assert first.compare(first).agree


def test_a_tie_of_the_digits_that_predict_has_is_decided_as_it_does() -> None:
    """More digits would give the second class the lead; predictions have those of float32."""
    head = LinearHead(np.array([[1, 0], [1, 2.0**-30]], np.float32), np.zeros(2, np.float32))
    code = sparse.csr_matrix(np.ones((1, 2), np.float32))
    found = explain(code, head, concepts=NAMES[:2], classes=["a", "b"])
    assert found.prediction == "ab"[int(head.logits(code)[0].argmax())] == "a"
    assert found.logit == found.bias + sum(term.contribution for term in found.contributions)
    assert found.contrast("b").difference == pytest.approx(0.0, abs=1e-9)
    assert found.mistake("b").prediction == "a"
    assert found.counterfactual() is None or found.counterfactual().becomes == "b"


def test_concepts_without_a_weight_for_the_class_are_shared_too() -> None:
    code = sparse.csr_matrix(np.ones((1, 3)))
    heads = [
        LinearHead(np.array([weights, [0.0, 0.0, 0.0]]), np.array([1.0, 0.0])) for weights in ([1, 0, 0], [0, 1, 0])
    ]
    first, second = (explain(code, head, concepts=NAMES[:3], classes=["a", "b"]) for head in heads)
    assert first.compare(second).overlap == 1.0
    other = explain(sparse.csr_matrix([[0.0, 1.0, 0.0]]), heads[1], concepts=NAMES[:3], classes=["a", "b"])
    assert first.compare(other).overlap == pytest.approx(1 / 3)
    assert first.compare(other, of="b").overlap == pytest.approx(1 / 3)


def test_missing_concepts_need_not_be_known_without_data_but_classes_must() -> None:
    code, head = one(0)
    found = explain(code, head, concepts=NAMES, classes=list("abcd"))
    for ask in (found.contributions_to, found.change_toward, found.mistake):
        with pytest.raises(CCRError, match="no class is called 'z'"):
            ask("z")


@given(st.integers(0, 2**32 - 1))
def test_printed_it_is_the_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    head = LinearHead(rng.normal(size=(3, 40)), rng.normal(size=3))
    code = sparse.csr_matrix(rng.normal(size=(1, 40)) * (rng.random(40) < 0.7))
    shown = explain(code, head, concepts=[f"concept {n}" for n in range(40)], classes=["a", "b", "c"])
    heading, *lines = str(shown).splitlines()
    assert heading == f"{shown.prediction}, probability {percent(shown.probability, digits=1)}"
    terms = [float(line.split()[0]) for line in lines[:-1]]
    assert lines[-1].split() == ["=", f"{shown.logit:.2f}", "logit"]
    assert sum(terms) == pytest.approx(shown.logit, abs=0.005 * (len(terms) + 1))
    assert len(terms) <= 22
    for line, term in zip(lines[1:], shown.contributions[:20], strict=False):
        assert line.endswith(term.concept if term.code >= 0 else f"not: {term.concept}")


def test_a_code_that_makes_logits_infinite_is_refused(digits: Data) -> None:
    coder = HardThreshold(length=8)
    model = ConceptClassifier(digits.concepts, coder=coder, max_iter=1, random_state=0).fit(digits.X, digits.y)
    name = model.concepts_.names[int(np.abs(model.coef_).max(axis=0).argmax())]
    with pytest.raises(CCRError, match=f"must leave the logits finite, got 1e\\+308 for '{name}'"):
        model.explain(digits.X[0]).intervene({name: 1e308})
    with pytest.raises(CCRError, match="correct must be finite"):
        model.intervention_curve(digits.X, digits.y, correct=np.full(model.coef_.shape, np.nan))
