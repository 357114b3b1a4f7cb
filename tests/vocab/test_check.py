"""Checking concepts: by their words, with the real WordNet; and by images, against plain computation."""

from pathlib import Path

import numpy as np
import pytest

from ccr import Concepts
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.vocab.check import check_on_images, check_texts, uncovered, verdict
from ccr.vocab.choose import class_statistics, score_statistics
from ccr.vocab.wordnet import WordNet
from tests.vocab.test_propose import wordnet  # noqa: F401 (fixture)


@pytest.mark.parametrize(
    ("concept", "kind"),
    [
        ("xqzzt", "unknown"),
        ("the", "empty"),
        ("...", "empty"),
        ("not red", "negation"),
        ("sweet taste", "unseen"),
        ("rich in vitamin C", "unseen"),
        ("justice", "abstract"),
        ("apple", "label"),
        ("picture of an apple", "label"),
        ("a red thing with a long thin curved stem at its top", "long"),
        ("x" * 300, "long"),
    ],
)
def test_bad_words_are_found(wordnet: WordNet, concept, kind):  # noqa: F811
    (found,) = check_texts([concept], leaking=["apple"], wordnet=wordnet)
    assert [problem.kind for problem in found] == [kind]
    assert found[0].reason
    assert found[0].remedy


@pytest.mark.parametrize(
    "concept", ["red skin", "long tail", "a forest", "红色", "stripes", "round", "fog", "4 wheels"]
)
def test_good_words_pass(wordnet: WordNet, concept):  # noqa: F811
    assert check_texts([concept], leaking=["apple"], wordnet=wordnet) == [[]]


@pytest.mark.parametrize(
    "concept",
    [
        *("scratched", "bruised", "into the light", "folded", "printed letters", "barcode", "towards the edge"),
        *("handwriting", "receipt", "letters and numbers", "crumpled", "a person's hand", "pebbled skin", "seat belt"),
        *("shinier than paper", "pitted", "stripes running down", "undertail feathers", "where people sit"),
        *("pointy", "crunchy", "saggy skin", "sealable", "storage media", "a coin", "a flame", "a campfire"),
        *("the horizon", "a city skyline", "brochures", "a parade"),
        *("amid flowers", "her own reflection", "vertebrae", "crises on a chart", "a selfie", "QR code", "underripe"),
        *(
            "at dusk",
            "at night",
            "rooftops",
            "a signpost",
            "in the background",
            "from above",
            "half open",
            "smoothness",
        ),
        *("horses that ran away", "because it could be wood", "what he wore"),
        *("terracotta", "spalling concrete", "wellies", "bok choy", "al dente", "ripples", "hyperpigmented skin"),
    ],
)
def test_ordinary_words_are_in_the_dictionary_and_visible_things_are_seen(wordnet: WordNet, concept):  # noqa: F811
    assert check_texts([concept], wordnet=wordnet) == [[]]


def test_of_many_ordinary_words_only_those_of_specialists_are_in_no_dictionary(wordnet: WordNet):  # noqa: F811
    """Written down as they came to mind, the last part after the rules; what is still wrong is named here."""
    text = Path(__file__).with_name("ordinary_words.txt").read_text(encoding="utf-8").partition("\n")[2]
    names = [part.strip() for part in text.partition("\n")[2].replace("\n\n", ";").replace("\n", " ").split(";")]
    assert len(names) > 1800
    kinds = {name: {problem.kind for problem in check_texts([name], wordnet=wordnet)[0]} for name in names}
    unknown = {name for name, found in kinds.items() if "unknown" in found}
    assert unknown <= {"telangiectasia", "elytra", "swarf", "knurled", "hi-vis vest", "lichenified", "crema"}
    assert sum(bool(found) for found in kinds.values()) - len(unknown) <= 0.02 * len(names)


@pytest.mark.parametrize("concept", ["xqzzted", "yelow skinn", "stryped", "orage", "wihte", "feahter"])
def test_misspelled_words_are_in_no_dictionary(wordnet: WordNet, concept):  # noqa: F811
    (found,) = check_texts([concept], wordnet=wordnet)
    assert [problem.kind for problem in found] == ["unknown"]


