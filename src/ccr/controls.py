"""Fits beside a model, to judge it by: its baseline, random words in place of its concepts, a linear probe on the
embeddings, cross-validation, and refits that show how stable its explanations are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from threadpoolctl import threadpool_limits

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold, code_size
from ccr.coding.heads import LinearHead, fit_softmax
from ccr.concepts import Concepts
from ccr.encoders import Encoder
from ccr.errors import CCRError
from ccr.explain.terms import PlainResult, plain_fields
from ccr.labels import Part, store_parts, stratified_folds, take_rows
from ccr.metrics import SHOWN, Interval, largest_shown, paired_bootstrap
from ccr.refine.region import unrefined
from ccr.space import Space
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import share_text
from ccr.vocab import embed_concepts, random_words

# Gain of refinement: CCR against its own baseline at equal length and dispersion, and against a refitted head.

#: Penalties tried for a refitted head, in units of 1 / (number of training images) for codes scaled to size 1.
PENALTIES = (0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Gain:
    """Test accuracies in [0, 1], one for each seed, the baseline of the first seed, and CCR's models of all seeds.

    `baseline` is the same with concepts that stay, trained as long; `refitted` is a head of all weights on the codes of
    all concepts, which stay, solved to convergence by L-BFGS, its penalty chosen by cross-validation; `refined` is CCR.
    """

    seeds: tuple[int, ...]
    baseline: tuple[float, ...]
    refitted: tuple[float, ...]
    refined: tuple[float, ...]
    baseline_model: ConceptClassifier
    models: tuple[ConceptClassifier, ...]

    @property
    def model(self) -> ConceptClassifier:
        """CCR's model of the first seed."""
        return self.models[0]

    @property
    def over_baseline(self) -> float:
        return float(np.mean(self.refined) - np.mean(self.baseline))

    @property
    def over_refitted(self) -> float:
        return float(np.mean(self.refined) - np.mean(self.refitted))

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        lists = {name: list(getattr(self, name)) for name in ("seeds", "baseline", "refitted", "refined")}
        return {**lists, "gain_over_baseline": self.over_baseline, "gain_over_refitted_head": self.over_refitted}


def refinement_gain(
    concepts: Concepts,
    *,
    train: Part,
    test: Part,
    options: Mapping[str, Any],
    seeds: Sequence[int] = range(5),
    jobs: int = 1,
    tell: OnProgress = no_progress,
) -> Gain:
    """Fit CCR and its baseline with the same options for every seed, and measure both on the test split.

    Parameters
    ----------
    options : further parameters of CCR's `ConceptClassifier`, and but for its bound of its baseline's.
    jobs : models fitted at a time, at least 1, each on one thread.
    """
    settings = (unrefined(options), dict(options))

    def fit(seed: int, chosen: dict[str, Any]) -> ConceptClassifier:
        return ConceptClassifier(concepts, **{**chosen, "random_state": seed}).fit(train.X, train.y)

    with one_thread_each(jobs) as pool:
        waiting = [pool.submit(fit, seed, chosen) for seed in seeds for chosen in settings]
        tell(0, len(waiting), "fitting models")  # the first may wait for the compiler
        for number, _ in enumerate(as_completed(waiting), start=1):
            tell(number, len(waiting), "fitting models")
        fitted = [future.result() for future in waiting]
        baselines, refined = fitted[::2], fitted[1::2]
        # Codes of all concepts, where they stay, are the same for every seed, and the solved head has no seed.
        whole = fit(seeds[0], {**unrefined(options), "weights_per_class": None, "max_iter": 1})
        refitted = (refitted_accuracy(whole, train, test),) * len(seeds)
    scores = [tuple(float(model.score(test.X, test.y)) for model in models) for models in (baselines, refined)]
    return Gain(tuple(seeds), scores[0], refitted, scores[1], baselines[0], tuple(refined))


