"""Edits of fitted models: what each does, that all can be undone, and that they live in the model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccr import Angular, ConceptClassifier, ConceptModel, Concepts, HardThreshold, Symmetric, TopK
from ccr.classifier import NotFittedError
from ccr.coding import ThresholdRule, TopRule
from ccr.coding.heads import LinearHead, softmax_objective
from ccr.concepts import stored_concepts
from ccr.edit import EditSession
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.io.provenance import Provenance
from ccr.space import Space
from tests.conftest import Data

HOSTILE = ["<script>alert(1)</script>", "\"'; DROP --", "\u05d0\u05d1 right to left", "🦊🏳️‍🌈", "x" * 200, "{0} %s"]


@pytest.fixture(scope="module")
def model(digits: Data) -> ConceptClassifier:
    settings = {"coder": HardThreshold(length=10), "weights_per_class": None, "max_iter": 5, "random_state": 0}
    return ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)


def random_model(seed: int, *, top: bool = False, fingerprint: str | None = None) -> ConceptClassifier:
    """A model that nobody trained, of a random shape, space and rule."""
    rng = np.random.default_rng(seed)
    n, d, classes = int(rng.integers(4, 12)), int(rng.integers(3, 9)), int(rng.integers(2, 5))
    texts = Concepts([*HOSTILE, *"abcdefgh"][:n], rng.normal(size=(n, d)) + rng.integers(0, 2))
    center: Any = [None, "data"][rng.integers(2)]
    dispersion = [None, Angular(), Symmetric(0.7)][rng.integers(3)]
    space = Space.fit(texts.embeddings, rng.normal(size=(20, d)) + 0.5, center=center, dispersion=dispersion)
    initial = texts.with_embeddings(space.texts(texts.embeddings))
    moved = initial.embeddings + 0.1 * rng.normal(size=(n, d))
    settings = ConceptClassifier(texts, center=center, dispersion=dispersion).settings()
    coef = (10.0 ** rng.integers(-2, 3) * rng.normal(size=(classes, n))).astype(np.float32)
    made = ConceptModel(
        space=space,
        concepts=stored_concepts(texts.names, initial.with_embeddings(moved).embeddings),
        initial=initial,
        rule=TopRule(3) if top else ThresholdRule(float(rng.uniform(0, 0.5)), bool(rng.integers(2))),
        head=LinearHead(coef, rng.normal(size=classes).astype(np.float32)),
        classes=np.array([f"class {c}" for c in range(classes)]),
        provenance=Provenance(settings, texts=texts, encoder_fingerprint=fingerprint),
    )
    return ConceptClassifier.of(made)


def edited_by(session: EditSession) -> ConceptClassifier:
    return ConceptClassifier.of(session.model())


def random_edits(session: EditSession, seed: int, count: int = 6) -> EditSession:
    rng = np.random.default_rng(seed)
    for number in range(count):
        first, second = (str(name) for name in rng.choice(session.concepts.names, 2, replace=False))
        label = "class 1"
        match rng.integers(8):
            case 0 if len(session.concepts) > 4:
                session.suppress(first)
            case 1:
                session.scale(first, float(rng.normal()))
            case 2:
                session.rename(first, f"renamed {number}")
            case 3:
                session.pin(first)
            case 4:
                session.set_weight(first, label, float(rng.normal()))
            case 5:
                session.zero_weight(first, label)
            case 6:
                embedding = rng.normal(size=session.concepts.dimension)
                session.add(f"added {number}", embedding, weights={label: 1.0})
            case 7 if len(session.concepts) > 4:
                session.merge(first, second)
    return session


def assert_additive(model: ConceptClassifier, X: np.ndarray) -> None:
    """Every explanation sums to the model's own logits, to 1e-5 of the size of its terms."""
    for x, logits in zip(X, model.model_.logits(X), strict=True):
        e = model.explain(x)
        for place, name in enumerate(e.classes):
            terms = e.contributions_to(name)
            total = float(e.head.intercept[place]) + sum(term.contribution for term in terms)
            size = abs(float(e.head.intercept[place])) + sum(abs(term.contribution) for term in terms)
            assert abs(total - float(logits[place])) <= 1e-5 * size + 1e-12
            contrast = e.contrast(name)
            summed = contrast.bias + sum(term.contribution for term in contrast.contributions)
            assert summed == pytest.approx(e.logit - e.logits[place], rel=1e-9, abs=1e-9 * size)
            mistake = e.mistake(name)
            spoken = mistake.bias + sum(t.contribution for t in mistake.spoke_for + mistake.spoke_against)
            assert abs(spoken - float(logits[place])) <= 1e-5 * size + 1e-12


