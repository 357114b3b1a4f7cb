"""Knowledge: accuracy and truth when a model is told which concepts are true of which classes.

    python -m benchmarks.knowledge [--tables] [--review] [--wordnet] [--cost] [--seeds 1] [--shared ../shared]

Without an option, `--tables`. CUB: 200 kinds of birds, 188 attributes in words, five weights per class, length 20; the
table is what half of its annotators saw. Truth: of the five largest positive contributions of concepts that a test
image shows, the share that annotators saw in its class. Transfer: AUC on classes left out of a concept's grounding,
against the table that was given. Test images did choose one default: that concepts nobody confirmed only take the
places that confirmed ones leave, among three values tried on them; so truth and accuracy with partial tables flatter.

`--review` answers the model's questions with the annotators' table. `--wordnet` asks nobody: list
and table are those that `ccr fit` makes without --concepts.
`--cost` measures grounding and transfer at ImageNet's shape, from a file, beside an epoch of training.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.attributes import Birds, read_birds
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold, Knowledge
from ccr.encoders import load_encoder
from ccr.errors import CCRWarning
from ccr.knowledge.grounding import UNKNOWN_SHARE, Groups, evidence, ground, transfer
from ccr.metrics import largest_shown
from ccr.refine import region as informed
from ccr.space import Space
from ccr.vocab import embed_concepts
from ccr_lab.experiments.attributes import model_truth

LENGTH = 20
#: Rounds of a review, and confirmed concepts that a class should have.
ROUNDS, WANTED = 8, 5
#: Training and test images of CIFAR-10, at most.
MOST_IMAGES = 8000
#: Concepts that an explanation names first.
TOP = 5


class Row(NamedTuple):
    """Means over seeds of one fit."""

    accuracy: float
    truth: float
    transfer: float
    text_fidelity: float
    in_play: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="tables of different quality, and the controls")
    parser.add_argument("--review", action="store_true", help="answers given one after the other by the annotators")
    parser.add_argument("--wordnet", action="store_true", help="tables that nobody wrote")
    parser.add_argument("--cost", action="store_true", help="seconds and memory at ImageNet's shape")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fruits", type=Path, help="with --wordnet: store of the demo's photos")
    add_shared_option(parser)
    given = parser.parse_args()
    if given.cost:
        _cost()
    if given.wordnet:
        _wordnet(given.shared, given.fruits, range(given.seeds))
    if given.review or given.tables or not (given.cost or given.wordnet):
        birds, names = read_birds(np.load(require(given.shared / "embeddings" / "cub.npz")))
        concepts = embed_concepts(names, load_encoder("bundled"))
        if given.review:
            _review(concepts, birds)
        if given.tables or not given.review:
            _tables(concepts, birds, range(given.seeds))


def _tables(concepts: Concepts, birds: Birds, seeds: range) -> None:
    """Tables of different quality: what forbids, what grounds, and both; and how steady explanations are."""
    rng = np.random.default_rng(0)
    seen = birds.seen
    kinds: dict[str, np.ndarray | None] = {
        "none": None,
        "the annotators' table": _as_answers(seen),
        "half of it, a fifth wrong (precision 0.8, recall 0.5)": _as_answers(_noisy(seen, 0.8, 0.5, rng)),
        "half of it, two fifths wrong (precision 0.6, recall 0.5)": _as_answers(_noisy(seen, 0.6, 0.5, rng)),
        "two true statements a class (precision 0.8, recall 0.1), the rest unknown": np.where(
            _noisy(seen, 0.8, 0.1, rng), 1, 0
        ),
        "control: each concept's classes shuffled": _as_answers(np.stack([rng.permutation(c) for c in seen.T]).T),
    }
    print("| knowledge | forbids: accuracy, truth | grounds | grounds and forbids | transfer (text alone) | in play |")
    print("|---|--:|--:|--:|--:|--:|")
    for label, answers in kinds.items():
        if answers is None:
            row = _fitted(concepts, birds, None, seeds)
            print(f"| {label} | {_pair(row)} | | | | {row.in_play:.1f} |", flush=True)
            continue
        known = _knowledge(birds, concepts, answers)
        only = [_fitted(concepts, birds, known, seeds, switched_off=part) for part in ("grounding", "forbidding")]
        both = _fitted(concepts, birds, known, seeds)
        bare = np.nanmean(_transfer(concepts, birds, answers, grounded=False))
        cells = " | ".join(_pair(row) for row in (*only, both))
        print(f"| {label} | {cells} | {both.transfer:.3f} ({bare:.3f}) | {both.in_play:.1f} |", flush=True)
    true = _knowledge(birds, concepts, _as_answers(seen))
    for label, table in (("without knowledge", None), ("with the annotators' table", true)):
        print(f"overlap of the five shown concepts between two seeds, {label}: {_overlap(concepts, birds, table):.2f}")


def _review(concepts: Concepts, birds: Birds) -> None:
    """The annotators answer, class by class, the concepts that grounding makes likeliest, until a class has as many
    confirmed ones as it may have weights."""
    answers = np.zeros(birds.seen.shape, np.int8)
    groups, texts = _groups(concepts, birds)
    print("| answers | per class | open claims: accuracy, truth | confirmed alone: accuracy, truth | classes without |")
    print("|--:|--:|--:|--:|--:|")
    for _ in range(ROUNDS):
        known, count = _knowledge(birds, concepts, answers), int((answers != 0).sum())
        cells = [_pair(_fitted(concepts, birds, known if count else None, range(1))), "", ""]
        if count:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CCRWarning)  # classes without a confirmed concept are counted below
                cells[1] = _pair(_fitted(concepts, birds, known, range(1), claims="confirmed"))
            cells[2] = str(int((~(answers == 1).any(axis=1)).sum()))
        print(f"| {count} | {count / len(answers):.1f} | {' | '.join(cells)} |", flush=True)
        asked = next_questions(texts, answers, groups, wanted=WANTED)
        answers[asked] = np.where(birds.seen, 1, -1)[asked]


def next_questions(texts: np.ndarray, answers: np.ndarray, groups: Groups, *, wanted: int) -> np.ndarray:
    """Which (class, concept) to ask about (C, n): of each class as many open ones as it lacks confirmed concepts, those
    that its images show most above the other classes', by the concepts as they are grounded now."""
    rows = ground(texts, evidence(answers, groups, unknown=UNKNOWN_SHARE))
    scores = groups.means @ rows.T
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    lacking = np.maximum(wanted - (answers == 1).sum(axis=1), 0)
    scores[answers != 0] = -np.inf
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    return (rank < lacking[:, None]) & np.isfinite(scores)


