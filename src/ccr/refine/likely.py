"""Fits with answers about photos: the probability that an image shows each concept, thresholds by concept, and weights
that prefer claims which photos bear out (True of this photo, docs/method.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ccr.coding import HardThreshold, ThresholdRule, apply_rule
from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.inputs import Embeddings
from ccr.knowledge import NO, YES, Knowledge
from ccr.knowledge.shown import Shown, Source, fit_shown, stated_from
from ccr.labels import Labels, store_part, validation_pair
from ccr.refine.data import Labelled
from ccr.refine.loop import Refinement, RefinementProblem, solve_head
from ccr.refine.measure import validate
from ccr.refine.region import GroundedBound
from ccr.utils.parameters import is_number

#: Least probabilities of what is added among which held-out images choose, the largest that costs them no more than so
#: much accuracy and no more than this share of their loss: accuracy alone is coarse where there are few of them. A
#: fixed one is no default: where members of a class differ, 0.3 costs a quarter of all predictions.
PROBABILITIES, MOST_LOST, MOST_WORSE = (0.3, 0.2, 0.1, 0.05, 0.0), 0.0, 0.1
#: Strength of a class's preference for claims that its photos confirm: the power of their mean probability.
PREFERENCE = 6
#: Images on which a map is fitted by the table of classes, and images that are worked on at once.
TABLE_ROWS, AT_ONCE = 2048, 4096


class FitData(NamedTuple):
    """Data of a fit: X and `validation` as they were given, labels, the whole list of concepts as texts, rows of X that
    are neither trained on nor choose the epoch, and the problem of the first refinement."""

    X: Any
    validation: Any
    labels: Labels
    texts: Concepts
    left_out: np.ndarray | None
    problem: RefinementProblem

    @property
    def classes(self) -> list[Any]:
        """The classes in the order of their numbers."""
        return self.labels.classes.tolist()


class Pairs(NamedTuple):
    """Answers about images: the row of the image, the number of the concept, whether the image shows it, the number of
    its class, -1 where that is not known, and whether the answer grounded the concept (k,)."""

    images: Embeddings
    rows: np.ndarray
    concepts: np.ndarray
    shows: np.ndarray
    classes: np.ndarray
    grounds: np.ndarray


@dataclass(frozen=True, eq=False)
class PhotoAnswers:
    """Answers from which a map is fitted: `pairs` of photos and concepts, and of all concepts the `texts` (n, d) and
    how common they are (n,); there are `class_count` classes, and `known` grounded the concepts. With the `source`
    "classes" the table of classes stands in for answers about photos."""

    pairs: tuple[Pairs, ...]
    texts: np.ndarray
    commonness: np.ndarray
    class_count: int
    known: GroundedBound
    source: Source = "photos"

    @classmethod
    def of(cls, knowledge: Knowledge, known: GroundedBound, data: FitData, first: Refinement) -> PhotoAnswers:
        """The answers about photos of X and of the validation, or the table where there are none; `first` is a
        refinement without them."""
        train, held_out = data.problem.train, data.problem.held_out
        names, images = known.bound.initial.names, train.X
        table = knowledge.aligned(data.classes, names)
        facts = data.texts.embeddings[known.rows], commonness(table), data.problem.classes, known
        inside = [part for part in (train, held_out) if part is not None and part.X is images]
        asked = [
            answered_pairs(
                knowledge, data.X, images, names, left_out=data.left_out, labelled=inside, grounding=train.rows
            )
        ]
        if data.validation is not None and held_out is not None:
            validation = validation_pair(data.validation)[0]
            paths = store_part(validation, "paths")
            # With `coverage` a part of them is kept for calibration and must stay unseen.
            if paths is not None and len(paths) == len(held_out.rows) == len(held_out.X):
                asked.append(answered_pairs(knowledge, validation, held_out.X, names, labelled=[held_out]))
        answered = tuple(pairs for pairs in asked if len(pairs.rows))
        return cls(answered, *facts) if answered else cls(table_pairs(first, table, train), *facts, "classes")

    def map(self, dictionary: np.ndarray) -> Shown:
        """The map of this dictionary's scores (n, d) fitted to the answers."""
        scores = np.concatenate([_scores(pairs, dictionary, self.known) for pairs in self.pairs])
        concepts, shows, classes = map(np.concatenate, zip(*(pairs[2:5] for pairs in self.pairs), strict=True))
        photos = self.source == "photos"
        shown = fit_shown(
            scores,
            concepts,
            shows,
            self.texts,
            commonness=self.commonness,
            classes=classes if photos else None,
            class_count=self.class_count,
            source=self.source,
        )
        return shown if photos else replace(shown, answers=np.zeros(len(self.texts), np.int64))


def check_probability(knowledge: Knowledge | None, coder: Any, value: Any) -> None:
    """Refuse a least probability that nothing can be done with."""
    if value is None:
        return
    if not (is_number(value) and 0 <= value < 1):
        raise CCRError(f"min_probability must be in [0, 1) or None, got {value!r}: try 0.4")
    if value > 0 and knowledge is None:
        raise CCRError(f"min_probability={value!r} is about what knowledge says of photos, and there is none")
    if value > 0 and not takes_thresholds(coder):
        raise CCRError(
            f"min_probability={value!r} needs codes with a threshold for each concept, got {coder!r}: use "
            "HardThreshold(length=12), or min_probability=0"
        )