@pytest.mark.parametrize(
    ("domains", "wrong", "right"),
    [
        (
            ["waste", "materials"],
            ["floppy ears", "long thin beak", "sofa", "a bed", "calm water", "paws", "a kitchen", "feathered edge"],
            ["handwriting", "a receipt", "milk jug", "a person's hand", "crumpled", "stripes", "torn newspaper"],
        ),
        (
            ["surface damage"],
            ["furry surface", "paws", "hooves", "flowers", "a kitchen", "sails"],
            ["fine cracks", "dark streak", "pits", "rough texture", "white"],
        ),
        (["birds", "animals"], ["floppy ears", "hooves", "paws"], ["a yellow eye", "long thin legs", "a forest"]),
        (["anything"], [], ["floppy ears", "a kitchen"]),
        ([], [], ["floppy ears", "a kitchen"]),
    ],
)
def test_implausible_is_a_verdict_of_its_own(wordnet: WordNet, domains, wrong, right):  # noqa: F811
    found = check_texts([*wrong, *right], wordnet=wordnet, domains=domains)
    assert [verdict(problems) for problems in found] == ["implausible"] * len(wrong) + ["good"] * len(right)
    tied = check_texts(wrong, wordnet=wordnet, domains=domains, tied=wrong)
    assert tied == [[] for _ in wrong]


def test_no_colour_is_plausible_on_grey_photos(wordnet: WordNet):  # noqa: F811
    names = ["violet", "yellowish green", "cream colour", "red streaks", "dark grey", "black spots", "white", "a line"]
    found = [verdict(problems) for problems in check_texts(names, wordnet=wordnet, grey=True)]
    assert found == ["implausible"] * 4 + ["good"] * 4


def test_all_repetitions_are_found_at_once(wordnet: WordNet):  # noqa: F811
    names = ["red skin", "Red skin", "a red skin", "photo of red skins", "green skin"]
    found = check_texts(names, wordnet=wordnet)
    assert [bool(problems) for problems in found] == [False, True, True, True, False]
    assert "there already" in found[1][0].reason
    assert "'red skin'" in found[2][0].reason


@pytest.fixture(scope="module")
def pictured():
    """Images of four classes in twelve dimensions: concept 0 is seen in class 0, 1 in class 1; 2 repeats 1; 3 is a
    direction in which images hardly differ; classes 2 and 3 differ by nothing that a concept sees. Their opposites keep
    the mean of the texts at zero."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 100)
    X = 0.2 * rng.normal(size=(400, 12))
    X[:, 11] *= 1e-3
    X[:, 10] += 3
    X[y == 0, 0] += 2
    X[y == 1, 1] += 2
    X[y == 3, 5] += 0.4
    directions = np.eye(12)[[0, 1, 1, 11, 2, 3]]
    directions[2, 6] = 0.05
    directions = np.concatenate([directions, -directions])
    return Concepts([f"concept {row}" for row in range(12)], directions), X, y


def test_photos_tell_what_words_do_not(pictured):
    concepts, X, y = pictured
    control = np.concatenate([np.eye(12)[[4, 6, 7, 8]], -np.eye(12)[[4, 6, 7, 8]]])
    seen = check_on_images(concepts, X, y, control=control)
    kinds = [{problem.kind for problem in problems} for problems in seen.problems]
    assert kinds[2] >= {"repeated"}
    assert "repeated" not in kinds[1]  # the first of two stays
    assert "faint" in kinds[3]
    assert "faint" not in kinds[0] | kinds[1]
    assert (y[seen.top[0]] == 0).all()
    assert (y[seen.top[1]] == 1).all()
    assert set(seen.uncovered) >= {"2", "3"}
    assert not {"0", "1"} & set(seen.uncovered)
    assert 0 < seen.coherence < 1


def test_shares_and_top_images_are_those_of_the_scores(pictured):
    from ccr.space import Space

    concepts, X, y = pictured
    seen = check_on_images(concepts, X, y)
    space = Space.fit_metric(concepts.embeddings, X, shrinkage=0.5)
    scores = space.images(X).span(0, len(X)).numpy() @ space.own_texts(concepts.embeddings).T
    assert np.allclose(
        np.take_along_axis(scores, seen.top.T, axis=0), -np.sort(-scores, axis=0)[: seen.top.shape[1]], atol=1e-5
    )
    # One threshold for all, at which an image has a quarter of the twelve concepts on average.
    threshold = np.sort(scores.ravel())[-3 * len(X)]
    assert np.allclose(seen.share, (scores >= threshold).mean(axis=0), atol=0.02)


def test_coverage_against_brute_force(pictured):
    concepts, X, y = pictured
    found = class_statistics(X, y)
    scores = score_statistics(found, concepts.embeddings)
    for name, other in uncovered(found, scores).items():
        lift = (scores.means[int(name)] - scores.means[int(other)]) / scores.within
        assert lift.max() < 1


def test_too_little_to_check_is_refused(pictured):
    concepts, X, y = pictured
    with pytest.raises(CCRError, match="at least 2 concepts"):
        check_on_images(concepts.subset([0]), X, y)
    with pytest.raises(CCRError, match="at least 2 classes"):
        check_on_images(concepts, X[y == 0], y[y == 0])
    assert np.isfinite(unit_rows(X)).all()
