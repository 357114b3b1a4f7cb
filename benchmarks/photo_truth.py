"""Are explanations true of the photo? Answers about photos, and what they do to truth, claims and accuracy.

    python -m benchmarks.photo_truth [--part report] [--answers 0,7] [--even] [--least default,0.2] [--seeds 3]
    python -m benchmarks.photo_truth --planted [--answers 0,7]

CUB: 1,198 photos of birds have attributes that one annotator each marked. They are in two halves: with `--part choose`
the second can be answered about and is trained on with the other training images, and the first is left out and
measured on; `--part report` has them the other way round. Constants were chosen on the first part alone (accuracy: on
every other test image), figures are reported on the second (and the other test images); a seed draws nine tenths of
the photos that can be answered about, and is that of the fit.

Models know the table of classes and so many answers about photos per concept in use: those on which the model without
answers makes the claim, spread over its scores. They are pooled: a concept has as many as its share of all claims, so
that most is known of what is claimed most; `--even` gives each concept the same number. Truth: of the five largest
positive contributions to the predicted class, the share that the annotator marked in that photo; `stated` are those
with a probability of at least 0.6. ECE: of the probabilities of these claims. Means over seeds, with their standard
deviations. The first row has one threshold for all concepts; without answers, thresholds are those of the table of
classes. `--planted` does the same on data in which what each image shows is known exactly, with concepts that most
members of a class show and others that few do.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attributes import read_birds
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold, Knowledge
from ccr.encoders import load_encoder
from ccr.errors import CCRWarning
from ccr.knowledge import Answer
from ccr.knowledge.shown import STATED, expected_error
from ccr.metrics import largest_shown
from ccr.vocab import embed_concepts

TOP = 5


class World(NamedTuple):
    """Training images, whose first rows can be answered about, images to measure on with what each shows (m, n), test
    images, and the table of classes (C, n)."""

    concepts: Concepts
    X: np.ndarray
    y: np.ndarray
    shows: np.ndarray
    measured_X: np.ndarray
    measured_y: np.ndarray
    measured_shows: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    table: np.ndarray
    length: float


class Row(NamedTuple):
    """Truth and number of claims, of those stated, ECE, accuracy, and the share of photos without a reason."""

    truth: float
    claims: float
    stated: float
    stated_claims: float
    error: float
    accuracy: float
    silent: float


TITLES = ("truth", "claims per photo", "stated: truth", "claims", "ECE", "accuracy, %", "none, %")
DIGITS = ((1, 3), (1, 2), (1, 3), (1, 2), (1, 3), (100, 1), (100, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", default="0,7", help="answers about photos per concept in use")
    parser.add_argument("--least", default="default", help="least probabilities; default: chosen on held-out images")
    parser.add_argument("--part", choices=("choose", "report"), default="report", help="half of the photos to measure")
    parser.add_argument("--even", action="store_true", help="the same number of answers for each concept")
    parser.add_argument("--stated", type=float, default=STATED, help="probability from which on a claim is stated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--planted", action="store_true", help="planted data instead of birds")
    add_shared_option(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore", CCRWarning)
    worlds = [planted(seed) if given.planted else birds(given, seed) for seed in range(given.seeds)]
    print("| answers | least probability | " + " | ".join(TITLES) + " |")
    print("|--:" * (2 + len(TITLES)) + "|")
    known = [_table(world) for world in worlds]
    first = [_fitted(world, one, 0.0, seed) for seed, (world, one) in enumerate(zip(worlds, known, strict=True))]
    _print("| 0 | one threshold |", [_row(*pair, given.stated) for pair in zip(worlds, first, strict=True)])
    for count in map(int, given.answers.split(",")):
        told = [
            one.merge(Knowledge.of(_answers(world, fitted, count, even=given.even))) if count else one
            for world, one, fitted in zip(worlds, known, first, strict=True)
        ]
        for least in given.least.split(","):
            probability = None if least == "default" else float(least)
            _print(
                f"| {count} | {least} |",
                [
                    _row(world, _fitted(world, one, probability, at), given.stated)
                    for at, (world, one) in enumerate(zip(worlds, told, strict=True))
                ],
            )
    _print("| without knowledge | |", [_row(world, _fitted(world, None, None, at)) for at, world in enumerate(worlds)])
    print(f"named at random: {np.mean([world.measured_shows.mean() for world in worlds]):.3f}")


def _print(heading: str, rows: list[Row]) -> None:
    """A line of means and standard deviations over seeds."""
    mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1 if len(rows) > 1 else 0)
    cells = (
        f"{scale * m:.{digits}f} ({scale * s:.{digits}f})"
        for m, s, (scale, digits) in zip(mean, spread, DIGITS, strict=True)
    )
    print(heading, " | ".join(cells), "|", flush=True)


def birds(given: argparse.Namespace, seed: int) -> World:
    """CUB with its image-level attributes, of which one half is measured on."""
    data = np.load(require(given.shared / "embeddings" / "cub.npz"))
    marked = np.load(require(given.shared / "embeddings" / "cub_images.npz"))
    both, names = read_birds(data)
    used = np.flatnonzero((data["attributes"] >= 50).any(axis=0) & ~(data["attributes"] >= 50).all(axis=0))
    rows, X, y, train = marked["rows"], data["X"], data["y"].astype(int), data["is_train"]
    second = np.random.default_rng(0).random(len(rows)) < 0.5
    measured = second if given.part == "report" else ~second
    asked = ~measured & (np.random.default_rng(seed + 100).random(len(rows)) < 0.9)
    others = train.copy()
    others[rows] = False
    present = marked["present"][rows][:, used]
    test = np.flatnonzero(~train)[given.part == "report" :: 2]
    return World(
        embed_concepts(names, load_encoder("bundled")),
        np.concatenate([X[rows[asked]], X[others]]),
        np.concatenate([y[rows[asked]], y[others]]),
        present[asked] == 1,
        X[rows[measured]],
        y[rows[measured]],
        present[measured] == 1,
        X[test],
        y[test],
        both.seen,
        20,
    )


def planted(seed: int, *, classes: int = 12, concepts: int = 60, d: int = 96) -> World:
    """Images that are sums of what they show: each class has six concepts, three that nine members in ten show and
    three that one in ten shows; the table says yes to all six."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((concepts, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rates = np.zeros((classes, concepts))
    for row in rates:
        chosen = rng.choice(concepts, 6, replace=False)
        row[chosen[:3]], row[chosen[3:]] = 0.9, 0.1

    def draw(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = rng.integers(0, classes, m)
        shows = rng.random((m, concepts)) < rates[y]
        X = shows @ directions + 0.16 * rng.standard_normal((m, d))
        return X.astype(np.float32), y, shows

    X, y, shows = draw(1200)
    measured, test = draw(600), draw(2000)
    texts = directions + 0.05 * rng.standard_normal(directions.shape)
    return World(
        Concepts([f"concept {number}" for number in range(concepts)], texts.astype(np.float32)),
        X, y, shows[:600], *measured, *test[:2], rates > 0, 8,
    )  # fmt: skip


def _table(world: World) -> Knowledge:
    return Knowledge(range(len(world.table)), world.concepts.names, np.where(world.table, 1, -1))


def _fitted(world: World, known: Knowledge | None, least: float | None, seed: int) -> Any:
    return ConceptClassifier(
        world.concepts,
        knowledge=known,
        min_probability=least,
        coder=HardThreshold(length=world.length),
        random_state=seed,
    ).fit(world.X, world.y)


def _answers(world: World, fitted: Any, count: int, *, even: bool = False) -> list[Answer]:
    """About the concepts in use, `count` photos each on which the model claims it, spread over its scores; where they
    are not `even`, of the same number in all each concept has its share of the claims, at least one."""
    model, asked = fitted.model_, len(world.shows)
    codes = model.encode(world.X[:asked]).toarray()
    claimed = (codes > 0) & (model.head.coef[model.logits(world.X[:asked]).argmax(axis=1)] > 0)
    claims = claimed.sum(axis=0)
    shares = np.minimum(count, claims)
    if not even:
        shares = np.clip(np.round(shares.sum() * claims / claims.sum()).astype(int), np.minimum(1, claims), claims)
    answers = []
    for column, name in enumerate(model.names):
        rows = np.flatnonzero(claimed[:, column])
        rows = rows[np.argsort(-codes[rows, column], kind="stable")]
        # The middles of equal parts, so that one answer is about a photo of middling score.
        places = ((np.arange(shares[column]) + 0.5) / max(shares[column], 1) * len(rows)).astype(int)
        truth = world.shows[:, world.concepts.index(name)]
        answers += [Answer("", name, "yes" if truth[row] else "no", "person", photo=str(row)) for row in rows[places]]
    return answers


def _row(world: World, fitted: Any, least: float = STATED) -> Row:
    model = fitted.model_
    codes = model.encode(world.measured_X).tocsr()
    shown = largest_shown(codes, model.head, TOP)
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[shown]
    columns, m = codes.indices[shown], codes.shape[0]
    listed = np.array([world.concepts.index(name) for name in model.names])
    true = world.measured_shows[row, listed[columns]]
    likely = np.full(len(true), np.nan)
    if model.shown is not None:
        predicted = model.logits(world.measured_X).argmax(axis=1)
        likely = model.shown.probabilities(codes.data[shown], columns, predicted[row])
    stated = likely >= least
    return Row(
        float(true.mean()) if len(true) else float("nan"),
        len(true) / m,
        float(true[stated].mean()) if stated.any() else float("nan"),
        float(stated.sum() / m),
        expected_error(likely, true) if model.shown is not None else float("nan"),
        fitted.score(world.test_X, world.test_y),
        1.0 - len(np.unique(row)) / m,
    )


if __name__ == "__main__":
    main()
