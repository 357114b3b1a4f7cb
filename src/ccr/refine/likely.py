"""Fits with answers about photos: the probability that an image shows each concept, thresholds by concept, and weights
that prefer claims which photos bear out (True of this photo, docs/method.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ccr.coding import Coder, HardThreshold, ThresholdRule, apply_rule
from ccr.errors import CCRError
from ccr.heads import LinearHead
from ccr.inputs import Embeddings
from ccr.knowledge import NO, YES, Knowledge
from ccr.labels import store_part
from ccr.refine.data import Labelled, Permitted
from ccr.refine.head_only import solve_head
from ccr.refine.loop import Refinement
from ccr.refine.measure import validate
from ccr.refine.options import Training
from ccr.shown import Shown, Source, fit_shown
from ccr.utils.parameters import is_number

#: Least probability of what is added, where answers about photos say how probable it is. On CUB it
#: costs less than a point of accuracy, 0.4 costs more (`python -m benchmarks.photo_truth`).
MIN_PROBABILITY = 0.3
#: How much a class prefers claims that its photos bear out: the power of their mean probability.
PREFERENCE = 4
#: Images on which a map is fitted by the table of classes, and images that are worked on at once.
TABLE_ROWS, AT_ONCE = 2048, 4096


class Pairs(NamedTuple):
    """Answers about images: the row of the image, the number of the concept, and whether the image shows it (k,); the
    `source` "classes" means that its class does."""

    rows: np.ndarray
    concepts: np.ndarray
    shows: np.ndarray
    source: Source = "photos"


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


def takes_thresholds(coder: Any) -> bool:
    """Whether thresholds by concept can take the place of this coder's one threshold."""
    return coder is None or (
        isinstance(coder, HardThreshold) and coder.sign == "positive" and np.ndim(coder.threshold) == 0  # type: ignore[arg-type]
    )


def answered_pairs(knowledge: Knowledge, X: Any, count: int, names: Sequence[str], left_out: Any = None) -> Pairs:
    """The answers, yes or no, about images of X and concepts of these names; photos are known by the store's paths, or
    by row number without one. Rows `left_out` stay unseen."""
    paths = store_part(X, "paths")
    known = [str(row) for row in range(count)] if paths is None else [str(path) for path in paths]
    hidden = set() if left_out is None else set(np.asarray(left_out).tolist())
    row_of = {name: row for row, name in enumerate(known) if row not in hidden}
    found = [(row_of[name], number) for number, name in enumerate(knowledge.photos) if name in row_of]
    if not found:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))
    rows, numbers = (np.array(column, np.int64) for column in zip(*found, strict=True))
    answers = sparse.coo_matrix(knowledge.aligned_photos(names)[numbers])
    said = (answers.data == YES) | (answers.data == NO)
    order = np.lexsort((answers.col[said], answers.row[said]))
    return Pairs(
        rows[answers.row[said][order]], answers.col[said][order].astype(np.int64), answers.data[said][order] == YES
    )


def table_pairs(result: Refinement, answers: np.ndarray, images: Embeddings, y: np.ndarray, rows: np.ndarray) -> Pairs:
    """The table of classes `answers` (classes, n) as answers about training images (`rows`), at most `TABLE_ROWS` of
    them: what each is said to show, and whether its class has that."""
    some = rows[np.linspace(0, len(rows) - 1, min(TABLE_ROWS, len(rows))).astype(np.int64)]
    codes = apply_rule(result.rule, Embeddings.ready(images.take(some)), result.dictionary).tocoo()
    concepts = result.kept[codes.col]
    said = answers[y[some][codes.row], concepts]
    told = (said != 0) & (codes.data > 0)
    return Pairs(some[codes.row[told]], concepts[told], said[told] == YES, "classes")


def shown_by(pairs: Pairs, images: Embeddings, dictionary: np.ndarray, texts: np.ndarray) -> Shown:
    """The map of the dictionary's scores (n, d) fitted to these answers."""
    used, place = np.unique(pairs.rows, return_inverse=True)
    rows = images.take(used).numpy().astype(np.float64)
    scores = np.concatenate(
        [
            np.einsum("kd,kd->k", rows[place[at : at + AT_ONCE]], dictionary[pairs.concepts[at : at + AT_ONCE]])
            for at in range(0, len(place), AT_ONCE)
        ]
    )
    found = fit_shown(scores, pairs.concepts, pairs.shows, texts, source=pairs.source)
    return found if pairs.source == "photos" else replace(found, answers=np.zeros(len(texts), np.int64))


def class_probabilities(shown: Shown, dictionary: np.ndarray, train: Labelled, classes: int) -> np.ndarray:
    """The mean probability (n, classes) that a class's training images show each concept; 0 for a class without any."""
    sums, counts = np.zeros((len(dictionary), classes)), np.bincount(train.y, minlength=classes)
    rows = dictionary.astype(np.float32).T
    for start in range(0, len(train.y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found = shown.probabilities(train.X.take(train.rows[part]).numpy() @ rows)
        member = sparse.csr_matrix((np.ones(len(found)), (train.y[part], np.arange(len(found)))), (classes, len(found)))
        sums += (member @ found).T
    return np.asarray(sums / np.maximum(counts, 1))


def refine_likely(
    first: Refinement,
    pairs: Pairs,
    run: Callable[[Coder, Permitted], Refinement],
    *,
    start: np.ndarray,
    texts: np.ndarray,
    train: Labelled,
    held_out: Labelled | None,
    permitted: Permitted,
    training: Training,
    probability: float,
) -> tuple[Refinement, Shown]:
    """The refinement again, with a threshold for each concept above which it is shown with this probability, and
    weights that prefer claims which photos bear out; then thresholds and head once more for where concepts ended.

    `first` is the refinement without; `start` (n, d) has the rows of concepts that it left out.
    """
    images, classes = train.X, permitted.allowed.shape[1]
    dictionary = whole_dictionary(first, start)
    shown = shown_by(pairs, images, dictionary, texts)
    bounds = np.maximum(shown.thresholds(probability), first.rule.threshold)
    borne_out = class_probabilities(shown, dictionary, train, classes) ** PREFERENCE
    second = run(HardThreshold(threshold=bounds), permitted._replace(preference=borne_out.astype(np.float32)))
    after = shown_by(pairs, images, whole_dictionary(second, start), texts).of(second.kept)
    final = np.maximum(after.thresholds(probability), first.rule.threshold)
    rule = ThresholdRule.by_concept(final, positive=True)
    codes = apply_rule(rule, images, second.dictionary)[train.rows]
    before = LinearHead(np.ascontiguousarray(second.weights.T), second.bias)
    head = solve_head(
        codes,
        train.y,
        classes=classes,
        training=replace(training, weights_per_class=None),
        sample_weight=train.weight,
        start=before,
        fixed=before.coef == 0,
    )
    weights, bias = head.astype(np.float32).transposed()
    refitted = replace(second, weights=weights, bias=bias, rule=rule)
    measured = validate(refitted, held_out)
    last = replace(
        second.history[second.best_epoch - 1],
        validation_loss=measured.loss,
        validation_accuracy=measured.accuracy,
        length=codes.nnz / len(train.y),
        threshold=rule.threshold,
    )
    history = (*second.history[: second.best_epoch - 1], last, *second.history[second.best_epoch :])
    return replace(refitted, history=history), after


def whole_dictionary(result: Refinement, start: np.ndarray) -> np.ndarray:
    """All concepts (n, d): those that are left where they ended, the others where they started."""
    rows = np.array(start, np.float32)
    rows[result.kept] = result.dictionary
    return rows
