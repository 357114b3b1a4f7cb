"""Questions: the claims of a model that reviewers are asked about, and what speaks for and against each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain.claims import Claim
from ccr.explain.terms import PlainResult, position
from ccr.io.provenance import whole_list
from ccr.knowledge import Knowledge
from ccr.knowledge.grounding import UNKNOWN_SHARE, evidence, ground
from ccr.labels import as_labels, labels_of
from ccr.model import ConceptModel
from ccr.refine.data import class_groups, split
from ccr.review.decisions import Decision, Decisions, Policy, Vote, check_policy, concept_digests

# Questions about photos, chosen so that few answers find for which classes and below which score a concept is not
# shown. The first questions go round the classes for which the model makes the claim, because what is true of photos of
# one class says little of another; the next ones are spread over all claims, sorted by the concept's score, and then
# bisect the place where yes turns into no (Knowledge, docs/method.md).

#: Answers that each class with a claim gets first, and photos over which the next questions about a concept are spread:
#: the highest, the middle and the lowest claim.
EACH, FIRST = 2, 3
#: Answers that a concept gets unless another number is asked for.
ANSWERS = 7

#: Answers so far by the photo's row: 1 yes, -1 no, 0 unclear; None for a photo that nobody can be shown.
Asked = Mapping[int, int | None]


def next_photos(
    scores: np.ndarray,
    claimed: np.ndarray,
    asked: Asked,
    *,
    answers: int = ANSWERS,
    classes: np.ndarray | None = None,
) -> list[int]:
    """Rows of the photos to ask about now; empty where enough is known.

    At first these are several, whose answers do not depend on each other; later one, chosen by the answers before.

    Parameters
    ----------
    scores : (m,) of each photo for the concept, finite.
    claimed : (m,) bool, photos for which the model claims the concept.
    asked : answers so far.
    answers : most answers, those given included.
    classes : (m,) number of the class that the model predicts for each photo; None: classes do not matter.
    """
    left = _left(asked, answers)
    if left <= 0:
        return []
    order, size = _in_order(scores, claimed, asked, FIRST)
    first = _round_classes(scores, claimed, classes, asked) or _spread(order, size, asked, FIRST)
    if first:
        return first[:left]
    chosen = _bisected(scores, order, asked)
    if chosen is None:
        chosen = _in_widest_gap(order[:size], asked)
    return [] if chosen is None else [chosen]


def spread_photos(
    scores: np.ndarray,
    claimed: np.ndarray,
    asked: Asked,
    *,
    answers: int = ANSWERS,
    classes: np.ndarray | None = None,
) -> list[int]:
    """Rows of the photos to ask about where answers come too late to choose the next one: `EACH` for each class, and
    then spread evenly over the claims; the highest score first. Where there are fewer claims than answers, the photos
    that score highest below them, too. Parameters as for `next_photos`."""
    left = _left(asked, answers)
    if left <= 0:
        return []
    order, size = _in_order(scores, claimed, asked, answers)
    chosen = _round_classes(scores, claimed, classes, asked)[:left]
    taken = {**asked, **dict.fromkeys(chosen, 0)}
    chosen += _spread(order, size, taken, answers)[: left - len(chosen)]
    while len(chosen) < left:  # what is near an answer was left out
        taken |= dict.fromkeys(chosen, 0)
        more = _in_widest_gap(order[:size], taken)
        if more is None:
            break
        chosen.append(more)
    place = {int(row): at for at, row in enumerate(order)}
    return sorted(chosen, key=place.__getitem__)


def unasked_classes(claimed: np.ndarray, classes: np.ndarray, asked: Asked) -> np.ndarray:
    """Numbers of the classes for which the model makes the claim and of whose photos none was answered about.
    Parameters as for `next_photos`."""
    given = [row for row, value in asked.items() if value is not None]
    return np.setdiff1d(classes[claimed], classes[given])


def contradicts(scores: np.ndarray, answers: np.ndarray) -> bool:
    """Do the answers say that the encoder does not see the concept?

    So they do if at least two are yes and two are no, and the scores (k,) order the answers (k,), 1 yes, -1 no, 0
    unclear, no better than chance: the AUC is at most 0.5.
    """
    yes, no = scores[answers > 0], scores[answers < 0]
    if min(len(yes), len(no)) < 2:
        return False
    above = (yes[:, None] > no).sum() + 0.5 * (yes[:, None] == no).sum()
    return bool(above <= 0.5 * len(yes) * len(no))


def _left(asked: Asked, answers: int) -> int:
    return answers - sum(value is not None for value in asked.values())


def _in_order(scores: np.ndarray, claimed: np.ndarray, asked: Asked, fewest: int) -> tuple[np.ndarray, int]:
    """Rows by falling score: claims, what was asked about, and all that score below the claims; and how many of them,
    at least `fewest` where there are so many, the spread-out questions are about."""
    given = np.zeros(len(scores), bool)
    given[list(asked)] = True
    lowest = scores[claimed].min() if claimed.any() else np.inf
    rows = np.flatnonzero(claimed | given | (scores < lowest))
    order = rows[np.argsort(-scores[rows], kind="stable")]
    return order, max(int((scores[order] >= lowest).sum()), min(fewest, len(order)))


def _round_classes(scores: np.ndarray, claimed: np.ndarray, classes: np.ndarray | None, asked: Asked) -> list[int]:
    """Photos with which every class that makes the claim has `EACH` answers, one after the other: first one for each,
    the class with the most claims first, its claim of middling score; then a second one where others are left."""
    if classes is None:
        return []
    rows = np.flatnonzero(claimed)
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    labels, sizes = np.unique(classes[rows], return_counts=True)
    given = Counter(int(classes[row]) for row, value in asked.items() if value is not None)
    chosen: list[int] = []
    for number in range(1, EACH + 1):
        for label in labels[np.argsort(-sizes, kind="stable")].tolist():
            row = _in_widest_gap(rows[classes[rows] == label], {**asked, **dict.fromkeys(chosen, 0)})
            if given[label] < number and row is not None:
                chosen.append(row)
                given[label] += 1
    return chosen


def _spread(order: np.ndarray, size: int, asked: Asked, count: int) -> list[int]:
    """Photos evenly over the first `size` of the order, without those that an answer is near to."""
    targets = np.unique(np.linspace(0, size - 1, count).round().astype(int)) if size else np.zeros(0, int)
    given = np.flatnonzero(np.isin(order, list(asked)))
    near = (size - 1) / max(count - 1, 1) / 4
    return [int(order[at]) for at in targets if not (np.abs(given - at) <= near).any()]


def _bisected(scores: np.ndarray, order: np.ndarray, asked: Asked) -> int | None:
    """The middle of the photos between the lowest yes and the highest no; below all yes where there is no no.

    Answers that contradict the order leave several such places: that which contradicts the fewest answers counts, then
    that with the most photos. Photos whose score is that of an answer cannot be told from it and are not asked about.
    """
    at = np.flatnonzero(np.isin(order, [row for row, value in asked.items() if value]))
    if not len(at):
        return None
    said = np.array([asked[row] for row in order[at].tolist()])
    wrong = np.append(0, np.cumsum(said < 0)) + np.append(np.cumsum((said > 0)[::-1])[::-1], 0)
    places = []
    for cut in np.flatnonzero(wrong == wrong.min()):
        above, below = at[cut - 1] if cut else -1, at[cut] if cut < len(at) else len(order)
        high = scores[order[above]] if cut else np.inf
        low = scores[order[below]] if cut < len(at) else -np.inf
        between = order[above + 1 : below]
        apart = (low < scores[between]) & (scores[between] < high)
        places.append(between[apart & ~np.isin(between, list(asked))])
    widest = max(places, key=len)
    return int(widest[(len(widest) - 1) // 2]) if len(widest) else None


def _in_widest_gap(order: np.ndarray, asked: Asked) -> int | None:
    """The middle of the longest run of photos without an answer, the first of equals; None where all have one."""
    free = np.flatnonzero(~np.isin(order, list(asked)))
    if not len(free):
        return None
    runs = np.split(free, np.flatnonzero(np.diff(free) > 1) + 1)
    longest = max(runs, key=len)
    return int(order[longest[(len(longest) - 1) // 2]])


#: open: too few have answered; unclear: somebody could not tell, and nobody else settles it; disputed: yes and no.
State = Literal["open", "unclear", "disputed", "confirmed", "rejected"]
STATES: tuple[State, ...] = ("open", "unclear", "disputed", "confirmed", "rejected")
_STATES: Mapping[str, State] = {
    "yes": "confirmed",
    "no": "rejected",
    **{state: state for state in STATES if state not in ("confirmed", "rejected")},
}
#: Reasons that a class should have, and concepts next in line that are named.
FEWEST_REASONS, NEXT = 2, 10
#: Photos of the class that show a concept most, and photos of other classes that do.
MINE, OTHERS = 6, 4


@dataclass(frozen=True)
class ReviewQuestion(PlainResult):
    """The claim that the class `label` shows `concept`, with its `state` in the review and the `votes` about it.

    `weight` is that of the model; None for a concept that is not a reason of the class yet, but next in line.
    """

    label: Any
    concept: str
    weight: float | None
    state: State
    votes: tuple[Vote, ...] = ()

    @property
    def sentence(self) -> str:
        """The question in words."""
        return f"{self.label} shows {self.concept}"


class Review:
    """The review of a model: its claims, what was decided about them, and what is still to be asked.

    Parameters
    ----------
    model : the model whose claims are reviewed; it stays as it is.
    decisions : the log, in which answers are kept.
    known : a table whose answers by people count as votes, too; by default the model's own knowledge.
    policy : how many reviewers must agree: "one", "two", or "all" that are in the log.
    """

    def __init__(
        self,
        model: ConceptModel,
        decisions: Decisions,
        *,
        known: Knowledge | None = None,
        policy: Policy = "one",
    ) -> None:
        check_policy(policy)
        texts = whole_list(model.provenance)
        if texts is None:
            raise CCRError(
                "the model does not know its concepts' text embeddings, so it cannot be reviewed: fit it again"
            )
        self.model, self.decisions, self.policy = model, decisions, policy
        self.known = model.provenance.knowledge if known is None else known
        self.concepts: Concepts = texts
        self._own: tuple[Any, Decisions] | None = None
        self._told: tuple[Decisions, Knowledge] | None = None

    @property
    def own(self) -> Decisions:
        """The decisions that are about the model's concepts as they are now."""
        if self._own is None or self._own[0] is not self.decisions.effective:
            self._own = (self.decisions.effective, self.decisions.of(self.concepts))
        return self._own[1]

    def claims(self, *, viewer: str | None = None) -> tuple[ReviewQuestion, ...]:
        """Every claim of the model, by class, the largest weight first. To a `viewer` who has not decided yet, the
        votes of other reviewers are not shown, and a claim that they settled or dispute is open."""
        return tuple(self.question(claim.label, claim.concept, viewer=viewer) for claim in self._claims)

    def question(self, label: Any, concept: str, *, viewer: str | None = None) -> ReviewQuestion:
        """The claim that a class shows a concept, whether the model makes it or not."""
        own = self.own
        votes = own.votes(label, concept, known=self.known, viewer=viewer)
        verdict = own.verdict(votes, self.policy)
        return ReviewQuestion(label, concept, self._weights.get((str(label), concept)), _STATES[verdict], votes)

    def open(self, by: str | None = None) -> tuple[ReviewQuestion, ...]:
        """The claims that are to be asked about: those without a verdict, or, of a reviewer `by`, those of them that
        they have not answered."""
        left = [one for one in self.claims() if one.state not in ("confirmed", "rejected")]
        return tuple(one for one in left if by is None or by not in {vote.by for vote in one.votes})

    def blocking(self) -> tuple[ReviewQuestion, ...]:
        """The claims that keep the model from being signed: all that are not confirmed."""
        return tuple(one for one in self.claims() if one.state != "confirmed")

    def counts(self) -> dict[State, int]:
        """Number of claims in each state."""
        found = Counter(one.state for one in self.claims())
        return {state: found[state] for state in STATES}

    def decide(self, label: Any, concept: str, answer: str, *, by: str, reason: str = "") -> Decision:
        """Log an answer about a claim, with the digests of the model and of the concept."""
        name, digest = self._known(label), self._digest(concept)
        return self.decisions.decide(name, concept, answer, by=by, reason=reason, model=self._model, digest=digest)

    def strike(self, concept: str, *, by: str) -> Decision:
        """Log that the concept is never a reason for any class."""
        return self.decisions.strike(concept, by=by, model=self._model, digest=self._digest(concept))

    def knowledge(self) -> Knowledge:
        """The table with what was decided: what the next round is fitted with."""
        own = self.own
        if self._told is None or self._told[0] is not own:
            labels = self.model.classes.tolist()
            self._told = (own, own.knowledge(self.policy, classes=labels, known=self.known))
        return self._told[1]

    @property
    def _model(self) -> str:
        return self.model.digest[:16]

    @cached_property
    def _claims(self) -> tuple[Claim, ...]:
        return self.model.claims()

    @cached_property
    def _weights(self) -> dict[tuple[str, str], float]:
        return {(str(claim.label), claim.concept): claim.weight for claim in self._claims}

    @cached_property
    def _digests(self) -> dict[str, str]:
        return concept_digests(self.concepts)

    def _digest(self, concept: str) -> str:
        return self._digests[self.concepts.names[self.concepts.index(concept)]]

    def _known(self, label: Any) -> str:
        classes = self.model.classes.tolist()
        return str(classes[position(classes, label)])