def _wordnet(shared: Path, fruits: Path | None, seeds: range) -> None:
    """Lists and tables that nobody wrote, as `ccr fit` makes them without --concepts: proposed, chosen on training
    images, and known of the classes that WordNet proposed them for. The shuffled table is the control."""
    from benchmarks.concept_lists import candidates, cases, chosen, explained_truth
    from ccr.vocab.choose import usual_size
    from ccr.vocab.proposals import proposed_knowledge
    from ccr.vocab.wordnet import WordNet

    encoder, wordnet = load_encoder("bundled"), WordNet.open()
    print("| data | concepts | yes | table | candidates | accuracy, % | transfer | truth (random) |")
    print("|---|--:|--:|---|--:|--:|--:|--:|")
    for case in cases(shared, fruits, MOST_IMAGES):
        proposals = candidates(case, encoder, wordnet)
        items = chosen(proposals, case.train, usual_size(len(np.unique(case.train.y))), encoder)
        concepts, known = embed_concepts([item.concept for item in items], encoder), proposed_knowledge(items)
        told = f"{case.name} | {len(concepts)} | {known.counts['yes']}"
        for label, table, factor in (
            ("none", None, None),
            ("WordNet's", known, 1.0),
            ("WordNet's", known, 2.0),
            ("shuffled", known.shuffled(0), 2.0),
        ):
            models = [
                ConceptClassifier(concepts, knowledge=table, candidates=factor, random_state=seed).fit(*case.train)
                for seed in seeds
            ]
            accuracy = 100 * float(np.mean([model.score(*case.test) for model in models]))
            moved = models[0].model_.provenance.transfer
            transferred = "" if moved is None else f"{np.nanmean(list(moved.values())):.2f}"
            cells = f"{'' if factor is None else f'{factor:g}'} | {accuracy:.1f} | {transferred}"
            print(f"| {told} | {label} | {cells} | {explained_truth(case, models[0])} |", flush=True)


def _cost() -> None:
    """Seconds of the class means, grounding and transfer at ImageNet's shape, beside a training epoch."""
    import tempfile

    from benchmarks import whole_fit
    from ccr.refine.data import class_groups, split

    rows, rng = 1_281_167, np.random.default_rng(0)
    path = Path(tempfile.gettempdir()) / f"ccr-whole-fit-{rows}.npy"
    if not path.exists():
        whole_fit.write_rows(path, rows)
    X, y = np.load(path, mmap_mode="r"), whole_fit.labels(rows)
    texts = rng.standard_normal((whole_fit.CONCEPTS, whole_fit.DIMENSIONS), dtype=np.float32)
    concepts = Concepts([f"concept {number}" for number in range(len(texts))], texts)
    answers = rng.choice(np.array([1, -1, 0], np.int8), (whole_fit.CLASSES, len(texts)), p=[0.1, 0.6, 0.3])
    space = Space.fit_metric(concepts.embeddings, X[:20_000], shrinkage=0.5)
    own, start = space.own_texts(concepts.embeddings), time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    groups = class_groups(split(space.images(X), y, None, None)[0], whole_fit.CLASSES)
    means = time.perf_counter()
    ground(own, evidence(answers, groups, unknown=UNKNOWN_SHARE))
    grounded = time.perf_counter()
    transfer(own, answers, groups)
    done = time.perf_counter()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024**2
    print(
        f"{rows:,} rows, {len(texts):,} concepts, {whole_fit.CLASSES:,} classes: class means {means - start:.1f} s, "
        f"grounding {grounded - means:.1f} s, transfer {done - grounded:.1f} s; peak memory {more:.2f} GB more"
    )
    known = Knowledge(range(whole_fit.CLASSES), concepts.names, answers)
    for label, table in (("without", None), ("with", known)):
        model = ConceptClassifier(
            concepts, knowledge=table, coder=HardThreshold(length=whole_fit.LENGTH), max_iter=1, random_state=0
        )
        start = time.perf_counter()
        model.fit(X, y)
        print(f"a fit of one epoch {label} knowledge: {time.perf_counter() - start:.1f} s", flush=True)


