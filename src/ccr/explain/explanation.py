"""Explanation of one prediction as a short, exact sum of named contributions, and a sequence of explanations."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ccr.coding.heads import LinearHead, few_logits
from ccr.concepts import unknown_concept
from ccr.errors import CCRError
from ccr.explain.counterfactual import (
    CodeChange,
    Counterfactual,
    Shift,
    fewest_removals,
    shifts,
    smallest_change,
)
from ccr.explain.terms import (
    Contrast,
    Contribution,
    PlainResult,
    contributions,
    picture,
    plain,
    plain_fields,
    position,
    sum_rows,
    sum_text,
)
from ccr.explain.views import ModelView
from ccr.explain.where import Where
from ccr.kernels import Entries
from ccr.knowledge.shown import Shown
from ccr.utils.arrays import LazyModule, softmax, to_frame
from ccr.utils.parameters import is_number
from ccr.utils.texts import percent

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = LazyModule("scipy.sparse")


@dataclass(frozen=True)
class MissingConcept:
    """A concept that images of the true class show with mean `code`, but this one did not.

    `contribution` = `code` x `weight` is what it would have added to the true class; `share` of that class's
    images show it.
    """

    concept: str
    code: float
    weight: float
    contribution: float
    share: float


@dataclass(frozen=True)
class Mistake(PlainResult):
    """A prediction seen from the class that it should have been.

    `logit`, `probability`, `rank` and `bias` are the true class's: `bias` + the sums of `spoke_for` and
    `spoke_against` == `logit`. `contrast` says why the prediction and not the truth. `missing` holds the true
    class's strongest concepts that are not active here; None: no data were given to know them from.
    """

    prediction: Any
    truth: Any
    probability: float
    rank: int
    logit: float
    bias: float
    spoke_for: tuple[Contribution, ...]
    spoke_against: tuple[Contribution, ...]
    contrast: Contrast
    missing: tuple[MissingConcept, ...] | None

    @property
    def is_wrong(self) -> bool:
        return bool(self.prediction != self.truth)


@dataclass(frozen=True)
class ComparedConcept:
    """A concept's contribution in each explanation; None where it is not active, or has no weight for the class."""

    concept: str
    first: Contribution | None
    second: Contribution | None

    @property
    def size(self) -> float:
        """The larger of both effects."""
        return max(abs(term.contribution) for term in (self.first, self.second) if term is not None)


@dataclass(frozen=True)
class Comparison:
    """Contributions to the class `of` in two explanations of one image.

    In each of them `bias` + its contributions == `logit`. `overlap` is the share of concepts active in either that are
    active in both, with a weight for the class or without; 1 when neither has any.
    """

    of: Any
    predictions: tuple[Any, Any]
    probabilities: tuple[float, float]
    logits: tuple[float, float]
    biases: tuple[float, float]
    concepts: tuple[ComparedConcept, ...]
    overlap: float

    @property
    def agree(self) -> bool:
        """Whether both predict the same class."""
        return str(self.predictions[0]) == str(self.predictions[1])

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**plain_fields(self), "agree": self.agree}


