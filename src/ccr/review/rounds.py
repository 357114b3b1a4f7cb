"""Rounds: fit a model again with what reviewers answered, and say what changed; accuracy on images it has not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain.claims import Claim
from ccr.explain.terms import plain
from ccr.io.provenance import Signature, Statement, whole_list
from ccr.knowledge import UNSEEN, Knowledge
from ccr.labels import store_part, take_rows, validation_pair
from ccr.model import ConceptModel
from ccr.refine import Callback
from ccr.refine.region import Claims
from ccr.review.decisions import Decisions, Policy
from ccr.review.questions import FEWEST_REASONS, Review, ReviewQuestion, class_numbers
from ccr.utils.processes import OnProgress
from ccr.utils.texts import check_name, listed, timestamp

# Signing: a model gets a signature once every claim is confirmed; the next change ends it.

#: Largest number of open claims that a message names.
NAMED = 5
#: Columns of `review_rows`; a table of knowledge has most of them.
COLUMNS = ("class", "concept", "answer", "state", "weight", "source", "by", "at", "reason")


def sign(
    model: ConceptModel,
    decisions: Decisions,
    *,
    by: str,
    policy: Policy = "one",
    known: Knowledge | None = None,
) -> ConceptModel:
    """The model with a signature; an error that names the claims that are not confirmed, if there are any.

    `known` is a table whose answers by people count, too, by default the model's own knowledge. What others have
    written into the log by now counts.
    """
    check_name(by, "who signs")
    if not by.strip():
        raise CCRError("a signature needs somebody who signs, got an empty name: give by=")
    decisions.refresh()
    review = Review(model, decisions, known=known, policy=policy)
    claims = review.claims()
    left = [one for one in claims if one.state != "confirmed"]
    if left:
        raise CCRError(f"{_named(left)}: answer them, and refit where one is rejected")
    if not claims:
        raise CCRError("the model makes no claim, so there is nothing to sign: it has no positive weight")
    made = Signature(
        by.strip(),
        timestamp(),
        policy,
        tuple(_statement(one) for one in claims),
        tuple(_never(review)),
        tuple(_against(model)),
        str(model.classes[int(np.argmax(model.head.intercept))]),
    )
    signed = replace(model, signature=made)
    return replace(signed, signature=replace(made, digest=made.fitting(signed)))


def unsigned(model: ConceptModel, review: Review | None = None) -> tuple[str, ...]:
    """Reasons why a model does not count as signed, in sentences; empty for a valid signature. A `review` adds its
    claims that are not confirmed."""
    if model.is_signed:
        return ()
    if model.signature is None:
        reasons = ["nobody has signed this model"]
    else:
        reasons = [f"the signature of {model.signature.by} has ended: the model was changed since"]
    left = review.blocking() if review is not None else ()
    return (*reasons, *([_named(left)] if left else []))


def review_rows(review: Review) -> list[dict[str, Any]]:
    """Table of the claims that a model may and may never make, class by class: class, concept, answer (yes, no or
    unknown), state, weight (None: not a claim of the model), source, by, at, reason. For a signed model, those that
    were signed."""
    if review.model.is_signed and review.model.signature is not None:
        signed = review.model.signature
        may, states = signed.may, {(one.label, one.concept): "confirmed" for one in signed.may}
        never = signed.never
    else:
        claims = review.claims()
        states = {(str(one.label), one.concept): one.state for one in claims}
        may = tuple(_statement(one) for one in claims if one.state != "rejected")
        never = tuple(_never(review))
    weights = {(str(one.label), one.concept): one.weight for one in review.claims()}
    rows = []
    for one, answer in [*((one, "yes") for one in may), *((one, "no") for one in never)]:
        state = states.get((one.label, one.concept), "rejected")
        said = answer if state in ("confirmed", "rejected") else "unknown"
        weight = weights.get((one.label, one.concept))
        rows.append({**one.to_dict(), "answer": said, "state": state, "weight": weight})
    return [{name: row[name] for name in COLUMNS} for row in rows]


def review_table(review: Review, name: str) -> dict[str, Any]:
    """The rows of `review_rows` as claims of the model `name`, with its signature; plain types only, ready for JSON."""
    signature = review.model.signature
    return {
        "model": name,
        "signed": review.model.is_signed,
        "signature": None if signature is None else signature.to_dict(),
        "claims": review_rows(review),
    }


def _named(left: Any) -> str:
    shown = listed([f"{one.sentence} ({one.state})" for one in left], NAMED, " and {:,} more")
    verb = "claim is" if len(left) == 1 else "claims are"
    return f"{len(left):,} {verb} not confirmed: {shown}"


def _statement(one: ReviewQuestion) -> Statement:
    agreed = [vote for vote in one.votes if vote.answer == "yes"] if one.state == "confirmed" else []
    names = " and ".join(vote.by for vote in agreed)
    sources = " and ".join(dict.fromkeys(vote.source for vote in agreed))
    return Statement(str(one.label), one.concept, names, max((vote.at for vote in agreed), default=""), sources)


def _never(review: Review) -> list[Statement]:
    """Rejected claims about the list's concepts, by class; forbidden by any source, as in the fit."""
    labels = {str(label): number for number, label in enumerate(review.model.classes.tolist())}
    names, found = set(review.concepts.names), []
    for told in review.knowledge():
        if told.photo or told.answer != "no" or told.label not in labels or told.concept not in names:
            continue
        votes = review.own.votes(told.label, told.concept)
        reason = next((vote.reason for vote in votes if vote.reason), "not to be seen" if told.source == UNSEEN else "")
        found.append(Statement(told.label, told.concept, told.by or told.source, told.at, told.source, reason))
    return sorted(found, key=lambda one: (labels[one.label], one.concept))


