"""Reversible edits of a fitted model: every edit makes a model from the one before, which is never changed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from ccr.coding import ThresholdRule
from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts, stored_concepts
from ccr.errors import CCRError, CCRWarning
from ccr.explain.terms import PlainResult, plain, position
from ccr.geometry import unit_rows
from ccr.io.provenance import left_out_text, without
from ccr.knowledge import Answer, Knowledge, Verdict
from ccr.knowledge.grounding import UNKNOWN_SHARE, evidence, ground
from ccr.labels import Labels, known_labels, labels_of, training_weights
from ccr.metrics import Interval, wilson_interval
from ccr.model import ConceptModel
from ccr.refine import Training
from ccr.refine.data import candidates_for, split
from ccr.refine.loop import solve_head
from ccr.refine.region import permitted_weights
from ccr.utils.arrays import as_array
from ccr.utils.parameters import as_number


@dataclass(frozen=True)
class Edit:
    """One edit: the `action` (a method of `EditSession`), and its `arguments` in plain types."""

    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {"action": self.action, **self.arguments}


def fixed_weights(edits: Iterable[Mapping[str, Any]], classes: Sequence[Any]) -> set[tuple[str, int]]:
    """The weights (concept, class number) that these edits set or scaled by hand, under the names they have in the
    end."""
    fixed: set[tuple[str, int]] = set()
    for edit in edits:
        if edit["action"] in ("set_weight", "zero_weight"):
            fixed.add((edit["concept"], position(classes, edit["class"])))
        elif edit["action"] == "scale":
            fixed |= {(edit["concept"], number) for number in range(len(classes))}
        elif edit["action"] == "add":
            fixed |= {(edit["name"], position(classes, name)) for name in edit.get("weights", {})}
        elif edit["action"] == "rename":
            fixed = {(edit["to"] if name == edit["concept"] else name, number) for name, number in fixed}
        elif edit["action"] == "fit":
            fixed = set()  # all weights were learned anew
        elif edit["action"] in ("suppress", "merge"):
            gone = {edit.get("concept"), edit.get("first"), edit.get("second")}
            fixed = {weight for weight in fixed if weight[0] not in gone}
    return fixed


def texts_of(model: ConceptModel) -> Concepts:
    """The model's concepts before centring and dispersion."""
    if model.provenance.texts is None:
        raise CCRError("the model does not know its concepts' text embeddings, so it cannot be edited: fit it again")
    return model.provenance.texts


def _row_sets(model: ConceptModel) -> dict[str, np.ndarray]:
    """The three places (n, d) of each concept, which an edit may change: arguments of `_rebuilt`."""
    return {
        "initial": model.initial.embeddings,
        "refined": model.concepts.embeddings,
        "texts": texts_of(model).embeddings,
    }


def rename(model: ConceptModel, concept: str, to: str) -> ConceptModel:
    """Rename a concept."""
    if str(to).strip() in model.provenance.left_out:
        raise CCRError(
            f"{to!r} is a concept that the fit left out, and it would be lost: choose another name, or add it back"
        )
    names, row, new = list(model.names), model.row(concept), str(to).strip()
    old, names[row] = names[row], to
    origin = model.provenance
    measured = None if origin.transfer is None else {new if n == old else n: v for n, v in origin.transfer.items()}
    known = None if origin.knowledge is None else origin.knowledge.renamed(old, new)
    return _rebuilt(replace(model, provenance=replace(origin, transfer=measured, knowledge=known)), names)


def _with_weight(model: ConceptModel, concept: str, name: Any, value: float) -> ConceptModel:
    """Another weight of the concept for the class `name`."""
    _check_weight(value, model)
    row, number = model.row(concept), position(model.classes.tolist(), name)
    coef = model.head.coef.copy()
    coef[number, row] = value
    return _with_coef(model, coef)


def _added(model: ConceptModel, name: str, embedding: Any, weights: Mapping[Any, float]) -> ConceptModel:
    """One concept more, at its text `embedding` (d,) in the model's space or, where the model's knowledge has answers
    about it, where these ground it; weights not given are 0."""
    row = as_array(embedding)
    if row.size != model.dimension or row.ndim > 2:
        raise CCRError(
            f"a concept's embedding must have the model's {model.dimension} dimensions, got shape {row.shape}: embed "
            "it with the model's encoder"
        )
    text = Concepts(["new"], row.reshape(1, -1)).embeddings
    start, classes = grounded(model, name, model.space.texts(text)), model.classes.tolist()
    column = np.zeros((len(classes), 1), model.head.coef.dtype)
    for label, weight in weights.items():
        _check_weight(weight, model)
        column[position(classes, label)] = weight
    more = _with_coef(model, np.hstack([model.head.coef, column]))
    if isinstance(model.rule, ThresholdRule):
        more = replace(more, rule=model.rule.with_one_more())
    if model.shown is not None:
        more = replace(more, shown=model.shown.with_one_more())
    rows = {key: np.vstack([rows, text if key == "texts" else start]) for key, rows in _row_sets(model).items()}
    return _rebuilt(more, [*model.names, name], **rows)