@dataclass(frozen=True, eq=False)
class Intervention:
    """One image's explanation `before` and `after` some entries of its code were set; `shifts` says which moved."""

    before: Explanation
    after: Explanation = field(repr=False)
    shifts: tuple[Shift, ...]

    @property
    def changed(self) -> bool:
        """Whether the prediction is another one."""
        return bool(self.before.prediction != self.after.prediction)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON; `logits` holds what each class gained."""
        gains = self.after.logits - self.before.logits
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "shifts": plain(self.shifts),
            "changed": self.changed,
            "logits": {str(name): float(gain) for name, gain in zip(self.before.classes, gains, strict=True)},
        }


#: Largest number of contributions that `print` names; the others are summed.
MOST_PRINTED = 20


@dataclass(frozen=True, eq=False)
class Explanation:
    """One prediction: `bias` + sum of contributions == `logit`, to rounding.

    `contributions` holds every active concept with a weight for the predicted class, largest effect first. `head` has
    the active concepts' weights alone, in the order of `active` and `codes`; `full_head` those of all `concepts`.
    `where` says which parts of the picture the contributions come from, if the explanation was made from a picture.
    `answers` (classes, concepts) is what is known of them, for the terms' claims; None without knowledge. `shown` is
    the model's map from scores to the probability that an image shows a concept, if it has one.
    `thumbnail` is the image as a `data:` address, where it is known. A notebook shows an explanation as a picture,
    `print` as lines of text.
    """

    prediction: Any
    probability: float
    logit: float
    bias: float
    contributions: tuple[Contribution, ...]
    classes: tuple[Any, ...] = field(repr=False)
    logits: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    active: tuple[str, ...] = field(repr=False)
    codes: np.ndarray = field(repr=False)
    head: LinearHead = field(repr=False)
    columns: np.ndarray = field(repr=False)
    concepts: Sequence[str] = field(repr=False)
    full_head: LinearHead = field(repr=False)
    where: Where | None = field(default=None, repr=False)
    thumbnail: str | None = field(default=None, repr=False)
    answers: np.ndarray | None = field(default=None, repr=False)
    shown: Shown | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The sum, a contribution in a line."""
        rows = sum_rows(self.bias, self.contributions, MOST_PRINTED, informed=self.informed)
        heading = f"{self.prediction}, probability {percent(self.probability, digits=1)}"
        return sum_text(heading, rows, self.logit, encoding=getattr(sys.stdout, "encoding", None))

    @property
    def informed(self) -> bool:
        """Whether anything is known of which class shows which concept, so that claims are worth marking."""
        return self.answers is not None and bool(self.answers.any())

    def contributions_to(self, name: Any) -> tuple[Contribution, ...]:
        """Every active concept's contribution to the class `name`, whatever was predicted."""
        number = position(self.classes, name)
        facts = self.answers, self.shown, self._winner
        return terms_of(self.active, self.codes, self.columns, self.head.coef[number], number, *facts)

    def contrast(self, other: Any) -> Contrast:
        """Contrast of this class with `other`: weights are the differences of the two classes' weights."""
        mine, rival = self._winner, position(self.classes, other)
        weights = self.head.coef[mine] - self.head.coef[rival]
        bias = float(self.head.intercept[mine]) - float(self.head.intercept[rival])
        terms = contributions(self.active, self.codes, weights)
        difference = bias + sum(term.contribution for term in terms)
        return Contrast(self.prediction, self.classes[rival], difference, bias, terms)

    def counterfactual(self) -> Counterfactual | None:
        """The smallest set of active concepts whose removal changes the prediction; None if no removal does."""
        return fewest_removals(self.active, self.codes, self.head, classes=self.classes, winner=self._winner)

    def change_toward(self, name: Any, *, active_only: bool = True) -> CodeChange | None:
        """The smallest (Euclidean) change of the code that brings the class `name` level with the first.

        By default only active concepts may change; None if they cannot bring it about.
        """
        target = position(self.classes, name)
        names, codes, head = self.active, self.codes, self.head
        if not active_only:
            names, codes, head = tuple(self.concepts), np.zeros(len(self.concepts)), self.full_head.astype(np.float64)
            codes[self.columns] = self.codes
        delta = smallest_change(codes, head, winner=self._winner, target=target)
        if delta is None:
            return None
        moved = shifts(names, codes, delta)
        return CodeChange(self.prediction, self.classes[target], float(np.linalg.norm(delta)), moved)

    def mistake(self, truth: Any, *, view: ModelView | None = None, top: int = 10) -> Mistake:
        """Analysis of a wrong prediction: concepts for and against the class `truth`, and those that were missing.

        Missing concepts need a `view` of the model on data, which knows what images of that class show; without
        one, `missing` is None.
        """
        true = position(self.classes, truth)
        terms, missing = self.contributions_to(truth), None
        if view is not None:
            carrying = view.of_class(self.classes[true], top=None).carrying
            missing = tuple(
                MissingConcept(item.concept, item.code, item.weight, item.contribution, item.share)
                for item in carrying
                if item.concept not in self.active
            )[:top]
        return Mistake(
            prediction=self.prediction,
            truth=self.classes[true],
            probability=float(self.probabilities[true]),
            rank=int((self.logits > self.logits[true]).sum()) + 1,
            logit=float(self.logits[true]),
            bias=float(self.head.intercept[true]),
            spoke_for=tuple(term for term in terms if term.contribution > 0),
            spoke_against=tuple(term for term in terms if term.contribution <= 0),
            contrast=self.contrast(truth),
            missing=missing,
        )

    def compare(self, other: Explanation, *, of: Any = None) -> Comparison:
        """Another model's explanation of the same image beside this one, as contributions to the class `of`: by default
        this explanation's prediction. Concepts are matched by name, largest effect first."""
        of = self.prediction if of is None else of
        both, places = (self, other), (position(self.classes, of), position(other.classes, of))
        mine, theirs = ({term.concept: term for term in explanation.contributions_to(of)} for explanation in both)
        rows = [ComparedConcept(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}]
        return Comparison(
            of=self.classes[places[0]],
            predictions=(self.prediction, other.prediction),
            probabilities=(float(self.probabilities[places[0]]), float(other.probabilities[places[1]])),
            logits=(float(self.logits[places[0]]), float(other.logits[places[1]])),
            biases=(float(self.head.intercept[places[0]]), float(other.head.intercept[places[1]])),
            concepts=tuple(sorted(rows, key=lambda row: (-row.size, row.concept))),
            overlap=overlap(self, other),
        )

    def intervene(self, codes: Mapping[str, float]) -> Intervention:
        """Set entries of the code, {concept: value}, and see the prediction move; 0 removes a concept."""
        entries = dict(zip(self.columns.tolist(), self.codes.tolist(), strict=True))
        before = dict(entries)
        for name, value in codes.items():
            if not is_number(value):
                raise CCRError(
                    f"a code entry must be a finite number, got {value!r} for {name!r}: 0 removes the concept"
                )
            if name not in self.concepts:
                raise unknown_concept(name, self.concepts)
            entries[list(self.concepts).index(name)] = float(value)
        columns = sorted(column for column, value in entries.items() if value != 0)
        values = np.array([entries[column] for column in columns], dtype=np.float64)
        code = sparse.csr_matrix((values, columns, [0, len(columns)]), shape=(1, len(self.concepts)))
        if not np.isfinite(self.full_head.logits(code)).all():
            largest = max(codes, key=lambda name: abs(codes[name]))
            raise CCRError(
                f"a code entry must leave the logits finite, got {codes[largest]!r} for {largest!r}: take one as "
                "other images have it"
            )
        facts: dict[str, Any] = {"answers": self.answers, "shown": self.shown}
        after = explain(code, self.full_head, concepts=self.concepts, classes=self.classes, **facts)
        union = sorted(set(before) | set(entries))
        old = np.array([before.get(column, 0.0) for column in union])
        new = np.array([entries.get(column, 0.0) for column in union])
        return Intervention(self, after, shifts([self.concepts[column] for column in union], old, new - old))

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {
            "prediction": plain(self.prediction),
            "probability": self.probability,
            "logit": self.logit,
            "bias": self.bias,
            "contributions": [vars(term).copy() for term in self.contributions],
            "probabilities": {str(name): float(p) for name, p in zip(self.classes, self.probabilities, strict=True)},
        }

    def _repr_html_(self) -> str:
        return picture(self)

    @property
    def _winner(self) -> int:
        return position(self.classes, self.prediction)