def _fitted(
    concepts: Concepts,
    birds: Birds,
    known: Knowledge | None,
    seeds: range,
    *,
    switched_off: str | None = None,
    **options: Any,
) -> Row:
    """Means over seeds; grounding or forbidding can be switched off to see what the other does alone."""
    rows = []
    for seed in seeds:
        with ExitStack() as stack:
            for name, stand_in in _switches(switched_off).items():
                stack.enter_context(mock.patch.object(informed, name, stand_in))
            model = ConceptClassifier(
                concepts, knowledge=known, coder=HardThreshold(length=LENGTH), random_state=seed, **options
            ).fit(*birds.train)
        found, truth = model.evaluate(*birds.test), model_truth(model, *birds.test, birds.seen)
        measured = model.model_.provenance.transfer
        moved = float("nan") if measured is None else float(np.nanmean(list(measured.values())))
        own = float(np.nanmean(model.model_.text_fidelity(birds.test.X)))
        rows.append((found.accuracy, truth.share, moved, own, found.in_play))
    return Row(*map(float, np.mean(rows, axis=0)))


def _switches(part: str | None) -> dict[str, Callable[..., Any]]:
    """Parts of a fit with knowledge that do nothing."""
    if part == "grounding":
        return {"ground": lambda texts, found: np.asarray(texts)}
    if part == "forbidding":
        plain = informed.permitted_weights

        def permit(answers: np.ndarray, claims: Any) -> Any:
            everything = plain(answers, claims)
            return everything._replace(
                allowed=np.ones_like(everything.allowed), confirmed=np.zeros_like(everything.confirmed)
            )

        return {"permitted_weights": permit}
    return {}


def _knowledge(birds: Birds, concepts: Concepts, answers: np.ndarray) -> Knowledge:
    return Knowledge(range(len(birds.seen)), concepts.names, answers)


def _as_answers(table: np.ndarray) -> np.ndarray:
    return np.where(table, 1, -1).astype(np.int8)


def _noisy(table: np.ndarray, precision: float, recall: float, rng: np.random.Generator) -> np.ndarray:
    """The table as a careless person or a language model might give it."""
    kept = table & (rng.random(table.shape) < recall)
    wrong = kept.sum() * (1 - precision) / precision
    return kept | (~table & (rng.random(table.shape) < wrong / (~table).sum()))


def _groups(concepts: Concepts, birds: Birds) -> tuple[Groups, np.ndarray]:
    """The means of the classes' training images in the images' metric, and the concepts' texts there."""
    space = Space.fit_metric(concepts.embeddings, birds.train.X, shrinkage=0.5)
    rows, y = np.concatenate([part.numpy() for part in space.images(birds.train.X).chunks()]), birds.train.y
    means = np.stack([rows[y == number].mean(axis=0) for number in range(len(birds.seen))])
    return Groups(means.astype(np.float64), np.bincount(y)), space.own_texts(concepts.embeddings)


def _transfer(concepts: Concepts, birds: Birds, answers: np.ndarray, *, grounded: bool) -> np.ndarray:
    groups, texts = _groups(concepts, birds)
    return transfer(texts, answers, groups, grounded=grounded)


def _overlap(concepts: Concepts, birds: Birds, known: Knowledge | None) -> float:
    """Mean Jaccard overlap of the concepts that two seeds' explanations of the same image name first."""
    named = []
    for seed in (0, 1):
        coder = HardThreshold(length=LENGTH)
        model = ConceptClassifier(concepts, knowledge=known, coder=coder, random_state=seed).fit(*birds.train)
        codes = model.transform(birds.test.X).tocsr()
        shown = largest_shown(codes, model.head_, TOP)
        row = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))[shown]
        mask = np.zeros((codes.shape[0], len(concepts)), bool)
        mask[row, [concepts.index(model.model_.names[at]) for at in codes.indices[shown]]] = True
        named.append(mask)
    both, either = (named[0] & named[1]).sum(axis=1), (named[0] | named[1]).sum(axis=1)
    return float(np.mean(both[either > 0] / either[either > 0]))


def _pair(row: Row) -> str:
    return f"{100 * row.accuracy:.1f}, {row.truth:.3f}"


if __name__ == "__main__":
    main()