def same(one: ConceptClassifier, two: ConceptClassifier) -> bool:
    """Whether two models have the same bits."""
    return (
        all(
            getattr(one, name).tobytes() == getattr(two, name).tobytes()
            and getattr(one, name).dtype == getattr(two, name).dtype
            for name in ("coef_", "intercept_", "classes_")
        )
        and all(
            getattr(one, name).names == getattr(two, name).names
            and getattr(one, name).embeddings.tobytes() == getattr(two, name).embeddings.tobytes()
            for name in ("concepts", "concepts_", "initial_concepts_")
        )
        and one.rule_ == two.rule_
        and one.edits_ == two.edits_
        and one.metrics_ == two.metrics_
    )


@pytest.mark.parametrize("top", [False, True])
@given(st.integers(0, 10**6))
def test_explanations_of_any_model_add_up_before_and_after_edits(top: bool, seed: int) -> None:
    model = random_model(seed, top=top)
    X = np.random.default_rng(seed).normal(size=(5, model.n_features_in_))
    assert_additive(model, X)
    assert_additive(edited_by(random_edits(model.edit(), seed)), X)


@given(st.integers(0, 10**6))
def test_edits_then_undo_give_the_identical_model(seed: int) -> None:
    model = random_model(seed)
    before = edited_by(model.edit())
    session = random_edits(model.edit(), seed)
    edited = edited_by(session)
    assert same(model, before)
    assert len(session) == len(edited.edits_)
    while len(session):
        session.undo()
    assert same(edited_by(session), model)
    assert same(edited_by(session), before)
    with pytest.raises(CCRError, match="0 edits to undo"):
        session.undo()


def test_undone_edits_leave_the_same_folder(model: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    model.save(tmp_path / "original")
    session = model.edit().suppress("stroke 3").rename("stroke 4", HOSTILE[0]).pin("stroke 5").refit(digits.X, digits.y)
    edited_by(session.undo(4)).save(tmp_path / "undone")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "undone" / name).read_bytes() == (tmp_path / "original" / name).read_bytes()


@given(st.integers(0, 10**6))
def test_the_log_is_plain_and_a_prefix_of_edits_is_the_same_as_undo(seed: int) -> None:
    session = random_edits(random_model(seed).edit(), seed)
    log = [edit.to_dict() for edit in session.log]
    assert json.loads(json.dumps(log, allow_nan=False)) == log
    assert list(edited_by(session).edits_) == log
    if len(session) > 2:
        fewer = random_edits(random_model(seed).edit(), seed)
        fewer.undo(2)
        assert [edit.to_dict() for edit in fewer.log] == log[:-2]


def test_the_log_lives_in_the_folder_and_older_folders_have_none(
    model: ConceptClassifier, digits: Data, tmp_path: Path
) -> None:
    edited = edited_by(
        model.edit().rename("stroke 1", HOSTILE[1]).zero_weight(HOSTILE[1], "digit 3").suppress("stroke 2")
    )
    edited.save(tmp_path / "edited")
    again = ConceptClassifier.load(tmp_path / "edited")
    assert again.edits_ == edited.edits_
    assert [edit["action"] for edit in again.edits_] == ["rename", "zero_weight", "suppress"]
    assert np.array_equal(again.predict(digits.X_test), edited.predict(digits.X_test))
    more = again.edit().scale("stroke 9", 0.5)
    assert [edit.action for edit in more.log] == ["scale"]
    assert [edit["action"] for edit in edited_by(more).edits_] == ["rename", "zero_weight", "suppress", "scale"]
    # What was zeroed in an earlier session stays zero when the head is refitted.
    refitted = edited_by(more.refit(digits.X, digits.y))
    assert refitted.coef_[3, refitted.concepts_.index(HOSTILE[1])] == 0.0
    config = json.loads((tmp_path / "edited" / "config.json").read_text())
    for changed in ({k: v for k, v in config.items() if k != "edits"}, {**config, "edits": ["nonsense"]}):
        (tmp_path / "edited" / "config.json").write_text(json.dumps(changed))
        if "edits" in changed:
            with pytest.raises(FormatError, match="not a list of actions"):
                ConceptClassifier.load(tmp_path / "edited")
        else:
            assert ConceptClassifier.load(tmp_path / "edited").edits_ == ()