@dataclass(frozen=True)
class Question(PlainResult):
    """A question: does the image show `concept`? If so, its code becomes `confirmed` instead of `code`, and exactly one
    class is left: `settles`, with this `probability`. `denied` is what is left if it does not: a class, or None if that
    settles nothing."""

    concept: str
    code: float
    confirmed: float
    settles: Any
    probability: float
    denied: Any | None


def settling_question(
    names: Sequence[str],
    codes: np.ndarray,
    scores: np.ndarray,
    head: LinearHead,
    *,
    typical: np.ndarray,
    classes: Sequence[Any],
    least: float,
) -> Question | None:
    """The concept to ask a person about; None if the answer about no single one would settle anything.

    A concept that is confirmed has the code that is `typical` (n,) of images that show it, or what it has if that is
    more. Of those that then leave exactly one class at least as probable as `least`, it is the one whose score (n,) is
    nearest to typical already: what the image most nearly shows.
    """
    coef = head.coef.astype(np.float64)
    logits = coef @ codes + head.intercept
    confirmed = np.maximum(codes, typical)
    after = logits + ((confirmed - codes) * coef).T  # (n, classes): each concept alone
    probabilities = softmax(after, axis=1)
    settles = ((probabilities >= least).sum(axis=1) == 1) & (typical > 0) & (confirmed > codes)
    if not settles.any():
        return None
    near = np.where(settles, scores / np.where(typical > 0, typical, 1.0), -np.inf)
    chosen = int(near.argmax())
    winner = int(probabilities[chosen].argmax())
    without = softmax(logits - codes[chosen] * coef[:, chosen])
    left = np.flatnonzero(without >= least)
    return Question(
        concept=names[chosen],
        code=float(codes[chosen]),
        confirmed=float(confirmed[chosen]),
        settles=classes[winner],
        probability=float(probabilities[chosen, winner]),
        denied=classes[left[0]] if len(left) == 1 else None,
    )


