"""Are explanations true of the photo? Answers about photos, and what they do to truth, claims and accuracy.

    python -m benchmarks.photo_truth [--answers 0,3,7,15,50] [--seeds 1] [--planted] [--shared ../shared]

CUB: 1,198 photos of birds have attributes that one annotator each marked. Half of them can be answered about and are
trained on with the other training images; the other half is left out and measured on. Models know the table of classes
and, for each concept in use, so many answers about photos on which the model without answers makes that claim, spread
over its scores. Truth: of the five largest positive contributions to the predicted class, the share that the annotator
marked in that photo; `stated` are those with a probability of at least 0.6. ECE: of the probabilities of these claims.
Accuracy is that on CUB's own test images. `--planted` does the same on data in which what each image shows is known
exactly, with concepts that most members of a class show and others that few do.
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
from ccr.metrics import largest_shown
from ccr.shown import STATED, expected_error
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", default="0,3,7,15,50", help="answers about photos per concept in use")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--planted", action="store_true", help="planted data instead of birds")
    add_shared_option(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore", CCRWarning)
    print(
        "| answers | least probability | truth | claims per photo | stated: truth | claims | ECE | accuracy, % "
        "| none, % |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    counts = [int(count) for count in given.answers.split(",")]
    for count in counts:
        for least in (None, 0.0, 0.2, 0.4, 0.5, 0.6):
            rows = []
            for seed in range(given.seeds):
                world = planted(seed) if given.planted else birds(given, seed)
                rows.append(_measured(world, count, least, seed))
            row = Row(*np.mean(rows, axis=0))
            told = "default" if least is None else f"{least:g}"
            print(
                f"| {count} | {told} | {row.truth:.3f} | {row.claims:.2f} | {row.stated:.3f} | {row.stated_claims:.2f} "
                f"| {row.error:.3f} | {100 * row.accuracy:.1f} | {100 * row.silent:.1f} |",
                flush=True,
            )
    world = planted(0) if given.planted else birds(given, 0)
    plain = _fitted(world, None, None, 0)
    row = _row(world, plain)
    print(f"without knowledge: truth {row.truth:.3f} at {row.claims:.2f} claims, accuracy {100 * row.accuracy:.1f} %")
    print(f"named at random: {world.measured_shows.mean():.3f}")


def birds(given: argparse.Namespace, seed: int) -> World:
    """CUB with its image-level attributes; which half is measured on depends on the seed."""
    data = np.load(require(given.shared / "embeddings" / "cub.npz"))
    marked = np.load(require(given.shared / "embeddings" / "cub_images.npz"))
    both, names = read_birds(data)
    used = np.flatnonzero((data["attributes"] >= 50).any(axis=0) & ~(data["attributes"] >= 50).all(axis=0))
    rows, X, y, train = marked["rows"], data["X"], data["y"].astype(int), data["is_train"]
    asked = np.random.default_rng(seed).random(len(rows)) < 0.5
    others = train.copy()
    others[rows] = False
    present = marked["present"][rows][:, used]
    return World(
        embed_concepts(names, load_encoder("bundled")),
        np.concatenate([X[rows[asked]], X[others]]),
        np.concatenate([y[rows[asked]], y[others]]),
        present[asked] == 1,
        X[rows[~asked]],
        y[rows[~asked]],
        present[~asked] == 1,
        X[~train],
        y[~train],
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


def _measured(world: World, count: int, least: float | None, seed: int) -> Row:
    known = Knowledge(range(len(world.table)), world.concepts.names, np.where(world.table, 1, -1))
    if count:
        known = known.merge(Knowledge.of(_answers(world, _fitted(world, known, 0.0, seed), count)))
    return _row(world, _fitted(world, known, least, seed))


def _fitted(world: World, known: Knowledge | None, least: float | None, seed: int) -> Any:
    return ConceptClassifier(
        world.concepts,
        knowledge=known,
        min_probability=least,
        coder=HardThreshold(length=world.length),
        random_state=seed,
    ).fit(world.X, world.y)


def _answers(world: World, fitted: Any, count: int) -> list[Answer]:
    """About each concept in use, `count` photos on which the model claims it, spread over its scores."""
    model, asked = fitted.model_, len(world.shows)
    codes = model.encode(world.X[:asked]).toarray()
    claimed = (codes > 0) & (model.head.coef[model.logits(world.X[:asked]).argmax(axis=1)] > 0)
    answers = []
    for column, name in enumerate(model.names):
        rows = np.flatnonzero(claimed[:, column])
        rows = rows[np.argsort(-codes[rows, column], kind="stable")]
        places = np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int))
        truth = world.shows[:, world.concepts.index(name)]
        answers += [Answer("", name, "yes" if truth[row] else "no", "person", photo=str(row)) for row in rows[places]]
    return answers


def _row(world: World, fitted: Any) -> Row:
    model = fitted.model_
    codes = model.encode(world.measured_X).tocsr()
    shown = largest_shown(codes, model.head, TOP)
    row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[shown]
    columns, m = codes.indices[shown], codes.shape[0]
    listed = np.array([world.concepts.index(name) for name in model.names])
    true = world.measured_shows[row, listed[columns]]
    likely = np.full(len(true), np.nan)
    if model.shown is not None:
        likely = model.shown.probabilities(codes.data[shown], columns)
    stated = likely >= STATED
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