def grounded(model: ConceptModel, name: str, text: np.ndarray) -> np.ndarray:
    """The concept of this text (1, d), grounded by the model's knowledge, if there is any."""
    known, groups = model.provenance.knowledge, model.provenance.groups
    if known is None or groups is None:
        return text
    answers = known.aligned(model.classes.tolist(), [name.strip()])
    return ground(text, evidence(answers, groups, unknown=UNKNOWN_SHARE)).astype(np.float32)


def _merged(model: ConceptModel, first: str, second: str, name: str | None) -> ConceptModel:
    """Two concepts as one, halfway between them, in the first one's row.

    The merged code is (s1 + s2) / |d1 + d2|, so weights (w1 + w2) |d1 + d2| / 2 leave logits as they are where both
    concepts have the same code.
    """
    first_row, second_row = model.row(first), model.row(second)
    if first_row == second_row:
        raise CCRError(f"merging needs two different concepts, got {first!r} twice")
    rows, apart = {}, 0.0
    for key, before in _row_sets(model).items():
        total = before[first_row].astype(np.float64) + before[second_row]
        if np.linalg.norm(total) < 1e-3:
            raise CCRError(
                f"{first!r} and {second!r} are opposites, with nothing halfway between: suppress one instead"
            )
        rows[key] = before.copy()
        rows[key][first_row] = unit_rows(total[None, :])[0]
        if key == "refined":
            apart = float(np.linalg.norm(total))
    coef = model.head.coef.copy()
    coef[:, first_row] = (coef[:, first_row] + coef[:, second_row]) * (apart / 2)
    names = list(model.names)
    names[first_row] = names[first_row] if name is None else name
    names[second_row] = "merged"  # gone in a moment; the new name may be the second one's
    while names.count(names[second_row]) > 1:
        names[second_row] += "_"
    merged = _rebuilt(_with_coef(model, coef), names, **rows)
    return _kept(merged, [row for row in range(len(names)) if row != second_row])


def _with_coef(model: ConceptModel, coef: np.ndarray) -> ConceptModel:
    return replace(model, head=LinearHead(coef, model.head.intercept))


def _kept(model: ConceptModel, rows: list[int]) -> ConceptModel:
    """The concepts of these rows alone."""
    if len(rows) < model.rule.fewest_concepts:
        raise CCRError(
            f"the model needs at least {model.rule.fewest_concepts} concepts for its codes, and only {len(rows)} would "
            "be left: add others first"
        )
    fewer = _with_coef(model, np.ascontiguousarray(model.head.coef[:, rows]))
    if isinstance(model.rule, ThresholdRule):
        fewer = replace(fewer, rule=model.rule.of(np.array(rows, np.int64)))
    if model.shown is not None:
        fewer = replace(fewer, shown=model.shown.of(rows))
    kept = {key: before[rows] for key, before in _row_sets(model).items()}
    return _rebuilt(fewer, [model.names[row] for row in rows], **kept)


def _rebuilt(
    model: ConceptModel,
    names: Sequence[str],
    *,
    initial: np.ndarray | None = None,
    refined: np.ndarray | None = None,
    texts: np.ndarray | None = None,
) -> ConceptModel:
    """These names, and these rows where they are given; rows that stay keep every bit, and their fidelity."""
    before = texts_of(model).embeddings if texts is None else texts
    named = stored_concepts(names, before)
    origin = replace(without(model.provenance, set(named.names)), texts=named)
    if not (initial is None and refined is None and texts is None):
        origin = replace(origin, fidelity=None)
    return replace(
        model,
        initial=stored_concepts(names, model.initial.embeddings if initial is None else initial),
        concepts=stored_concepts(names, model.concepts.embeddings if refined is None else refined),
        provenance=origin,
    )


def _check_weight(value: float, model: ConceptModel) -> None:
    """A weight must be finite as the head keeps it, in 32 bits mostly."""
    most = float(np.finfo(model.head.coef.dtype).max)
    if not abs(float(value)) <= most:  # NaN, too
        raise CCRError(f"a weight must be a finite number, at most {most:.3g}, got {value}")