def overlap(first: Explanation, second: Explanation) -> float:
    """The share of concepts active in either that are active in both; 1 when neither has any."""
    mine, theirs = set(first.active), set(second.active)
    return len(mine & theirs) / len(mine | theirs) if mine or theirs else 1.0


def explain(
    code: Any,
    head: LinearHead,
    *,
    concepts: Sequence[str],
    classes: Sequence[Any],
    answers: np.ndarray | None = None,
    shown: Shown | None = None,
) -> Explanation:
    """Explain the prediction that the head makes for one code, `Entries` of one row or CSR (1, n); `answers`
    (classes, n) is what is known, `shown` maps scores to probabilities."""
    columns, own = code.indices[code.data != 0], code.data[code.data != 0]
    values, weights = own.astype(np.float64), head.coef[:, columns]
    active_head = LinearHead(weights, head.intercept).astype(np.float64)
    logits = active_head.coef @ values + active_head.intercept
    winner = _predicted(LinearHead(weights, head.intercept), own)
    probabilities = softmax(logits)
    active = tuple(concepts[column] for column in columns)
    return Explanation(
        prediction=classes[winner],
        probability=float(probabilities[winner]),
        logit=float(logits[winner]),
        bias=float(active_head.intercept[winner]),
        contributions=terms_of(active, values, columns, active_head.coef[winner], winner, answers, shown, winner),
        classes=tuple(classes),
        logits=logits,
        probabilities=probabilities,
        active=active,
        codes=values,
        head=active_head,
        columns=columns,
        concepts=concepts,
        full_head=head,
        answers=answers,
        shown=shown,
    )


def terms_of(
    active: Sequence[str],
    codes: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    number: int,
    answers: np.ndarray | None,
    shown: Shown | None,
    winner: int,
) -> tuple[Contribution, ...]:
    """Contributions to the class of this number, by its weights (a,) for the active concepts, with what is known of its
    claims and of the image's concepts, if the image's class is the `winner`."""
    known = None if answers is None else answers[number, columns]
    if shown is None:
        return contributions(active, codes, weights, known)
    likely = shown.probabilities(codes, columns, winner)
    return contributions(active, codes, weights, known, likely, shown.stated)


def _predicted(head: LinearHead, values: np.ndarray) -> int:
    """The class that wins in the code's own digits, as in `predict`: more digits may order a tie otherwise."""
    codes = Entries(np.array([0, len(values)]), np.arange(len(values)), values)
    return int(few_logits(codes, head.coef.T.astype(values.dtype), head.intercept.astype(values.dtype))[0].argmax())


#: Pictures that a notebook shows of a sequence.
MOST_PICTURES = 6
COLUMNS = ("image", "prediction", "probability", "logit", "bias", "concept", "code", "weight", "contribution", "shown")


class Explanations(Sequence[Explanation]):
    """Explanations in the order of the images; `names` are what the images are called: rows, or paths."""

    def __init__(self, items: Sequence[Explanation], names: Sequence[Any] | None = None) -> None:
        self._items = tuple(items)
        self.names = tuple(range(len(self._items)) if names is None else names)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...

    @overload
    def __getitem__(self, index: slice) -> Explanations: ...

    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        if isinstance(index, slice):
            return Explanations(self._items[index], self.names[index])
        return self._items[index]

    def __repr__(self) -> str:
        return f"Explanations({len(self)} images)"

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        pairs = zip(self.names, self, strict=True)
        return {"explanations": [{"image": plain(name), **item.to_dict()} for name, item in pairs]}

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per contribution: of an image, `bias` and the sum of `contribution` are its `logit`.

        An image without any contribution has one row, without a concept. `kind` is "pandas" or "polars"; None: the
        first of the two that is installed.
        """
        rows = [row for name, item in zip(self.names, self, strict=True) for row in _rows(name, item)]
        return to_frame({name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}, kind)

    def _repr_html_(self) -> str:
        shown = [picture(item, title=str(name)) for name, item in zip(self.names, self[:MOST_PICTURES], strict=False)]
        rest = len(self) - len(shown)
        return "".join(shown) + (f"<div>and {rest} more</div>" if rest else "")


def _rows(name: Any, item: Explanation) -> Iterator[tuple[Any, ...]]:
    start = (name, plain(item.prediction), item.probability, item.logit, item.bias)
    for term in item.contributions:
        yield (*start, term.concept, term.code, term.weight, term.contribution, term.shown)
    if not item.contributions:
        yield (*start, None, 0.0, 0.0, 0.0, None)