@contextmanager
def one_thread_each(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for small work, most of which releases the GIL: `jobs` pieces at a time, each on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(jobs) as pool, threadpool_limits(1):
            yield pool
    finally:
        torch.set_num_threads(before)


def refitted_accuracy(baseline: ConceptClassifier, train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], when the head is solved to convergence on the model's frozen codes, its penalty
    chosen by cross-validation."""
    codes = baseline.transform(train.X)
    numbers = np.searchsorted(baseline.classes_, train.y)
    size = code_size(codes) ** 2

    def solved(rows: np.ndarray, penalty: float) -> LinearHead:
        alpha = penalty * size / len(rows)
        return fit_softmax(codes[rows], numbers[rows], classes=len(baseline.classes_), alpha=alpha, tol=1e-5)

    def right(penalty: float) -> int:
        return sum(
            int((solved(fold, penalty).logits(codes[rest]).argmax(axis=1) == numbers[rest]).sum())
            for fold, rest in stratified_folds().split(codes, numbers)
        )

    head = solved(np.arange(len(numbers)), max(PENALTIES, key=right))
    winners = head.logits(baseline.transform(test.X)).argmax(axis=1)
    return float(np.mean(baseline.classes_[winners] == test.y))


# Controls of a fitted model: the same fit with random words and with random vectors in place of its concepts and,
# for a model with knowledge, with each concept's answers given to other classes.

#: Name of the controls among a model's metrics.
NOTED = "controls"


@dataclass(frozen=True)
class Control(PlainResult):
    """Accuracy in [0, 1] with meaningless concepts, and the meaning gap: how far the model is ahead, with its interval
    by a paired bootstrap over the images."""

    accuracy: float
    gap: float
    interval: Interval


@dataclass(frozen=True)
class Controls:
    """Results of the controls: a model's accuracy on some images, and that of fits with meaningless concepts."""

    images: int
    accuracy: float
    words: Control
    vectors: Control
    shuffled: Control | None = None

    @property
    def named(self) -> dict[str, Control]:
        """Controls by name of what replaces the concepts or the knowledge."""
        more = {} if self.shuffled is None else {"shuffled knowledge": self.shuffled}
        return {"random words": self.words, "random vectors": self.vectors, **more}

    def to_dict(self) -> dict[str, Any]:
        """Plain types, as stored with a model: `model.with_metrics("controls", controls.to_dict())`."""
        return {**{name: control.to_dict() for name, control in self.named.items()}, "images": self.images}


def measure_controls(
    model: ConceptClassifier, store: Any, encoder: Encoder, *, tell: OnProgress = no_progress
) -> Controls:
    """Fit as the model was fitted, on the store's training images, with as many random words and random vectors as it
    had concepts, and measure all three on the test images. These know nothing. A model with knowledge is also fitted
    with that knowledge shuffled: random answers help, too, so only what it is ahead of them shows that they are true.

    Parameters
    ----------
    model : fitted on this store.
    store : with the splits train and test; a split val chooses epochs, as in the fit.
    encoder : the model's, which embeds the words.
    tell : called as the fits go on.
    """
    fitted, parts = model.fitted(), store_parts(store, "measuring controls")
    if fitted.provenance.texts is None:
        raise CCRError("the model does not know its concepts' texts, so nothing can stand in their place: fit it again")
    fitted.images(store)  # refuses embeddings of another encoder
    listed = [*fitted.names, *fitted.provenance.left_out]
    like = Concepts(listed, np.ones((len(listed), fitted.dimension)))
    words = random_words(len(listed), seed=0, exclude=[*listed, *map(str, fitted.classes.tolist())])
    kinds = {"random words": embed_concepts(words, encoder), "random vectors": random_unit_concepts(like, seed=0)}
    test = parts["test"]
    right = [fitted.predict(test.X) == test.y]
    for name, concepts in kinds.items():
        right.append(_fitted(model, concepts, parts, name, tell).predict(test.X) == test.y)
    if model.knowledge is not None:
        assert model.concepts is not None
        shuffled_knowledge = {"knowledge": model.knowledge.shuffled(), "claims": model.claims}
        shuffled = _fitted(model, model.concepts, parts, "shuffled knowledge", tell, **shuffled_knowledge)
        right.append(shuffled.predict(test.X) == test.y)
    scores = np.array(right, np.float64)
    _, gaps = paired_bootstrap(scores)
    means = scores.mean(axis=1)
    controls = [
        Control(float(mean), float(means[0] - mean), each.turned())
        for mean, each in zip(means[1:], gaps[1:], strict=True)
    ]
    return Controls(len(test.y), float(means[0]), *controls)


def _fitted(
    model: ConceptClassifier,
    concepts: Concepts,
    parts: Mapping[str, Part],
    name: str,
    tell: OnProgress,
    **known: Any,
) -> ConceptClassifier:
    """The same settings with other concepts, or knowledge; nothing is held out for certainty, which only the model
    needs."""
    settings = {**model.settings(), "coverage": None, "claims": "open", "min_transfer": None, **known}
    settings["random_state"] = 0 if settings["random_state"] is None else settings["random_state"]
    val = parts.get("val")
    return ConceptClassifier(concepts, **settings).fit(
        parts["train"].X,
        parts["train"].y,
        validation=None if val is None or not settings["validation_fraction"] else (val.X, val.y),
        callback=lambda epoch, epochs: tell(epoch.epoch, epochs, f"fitting with {name}"),
    )


def random_unit_concepts(concepts: Concepts, *, seed: int) -> Concepts:
    """Isotropic random unit vectors, as many as there are concepts and of their dimension, called "random 0", ..."""
    rows = np.random.default_rng(seed).normal(size=concepts.embeddings.shape)
    return Concepts([f"random {row}" for row in range(len(rows))], rows)


# Worth of a list of concepts before refinement: its accuracy, compared with that of random words.

#: Concepts per image and weights per class: short explanations, where names matter most.
LENGTH, WEIGHTS = 12, 5


class Worth(NamedTuple):
    """Accuracies in [0, 1] without refinement, of the list and of as many random words."""

    accuracy: float
    random_words: float

    @property
    def ahead(self) -> float:
        """Lead of the list over random words without refinement. The *meaning gap* is something else: of a
        refined model, at its own settings, over its controls (`ccr fit --controls`, `ccr compare`)."""
        return self.accuracy - self.random_words


def list_worth(
    concepts: Concepts, random_words: Concepts, *, train: Part, test: Part, tell: OnProgress = no_progress
) -> Worth:
    """The accuracy to expect without refinement, at 12 concepts per image and 5 weights per class."""
    accuracies = []
    for number, kind in enumerate((concepts, random_words)):
        tell(number, 2, "fitting without refinement")
        coder = HardThreshold(length=min(LENGTH, max(1, len(kind) / 4)), sign="positive")
        model = ConceptClassifier(kind, coder=coder, fidelity=1.0, weights_per_class=WEIGHTS, random_state=0)
        accuracies.append(float(model.fit(train.X, train.y).score(test.X, test.y)))
    return Worth(*accuracies)


#: Strengths of the penalty to choose from. scikit-learn's C is one over the strength that is not divided by rows.
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)


