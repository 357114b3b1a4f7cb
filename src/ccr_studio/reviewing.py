"""The review of a session's model: its claims, the photos that speak for and against them, and who decided what."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import numpy as np

from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.review import Decision, Decisions, Review, ReviewEvidence
from ccr.review.decisions import Policy
from ccr.review.rounds import thin_classes
from ccr.utils.texts import did_you_mean
from ccr_studio.mistakes import scope_rows
from ccr_studio.photo import tile
from ccr_studio.seen import Seen
from ccr_studio.workbench import Workbench

#: The log of decisions in a session's folder: it belongs to no step, so undo leaves it alone.
LOG = "decisions.jsonl"
#: Photos of a class that head its claims.
PORTRAITS = 5


class Reviewing:
    """Reviews of the models of a workbench. What is measured is kept for the last model that was asked about."""

    def __init__(self, bench: Workbench, *, policy: Policy = "one") -> None:
        self.bench, self.policy = bench, policy
        self.decisions = Decisions(bench.folder / LOG)
        self._lock = threading.Lock()
        self._review: tuple[str, Review] | None = None
        self._evidence: tuple[str, ReviewEvidence, np.ndarray] | None = None

    def review(self, seen: Seen) -> Review:
        """The review of a model, with what others have decided by now."""
        with self._lock:
            self.decisions.refresh()
            if self._review is None or self._review[0] != seen.version:
                self._review = (seen.version, Review(seen.model, self.decisions, policy=self.policy))
            return self._review[1]

    def overview(self, seen: Seen, viewer: str | None) -> dict[str, Any]:
        """Every claim with its state, by class; to a viewer who has not decided, others' answers are not shown."""
        review = self.review(seen)
        claims = review.claims(viewer=viewer)
        by_class: dict[str, list[dict[str, Any]]] = {name: [] for name in seen.classes}
        for one in claims:
            by_class[str(one.label)].append(plain(one.to_dict()))
        counts = {"open": 0, "unclear": 0, "disputed": 0, "confirmed": 0, "rejected": 0}
        for one in claims:
            counts[one.state] += 1
        return {
            "classes": [{"name": name, "claims": found} for name, found in by_class.items()],
            "counts": counts,
            "rejected": sum(one.state == "rejected" for one in review.claims()),
            "blocking": len(review.blocking()),
            "policy": self.policy,
            "reviewers": list(self.decisions.reviewers),
            "agreements": [asdict(one) for one in self.decisions.agreements()],
            "thin": [{"class": one.label, "reasons": one.reasons} for one in thin_classes(seen.model)],
            "signed": seen.model.is_signed,
            "without": str(seen.model.classes[int(np.argmax(seen.model.head.intercept))]),
        }

    def claim(self, seen: Seen, label: str, concept: str) -> dict[str, Any]:
        """The photos and the numbers of one claim."""
        review, (evidence, rows) = self.review(seen), self._measured(seen)
        found = evidence.of(self._label(seen, label), concept, review=review)
        return {
            "class": label,
            "concept": concept,
            "mine": [tile(seen, int(rows[row])) for row in found.mine],
            "others": [tile(seen, int(rows[row])) for row in found.others],
            "share": found.share,
            "purity": found.purity,
            "adds": found.adds,
            "accuracy": found.accuracy,
            "accuracy_without": found.accuracy_without,
            "photos": len(rows),
        }

    def next_in_line(self, seen: Seen, label: str) -> list[str]:
        """The concepts that would move up if a reason of the class were rejected."""
        review, (evidence, _) = self.review(seen), self._measured(seen)
        return [one.concept for one in evidence.next_in_line(review, self._label(seen, label))]

    def decide(self, seen: Seen, label: str | None, concept: str, answer: str, *, by: str, reason: str) -> Decision:
        """Log an answer; a label None strikes the concept for every class."""
        self.bench.check_may_decide()
        review = self.review(seen)
        if label is None:
            return review.strike(concept, by=by)
        return review.decide(self._label(seen, label), concept, answer, by=by, reason=reason)

    def undo(self, by: str) -> Decision:
        """Take back a reviewer's last decision."""
        self.bench.check_may_decide()
        return self.decisions.undo(by=by)

    def _measured(self, seen: Seen) -> tuple[ReviewEvidence, np.ndarray]:
        """What the photos that are shown unasked say of the claims, and their rows in the store."""
        with self._lock:
            if self._evidence is None or self._evidence[0] != seen.version:
                rows = scope_rows(seen, "shown")
                if not len(rows):
                    raise CCRError("a review needs labelled photos, and there are none: embed a data set with labels")
                store, labels = seen.photos.store.select(rows=rows), seen.model.classes[seen.truth[rows]]
                self._evidence = (seen.version, ReviewEvidence(seen.model, store, labels), rows)
            return self._evidence[1], self._evidence[2]

    def _label(self, seen: Seen, name: str) -> Any:
        number = seen.number(name)
        if number < 0:
            raise CCRError(f"no class is called {name!r}{did_you_mean(name, seen.classes)}")
        return seen.model.classes.tolist()[number]


def class_page(seen: Seen, name: str) -> dict[str, Any]:
    """A class: its photos, how often it is right, what it is taken for and what is taken for it, its head start."""
    number = seen.number(name)
    if number < 0:
        raise CCRError(f"no class is called {name!r}{did_you_mean(name, seen.classes)}")
    rows = scope_rows(seen, "shown")
    own = rows[seen.truth[rows] == number]
    held = np.intersect1d(own, seen.photos.validation)
    wrong = own[~seen.right[own]]
    taken = rows[(seen.predicted[rows] == number) & (seen.truth[rows] != number)]
    surest = own[np.argsort(-np.where(seen.right[own], seen.confidence[own], -1), kind="stable")][:PORTRAITS]
    head = seen.model.head
    return {
        "name": name,
        "photos": len(own),
        "right": int(seen.right[own].sum()),
        "validation": len(held),
        "validation_right": int(seen.right[held].sum()),
        "portraits": [tile(seen, int(row)) for row in surest],
        "taken_for": _counted(seen, seen.predicted[wrong]),
        "taken_from": _counted(seen, seen.truth[taken]),
        "bias": float(head.intercept[number]),
        "without": seen.classes[int(np.argmax(head.intercept))],
        "against": [seen.model.names[column] for column in np.flatnonzero(head.coef[number] < 0).tolist()],
    }


def _counted(seen: Seen, numbers: np.ndarray) -> list[dict[str, Any]]:
    counts = np.bincount(numbers, minlength=len(seen.classes))
    order = np.argsort(-counts, kind="stable")[:8]
    return [{"name": seen.classes[number], "count": int(counts[number])} for number in order if counts[number]]