@dataclass(frozen=True)
class ClassEffect:
    """Accuracy on the `n` images of a class before and after."""

    name: Any
    n: int
    before: float
    after: float


@dataclass(frozen=True)
class EditEffect(PlainResult):
    """Accuracy on `n` images before and after the edits, and how many predictions are others now.

    `classes` has those that lost most first.
    """

    n: int
    before: float
    after: float
    before_interval: Interval
    after_interval: Interval
    changed: int
    classes: tuple[ClassEffect, ...]


def edit_effect(truth: np.ndarray, before: np.ndarray, after: np.ndarray) -> EditEffect:
    """Compare two models' predictions (m,) with the truth."""
    classes, number = np.unique(truth, return_inverse=True)
    counts = np.bincount(number)
    was, now = (np.bincount(number, weights=truth == predicted) for predicted in (before, after))
    effects = [
        ClassEffect(label.item(), int(n), float(b / n), float(a / n))
        for label, n, b, a in zip(classes, counts, was, now, strict=True)
    ]
    m = len(truth)
    return EditEffect(
        n=m,
        before=float(was.sum() / m),
        after=float(now.sum() / m),
        before_interval=wilson_interval(int(was.sum()), m),
        after_interval=wilson_interval(int(now.sum()), m),
        changed=int((before != after).sum()),
        classes=tuple(sorted(effects, key=lambda e: (e.after - e.before, str(e.name)))),
    )


#: Arguments of edits that name a concept.
CONCEPT_NAMES = {"concept", "to", "first", "second", "name"}
#: Measurements that an edit leaves true: they are about the photos.
STILL_TRUE = ("images",)


class TextEncoder(Protocol):
    """Encoder of texts, as adding a concept by text needs it."""

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray: ...