def probe_accuracy(train: Part, test: Part) -> float:
    """Test accuracy, in [0, 1], of a logistic regression on centred unit embeddings, each coordinate in units of the
    root mean square of all; its penalty is chosen by cross-validation on the training images."""
    space = Space.of_images(train.X, center="data")
    rows, unseen = (
        np.concatenate([chunk.numpy() for chunk in space.images(part.X).chunks()]) for part in (train, test)
    )
    size = np.sqrt(np.mean(rows**2))  # without it every C would mean something else for every encoder
    search = GridSearchCV(
        LogisticRegression(max_iter=1000, tol=1e-4), {"C": STRENGTHS}, cv=stratified_folds(), scoring="accuracy"
    )
    return float(search.fit(rows / size, train.y).score(unseen / size, test.y))


#: Refits between which stability is measured, unless another number is asked for.
REFITS = 5
#: Samples of groups from which an interval is taken.
ROUNDS = 2000


@dataclass(frozen=True)
class CrossValidation:
    """Accuracy of a model's settings on images that its refits did not see: every image is in one of the `folds`.

    `accuracy` is that of all images, `by_fold` that of each fold, in [0, 1]; `interval` holds 95 % of what samples of
    the groups give, so that images of one object do not count as many. `groups` is their number; where nothing joins
    images, that of the images.
    """

    n: int
    groups: int
    accuracy: float
    interval: Interval
    by_fold: tuple[float, ...]

    @property
    def folds(self) -> int:
        return len(self.by_fold)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**plain_fields(self), "folds": self.folds}


@dataclass(frozen=True)
class Stability(PlainResult):
    """Stability of explanations when the model is fitted again, with another seed and on a bootstrap sample of the
    training images.

    `overlap` is the mean over images and pairs of `refits` of the Jaccard index of the up to five concepts shown first:
    shown by both / shown by either, 1 where nothing changes. `overlap_same_class` is the same where both predict the
    same class, `same_class` the share of such images and pairs, `lasting_claims` the share of the model's claims
    (positive weights) that every refit makes, too. `images` are those that it was measured on.
    """

    refits: int
    images: int
    overlap: float
    overlap_same_class: float
    same_class: float
    lasting_claims: float


def stability_sentence(stability: Stability) -> str:
    """Stability in a few sentences."""
    return (
        f"Stability over {stability.refits} refits with other seeds and samples of the training images: of the {SHOWN} "
        f"concepts shown first for an image, {stability.overlap:.2f} stay from one refit to another (shown by both / "
        f"by either), {stability.overlap_same_class:.2f} where both predict the same class, as they do for "
        f"{share_text(stability.same_class)} of the images. {share_text(stability.lasting_claims)} of the model's "
        "positive weights are in every refit. A reason that comes and goes is not a reason."
    )


