"""Answers about photos in a fit: probabilities, thresholds by concept, and what every form of the model says of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.photo_truth import World, _answers, _fitted, _row, planted
from hypothesis import given, settings
from hypothesis import strategies as st

import ccr.runtime
from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold, Knowledge, TopK
from ccr.cli.common_photo import show_knowledge
from ccr.cli.explain import _show_sum
from ccr.errors import CCRError
from ccr.explain.terms import NO_REASON, Contribution, sum_rows
from ccr.inputs import Embeddings
from ccr.knowledge import Answer
from ccr.knowledge.grounding import UNKNOWN_SHARE, Groups, evidence, ground
from ccr.photos.run import predict_rows, write_table
from ccr.refine.data import Labelled, split
from ccr.refine.likely import PhotoAnswers, answered_pairs, class_probabilities
from ccr.refine.region import Bound, GroundedBound
from ccr.show import page, plots


@pytest.fixture(scope="module")
def world() -> World:
    return planted(0, classes=6, concepts=24, d=48)


@pytest.fixture(scope="module")
def table(world: World) -> Knowledge:
    return Knowledge(range(len(world.table)), world.concepts.names, np.where(world.table, 1, -1))


@pytest.fixture(scope="module")
def known(world: World, table: Knowledge) -> Knowledge:
    return table.merge(Knowledge.of(_answers(world, _fitted(world, table, 0.0, 0), 7)))


@pytest.fixture(scope="module")
def fitted(world: World, known: Knowledge) -> Any:
    return _fitted(world, known, 0.5, 0)


def test_answers_about_photos_make_claims_truer(world: World, table: Knowledge, fitted: Any) -> None:
    """Planted: half of what is true of a class is shown by one member in ten."""
    without, told = _row(world, _fitted(world, table, None, 0)), _row(world, fitted)
    assert told.truth > without.truth
    assert told.truth > 0.9
    assert told.accuracy > without.accuracy - 0.02
    assert told.error < 0.1


def test_zero_is_what_it_was_without_answers_to_the_bit(world: World, table: Knowledge) -> None:
    one, two = (_fitted(world, table, least, 0) for least in (None, 0.0))
    assert np.array_equal(one.coef_, two.coef_)
    assert np.array_equal(one.concepts_.embeddings, two.concepts_.embeddings)
    assert one.model_.shown is not None
    assert one.model_.shown.source == "classes"
    assert all(term.shown is None for x in world.X[:9] for term in one.explain(x).contributions)


def test_nothing_less_likely_than_asked_is_shown_or_added(world: World, fitted: Any) -> None:
    model = fitted.model_
    for x in world.measured_X[:40]:
        explained = model.explain(x)
        # Thresholds are those of the map of any class; that of the predicted class may make a concept less likely.
        assert (model.shown.probabilities(explained.codes, explained.columns) >= 0.5 - 1e-6).all()
        assert explained.bias + sum(term.contribution for term in explained.contributions) == pytest.approx(
            explained.logit
        )
        again = explained.contributions_to(explained.prediction)
        assert again == explained.contributions


def test_a_photo_that_shows_nothing_says_so_and_is_counted(
    world: World, fitted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fitted.model_
    drawn = np.random.default_rng(0).standard_normal((500, model.dimension)).astype(np.float32)
    nothing = next(x for x in drawn if not model.encode(x[None]).nnz)
    explained = model.explain(nothing)
    assert explained.contributions == ()
    assert NO_REASON in str(explained)
    assert NO_REASON in explained._repr_html_()
    assert NO_REASON in page.explanation_card(explained)
    assert NO_REASON in plots.explanation(explained).subfigs[0].get_suptitle()
    _show_sum("", explained, 10)
    assert NO_REASON in " ".join(capsys.readouterr().out.split())
    X = np.concatenate([world.measured_X[:9], nothing[None]])
    found = model.evaluate(X, np.append(world.measured_y[:9], 0))
    by_hand = np.mean([not model.explain(x).contributions for x in X])
    assert found.without_reason == pytest.approx(by_hand)
    assert found.to_dict()["without_reason"] == found.without_reason
    show_knowledge({"CCR": found})
    assert f"{found.without_reason:.1%} of the images show none" in " ".join(capsys.readouterr().out.split())


def test_every_form_of_the_model_says_the_same_probability(world: World, fitted: Any, tmp_path: Path) -> None:
    import onnxruntime

    model = fitted.model_
    model.save(tmp_path / "model")
    x = next(x for x in world.measured_X if len(model.explain(x).contributions) > 1)
    terms = {term.concept: term.shown for term in model.explain(x).contributions}
    for other in (ConceptModel.load(tmp_path / "model"), ccr.runtime.load(tmp_path / "model")):
        found = {term.concept: term.shown for term in other.explain(x).contributions}
        assert found == pytest.approx(terms, abs=1e-5)
    assert {one["concept"]: one["shown"] for one in model.explain(x).to_dict()["contributions"]} == terms
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    rows = world.measured_X[:50].astype(np.float32)
    codes, shown = session.run(["codes", "shown"], {session.get_inputs()[0].name: rows})
    winners = model.logits(rows).argmax(axis=1)
    assert len(np.unique(winners)) > 1
    for row, column in zip(*np.nonzero(codes), strict=True):
        expected = model.shown.probabilities(codes[row, column], column, winners[row])
        assert shown[row, column] == pytest.approx(expected, abs=1e-5)
    assert (shown[codes == 0] == 0).all()


def test_tables_of_predictions_say_the_probability(world: World, fitted: Any, tmp_path: Path) -> None:
    model, rows = fitted.model_, world.measured_X[:20].astype(np.float32)
    made = predict_rows(model, rows, [f"{row}.png" for row in range(20)], explain=3)
    said = 0
    for item, x in zip(made, rows, strict=True):
        terms = model.explain(x).contributions[:3]
        assert [(one.concept, one.stated) for one in item.concepts] == [(term.concept, term.stated) for term in terms]
        assert [one.shown for one in item.concepts] == pytest.approx([term.shown for term in terms], abs=1e-6)
        said += len(terms)
    assert said > 20
    with (tmp_path / "table.csv").open("wb") as stream:
        write_table(stream, ".csv", made, explained=3, classes=model.classes)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file))
    assert float(first["shown_1"]) == pytest.approx(made[0].concepts[0].shown)


def test_edits_keep_the_map_in_step_with_the_concepts(world: World, fitted: Any) -> None:
    edit = fitted.edit()
    edit.suppress(fitted.model_.names[0])
    edit.add("new", world.concepts.embeddings[0] + world.concepts.embeddings[1])
    after = edit.model()
    assert len(after.shown.intercepts) == len(after.names) == len(after.rule.bounds)
    assert np.array_equal(after.shown.intercepts[:-1], fitted.model_.shown.intercepts[1:])


def test_answers_are_found_by_path_or_row_and_only_yes_and_no_count() -> None:
    given = [
        Answer("", "red", "yes", photo="3"),
        Answer("", "green", "no", photo="3"),
        Answer("", "red", "unknown", photo="4"),
        Answer("", "red", "no", photo="5"),
        Answer("", "blue", "yes", photo="3"),
        Answer("", "red", "yes", photo="elsewhere.jpg"),
    ]
    images = np.zeros((9, 2), np.float32)
    pairs = answered_pairs(Knowledge.of(given), images, Embeddings(images), ["red", "green"])
    assert list(zip(pairs.rows.tolist(), pairs.concepts.tolist(), pairs.shows.tolist(), strict=True)) == [
        (3, 0, True),
        (3, 1, False),
        (5, 0, False),
    ]
    hidden = answered_pairs(Knowledge.of(given), images, Embeddings(images), ["red"], left_out=np.array([3, 5]))
    assert len(hidden.rows) == 0


def test_class_probabilities_are_means_over_the_class(world: World, fitted: Any) -> None:
    model = fitted.model_
    images = model.images(world.X)
    train = split(images, world.y, None, None)[0]
    found = class_probabilities(model.shown, model.concepts.embeddings, train, len(model.classes))
    scores = np.concatenate([part.numpy() for part in images.chunks()]) @ model.concepts.embeddings.T
    likely = model.shown.probabilities(scores, classes=world.y)
    for number in range(len(model.classes)):
        assert np.allclose(found[:, number], likely[world.y == number].mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_probability": 1.0}, "in \\[0, 1\\)"),
        ({"min_probability": "half"}, "in \\[0, 1\\)"),
        ({"min_probability": 0.5, "knowledge": None}, "there is none"),
        ({"min_probability": 0.5, "coder": TopK(3)}, "a threshold for each concept"),
        ({"min_probability": 0.5, "coder": HardThreshold(length=4, sign="both")}, "a threshold for each concept"),
    ],
)
def test_bad_probabilities_are_refused_in_words(
    world: World, known: Knowledge, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CCRError, match=message):
        ConceptClassifier(world.concepts, **{"knowledge": known, **options}).fit(world.X, world.y)


def test_other_coders_keep_their_codes_and_still_say_how_likely(world: World, known: Knowledge) -> None:
    model = ConceptClassifier(world.concepts, knowledge=known, coder=TopK(4), random_state=0, max_iter=5)
    model.fit(world.X, world.y)
    assert (np.diff(model.transform(world.X).indptr) <= 4).all()
    terms = model.explain(world.X[0]).contributions
    assert all(0 <= term.shown <= 1 for term in terms)


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(-3, 3), st.floats(0, 1) | st.none()), max_size=12))
@settings(deadline=None)
def test_rows_of_a_sum_add_up_whatever_is_stated(terms: list[tuple[float, float, float | None]]) -> None:
    given = [
        Contribution(f"c{number}", code, weight, code * weight, None, likely, likely is None or likely >= 0.6)
        for number, (code, weight, likely) in enumerate(terms)
    ]
    rows = sum_rows(0.5, given, 3)
    assert sum(row.value for row in rows) == pytest.approx(0.5 + sum(term.contribution for term in given))
    assert all(row.term is None or row.term.shown is None or row.term.shown >= 0.6 for row in rows)


def test_concepts_may_be_given_without_answers_about_most(world: World, table: Knowledge) -> None:
    few = table.merge(
        Knowledge.of([Answer("", world.concepts.names[int(world.table.any(axis=0).argmax())], "yes", photo="0")])
    )
    model = _fitted(world, few, 0.25, 0).model_
    assert model.shown.source == "photos"
    assert np.isfinite(model.shown.intercepts).all()
    assert isinstance(model.concepts, Concepts)


def informed(world: World, knowledge: Knowledge) -> tuple[GroundedBound, Labelled]:
    options = {"radius": None, "fidelity": 0.9, "center": "data", "dispersion": None, "shrinkage": 0.5}
    bound = Bound.fit(world.concepts, world.X, **options)
    train = split(bound.space.images(world.X), world.y, None, None)[0]
    classes = list(range(len(world.table)))
    return GroundedBound.fit(knowledge, bound, train, world.X, classes, claims="open", min_transfer=None), train


def test_a_score_without_its_answer_is_that_of_grounding_by_the_mean_of_the_class(
    world: World, table: Knowledge
) -> None:
    rng = np.random.default_rng(0)
    told = [
        Answer("", world.concepts.names[concept], str(rng.choice(["yes", "no"])), photo=str(row))
        for concept in range(5)
        for row in rng.choice(len(world.X), 4, replace=False)
    ]
    known, train = informed(world, table.merge(Knowledge.of(told)))
    X = train.X.take(np.arange(len(world.X))).numpy().astype(np.float64)
    for one in told[::3]:
        row, shows = int(one.photo), one.answer == "yes"
        number, concept = (
            world.concepts.index(one.concept),
            np.flatnonzero(known.rows == world.concepts.index(one.concept)),
        )
        found = known.shifts(concept, X[[row]], np.array([shows]), world.y[[row]])
        others = np.setdiff1d(np.flatnonzero(world.y == world.y[row]), [row])
        texts, asked = known.texts[concept], [other for other in told if other.concept == one.concept]
        # The same by hand: classes by the table, each photo as one image, this one in the place of its class's mean.
        classes = evidence(np.where(world.table, 1, -1)[:, [number]], known.groups, unknown=UNKNOWN_SHARE)
        given_ = np.array([[1 if other.answer == "yes" else -1] for other in asked])
        rows = np.array([int(other.photo) for other in asked])
        swapped = np.where((rows == row)[:, None], X[others].mean(axis=0), X[rows])
        before, after = (
            ground(texts, classes.plus(evidence(given_, Groups(images, np.ones(len(rows), np.int64)))))
            for images in (X[rows], swapped)
        )
        np.testing.assert_allclose(found, after - before, atol=1e-6)  # images are float32


def test_answers_at_random_make_no_claim_sure(world: World) -> None:
    """Each answer draws its concept toward its photo or away from it, which is no reason to believe the scores."""
    rng = np.random.default_rng(0)
    told = [
        Answer("", name, ["yes", "no"][at % 2], photo=str(row))
        for name in world.concepts.names
        for at, row in enumerate(rng.choice(len(world.X), 8, replace=False))
    ]
    empty = Knowledge(range(len(world.table)), world.concepts.names, np.zeros_like(world.table, np.int8))
    knowledge = empty.merge(Knowledge.of(told))
    known, train = informed(world, knowledge)
    names, texts, start = world.concepts.names, world.concepts.embeddings, known.bound.initial.embeddings
    pairs = answered_pairs(knowledge, world.X, train.X, names, labelled=[train], grounding=train.rows)
    new = known.bound.space.images(world.measured_X).take(np.arange(len(world.measured_X))).numpy() @ start.T
    off = {}
    for grounds in (pairs.grounds, np.zeros_like(pairs.grounds)):  # with their own answers, or as if these were new
        answers = PhotoAnswers((pairs._replace(grounds=grounds),), texts, np.zeros(len(texts)), 6, known)
        off[bool(grounds.any())] = float(np.abs(answers.map(start).probabilities(new) - 0.5).mean())
    assert off[True] < 0.1 < off[False]


def test_a_wanted_truth_moves_what_is_stated_in_every_form(world: World, known: Knowledge, tmp_path: Path) -> None:
    options: dict[str, Any] = {"knowledge": known, "random_state": 0, "max_iter": 20}
    usual, strict = (
        ConceptClassifier(world.concepts, stated_truth=truth, **options).fit(world.X, world.y).model_
        for truth in (None, 0.9)
    )
    assert usual.shown.stated == 0.6 < strict.shown.stated < 1
    assert np.array_equal(usual.shown.intercepts, strict.shown.intercepts)
    strict.save(tmp_path / "model")
    said = set()
    for x in world.measured_X[:60]:
        terms = strict.explain(x).contributions
        assert all(term.stated == (term.shown >= strict.shown.stated) for term in terms)
        assert {row.term for row in sum_rows(0.0, terms, 99) if row.term} == {term for term in terms if term.stated}
        for other in (ConceptModel.load(tmp_path / "model"), ccr.runtime.load(tmp_path / "model")):
            assert [term.stated for term in other.explain(x).contributions] == [term.stated for term in terms]
        said |= {term.stated for term in terms}
    assert said == {True, False}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"stated_truth": 1.0}, "in \\(0, 1\\)"), ({"stated_truth": 0.8, "knowledge": None}, "there is none")],
)
def test_a_bad_share_is_refused_in_words(world: World, known: Knowledge, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CCRError, match=message):
        ConceptClassifier(world.concepts, **{"knowledge": known, **options}).fit(world.X, world.y)


def test_a_fit_that_is_killed_in_its_second_refinement_goes_on_there(
    world: World, known: Knowledge, tmp_path: Path
) -> None:
    def fit(**options: Any) -> Any:
        made = ConceptClassifier(world.concepts, knowledge=known, random_state=0, max_iter=6)
        return made.fit(world.X, world.y, **options)

    epochs: list[int] = []

    def die(epoch: Any, _: int) -> None:
        epochs.append(epoch.epoch)
        if len(epochs) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(callback=die, checkpoint=tmp_path / "run")
    later: list[int] = []
    again = fit(callback=lambda epoch, _: later.append(epoch.epoch), checkpoint=tmp_path / "run")
    assert len(later) <= 6 + 12 - 9
    whole = fit()
    assert np.array_equal(again.coef_, whole.coef_)
    assert np.array_equal(again.concepts_.embeddings, whole.concepts_.embeddings)


def test_answers_about_photos_of_a_separate_validation_count(world: World, table: Knowledge) -> None:
    class Stored(np.ndarray):
        paths = tuple(f"val/{row}" for row in range(len(world.measured_y)))

    names = world.concepts.names
    given = [
        Answer("", names[number], "yes" if world.measured_shows[row, number] else "no", photo=f"val/{row}")
        for row in range(60)
        for number in np.flatnonzero(world.table[world.measured_y[row]])
    ]
    made = ConceptClassifier(world.concepts, knowledge=table.merge(Knowledge.of(given)), random_state=0, max_iter=4)
    without = made.fit(world.X, world.y, validation=(world.measured_X, world.measured_y)).model_
    assert without.shown.source == "classes"
    model = made.fit(world.X, world.y, validation=(world.measured_X.view(Stored), world.measured_y)).model_
    assert model.shown.source == "photos"
    assert 0 < model.shown.answers.sum() <= len(given)


def test_both_refinements_are_followed(world: World, known: Knowledge) -> None:
    epochs: list[int] = []
    model = ConceptClassifier(world.concepts, knowledge=known, random_state=0, max_iter=4)
    model.fit(world.X, world.y, callback=lambda epoch, _: epochs.append(epoch.epoch))
    assert epochs.count(1) == 2  # without thresholds, and with