def test_suppressing_takes_a_concept_out_of_every_sum(model: ConceptClassifier, digits: Data) -> None:
    edited = edited_by(model.edit().suppress("stroke 7"))
    assert "stroke 7" not in edited.concepts_.names
    column = model.concepts_.index("stroke 7")
    codes = model.transform(digits.X_test).toarray()
    codes[:, column] = 0.0
    assert np.allclose(edited.decision_function(digits.X_test), model.head_.logits(codes), atol=1e-4)
    x = digits.X_test[codes.any(axis=1)][0]
    assert all(term.concept != "stroke 7" for term in edited.explain(x).contributions)


def test_scaling_renaming_and_weights(model: ConceptClassifier, digits: Data) -> None:
    codes = model.transform(digits.X_test)
    edited = edited_by(model.edit().scale("stroke 7", 0.5))
    scaled = model.coef_.copy()
    scaled[:, 7] *= 0.5
    assert np.array_equal(edited.coef_, scaled)
    renamed = edited_by(model.edit().rename("stroke 7", f"  {HOSTILE[3]} "))
    assert renamed.concepts_.names[7] == renamed.initial_concepts_.names[7] == renamed.concepts.names[7] == HOSTILE[3]
    assert np.array_equal(renamed.decision_function(digits.X_test), model.decision_function(digits.X_test))
    weighed = edited_by(model.edit().set_weight("stroke 7", "digit 2", 3.5).zero_weight("stroke 8", "digit 2"))
    assert weighed.coef_[2, 7] == 3.5
    assert weighed.coef_[2, 8] == 0.0
    expected = LinearHead(weighed.coef_, weighed.intercept_).logits(codes)
    assert np.allclose(weighed.decision_function(digits.X_test), expected, atol=1e-5)
    assert (weighed.coef_ != model.coef_).sum() == 2


def test_pinning_puts_a_concept_back(model: ConceptClassifier, digits: Data) -> None:
    edited = edited_by(model.edit().pin("stroke 7"))
    assert np.array_equal(edited.concepts_.embeddings[7], model.initial_concepts_.embeddings[7])
    assert not np.array_equal(model.concepts_.embeddings[7], model.initial_concepts_.embeddings[7])
    drift = {found.concept: found for found in edited.audit().concepts}
    assert drift["stroke 7"].deviation == 0.0
    codes = edited.transform(digits.X_test).toarray()
    assert np.allclose(np.delete(codes, 7, axis=1), np.delete(model.transform(digits.X_test).toarray(), 7, axis=1))


class Encoder:
    """Embeds a text to a fixed row, and says of which space."""

    def __init__(self, row: np.ndarray, fingerprint: str | None = None) -> None:
        self.row, self.fingerprint, self.asked = row, fingerprint, [""]

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        self.asked = list(texts)
        return np.stack([self.row] * len(texts))