def cross_validate(
    model: ConceptClassifier,
    X: Any,
    y: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    folds: int = 5,
    jobs: int = 1,
    tell: OnProgress = no_progress,
) -> CrossValidation:
    """Fit the model's settings on all folds but one and measure on that one, each in turn.

    Parameters
    ----------
    X, y : embeddings (m, d), an array or a store, and labels (m,).
    groups : what must not be parted (m,), such as `store.groups`. None: images are divided one by one.
    folds : how many, from 2 to the number of groups of the rarest class.
    jobs : models fitted at a time, each on one thread.
    """
    groups = np.arange(len(y)) if groups is None else np.asarray(groups)
    least, name = min((len(set(groups[y == label])), str(label)) for label in np.unique(y))
    if not 2 <= folds <= least:
        raise CCRError(
            f"folds must be from 2 to the number of images, or groups of images, of the rarest class, which is {least} "
            f"({name!r}), got {folds}: give fewer folds, or more images of that class"
        )
    parts = list(StratifiedGroupKFold(folds, shuffle=True, random_state=0).split(np.zeros(len(y)), y, groups))
    right = np.empty(len(y), bool)

    def measure(part: tuple[np.ndarray, np.ndarray]) -> float:
        train, test = part
        fitted = ConceptClassifier(**model.get_params(deep=False)).fit(take_rows(X, train), y[train])
        right[test] = fitted.predict(take_rows(X, test)) == y[test]
        return float(right[test].mean())

    by_fold = _in_turn(measure, parts, jobs, "fitting folds", tell)
    numbers = np.unique(groups, return_inverse=True)[1]
    sizes, hits = np.bincount(numbers), np.bincount(numbers, weights=right)
    drawn = np.random.default_rng(0).integers(0, len(sizes), (ROUNDS, len(sizes)))
    shares = hits[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    interval = Interval(*(float(end) for end in np.percentile(shares, [2.5, 97.5])))
    return CrossValidation(len(y), len(sizes), float(right.mean()), interval, tuple(by_fold))


def stability(
    model: ConceptClassifier,
    train: Any,
    y: np.ndarray,
    images: Any,
    *,
    validation: Any = None,
    refits: int = REFITS,
    jobs: int = 1,
    tell: OnProgress = no_progress,
) -> Stability:
    """Fit the model's settings `refits` times, each on a bootstrap sample of `train` with a seed of its own, and
    compare what is shown for `images` (m, d).

    `validation`, an (X, y) or a store, chooses the epoch of every refit.
    """
    if refits < 2:
        raise CCRError(f"stability needs at least 2 refits to compare, got {refits}")
    names = {name: number for number, name in enumerate(model.get_params(deep=False)["concepts"].names)}

    def refit(number: int) -> tuple[np.ndarray, sparse.csr_matrix, set[tuple[str, str]]]:
        rows = np.sort(np.random.default_rng([0, number]).integers(0, len(y), len(y)))
        settings = {**model.get_params(deep=False), "random_state": 1 + number}
        fitted = ConceptClassifier(**settings).fit(take_rows(train, rows), y[rows], validation=validation)
        return fitted.predict(images), _shown(fitted, images, names), _claims(fitted)

    found = _in_turn(refit, range(refits), jobs, "fitting again", tell)
    overlaps, alike = [], []
    for (first, ours, _), (second, theirs, _) in combinations(found, 2):
        both = np.asarray(ours.multiply(theirs).sum(axis=1)).ravel()
        either = np.asarray(ours.sum(axis=1)).ravel() + np.asarray(theirs.sum(axis=1)).ravel() - both
        overlaps.append(np.where(either > 0, both / np.maximum(either, 1), 1.0))
        alike.append(first == second)
    overlap, same = np.concatenate(overlaps), np.concatenate(alike)
    claimed = _claims(model)
    lasting = claimed.intersection(*(claims for _, _, claims in found))
    return Stability(
        refits=refits,
        images=len(found[0][0]),
        overlap=float(overlap.mean()),
        overlap_same_class=float(overlap[same].mean()) if same.any() else 0.0,
        same_class=float(same.mean()),
        lasting_claims=len(lasting) / max(len(claimed), 1),
    )


def _shown(model: ConceptClassifier, images: Any, names: dict[str, int]) -> sparse.csr_matrix:
    """Indicator matrix (m, n) of the concepts `names` that are shown first for each image, 1 or 0."""
    codes = sparse.csr_matrix(model.transform(images))
    chosen = largest_shown(codes, model.head_, SHOWN)
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[chosen]
    column = np.array([names[name] for name in model.model_.names])[codes.indices[chosen]]
    return sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=(codes.shape[0], len(names)))


def _claims(model: ConceptClassifier) -> set[tuple[str, str]]:
    """Pairs of a class and a concept with a positive weight for it."""
    rows, columns = np.nonzero(model.head_.coef > 0)
    labels, names = model.classes_, model.model_.names
    return {(str(labels[row]), names[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)}


def _in_turn(work: Any, items: Sequence[Any], jobs: int, what: str, tell: OnProgress) -> list[Any]:
    """`work` of every item, in order, `jobs` at a time."""
    results = []
    tell(0, len(items), what)
    with one_thread_each(jobs) as pool:
        for done, result in enumerate(pool.map(work, items), start=1):
            results.append(result)
            tell(done, len(items), what)
    return results