@dataclass(frozen=True)
class ClaimPhotos(PlainResult):
    """Evidence of images on "the class `label` shows `concept`".

    `mine` are rows of the class's images that show it most, `others` rows of other classes' images that show it most:
    there the words alone must hold. `share` is the part of the class's images that show it, `purity` the part of the
    images showing it that are of the class, `adds` what it contributes to the class on the images of the class that
    show it, on average, `accuracy_without` the accuracy without this claim beside `accuracy` with it. None where the
    model does not use the concept for the class.
    """

    label: Any
    concept: str
    mine: tuple[int, ...]
    others: tuple[int, ...]
    share: float | None = None
    purity: float | None = None
    adds: float | None = None
    accuracy: float | None = None
    accuracy_without: float | None = None


class ReviewEvidence:
    """Evidence of labelled images on a model's claims, and which concepts of the list would move up.

    Parameters
    ----------
    model : the model whose claims they are.
    X, y : images (m, d) and labels (m,), or a store; rows are numbered as there.
    """

    def __init__(self, model: ConceptModel, X: Any, y: Any = None) -> None:
        self.model, self.X = model, X
        self.numbers = class_numbers(model, X, y)
        self._codes = model.encode(X).tocsc()
        self._codes.sort_indices()
        self._lines: dict[str, np.ndarray] = {}

    @cached_property
    def claims(self) -> dict[tuple[str, str], Claim]:
        """The model's claims as measured on these images, by class and concept."""
        measured = self.model.claims(self.X, self.model.classes[self.numbers])
        return {(str(claim.label), claim.concept): claim for claim in measured}

    @property
    def accuracy(self) -> float:
        """Accuracy of the model on these images."""
        found = next(iter(self.claims.values()), None)
        if found is None or found.accuracy is None:
            return float((self.model.predict(self.X) == self.model.classes[self.numbers]).mean())
        return found.accuracy

    def of(
        self, label: Any, concept: str, *, mine: int = MINE, others: int = OTHERS, review: Review | None = None
    ) -> ClaimPhotos:
        """The photos and numbers of a claim; of a concept that the model does not use, photos by the score of its text,
        grounded by what a `review` knows."""
        classes = self.model.classes.tolist()
        number = position(classes, label)
        own = self.numbers == number
        if concept not in self.model.names:
            score = self._scores(concept, review)
            best = np.argsort(-score, kind="stable")
            parts = _first(best[own[best]], mine), _first(best[~own[best]], others)
            return ClaimPhotos(classes[number], concept, *parts)
        column = self._codes[:, [self.model.row(concept)]].tocoo()
        shows = column.data > 0
        rows, code = column.row[shows], column.data[shows]
        best = rows[np.argsort(-code, kind="stable")]
        here = code[own[rows]]
        weight = float(self.model.head.coef[number, self.model.row(concept)])
        claim = self.claims.get((str(label), concept))
        images = int(own.sum())
        return ClaimPhotos(
            classes[number],
            concept,
            _first(best[own[best]], mine),
            _first(best[~own[best]], others),
            share=len(here) / images if images else None,
            purity=len(here) / len(rows) if len(rows) else None,
            adds=weight * float(here.mean()) if len(here) and claim is not None else None,
            accuracy=None if claim is None else claim.accuracy,
            accuracy_without=None if claim is None else claim.accuracy_without,
        )

    def next_in_line(self, review: Review, label: Any, *, count: int = NEXT) -> tuple[ReviewQuestion, ...]:
        """The concepts of the list that would move up if reasons of the class were rejected, the likeliest first: not
        answered yet, and shown by its images more than by the other classes', by the concepts as they are grounded."""
        classes, names = self.model.classes.tolist(), review.concepts.names
        known = review.knowledge()
        if known.digest not in self._lines:
            self._lines = {known.digest: self._standing(review, known)}
        number = position(classes, label)
        line = self._lines[known.digest][number].copy()
        line[known.aligned([classes[number]], names)[0] != 0] = -np.inf
        found: list[ReviewQuestion] = []
        for row in np.argsort(-line, kind="stable").tolist():
            if len(found) == count or not np.isfinite(line[row]):
                break
            asked = review.question(classes[number], names[row])
            if asked.weight is None and not asked.votes:
                found.append(asked)
        return tuple(found)

    def _standing(self, review: Review, known: Knowledge) -> np.ndarray:
        """Standing (C, n) of each class's images on every concept of the list, in standard deviations over
        the classes."""
        groups = self._groups
        scores = groups.means @ self._grounded(review, known).T
        spread = scores.std(axis=0)
        return (scores - scores.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)

    @cached_property
    def _groups(self) -> Any:
        placed = self.model.images(self.X)
        return class_groups(split(placed, self.numbers, None, None)[0], len(self.model.classes))

    def _grounded(self, review: Review, known: Knowledge) -> np.ndarray:
        answers = known.aligned(self.model.classes.tolist(), review.concepts.names)
        own = self.model.space.own_texts(review.concepts.embeddings)
        return ground(own, evidence(answers, self._groups, unknown=UNKNOWN_SHARE))

    def _scores(self, concept: str, review: Review | None) -> np.ndarray:
        review = Review(self.model, Decisions()) if review is None else review
        row = review.concepts.index(concept)
        rows = self._grounded(review, review.knowledge())[[row]].astype(np.float32)
        return np.concatenate([part.numpy() @ rows[0] for part in self.model.images(self.X).chunks()])


def class_numbers(model: ConceptModel, X: Any, y: Any = None) -> np.ndarray:
    """Class numbers (m,) of labels, or of those that a store brings: texts, where the model's may be numbers."""
    labels = labels_of(X, y)
    if labels is None:
        raise CCRError("a review needs images with labels, got none: give y, or a store that was embedded with labels")
    texts = [str(label) for label in as_labels(labels, len(labels)).tolist()]
    known = {str(label): number for number, label in enumerate(model.classes.tolist())}
    unknown = next((text for text in texts if text not in known), None)
    if unknown is not None:
        raise CCRError(
            f"the images have a class that the model was not fitted with: {unknown!r}; leave those images out, or fit "
            "again with them"
        )
    return np.array([known[text] for text in texts], np.int64)


def _first(rows: np.ndarray, count: int) -> tuple[int, ...]:
    return tuple(rows[:count].tolist())
