"""Claims: every positive weight of a model read as a sentence, "class C shows concept K", with what speaks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.coding.heads import LinearHead
from ccr.errors import CCRError
from ccr.explain.terms import Status, plain_fields, status
from ccr.knowledge import MACHINES, NO, UNKNOWN, YES, Knowledge
from ccr.utils.arrays import LazyModule

if TYPE_CHECKING:
    from scipy import sparse

    from ccr.io.provenance import Statement
else:
    sparse = LazyModule("scipy.sparse")

#: Negative code entries that are looked at together with all classes.
RISEN_AT_ONCE = 4096
_VALUES = {"yes": YES, "no": NO, "unknown": UNKNOWN}


@dataclass(frozen=True)
class Claim:
    """The claim that the class `label` shows `concept`: a positive weight of the model.

    `answer` is what knowledge says (yes, no or unknown), with its `source`, author `by` and time `at`; `status` is
    confirmed, contradicted or unknown accordingly. On images, `share` is the part of the class's images that show the
    concept, `purity` the part of the images showing it that are of the class, and `accuracy_without` the accuracy of
    the model without this weight, beside `accuracy` with it; None where the images are not known.
    """

    label: Any
    concept: str
    weight: float
    answer: str = "unknown"
    source: str = ""
    by: str = ""
    at: str = ""
    share: float | None = None
    purity: float | None = None
    accuracy: float | None = None
    accuracy_without: float | None = None

    @property
    def status(self) -> Status:
        """confirmed, contradicted or unknown; a yes of WordNet or a language model alone confirms nothing."""
        return "unknown" if self.answer == "yes" and self.source in MACHINES else status(_VALUES[self.answer])

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return f"{self.label} shows {self.concept}"

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**plain_fields(self), "status": self.status}


@dataclass(frozen=True, eq=False)
class ClaimEvidence:
    """Evidence of images on a model's claims. For each `claim` (k, 2), numbers of class and concept: how many images of
    the class show the concept (`shown`), how many of all images show it (`anywhere`), and how many more or fewer
    predictions would be right without it (`gained`), all (k,). `images` (C,) counts the images of each class, `right`
    the correct predictions."""

    claim: np.ndarray
    shown: np.ndarray
    anywhere: np.ndarray
    gained: np.ndarray
    images: np.ndarray
    right: int


def claimed(head: LinearHead) -> np.ndarray:
    """Numbers of class and concept (k, 2) of every claim: of every positive weight."""
    return np.argwhere(head.coef > 0)


def measure_claims(codes: Iterable[sparse.csr_matrix], head: LinearHead, y: np.ndarray) -> ClaimEvidence:
    """The evidence of images with these codes, in chunks, and class numbers y (m,).

    Without a claim, the logit of its class falls on the images that show its concept, which can only change predictions
    of that class, to the class that comes second; and it rises where the code is negative, which can only change the
    prediction to that class. So one pass over the codes measures all claims at once.
    """
    claim, (classes, concepts) = claimed(head), head.coef.shape
    shown, anywhere = np.zeros((classes, concepts)), np.zeros(concepts)
    gained, right, done = np.zeros((classes, concepts)), 0, 0
    for part in codes:
        truth = y[done : done + part.shape[0]]
        done += part.shape[0]
        row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
        active = part.data > 0
        np.add.at(shown, (truth[row[active]], part.indices[active]), 1.0)
        anywhere += np.bincount(part.indices[active], minlength=concepts)
        logits = head.logits(part).astype(np.float64)
        first = logits.argmax(axis=1)
        top = logits[np.arange(len(first)), first]
        logits[np.arange(len(first)), first] = -np.inf
        second = logits.argmax(axis=1)
        lead = top - logits[np.arange(len(first)), second]
        weight = head.coef[first[row], part.indices].astype(np.float64)
        # A tie goes to the class of the lower number, as argmax has it.
        falls = part.data * weight
        lost = (weight > 0) & ((falls > lead[row]) | ((falls == lead[row]) & (second < first)[row]))
        change = (second == truth).astype(float) - (first == truth)
        np.add.at(gained, (first[row[lost]], part.indices[lost]), change[row[lost]])
        _add_risen(gained, part, row, head, logits=logits, first=first, top=top, truth=truth)
        right += int((first == truth).sum())
    at = tuple(claim.T)
    images = np.bincount(y, minlength=classes)
    return ClaimEvidence(claim, shown[at], anywhere[claim[:, 1]], gained[at], images, right)


def _add_risen(
    gained: np.ndarray,
    part: sparse.csr_matrix,
    row: np.ndarray,
    head: LinearHead,
    *,
    logits: np.ndarray,
    first: np.ndarray,
    top: np.ndarray,
    truth: np.ndarray,
) -> None:
    """Add to `gained` (C, n) what claims do whose class wins an image without them, the concept's code being negative
    there. `row` is that of each code entry; of the images, `logits` (m, C) have -inf for the `first` class (m,), whose
    logit is `top` (m,)."""
    entry = np.flatnonzero(part.data < 0)
    for start in range(0, len(entry), RISEN_AT_ONCE):
        some = entry[start : start + RISEN_AT_ONCE]
        weights, at = head.coef[:, part.indices[some]].astype(np.float64), row[some]
        raised = logits[at].T - part.data[some] * weights
        ahead = np.arange(len(weights))[:, None] < first[at]
        label, number = np.nonzero((weights > 0) & ((raised > top[at]) | ((raised == top[at]) & ahead)))
        own = truth[at[number]]
        change = (label == own).astype(float) - (first[at[number]] == own)
        np.add.at(gained, (label, part.indices[some[number]]), change)


def claims_of(
    head: LinearHead,
    classes: Sequence[Any],
    concepts: Sequence[str],
    *,
    knowledge: Knowledge | None = None,
    seen: ClaimEvidence | None = None,
    signed: Sequence[Statement] = (),
) -> tuple[Claim, ...]:
    """Every claim of a head (classes, concepts), by class, the largest weight first. What was `signed` is confirmed,
    whatever the knowledge of the fit says."""
    agreed = {(one.label, one.concept): one for one in signed}
    pairs = claimed(head)
    if seen is not None and not np.array_equal(pairs, seen.claim):
        raise CCRError("this evidence is of another model's claims: measure them again on images, claims(X, y)")
    claims = []
    for number, (row, column) in enumerate(pairs.tolist()):
        claim = Claim(classes[row], concepts[column], float(head.coef[row, column]))
        answer = None if knowledge is None else knowledge.find(classes[row], concepts[column])
        if answer is not None:
            claim = replace(claim, answer=answer.answer, source=answer.source, by=answer.by, at=answer.at)
        told = agreed.get((str(claim.label), claim.concept))
        if told is not None and claim.status != "confirmed":
            claim = replace(claim, answer="yes", source=told.source, by=told.by, at=told.at)
        if seen is not None:
            images, anywhere = int(seen.images[row]), float(seen.anywhere[number])
            every = max(int(seen.images.sum()), 1)
            claim = replace(
                claim,
                share=float(seen.shown[number]) / images if images else None,
                purity=float(seen.shown[number]) / anywhere if anywhere else None,
                accuracy=seen.right / every,
                accuracy_without=(seen.right + float(seen.gained[number])) / every,
            )
        claims.append((row, -claim.weight, number, claim))
    return tuple(claim for *_, claim in sorted(claims, key=lambda entry: entry[:3]))
