"""Where: codes, contributions and logits as sums over patches; the space's readouts; boxes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr import IPOMP, OMP, ConceptClassifier, HardThreshold, TopK
from ccr.coding import NonNegativeLasso
from ccr.errors import CCRError, CCRWarning
from ccr.explain import Frame, PatchTerms

ROWS, COLUMNS = 3, 4
WHOLE = Frame()
CODERS = [
    HardThreshold(length=5),
    HardThreshold(length=5, sign="both"),
    TopK(4),
    OMP(4),
    IPOMP(4),
    NonNegativeLasso(length=4),
]
SPACES = [{"center": None, "dispersion": None, "radius": 0.1}, {"radius": 0.1}, {"fidelity": 0.9}]


def patches_of(x, *, seed=0, frame=WHOLE):
    """Any split of x: random terms, and two parts that make up the rest."""
    rng = np.random.default_rng(seed)
    terms = rng.normal(size=(ROWS, COLUMNS, len(x)))
    part = rng.normal(size=len(x))
    return PatchTerms(x, terms, {"one": part, "other": x - part - terms.sum(axis=(0, 1))}, frame, "exact")


def fitted(data, **options):
    options = {"coder": HardThreshold(length=5), "max_iter": 2, "weights_per_class": None, "random_state": 0, **options}
    return ConceptClassifier(data.concepts, **options).fit(data.X[:300], data.y[:300]).model_


@pytest.fixture(scope="module")
def model(digits):
    return fitted(digits, fidelity=0.9)


@pytest.fixture(scope="module")
def explained(model, digits):
    return model.explain_patches(patches_of(digits.X_test[1].astype(np.float64) * 7))


@pytest.mark.parametrize("coder", CODERS, ids=str)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_patches_and_rest_add_up_to_every_code_and_logit(digits, coder, space):
    if not isinstance(coder, (HardThreshold, TopK)):
        space = {key: value for key, value in space.items() if key not in ("radius", "fidelity")} | {"radius": 0.0}
    model = fitted(digits, coder=coder, **space)
    for number, x in enumerate(digits.X_test[:5]):
        found = model.explain_patches(patches_of(x.astype(np.float64), seed=number))
        where = found.where
        assert where.concepts == found.active
        together = where.maps.sum(axis=(1, 2)) + sum(where.rest.values())
        assert np.allclose(together, found.codes, rtol=1e-4, atol=1e-5)
        for name, logit in zip(found.classes, found.logits, strict=True):
            item = where.class_map(name)
            assert item.in_patches + item.elsewhere == pytest.approx(logit, abs=1e-3)


def test_a_patch_counts_what_the_score_changes_by(model, digits):
    """Another way to compute a map: the norms of this image fixed, take the patch's term away and score again."""
    x = digits.X_test[1].astype(np.float64)
    patches = patches_of(x)
    where = model.explain_patches(patches).where
    metric, mean = model.space.metric.whiten.astype(np.float64), model.space.image_mean
    norm = np.linalg.norm((x / np.linalg.norm(x) - mean) @ metric)
    concept = where.concepts[0]
    row = model.concepts.embeddings[model.row(concept)]
    without = ((x - patches.terms[1, 2]) / np.linalg.norm(x) - mean) @ metric / norm
    assert where.codes[0] - without @ row == pytest.approx(where.code_map(concept).map[1, 2], abs=1e-5)


def test_the_norm_of_the_embedding_does_not_matter(model, digits):
    x = digits.X_test[1].astype(np.float64)
    one, seven = patches_of(x), patches_of(x)
    scaled = PatchTerms(7 * x, 7 * seven.terms, {k: 7 * v for k, v in seven.rest.items()}, seven.frame, "exact")
    first, second = model.explain_patches(one).where, model.explain_patches(scaled).where
    assert np.allclose(first.maps, second.maps, atol=1e-6)


def test_only_what_is_in_the_sum_has_a_map(explained):
    where = explained.where
    assert [item.name for item in where.contributions()] == [term.concept for term in explained.contributions]
    for item, term in zip(where.contributions(), explained.contributions, strict=True):
        assert item.total == pytest.approx(term.contribution)
        assert item.map.shape == (ROWS, COLUMNS)
    inactive = next(name for name in explained.concepts if name not in explained.active)
    with pytest.raises(CCRError):
        where.code_map(inactive)