def check_stated_truth(knowledge: Knowledge | None, value: Any) -> None:
    """Refuse a share of true claims that nothing can be done with."""
    if value is None:
        return
    if not (is_number(value) and 0 < value < 1):
        raise CCRError(f"stated_truth must be in (0, 1) or None, got {value!r}: try 0.85")
    if knowledge is None:
        raise CCRError(f"stated_truth={value!r} is about what knowledge says of photos, and there is none")


def takes_thresholds(coder: Any) -> bool:
    """Whether thresholds by concept can take the place of this coder's one threshold."""
    return coder is None or (
        isinstance(coder, HardThreshold) and coder.sign == "positive" and np.ndim(coder.threshold) == 0  # type: ignore[arg-type]
    )


def answered_pairs(
    knowledge: Knowledge,
    X: Any,
    images: Embeddings,
    names: Sequence[str],
    *,
    left_out: Any = None,
    labelled: Sequence[Labelled] = (),
    grounding: Any = (),
) -> Pairs:
    """The answers, yes or no, about images of X and concepts of these names; photos are known by the store's paths, or
    by row number without one. Rows `left_out` stay unseen; `labelled` are rows of which the class is known,
    `grounding` those by which concepts were grounded."""
    paths = store_part(X, "paths")
    known = map(str, range(len(images)) if paths is None else paths)
    hidden = set() if left_out is None else set(np.asarray(left_out).tolist())
    row_of = {name: row for row, name in enumerate(known) if row not in hidden}
    known_photos = [(row_of[name], number) for number, name in enumerate(knowledge.photos) if name in row_of]
    if not known_photos:
        none = np.zeros(0, np.int64)
        return Pairs(images, none, none, none.astype(bool), none, none.astype(bool))
    rows, numbers = (np.array(column, np.int64) for column in zip(*known_photos, strict=True))
    answers = sparse.coo_matrix(knowledge.aligned_photos(names)[numbers])
    decided = (answers.data == YES) | (answers.data == NO)
    order = np.lexsort((answers.col[decided], answers.row[decided]))
    concepts, asked = answers.col[decided][order].astype(np.int64), rows[answers.row[decided][order]]
    classes = np.full(len(images), -1)
    for rows_of_class in labelled:
        classes[rows_of_class.rows] = rows_of_class.y
    shows = answers.data[decided][order] == YES
    return Pairs(images, asked, concepts, shows, classes[asked], np.isin(asked, grounding))


def table_pairs(result: Refinement, answers: np.ndarray, train: Labelled) -> tuple[Pairs, ...]:
    """The table of classes `answers` (classes, n) as answers about training images, at most `TABLE_ROWS` of them: what
    each is said to show, and whether its class has that. None where it says nothing."""
    some = np.linspace(0, len(train.rows) - 1, min(TABLE_ROWS, len(train.rows))).astype(np.int64)
    rows, y = train.rows[some], train.y[some]
    codes = apply_rule(result.rule, Embeddings.ready(train.X.take(rows)), result.dictionary).tocoo()
    concepts = result.kept[codes.col]
    verdicts = answers[y[codes.row], concepts]
    asked = (verdicts != 0) & (codes.data > 0)
    if not asked.any():
        return ()
    images, by_photo = codes.row[asked], np.zeros(int(asked.sum()), bool)
    return (Pairs(train.X, rows[images], concepts[asked], verdicts[asked] == YES, y[images], by_photo),)


def commonness(table: np.ndarray) -> np.ndarray:
    """Commonness of concepts (n,) by a table of classes (C, n): the logarithm of the odds that a class has it."""
    return np.asarray(np.log(((table == YES).sum(axis=0) + 0.5) / ((table == NO).sum(axis=0) + 0.5)))


def _scores(pairs: Pairs, dictionary: np.ndarray, known: GroundedBound) -> np.ndarray:
    """The scores (k,) of the pairs of images and concepts. An answer that grounded its concept drew it toward its image
    or away from it: there, it is the score that the image would have if the answer were about the mean of its class,
    which is near to new images, too."""
    used, place = np.unique(pairs.rows, return_inverse=True)
    rows = pairs.images.take(used).numpy().astype(np.float64)
    parts = [slice(at, at + AT_ONCE) for at in range(0, len(place), AT_ONCE)]
    scores = []
    for part in parts:
        images, concepts, grounded = rows[place[part]], pairs.concepts[part], pairs.grounds[part]
        concept_rows = dictionary[concepts].astype(np.float64)
        shifts = known.shifts(
            concepts[grounded], images[grounded], pairs.shows[part][grounded], pairs.classes[part][grounded]
        )
        concept_rows[grounded] = unit_rows(concept_rows[grounded] + shifts)
        scores.append(np.einsum("kd,kd->k", images, concept_rows))
    return np.concatenate(scores)