class EditSession:
    """Edits of one fitted model, which itself is never changed; `model()` gives the edited one.

    Every edit returns the session, so that edits can be chained: `model.edit().suppress("grass").refit(X, y)`.
    An edit that is refused changes nothing.
    """

    def __init__(self, model: ConceptModel) -> None:
        texts_of(model)
        self._models = [model]
        self._log: list[Edit] = []

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        return f"EditSession({len(self)} edits, {len(self.concepts)} concepts)"

    @property
    def log(self) -> tuple[Edit, ...]:
        """This session's edits, oldest first; those of earlier sessions are in the model's provenance."""
        return tuple(self._log)

    @property
    def concepts(self) -> Concepts:
        """The concepts as they are now."""
        return self._now.concepts

    def suppress(self, concept: str) -> EditSession:
        """Take the concept away: no prediction uses or shows it any more."""
        gone = self._now.row(concept)
        fewer = _kept(self._now, [row for row in range(len(self.concepts)) if row != gone])
        return self._do(fewer, "suppress", concept=concept)

    def scale(self, concept: str, factor: float) -> EditSession:
        """Multiply the concept's weights by `factor`: 0.5 halves what it contributes, -1 turns it round; `refit` leaves
        them so."""
        factor = as_number("a factor", factor)
        row, coef = self._now.row(concept), self._now.head.coef.copy()
        with np.errstate(over="ignore"):
            coef[:, row] *= factor
        for weight in coef[:, row]:
            _check_weight(weight, self._now)
        return self._do(_with_coef(self._now, coef), "scale", concept=concept, factor=factor)

    def rename(self, concept: str, to: str) -> EditSession:
        """Give the concept another name; predictions stay."""
        return self._do(rename(self._now, concept, to), "rename", concept=concept, to=to)

    def pin(self, concept: str) -> EditSession:
        """Put the concept back to where it was before refinement."""
        row, refined = self._now.row(concept), self.concepts.embeddings.copy()
        refined[row] = self._now.initial.embeddings[row]
        return self._do(_rebuilt(self._now, self._now.names, refined=refined), "pin", concept=concept)

    def set_weight(self, concept: str, name: Any, value: float) -> EditSession:
        """Set the concept's weight for the class `name`; `refit` leaves it as set."""
        value = as_number("a weight", value)
        model = _with_weight(self._now, concept, name, value)
        return self._do(model, "set_weight", concept=concept, **{"class": name}, value=value)

    def zero_weight(self, concept: str, name: Any) -> EditSession:
        """Make the concept say nothing about the class `name`; `refit` leaves it so."""
        model = _with_weight(self._now, concept, name, 0.0)
        return self._do(model, "zero_weight", concept=concept, **{"class": name})

    def add(
        self,
        name: str,
        embedding: Any = None,
        *,
        encoder: TextEncoder | None = None,
        text: str | None = None,
        weights: Mapping[Any, float] | None = None,
        answers: Mapping[Any, Verdict] | None = None,
    ) -> EditSession:
        """Add a concept: its text embedding (d,), or an `encoder` that embeds its `text` (by default the name). A
        concept that the fit left out needs neither.

        It contributes nothing until it has `weights` ({class: weight}), or the head is refitted. Of a model with
        knowledge it is grounded by what is known of it: `answers` ({class: "yes" or "no"}) are added to that.
        """
        weights = self._checked_weights({} if weights is None else weights)
        known = left_out_text(self._now.provenance, name) if text is None and encoder is None else None
        if embedding is None:
            embedding = self._embed(name if text is None else text, encoder) if known is None else known
        elif encoder is not None:
            raise CCRError(f"adding {name!r} takes its embedding or an encoder that makes it, got both: leave one out")
        model = _added(self._with_answers(name, answers), name, embedding, weights)
        by_class = None if answers is None else {str(label): answer for label, answer in answers.items()}
        embedded = encoder is not None
        return self._do(model, "add", name=name, text=text, embedded=embedded, weights=weights, answers=by_class)

    def merge(self, first: str, second: str, *, name: str | None = None) -> EditSession:
        """Make two concepts one, halfway between them, called `name` (by default the first one's)."""
        return self._do(_merged(self._now, first, second, name), "merge", first=first, second=second, name=name)

    def refit(self, X: Any, y: Any = None, *, alpha: float | None = None) -> EditSession:
        """Fit the head alone to (X, y), with the concepts as they are now; weights that were set or scaled by hand
        stay, and classes have no more others than when the model was fitted.

        `alpha` is the penalty on squared weights for codes of size 1; None is the model's own.
        """
        model, codes = self._now, self._now.encode(X)
        truth = known_labels(labels_of(X, y), codes.shape[0], model.classes)
        numbers = np.searchsorted(model.classes, truth).astype(np.int64)
        training, weights, classes = self._training(alpha), self._weights(numbers), len(model.classes)
        fixed = np.zeros(model.head.coef.shape, bool)
        for concept, number in fixed_weights(self._history(), model.classes.tolist()):
            fixed[number, model.row(concept)] = True
        count, begin, permitted = int(fixed.sum()), model.head, None
        if model.provenance.knowledge is not None:  # what it forbids stays zero, unless it was set by hand
            permitted = permitted_weights(model.answers, model.provenance.settings.get("claims", "open"))
            forbidden = ~permitted.allowed.T & ~fixed
            begin = LinearHead(np.where(forbidden, 0.0, begin.coef), begin.intercept)
            fixed |= forbidden
        train, _ = split(model.space.images(X), numbers, weights, None)
        head = solve_head(
            codes,
            numbers,
            classes=classes,
            training=training,
            sample_weight=weights,
            # The minimum is unique: reached from zero it does not depend on what was edited before.
            start=begin if fixed.any() else None,
            fixed=fixed if fixed.any() else None,
            candidates=candidates_for(model.initial.embeddings, train, classes, training, permitted=permitted),
        )
        images, kinds = len(numbers), (model.head.coef.dtype, model.head.intercept.dtype)
        fitted = replace(model, head=LinearHead(head.coef.astype(kinds[0]), head.intercept.astype(kinds[1])))
        return self._do(fitted, "refit", images=images, alpha=training.penalty(images), fixed=count)

    def undo(self, steps: int = 1) -> EditSession:
        """Take back the last edits; after all of them the model is the original, bit for bit."""
        if not (isinstance(steps, Integral) and 1 <= steps <= len(self._log)):
            raise CCRError(f"there are {len(self._log)} edits to undo, got {steps!r}")
        del self._models[-int(steps) :], self._log[-int(steps) :]
        return self

    def model(self) -> ConceptModel:
        """The edited model; the edits in its provenance end with this session's."""
        return replace(self._now, provenance=replace(self._now.provenance, edits=self._history()))

    def effect(self, X: Any, y: Any = None) -> EditEffect:
        """Accuracy before and after the edits on (X, y), in all and by class."""
        original = self._models[0]
        before = original.predict(X)
        return edit_effect(known_labels(labels_of(X, y), len(before), original.classes), before, self._now.predict(X))

    @property
    def _now(self) -> ConceptModel:
        return self._models[-1]

    def _history(self) -> tuple[Mapping[str, Any], ...]:
        """All edits since the model was fitted, of earlier sessions too."""
        return self._now.provenance.edits + tuple(edit.to_dict() for edit in self._log)

    def _do(self, model: ConceptModel, action: str, **arguments: Any) -> EditSession:
        logged = {key: plain(value) for key, value in arguments.items() if value is not None}
        # Concepts are known without the spaces around their names.
        logged |= {key: logged[key].strip() for key in CONCEPT_NAMES & logged.keys()}
        # Sets were calibrated, and accuracies measured, for the model as it was; a name changes neither.
        if action != "rename":
            if self._now.calibration is not None:
                warnings.warn(
                    f"the model was calibrated, and {action!r} changes its answers, so its prediction sets are gone: "
                    "use calibrated(X, y) once it is as it should be, with images that it was not fitted on",
                    CCRWarning,
                    stacklevel=3,
                )
            origin = model.provenance
            noted = {name: origin.metrics[name] for name in STILL_TRUE if name in origin.metrics}
            model = replace(model, calibration=None, provenance=replace(origin, metrics=noted, seen=None))
        self._models.append(model)
        self._log.append(Edit(action, logged))
        return self

    def _with_answers(self, name: str, answers: Mapping[Any, Verdict] | None) -> ConceptModel:
        """The model as it is now, knowing these answers about a concept, too."""
        model, origin = self._now, self._now.provenance
        if not answers:
            return model
        if not isinstance(answers, Mapping):
            raise CCRError(f'answers must be {{class: "yes" or "no"}}, got {type(answers).__name__}')
        if origin.knowledge is None or origin.groups is None:
            raise CCRError(
                f"answers about {name!r} ground it by what its classes look like, and this model was fitted without "
                "knowledge: fit it again with knowledge="
            )
        classes = model.classes.tolist()
        given = [
            Answer(str(classes[position(classes, label)]), name.strip(), answer, "person")
            for label, answer in answers.items()
        ]
        return replace(model, provenance=replace(origin, knowledge=origin.knowledge.merge(Knowledge.of(given))))

    def _embed(self, text: str, encoder: TextEncoder | None) -> np.ndarray:
        if encoder is None:
            raise CCRError(
                f"adding {text!r} needs its text embedding, or the encoder to make it: add(name, encoder=...)"
            )
        theirs, ours = getattr(encoder, "fingerprint", None), self._now.provenance.encoder_fingerprint
        if theirs is not None and ours is not None and theirs != ours:
            raise CCRError(
                f"this model reads embeddings of encoder {ours}, got encoder {theirs}: use the model's encoder"
            )
        return np.asarray(encoder.embed_texts([text]))

    def _checked_weights(self, weights: Mapping[Any, float]) -> dict[Any, float]:
        """Weights by class, which may be named by another kind of number or by its text."""
        if not isinstance(weights, Mapping):
            raise CCRError(f"weights must be {{class: weight}}, got {type(weights).__name__}")
        classes = self._now.classes.tolist()
        return {classes[position(classes, name)]: as_number("a weight", value) for name, value in weights.items()}

    def _training(self, alpha: float | None) -> Training:
        """Settings to refit a head: those of the model's own, except for `alpha` if one is given."""
        settings = self._now.provenance.settings
        return Training(
            alpha=settings.get("alpha") if alpha is None else alpha,
            weights_per_class=self._weights_per_class(),
            candidates=settings.get("candidates"),
        )

    def _weights_per_class(self) -> int | None:
        """Weights per class of the fit; if it was "auto", the largest number of weights of any class in the session's
        first model, those set by hand not counted."""
        asked, first = self._now.provenance.settings.get("weights_per_class"), self._models[0]
        if asked != "auto":
            return asked
        learned = first.head.coef != 0
        for concept, number in fixed_weights(first.provenance.edits, first.classes.tolist()):
            learned[number, first.row(concept)] = False
        return int(np.count_nonzero(learned, axis=1).max())

    def _weights(self, numbers: np.ndarray) -> np.ndarray | None:
        present, y = np.unique(numbers, return_inverse=True)
        class_weight = self._now.provenance.settings.get("class_weight")
        labels = Labels(self._now.classes[present], y)
        if isinstance(class_weight, Mapping):  # scikit-learn refuses weights of classes that are not there
            class_weight = {label: w for label, w in class_weight.items() if label in set(labels.classes.tolist())}
        return training_weights(labels, class_weight=class_weight, sample_weight=None)