def test_an_added_concept_is_placed_like_the_others(model: ConceptClassifier, digits: Data) -> None:
    raw = digits.concepts.embeddings[7]
    session = model.edit().add("again", 5 * raw)
    edited = edited_by(session)
    assert np.allclose(edited.concepts_.embeddings[-1], model.initial_concepts_.embeddings[7], atol=1e-6)
    assert np.array_equal(edited.predict(digits.X_test), model.predict(digits.X_test))  # no weights yet
    assert edited.transform(digits.X_test[:3]).shape == (3, 41)
    encoder = Encoder(raw)
    by_text = edited_by(
        model.edit().add("again", encoder=encoder, text="a photo of a stroke", weights={"digit 1": 2.0})
    )
    assert encoder.asked == ["a photo of a stroke"]
    assert np.allclose(by_text.concepts_.embeddings, edited.concepts_.embeddings, atol=1e-6)
    assert by_text.coef_[1, -1] == 2.0
    assert by_text.edits_[0]["text"] == "a photo of a stroke"
    refitted = edited_by(session.refit(digits.X, digits.y))
    assert np.abs(refitted.coef_[:, -1]).max() > 0.01


def test_merging_duplicates_changes_no_logit(digits: Data) -> None:
    embeddings = np.vstack([digits.concepts.embeddings, digits.concepts.embeddings[:1]])
    concepts = Concepts([*digits.concepts.names, "twin"], embeddings)
    settings = {"coder": HardThreshold(length=10), "weights_per_class": None, "max_iter": 3, "random_state": 0}
    model = ConceptClassifier(concepts, radius=0, **settings).fit(digits.X, digits.y)
    merged = edited_by(model.edit().merge("stroke 0", "twin", name="twin"))
    assert merged.concepts_.names[0] == "twin"
    assert len(merged.concepts_) == 40
    assert np.allclose(merged.decision_function(digits.X_test), model.decision_function(digits.X_test), atol=1e-3)
    other = edited_by(model.edit().merge("stroke 1", "stroke 2"))
    halfway = model.concepts_.embeddings[1].astype(float) + model.concepts_.embeddings[2]
    assert np.allclose(other.concepts_.embeddings[1], halfway / np.linalg.norm(halfway), atol=1e-6)
    assert "stroke 2" not in other.concepts_.names


def test_effect_by_class_and_refit(model: ConceptClassifier, digits: Data) -> None:
    session = model.edit()
    for number in range(0, 40, 3):
        session.suppress(f"stroke {number}")
    damaged = session.effect(digits.X_test, digits.y_test)
    assert damaged.before == pytest.approx(model.score(digits.X_test, digits.y_test))
    assert damaged.after == pytest.approx(edited_by(session).score(digits.X_test, digits.y_test))
    assert damaged.after < damaged.before
    assert sum(row.n for row in damaged.classes) == damaged.n == len(digits.y_test)
    assert sum(row.n * row.after for row in damaged.classes) == pytest.approx(damaged.n * damaged.after)
    gains = [row.after - row.before for row in damaged.classes]
    assert gains == sorted(gains)
    before, after = model.predict(digits.X_test), edited_by(session).predict(digits.X_test)
    assert damaged.changed == (before != after).sum()
    session.refit(digits.X, digits.y)
    assert session.effect(digits.X_test, digits.y_test).after > damaged.after
    plain = damaged.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    nothing = model.edit().effect(digits.X_test, digits.y_test)
    assert (nothing.changed, nothing.before) == (0, nothing.after)


@pytest.mark.parametrize("asked", [3, "auto"])
def test_refitting_keeps_a_sparse_head_sparse(asked: Any, digits: Data) -> None:
    settings: dict[str, Any] = {"coder": HardThreshold(length=10), "max_iter": 5, "random_state": 0}
    model = ConceptClassifier(digits.concepts, weights_per_class=asked, **settings).fit(digits.X, digits.y)
    most = np.count_nonzero(model.coef_, axis=1).max()
    assert most < len(model.concepts_)
    first, second, *_ = model.concepts_.names
    session = model.edit().set_weight(second, "digit 2", 3.5).suppress(first)
    cut = session.effect(digits.X, digits.y).after
    edited = edited_by(session.refit(digits.X, digits.y))
    column = edited.concepts_.index(second)
    assert edited.coef_[2, column] == 3.5
    others = np.delete(edited.coef_, column, axis=1)
    assert (np.count_nonzero(others[[0, 1, *range(3, 10)]], axis=1) <= most).all()
    assert np.count_nonzero(others[2]) <= most
    assert (np.count_nonzero(np.delete(edited.coef_, 2, axis=0), axis=1) <= most).all()
    assert edited.score(digits.X, digits.y) > cut