def class_probabilities(shown: Shown, dictionary: np.ndarray, train: Labelled, classes: int) -> np.ndarray:
    """The mean probability (n, classes) that a class's training images show each concept; 0 for a class without any."""
    sums, counts = np.zeros((len(dictionary), classes)), np.bincount(train.y, minlength=classes)
    rows = dictionary.astype(np.float32).T
    for start in range(0, len(train.y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        probabilities = shown.probabilities(train.X.take(train.rows[part]).numpy() @ rows, classes=train.y[part])
        count = len(probabilities)
        member = sparse.csr_matrix((np.ones(count), (train.y[part], np.arange(count))), (classes, count))
        sums += (member @ probabilities).T
    return np.asarray(sums / np.maximum(counts, 1))


def refine_likely(
    first: Refinement,
    answers: PhotoAnswers,
    data: FitData,
    solve: Callable[[RefinementProblem], Refinement],
    probability: float | None,
) -> tuple[Refinement, Shown]:
    """The refinement again, with weights that prefer claims which photos bear out and a threshold for each concept
    above which it is shown with this probability; then thresholds and head once more for where concepts ended.

    `first` is the refinement without. Without a probability the second refinement has no thresholds of its own, and the
    last step has the largest of `PROBABILITIES` that costs held-out images at most `MOST_LOST` of their accuracy and
    `MOST_WORSE` of their loss.
    """
    problem = data.problem
    assert problem.permitted is not None
    dictionary = whole_dictionary(first, problem.dictionary)
    shown = answers.map(dictionary)
    borne_out = class_probabilities(shown, dictionary, problem.train, problem.classes) ** PREFERENCE
    second = solve(
        problem._replace(
            coder=HardThreshold(threshold=_bounds(shown, first, probability or 0.0)),
            permitted=problem.permitted._replace(preference=borne_out.astype(np.float32)),
        )
    )
    after = answers.map(whole_dictionary(second, problem.dictionary)).of(second.kept)
    tried = PROBABILITIES if problem.held_out is not None else PROBABILITIES[-1:]
    before = [validate(one, problem.held_out) for one in (first, second)]
    accuracy = max(one.accuracy for one in before) - MOST_LOST
    loss = (1.0 + MOST_WORSE) * min(one.loss for one in before)
    for one in tried if probability is None else (probability,):
        bounded = _with_bounds(second, _bounds(after, first, one), problem)
        now = bounded.history[second.best_epoch - 1]
        if probability is None and now.validation_accuracy >= accuracy and now.validation_loss <= loss:
            break
    return bounded, after


def _bounds(shown: Shown, first: Refinement, probability: float) -> np.ndarray:
    """Thresholds by concept (n,): where it is shown with this probability, and at least the first refinement's."""
    least = np.full(len(shown.intercepts), float(first.rule.threshold))
    return np.maximum(shown.thresholds(probability), least) if probability > 0 else least


def _with_bounds(second: Refinement, bounds: np.ndarray, problem: RefinementProblem) -> Refinement:
    """The refinement with these thresholds by concept, and its head solved again on the codes that they leave."""
    rule = ThresholdRule.by_concept(bounds, positive=True)
    train = problem.train
    codes = apply_rule(rule, train.X, second.dictionary)[train.rows]
    before = LinearHead(np.ascontiguousarray(second.weights.T), second.bias)
    head = solve_head(
        codes,
        train.y,
        classes=problem.classes,
        training=replace(problem.training, weights_per_class=None),
        sample_weight=train.weight,
        start=before,
        fixed=before.coef == 0,
    )
    weights, bias = head.astype(np.float32).transposed()
    refitted = replace(second, weights=weights, bias=bias, rule=rule)
    measured = validate(refitted, problem.held_out)
    last = replace(
        second.history[second.best_epoch - 1],
        validation_loss=measured.loss,
        validation_accuracy=measured.accuracy,
        length=codes.nnz / len(train.y),
        threshold=rule.threshold,
    )
    history = (*second.history[: second.best_epoch - 1], last, *second.history[second.best_epoch :])
    return replace(refitted, history=history)


def with_stated_truth(result: Refinement, shown: Shown, train: Labelled, truth: float) -> Shown:
    """The map that states claims from the probability on at which those about training images are expected to be true
    at this rate. A claim is an active concept with a positive weight for the predicted class."""
    codes = apply_rule(result.rule, train.sample(TABLE_ROWS), result.dictionary).tocoo()
    weights, bias = result.weights, result.bias
    predicted = (codes.tocsr() @ weights + bias).argmax(axis=1)
    claimed = (codes.data > 0) & (weights[codes.col, predicted[codes.row]] > 0)
    probabilities = shown.probabilities(codes.data[claimed], codes.col[claimed], predicted[codes.row[claimed]])
    return replace(shown, stated=stated_from(probabilities, truth))


def whole_dictionary(result: Refinement, start: np.ndarray) -> np.ndarray:
    """All concepts (n, d): those that were kept as refined, the others as they started."""
    rows = np.array(start, np.float32)
    rows[result.kept] = result.dictionary
    return rows