def _against(model: ConceptModel) -> list[tuple[str, str]]:
    rows, columns = np.nonzero(model.head.coef < 0)
    labels = [str(label) for label in model.classes.tolist()]
    return [(labels[row], model.names[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]


#: Fits of out-of-fold predictions.
FOLDS = 5
#: Fewest images with which folds can be made: two of each of two classes.
FEWEST_IMAGES = 4


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Predictions of images by fits that have not seen them.

    `probabilities` (m, C) and `predictions` (m,), labels, for every image; `fold` (m,) is the number of the fit that
    left it out; `right` (m,) whether the prediction is its label.
    """

    probabilities: np.ndarray
    predictions: np.ndarray
    fold: np.ndarray
    right: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of the images that are predicted right."""
        return float(self.right.mean())


@dataclass(frozen=True)
class ThinClass:
    """A class that is left with fewer than two reasons, and what can be done."""

    label: str
    reasons: int

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {"class": self.label, "reasons": self.reasons, "remedy": self.remedy}

    @property
    def remedy(self) -> str:
        """Advice for the class, as a sentence."""
        left = {0: "no reason", 1: "one reason"}[self.reasons]
        return (
            f"{self.label} has {left} left: confirm a concept that is next in line for it, or add one that is true of "
            "it (ccr edit --add, or the studio's bench) and refit"
        )


@dataclass(frozen=True, eq=False)
class ReviewRound:
    """A model before and after a refit with what reviewers answered.

    `gone` and `new` are claims that only one of them makes, `kept` how many both make; accuracies are on the `images`
    images that `measured` names, which neither model has seen; `thin` are classes with fewer than two reasons.
    """

    before: ConceptModel
    after: ConceptModel
    gone: tuple[Claim, ...]
    new: tuple[Claim, ...]
    kept: int
    accuracy_before: float
    accuracy_after: float
    images: int
    measured: str
    thin: tuple[ThinClass, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON, without the models."""
        return {name: plain(value) for name, value in vars(self).items() if name not in ("before", "after")}


def refit(
    model: ConceptModel,
    X: Any,
    y: Any = None,
    *,
    knowledge: Knowledge | None,
    claims: Claims | None = None,
    validation: Any = None,
    callback: Callback | None = None,
) -> ConceptModel:
    """A model fitted anew on (X, y), or a store, with this knowledge: by the model's own hyperparameters, on the whole
    list that it was fitted with, also what it left out. `claims` "open" or "confirmed" instead of the model's own;
    `validation` (X, y), or a store, chooses the epoch. Edits of weights by hand are not made again."""
    texts = whole_list(model.provenance)
    if texts is None:
        raise CCRError("the model does not know its concepts' text embeddings, so it cannot be refitted: fit it again")
    from ccr.classifier import ConceptClassifier  # brings scikit-learn, which what only reads need not wait for

    settings = dict(model.provenance.settings)
    if claims is not None:
        settings["claims"] = claims
    if knowledge is None or not len(knowledge):
        knowledge, settings["claims"], settings["min_transfer"] = None, "open", None

    estimator = ConceptClassifier(texts, knowledge=knowledge, **settings)
    labels = model.classes[class_numbers(model, X, y)]
    if validation is not None:
        other, given = validation_pair(validation)
        validation = (other, model.classes[class_numbers(model, other, given)])
    fitted: ConceptModel = estimator.fit(X, labels, validation=validation, callback=callback).model_
    made = model.provenance
    origin = replace(
        fitted.provenance,
        encoder=fitted.provenance.encoder or made.encoder,
        encoder_fingerprint=fitted.provenance.encoder_fingerprint or made.encoder_fingerprint,
    )
    return replace(fitted, provenance=origin)


def out_of_fold(
    model: ConceptModel,
    X: Any,
    y: Any = None,
    *,
    folds: int = FOLDS,
    groups: Any = None,
    tell: OnProgress | None = None,
) -> OutOfFold:
    """Predictions for images (X, y), or a store, that the model was trained on: `folds` refits by its own settings and
    knowledge, each on the images of the other folds. What was edited by hand is not in the refits.

    Classes are spread evenly over the folds. `groups` (m,) are kept together: photos of one scene in two folds make a
    fit look better than it is on photos of other scenes. None: those of a store, by `ccr embed --group`, and copies.
    """
    numbers = class_numbers(model, X, y)
    if not 2 <= folds <= len(numbers) or len(numbers) < FEWEST_IMAGES:
        raise CCRError(
            f"out-of-fold predictions need from 2 folds to as many as there are images, and at least {FEWEST_IMAGES} "
            f"images, got {folds} folds of {len(numbers)} images"
        )
    own = _own_groups(X) if groups is None else None
    if own is not None:
        groups, folds = own, min(folds, len(np.unique(own)))
    divide = _folds if groups is None else partial(_group_folds, np.asarray(groups))
    fold = divide(numbers, folds)
    folds = int(fold.max()) + 1
    labels, known = model.classes[numbers], _of_classes(model.provenance.knowledge, X)
    probabilities = np.zeros((len(numbers), len(model.classes)))
    for number in range(folds):
        if tell is not None:
            tell(number, folds, "measuring accuracy by refits")
        held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        fitted = refit(model, take_rows(X, rest), labels[rest], knowledge=known)
        columns = np.searchsorted(model.classes, fitted.classes)
        probabilities[np.ix_(held, columns)] = fitted.predict_proba(take_rows(X, held))
    if tell is not None:
        tell(folds, folds, "measuring accuracy by refits")
    winner = probabilities.argmax(axis=1)
    return OutOfFold(probabilities, model.classes[winner], fold, winner == numbers)


def review_round(
    model: ConceptModel,
    X: Any,
    y: Any = None,
    *,
    knowledge: Knowledge,
    claims: Claims | None = None,
    validation: Any = None,
    unseen: Any = None,
    before: float | None = None,
    folds: int = FOLDS,
    tell: OnProgress | None = None,
) -> ReviewRound:
    """Refit the model on (X, y), or a store, with what was answered, and compare both.

    Accuracies are measured on `unseen` (X, y), or a store, if it is given: images that neither the model nor the refit
    was trained on. Else they are out of fold, by refits of both on parts of (X, y); `before` is that of the model, if
    it is known from the last round.
    """
    after = refit(model, X, y, knowledge=knowledge, claims=claims, validation=validation)
    if unseen is not None:
        other, given = validation_pair(unseen)
        numbers = class_numbers(model, other, given)
        first, second = (_accuracy(one, other, numbers) for one in (model, after))
        measured = "images set aside"
    else:
        numbers = class_numbers(model, X, y)
        first = before if before is not None else out_of_fold(model, X, y, folds=folds, tell=tell).accuracy
        second, measured = out_of_fold(after, X, y, folds=folds, tell=tell).accuracy, "training images, out of fold"
    return ReviewRound(
        model,
        after,
        gone=claims_only_of(model, after),
        new=(new := claims_only_of(after, model)),
        kept=len(after.claims()) - len(new),
        accuracy_before=first,
        accuracy_after=second,
        images=len(numbers),
        measured=measured,
        thin=thin_classes(after),
    )


def thin_classes(model: ConceptModel) -> tuple[ThinClass, ...]:
    """The classes of a model that have fewer than two reasons, positive weights."""
    reasons = (model.head.coef > 0).sum(axis=1).tolist()
    labels = [str(label) for label in model.classes.tolist()]
    return tuple(ThinClass(label, n) for label, n in zip(labels, reasons, strict=True) if n < FEWEST_REASONS)


def claims_only_of(model: ConceptModel, other: ConceptModel) -> tuple[Claim, ...]:
    """The claims that a model makes and another does not."""
    theirs = {(str(claim.label), claim.concept) for claim in other.claims()}
    return tuple(claim for claim in model.claims() if (str(claim.label), claim.concept) not in theirs)


def _accuracy(model: ConceptModel, X: Any, numbers: np.ndarray) -> float:
    return float((np.searchsorted(model.classes, model.predict(X)) == numbers).mean())


def _folds(numbers: np.ndarray, folds: int) -> np.ndarray:
    """The fold of each image (m,): the images of a class, in random order, are dealt out in turn, and the next class
    goes on where it stopped."""
    order = np.random.default_rng(0).permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    fold = np.empty(len(numbers), np.int64)
    fold[order] = np.arange(len(numbers)) % folds
    return fold


def _own_groups(X: Any) -> np.ndarray | None:
    """The groups of a store's images (m,), if they join any."""
    groups = store_part(X, "groups")
    return None if groups is None or len(np.unique(groups)) == len(groups) else groups


def _group_folds(groups: np.ndarray, numbers: np.ndarray, folds: int) -> np.ndarray:
    """The fold of each image (m,): whole groups, classes as evenly as they allow."""
    from sklearn.model_selection import StratifiedGroupKFold  # half a second that only refits wait for

    if len(groups) != len(numbers):
        raise CCRError(f"there must be one group for each image, got {len(groups)} for {len(numbers)} images")
    if not 2 <= folds <= len(np.unique(groups)):
        raise CCRError(
            f"{folds} folds need at least as many groups, and two, got {len(np.unique(groups))}: ask for fewer folds, "
            "or give images of more objects"
        )
    divided, fold = StratifiedGroupKFold(folds, shuffle=True, random_state=0), np.empty(len(numbers), np.int64)
    for number, (_, held) in enumerate(divided.split(numbers, numbers, groups)):
        fold[held] = number
    return np.unique(fold, return_inverse=True)[1]  # few groups of a class may leave a fold empty


def _of_classes(knowledge: Knowledge | None, X: Any) -> Knowledge | None:
    """The knowledge without answers about photos where photos are known by row number, which a part of X changes."""
    if knowledge is None or not knowledge.photos or store_part(X, "paths") is not None:
        return knowledge
    return Knowledge.of(answer for answer in knowledge if not answer.photo)