@pytest.mark.parametrize("fixed", [False, True])
def test_refitting_finds_the_least_penalised_loss(model: ConceptClassifier, digits: Data, fixed: bool) -> None:
    session = model.edit()
    if fixed:
        session.set_weight("stroke 7", "digit 2", 3.5).zero_weight("stroke 8", "digit 2").rename("stroke 8", "eight")
    edited = edited_by(session.refit(digits.X, digits.y, alpha=1e-3))
    codes = edited.transform(digits.X)
    size = np.sqrt((codes.data.astype(float) ** 2).mean())
    y = np.searchsorted(model.classes_, digits.y)
    head = LinearHead(edited.coef_ * size, edited.intercept_)
    _, slope = softmax_objective(head, codes.astype(float) / size, y, alpha=1e-3, weight=np.ones(len(y)))
    free = np.ones(edited.coef_.shape, bool)
    if fixed:
        assert edited.coef_[2, 7] == 3.5
        assert edited.coef_[2, 8] == 0.0
        free[2, 7:9] = False
    assert np.abs(slope.coef[free]).max() < 1e-5
    assert np.abs(slope.intercept).max() < 1e-5
    assert edited.coef_.dtype == model.coef_.dtype
    assert edited.edits_[-1]["fixed"] == (2 if fixed else 0)


def test_class_weights_count_in_a_refit(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, class_weight="balanced", max_iter=1, random_state=0)
    model.fit(digits.X, digits.y)
    keep = digits.y != "digit 9"  # a class without images
    edited = edited_by(model.edit().refit(digits.X[keep], digits.y[keep]))
    assert edited.score(digits.X_test, digits.y_test) > 0.7
    with pytest.raises(CCRError, match="were not there"):
        model.edit().refit(digits.X, np.full(len(digits.X), "zebra"))


def test_refused_edits_change_nothing(model: ConceptClassifier, digits: Data) -> None:
    session = model.edit()
    row = digits.concepts.embeddings[0]
    small = random_model(3, top=True).edit()
    while len(small.concepts) > 3:
        small.suppress(small.concepts.names[0])
    cases = [
        (lambda: session.suppress("zebra"), "no concept is called 'zebra'"),
        (lambda: session.rename("stroke 1", "stroke 2"), "unique"),
        (lambda: session.rename("stroke 1", " "), "needs a name"),
        (lambda: session.set_weight("stroke 1", "zebra", 1.0), "no class is called 'zebra'"),
        (lambda: session.set_weight("stroke 1", "digit 1", float("nan")), "finite"),
        (lambda: session.scale("stroke 1", float("inf")), "finite"),
        (lambda: session.add("stroke 1", row), "unique"),
        (lambda: session.add("new"), "needs its text embedding"),
        (lambda: session.add("new", row[:3]), "64 dimensions"),
        (lambda: session.add("new", row * 0), "is all zeros"),
        (lambda: session.merge("stroke 1", "stroke 1"), "two different"),
        (lambda: session.merge("stroke 1", "stroke 2", name="stroke 3"), "unique"),
        (lambda: session.undo(), "0 edits to undo"),
        (lambda: small.suppress(small.concepts.names[0]), "at least 3 concepts"),
    ]
    for act, message in cases:
        with pytest.raises(CCRError, match=message):
            act()
    assert len(session) == 0
    assert same(edited_by(session), model)
    with pytest.raises(NotFittedError):
        ConceptClassifier(digits.concepts).edit()


def test_an_encoder_of_another_space_is_refused(digits: Data) -> None:
    model = random_model(1, fingerprint="ours")
    row = np.ones(model.n_features_in_)
    with pytest.raises(CCRError, match="use the model's encoder"):
        model.edit().add("new", encoder=Encoder(row, "theirs"))
    assert len(model.edit().add("new", encoder=Encoder(row, "ours"))) == 1