def test_contrast_is_the_difference_of_class_maps(explained):
    other = explained.classes[int(np.argsort(explained.logits)[-2])]
    between, where = explained.where.contrast_map(other), explained.where
    assert np.allclose(between.map, where.class_map().map - where.class_map(other).map)
    assert between.total == pytest.approx(explained.contrast(other).difference)
    assert between.in_patches + between.elsewhere == pytest.approx(between.total, abs=1e-3)


@given(split=st.floats(0.01, 0.99))
def test_two_halves_of_the_picture_make_the_whole(explained, split):
    where = explained.where
    both = where.cover((0, 0, split, 1)) + where.cover((split, 0, 1, 1))
    assert np.allclose(both, 1)
    assert np.allclose(where.cover((0, 0, 1, 1)), 1)


def test_concepts_of_a_box_are_those_whose_map_is_there(model, digits):
    x = digits.X_test[1].astype(np.float64)
    terms = np.zeros((ROWS, COLUMNS, len(x)))
    terms[0, 0] = x  # the whole embedding comes from the upper left patch
    where = model.explain_patches(PatchTerms(x, terms, {}, Frame(0.25, 0, 0.75, 1), "exact")).where
    corner = where.concepts_in((0.25, 0, 0.25 + 0.5 / COLUMNS, 1 / ROWS))
    everywhere = where.concepts_in((0, 0, 1, 1))
    assert corner
    assert [item.concept for item in corner] == [item.concept for item in everywhere]
    assert all(item.share == pytest.approx(1) for item in corner)
    assert where.concepts_in((0.8, 0, 1, 1)) == ()  # outside of what the encoder sees
    assert len(where.concepts_in((0, 0, 1, 1), top=1)) == 1


@pytest.mark.parametrize(
    "box", [(0.5, 0, 0.5, 1), (0, 0, 1.2, 1), (-0.1, 0, 1, 1), (0, 0.6, 1, 0.4), (0, 0, float("nan"), 1)]
)
def test_a_box_that_is_none_is_refused(explained, box):
    with pytest.raises(CCRError, match="fractions of the picture"):
        explained.where.concepts_in(box)


@given(width=st.floats(0.0, 5.0), seed=st.integers(0, 5))
def test_smoothing_moves_terms_and_keeps_their_sum(width, seed):
    patches = patches_of(np.arange(6.0), seed=seed)
    smooth = patches.smoothed(width)
    assert np.allclose(smooth.terms.sum(axis=(0, 1)), patches.terms.sum(axis=(0, 1)))
    assert width > 0 or np.array_equal(smooth.terms, patches.terms)
    assert np.abs(smooth.terms).sum() <= np.abs(patches.terms).sum() + 1e-9


def test_an_image_without_active_concepts_has_no_maps(digits):
    with pytest.warns(CCRWarning, match="leaves every code empty"):
        model = fitted(digits, coder=HardThreshold(threshold=1.0), radius=0.0)
    found = model.explain_patches(patches_of(digits.X_test[0].astype(np.float64)))
    assert found.where.contributions() == ()
    assert found.where.class_map().total == pytest.approx(found.logit)
    assert found.where.concepts_in((0, 0, 1, 1)) == ()


def test_it_is_plain_data(explained):
    plain = json.loads(json.dumps(explained.where.to_dict(top=2)))
    assert (plain["rows"], plain["columns"], plain["way"]) == (ROWS, COLUMNS, "exact")
    assert len(plain["contributions"]) == 2
    first = plain["contributions"][0]
    assert np.sum(first["map"]) + sum(first["rest"].values()) == pytest.approx(first["total"], abs=1e-4)


def test_an_explanation_of_an_embedding_alone_knows_no_places(model, digits):
    assert model.explain(digits.X_test[0]).where is None


def test_terms_of_another_dimension_are_refused():
    with pytest.raises(CCRError, match="patch terms must be"):
        PatchTerms(np.ones(4), np.ones((2, 2, 3)), {}, Frame(), "exact")