def test_opposites_cannot_be_merged() -> None:
    concepts = Concepts(["up", "down", "left"], [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ConceptClassifier(concepts, coder=TopK(1), center=None, dispersion=None, radius=0, max_iter=1)
    model.fit(X, X[:, 0] > 0)
    with pytest.raises(CCRError, match="opposites"):
        model.edit().merge("up", "down")


def test_an_edited_model_is_a_whole_model(model: ConceptClassifier, digits: Data, tmp_path: Path) -> None:
    edited = edited_by(model.edit().suppress("stroke 1").add(HOSTILE[4], digits.concepts.embeddings[1]))
    assert isinstance(model.edit().model(), ConceptModel)
    assert edited.evaluate(digits.X_test, digits.y_test).n == len(digits.y_test)
    assert edited.view(digits.X_test, digits.y_test).unused() == (HOSTILE[4],)
    edited.set_params(coder__length=4)
    assert model.coder is not None
    assert model.get_params()["coder__length"] == 10
    edited.fit(digits.X[:200], digits.y[:200])  # from its texts, which were edited along
    assert edited.edits_ == ()
    assert edited.concepts_.names[-1] == HOSTILE[4]


def test_views_of_a_model_agree_with_its_codes(model: ConceptClassifier, digits: Data) -> None:
    X, y = digits.X_test, digits.y_test
    codes = model.transform(X)
    view = model.view(X, y)
    assert view.confusion.trace() / len(y) == pytest.approx(model.score(X, y))
    assert np.allclose(view.mean_codes[0], codes[y == "digit 0"].toarray().mean(axis=0), atol=1e-6)
    found = model.images_of(X, "stroke 5", top=3)["stroke 5"]
    column = codes[:, 5].toarray().ravel()
    assert [item.row for item in found] == np.argsort(-column, kind="stable")[:3].tolist()
    assert len(model.images_of(X)) == 40
    with pytest.raises(CCRError, match="top is how many images to give, 0 or more, got -1"):
        model.images_of(X, "stroke 5", top=-1)
    pair = model.coactivation(X, top=1, by="images")[0]
    together = (codes[:, model.concepts_.index(pair.first)] != 0).multiply(
        codes[:, model.concepts_.index(pair.second)] != 0
    )
    assert pair.images == together.sum()
    assert len(model.audit().concepts) == 40
    drift = model.audit(X, images=2)
    assert drift.n == len(X)
    lengths = [sum(getattr(one, side) for one in drift.concepts) / len(X) for side in ("active_before", "active_after")]
    assert lengths == pytest.approx([codes.nnz / len(X)] * 2, rel=1e-3)
    found = model.evaluate(X, y)
    assert (drift.deviation, drift.fidelity) == (found.deviation, found.fidelity)
    wrong = X[model.predict(X) != y][0]
    mistake = model.explain(wrong).mistake(y[model.predict(X) != y][0], view=model.view(digits.X, digits.y))
    assert mistake.is_wrong
    assert mistake.missing
    assert not {item.concept for item in mistake.missing} & set(model.explain(wrong).active)


def test_correcting_concepts_corrects_predictions(model: ConceptClassifier, digits: Data) -> None:
    view = model.view(digits.X, digits.y)
    curve = model.intervention_curve(digits.X_test, digits.y_test, correct=view)
    assert curve.accuracy[0] == pytest.approx(model.score(digits.X_test, digits.y_test))
    assert curve.accuracy[-1] > curve.accuracy[0]
    assert curve.accuracy[-1] > 0.99
    given_codes = model.intervention_curve(digits.X_test, digits.y_test, correct=view.mean_codes)
    assert given_codes == curve
    with pytest.raises(CCRError, match="correct must be"):
        model.intervention_curve(digits.X_test, digits.y_test, correct=np.zeros((2, 2)))
    with pytest.raises(CCRError, match="true labels"):
        model.intervention_curve(digits.X_test, correct=view)


def test_on_real_clip_embeddings_everything_adds_up(clip: Data) -> None:
    models = {}
    for radius in (0.0, 0.1):
        coder = HardThreshold(length=10)
        model = ConceptClassifier(clip.concepts, coder=coder, radius=radius, max_iter=3, random_state=0)
        models[radius] = model.fit(clip.X, clip.y)
        assert_additive(model, clip.X_test[:25])
    for x in clip.X_test[:25]:
        ours, baseline = models[0.1].explain(x), models[0.0].explain(x)
        found = ours.compare(baseline)
        for side, explanation in enumerate((ours, baseline)):
            terms = [(row.first, row.second)[side] for row in found.concepts]
            total = found.biases[side] + sum(term.contribution for term in terms if term is not None)
            assert total == pytest.approx(explanation.logits[explanation.classes.index(found.of)], rel=1e-5, abs=1e-9)
        counterfactual = ours.counterfactual()
        if counterfactual is not None:
            moved = ours.intervene({term.concept: 0.0 for term in counterfactual.removed})
            assert moved.after.prediction == counterfactual.becomes
    edited = edited_by(models[0.1].edit().suppress(models[0.1].concepts_.names[0]).refit(clip.X, clip.y))
    assert_additive(edited, clip.X_test[:25])


def test_concepts_may_leave_until_fewer_are_left_than_the_mean_length(digits: Data, tmp_path: Path) -> None:
    """The threshold was calibrated to that length once and stays what it is."""
    coder = HardThreshold(length=len(digits.concepts) - 2, sign="both")
    settings = {"coder": coder, "weights_per_class": None, "max_iter": 2, "random_state": 0}
    session = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y).edit()
    for name in digits.concepts.names[:5]:
        session.suppress(name)
    edited = session.model()
    edited.save(tmp_path / "m")
    assert np.array_equal(ConceptModel.load(tmp_path / "m").logits(digits.X), edited.logits(digits.X))


def test_measurements_do_not_outlive_what_they_were_made_on(model: ConceptClassifier) -> None:
    photos = {"images": {"train": 3}}
    noted = model.model_.with_metrics("test", {"accuracy": 0.9}).with_metrics("images", photos["images"])
    name = noted.names[0]
    assert EditSession(noted).rename(name, "other").model().provenance.metrics == noted.provenance.metrics
    for session in (
        EditSession(noted).scale(name, -3.0),
        EditSession(noted).suppress(name),
        EditSession(noted).pin(name),
    ):
        assert session.model().provenance.metrics == photos
        assert session.undo().model().provenance.metrics == noted.provenance.metrics


def test_a_new_name_leaves_prediction_sets_as_they_are(digits: Data, model: ConceptClassifier) -> None:
    sure = model.model_.calibrated(digits.X, digits.y)
    name = sure.names[0]
    assert EditSession(sure).rename(name, "other").model().predict_set(digits.X[:9]).sizes.tolist() == (
        sure.predict_set(digits.X[:9]).sizes.tolist()
    )
    with pytest.warns(CCRWarning, match="'scale' changes its answers, so its prediction sets are gone"):
        scaled = EditSession(sure).scale(name, 2.0).model()
    with pytest.raises(CCRError, match="not calibrated"):
        scaled.predict_set(digits.X[:9])


def test_weights_that_a_concept_was_added_with_stay_when_the_head_is_fitted(
    digits: Data, model: ConceptClassifier
) -> None:
    label = model.classes_[3]
    session = model.edit().add("new", digits.X[0], weights={label: 0.7}).refit(digits.X, digits.y)
    refitted = session.model()
    weights = refitted.head.coef[:, refitted.row("new")]
    assert weights[3] == np.float32(0.7)
    assert np.count_nonzero(weights) > 1


@pytest.mark.parametrize("value", [1e39, -1e39, float("nan")])
def test_weights_must_be_finite_in_the_heads_own_numbers(model: ConceptClassifier, value: float) -> None:
    name = model.concepts_.names[0]
    largest = float(np.finfo(np.float32).max)
    for refused in (
        lambda: model.edit().set_weight(name, model.classes_[0], value),
        lambda: model.edit().add("new", np.ones(model.n_features_in_), weights={model.classes_[0]: value}),
        lambda: model.edit().set_weight(name, model.classes_[0], largest).scale(name, 4.0),
    ):
        with pytest.raises(CCRError, match="a weight must be a finite number"):
            refused()


def test_an_added_concept_has_an_embedding_or_an_encoder(model: ConceptClassifier) -> None:
    with pytest.raises(CCRError, match="got both"):
        model.edit().add("new", np.ones(model.n_features_in_), encoder=object())  # type: ignore[arg-type]


def test_an_edited_model_is_audited_at_its_own_length(model: ConceptClassifier, digits: Data) -> None:
    session = model.edit()
    for name in model.concepts_.names[::2]:
        session.suppress(name)
    for edited in (model.model_, session.model()):
        found = edited.audit(digits.X_test)
        before, after = (
            sum(getattr(item, f"active_{when}") for item in found.concepts) for when in ("before", "after")
        )
        assert before == pytest.approx(after, abs=2)
        assert after == edited.encode(digits.X_test).nnz


def test_numbers_of_every_kind_are_taken_and_others_refused(model: ConceptClassifier, tmp_path: Path) -> None:
    concept, label = model.concepts_.names[0], model.classes_[0]
    for number in (2, 2.0, np.float16(2), np.array(2.0), torch.tensor(2.0)):
        session = model.edit().scale(concept, number).set_weight(concept, label, number)
        session.add("new", np.ones(64), weights={label: number}).model().save(tmp_path / "model")
        assert [edit.arguments.get("factor", edit.arguments.get("value")) for edit in session.log][:2] == [2.0, 2.0]
    for number in ("2", None, True, [2.0], np.nan):
        for edit in (
            lambda number=number: model.edit().scale(concept, number),
            lambda number=number: model.edit().set_weight(concept, label, number),
            lambda number=number: model.edit().add("new", np.ones(64), weights={label: number}),
        ):
            with pytest.raises(CCRError, match="must be a finite number, got"):
                edit()
    with pytest.raises(CCRError, match=r"weights must be \{class: weight\}, got list"):
        model.edit().add("new", np.ones(64), weights=[1.0])  # type: ignore[arg-type]
    with pytest.raises(CCRError, match=r"1 edits to undo, got 1\.0"):
        model.edit().pin(concept).undo(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "name"), [(float, 1), (int, 1.0), (int, "1"), (bool, 1)])
def test_an_added_concept_weighs_for_classes_however_they_are_named(digits: Data, kind: type, name: Any) -> None:
    y = (np.arange(len(digits.X)) % 2).astype(kind)
    fitted = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X, y)
    session = fitted.edit().add("new", np.ones(64), weights={name: 3.0}).refit(digits.X, y)
    assert session.model().head.coef[1, -1] == 3.0  # set by hand, so it stays


def test_weights_set_by_hand_are_no_measure_for_a_later_refit(digits: Data, tmp_path: Path) -> None:
    settings = {"coder": HardThreshold(length=8), "max_iter": 5, "random_state": 0, "weights_per_class": "auto"}
    session = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y).edit()
    for name in session.concepts.names[:12]:
        session.set_weight(name, "digit 3", 1.0)
    session.model().save(tmp_path / "model")
    later = EditSession(ConceptModel.load(tmp_path / "model")).refit(digits.X, digits.y).model()
    assert np.array_equal(later.head.coef != 0, session.refit(digits.X, digits.y).model().head.coef != 0)


def test_a_scaled_concept_stays_scaled_when_the_head_is_refitted(model: ConceptClassifier, digits: Data) -> None:
    concept = model.concepts_.names[3]
    row = model.concepts_.index(concept)
    refitted = model.edit().scale(concept, 0.1).refit(digits.X, digits.y).model()
    assert np.allclose(refitted.head.coef[:, row], 0.1 * model.coef_[:, row], atol=1e-6)
    free = model.edit().refit(digits.X, digits.y).model()
    assert not np.allclose(refitted.head.coef, free.head.coef, atol=1e-3)
