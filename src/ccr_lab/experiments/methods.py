"""The methods of a comparison: CCR and its ablations, the others, and the controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy import sparse

from ccr.classifier import ConceptClassifier
from ccr.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, Sign, code_size
from ccr.coding.heads import LinearHead, fit_softmax
from ccr.controls import random_unit_concepts
from ccr.errors import CCRError
from ccr.labels import Part
from ccr.refine.region import DEFAULT_STRENGTH, PAPER_RADIUS, bound_text, unrefined
from ccr.space import Angular, Symmetric
from ccr.utils.texts import did_you_mean
from ccr_lab.experiments.task import ComparisonTask
from ccr_lab.rivals import LabelFreeCBM, LinearProbe, ZeroShot
from ccr_lab.rivals.model import Rival, head_mask

#: A radius that never binds on the unit sphere: refinement without projection.
UNBOUND = 2.0
#: Reference of concepts that are refined in a ball, and of pursuit, unless a method says otherwise.
DISPERSION = Symmetric(DEFAULT_STRENGTH)
#: Reference of the elastic net: as published first.
L1_RATIOS = (0.99, 0.8)
#: Penalties tried, in units of 1 / (number of training images) for codes scaled to size 1, strongest first.
PENALTIES = (10.0, 3.0, 1.0, 0.3)
#: No entry of the mean loss's gradient, for codes of size 1, is larger when a head counts as converged.
CONVERGED = 1e-4
Group = Literal["ours", "others", "controls"]
#: CCR, and what stands in for its concepts at the same settings: a comparison with the first has the others, too.
NAMED, STAND_INS = "ccr", ("random-words", "random-vectors")
#: Methods that use knowledge, CCR and its baseline in full and the others as a mask of their heads; and what names of
#: their controls end in: the same without it, and with every concept's answers given to other classes.
INFORMED = ("ccr", "baseline", "ccr-ball", "ccr-angular", "ip-omp", "omp", "label-free", "splice")
ENDINGS = WITHOUT, SHUFFLED = "-without", "-shuffled"


@dataclass(frozen=True, eq=False)
class Contender:
    """A fitted method: its model makes codes, its head (chosen on validation data) predicts from them.

    `chosen` names what validation data decided; `concepts` counts the concepts, None where predictions are not made
    of any; `dense` codes count by contribution (Measures, docs/method.md).
    """

    model: Any
    head: LinearHead
    validation_accuracy: float
    chosen: dict[str, Any]
    concepts: int | None
    dense: bool = False


Fit = Callable[[ComparisonTask, Part, Part, int], Contender]


@dataclass(frozen=True)
class Method:
    """A name to call it by, its title in tables, how it is fitted to a task's training and validation images, and in a
    few words what it is."""

    name: str
    title: str
    group: Group
    fit: Fit
    about: str = ""


def methods_named(names: Iterable[str] | None = None) -> tuple[Method, ...]:
    """The methods with these names, in the order of `METHODS`, each with its controls of knowledge behind it; None: all
    of `METHODS`."""
    if names is None:
        return METHODS
    wanted = list(dict.fromkeys(names))
    known = {item.name: item for method in METHODS for item in (method, *_controls_of_knowledge(method))}
    for name in wanted:
        if name not in known:
            raise CCRError(f"there is no method {name!r}{did_you_mean(name, known)}: choose from {', '.join(known)}")
    return tuple(method for name, method in known.items() if name in wanted)


def with_controls(names: Sequence[str], *, knowledge: bool = False) -> list[str]:
    """The same names, and with CCR its stand-ins: without them nobody knows what its concepts' names are worth. With
    `knowledge`, each method that uses it also without it and with a shuffled table."""
    own = [*names, *(STAND_INS if NAMED in names else ())]
    more = [f"{name}{ending}" for name in own if name in INFORMED for ending in ENDINGS] if knowledge else []
    return list(dict.fromkeys([*own, *more]))


def _controls_of_knowledge(method: Method) -> tuple[Method, ...]:
    if method.name not in INFORMED:
        return ()
    kinds = ((WITHOUT, "without knowledge", _without), (SHUFFLED, "shuffled knowledge", _shuffled))
    return tuple(
        Method(f"{method.name}{ending}", f"{method.title}, {words}", "controls", partial(change, method.fit))
        for ending, words, change in kinds
    )


def _without(fit: Fit, task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    return fit(replace(task, knowledge=None, claims="open", min_probability=None), train, validation, seed)


def _shuffled(fit: Fit, task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    if task.knowledge is None:
        raise CCRError("there is no knowledge to shuffle: give --knowledge FILE, or leave this control out")
    return fit(replace(task, knowledge=task.knowledge.shuffled(seed)), train, validation, seed)


def all_methods(task: ComparisonTask) -> tuple[Method, ...]:
    """Every method once: where the task itself asks for a ball, CCR is the one in the ball."""
    same = bound_text(_in_ball(task).settings) == bound_text(task.settings)
    return tuple(method for method in METHODS if not (same and method.name == "ccr-ball"))


@dataclass(frozen=True, eq=False)
class ConvergedHead:
    """The head chosen, its accuracy on validation images, and the penalty it was solved with (None: as trained)."""

    head: LinearHead
    accuracy: float
    penalty: float | None


def converged_head(
    codes: Any,
    numbers: np.ndarray,
    validation: Part,
    *,
    classes: int,
    trained: LinearHead | None,
    penalties: Sequence[float] = PENALTIES,
    permitted: np.ndarray | None = None,
) -> ConvergedHead:
    """The best head on validation data: the `trained` one, or one solved to convergence on (codes, numbers).

    Heads are compared in this order, and a later one must be better to be taken: `trained` first, then weaker and
    weaker penalties, each solved from the one before.

    Parameters
    ----------
    codes : sparse matrix or array (m, n)
        Codes of the training images.
    numbers : array (m,)
        Their class numbers, in [0, classes).
    validation : Part
        Codes (v, n) and class numbers (v,) of the validation images.
    penalties : sequence of float
        Penalties to try, strongest first, in units of 1 / m for codes scaled to size 1.
    permitted : booleans (classes, n), optional
        Weights that may differ from zero; None: all.
    """
    codes = sparse.csr_matrix(codes)
    size = code_size(codes) ** 2
    candidates: list[tuple[float | None, LinearHead]] = [] if trained is None else [(None, trained)]
    start, fixed = None, None if permitted is None else ~permitted
    for penalty in penalties:
        alpha = penalty * size / len(numbers)
        start = fit_softmax(codes, numbers, classes=classes, alpha=alpha, start=start, fixed=fixed, tol=CONVERGED)
        candidates.append((penalty, LinearHead(start.coef.astype(np.float32), start.intercept.astype(np.float32))))
    scored = [(_accuracy(head, validation), penalty, head) for penalty, head in candidates]
    accuracy, chosen, head = max(scored, key=lambda scores: scores[0])  # the first of equals
    return ConvergedHead(head, accuracy, chosen)


def _accuracy(head: LinearHead, validation: Part) -> float:
    return float(np.mean(head.logits(validation.X).argmax(axis=1) == validation.y))


def _concept_classifier(
    task: ComparisonTask, train: Part, validation: Part, seed: int, *, masked: bool = False, **options: Any
) -> Contender:
    """A fitted `ConceptClassifier` and the head that validation images prefer; `masked`: only the head is told what is
    known, not the concepts."""
    settings = {"center": task.center, "max_iter": task.max_iter, "random_state": seed, **options}
    concepts = settings.pop("concepts", task.concepts)
    model = ConceptClassifier(concepts, **settings)
    model.fit(train.X, train.y, validation=(validation.X, validation.y))
    held_out = Part(model.transform(validation.X), np.searchsorted(model.classes_, validation.y))
    permitted = None
    if task.knowledge is not None and (masked or model.knowledge is not None):
        permitted = head_mask(task.knowledge, model.classes_, model.model_.names, task.claims)
    # A solved head has every weight: where few were asked for, the trained one stands.
    best = converged_head(
        model.transform(train.X),
        np.searchsorted(model.classes_, train.y),
        held_out,
        classes=len(model.classes_),
        trained=None if masked and permitted is not None else model.head_,
        penalties=PENALTIES if model.weights_per_class is None else (),
        permitted=permitted,
    )
    chosen = {"penalty": best.penalty, "coder": str(model.coder), "dispersion": str(model.dispersion)}
    return Contender(model, best.head, best.accuracy, chosen, len(concepts))


def _best(
    task: ComparisonTask, train: Part, validation: Part, seed: int, variants: Sequence[dict[str, Any]]
) -> Contender:
    """The variant of best validation accuracy, the first of equals."""
    tried = [_concept_classifier(task, train, validation, seed, **variant) for variant in variants]
    return max(tried, key=lambda contender: contender.validation_accuracy)


def _threshold(
    task: ComparisonTask,
    train: Part,
    validation: Part,
    seed: int,
    *,
    refined: bool = True,
    signs: Sequence[Sign] = ("positive",),
    **options: Any,
) -> Contender:
    """CCR as `ccr fit` does it, or its baseline if nothing is refined; `signs` of codes to choose from."""
    told = {} if "concepts" in options else task.informed  # the table is about the concepts, not about stand-ins
    asked = {**task.settings, **told, **options}
    settings = asked if refined else unrefined(asked)
    coders = [HardThreshold(length=task.length, sign=sign) for sign in signs]
    return _best(task, train, validation, seed, [{**settings, "coder": coder} for coder in coders])


def _ball(
    task: ComparisonTask, train: Part, validation: Part, seed: int, *, dispersion: Any, **options: Any
) -> Contender:
    """CCR as in the paper: in a ball of the encoder's space, with all weights, whatever bounds the task's other
    concepts; codes of both signs, or one-sided as the released code makes them."""
    shared = {"dispersion": dispersion, "weights_per_class": None, "signs": ("both", "positive")}
    return _threshold(_in_ball(task), train, validation, seed, **{**shared, **options})


def _in_ball(task: ComparisonTask) -> ComparisonTask:
    radius = PAPER_RADIUS if task.radius is None else task.radius
    return replace(task, fidelity=None, radius=radius, min_probability=None)  # which is for one-sided codes


def _pursuit(task: ComparisonTask, train: Part, validation: Part, seed: int, *, kind: Any) -> Contender:
    """A head on pursuit codes over concepts as they are embedded, or dispersed as ours are."""
    coder = kind(length=max(1, round(task.length)))
    return _best(task, train, validation, seed, _fixed(coder))


def _splice(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    """SpLiCE always measures from the means."""
    variants = [{**variant, "center": "data"} for variant in _fixed(NonNegativeLasso(length=task.length))]
    return _best(task, train, validation, seed, variants)


def _fixed(coder: Any) -> list[dict[str, Any]]:
    """A head of all weights on codes over concepts that stay: as they are embedded, or dispersed as ours are."""
    shared = {"radius": 0.0, "weights_per_class": None, "coder": coder, "masked": True}
    return [{**shared, "dispersion": spread} for spread in (None, DISPERSION)]


def _rival(model: Rival, validation: Part, chosen: dict[str, Any], *, concepts: int | None = None) -> Contender:
    """A fitted rival with its own head."""
    accuracy = float(np.mean(model.predict(validation.X) == validation.y))
    return Contender(model, model.head_, accuracy, chosen, concepts, dense=True)


def _label_free(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    tried = []
    for l1_ratio in L1_RATIOS:
        model = LabelFreeCBM(task.concepts, length=task.length, center=task.center, l1_ratio=l1_ratio)
        model.fit(train.X, train.y, knowledge=task.knowledge, claims=task.claims)
        chosen = {"l1_ratio": l1_ratio, "alpha": model.alpha_}
        tried.append(_rival(model, validation, chosen, concepts=len(task.concepts)))
    return max(tried, key=lambda contender: contender.validation_accuracy)


def _probe(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    model = LinearProbe(center=task.center)
    model.fit(train.X, train.y, validation=(validation.X, validation.y))
    return _rival(model, validation, {"penalty": model.alpha_})


def _zero_shot(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    if task.class_texts is None:
        raise CCRError("zero-shot needs the embedded names of the classes: give class_texts")
    model = ZeroShot(task.class_texts, center=task.center)
    model.fit(train.X, train.y)
    return _rival(model, validation, {})


def _random_words(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    if task.random_words is None:
        raise CCRError("random-word concepts need embedded words: give random_words")
    return _threshold(task, train, validation, seed, concepts=task.random_words)


def _random_vectors(task: ComparisonTask, train: Part, validation: Part, seed: int) -> Contender:
    return _threshold(task, train, validation, seed, concepts=random_unit_concepts(task.concepts, seed=seed))


METHODS = (
    Method("ccr", "CCR", "ours", _threshold, "concepts refined on your images, near to what their words mean"),
    Method("baseline", "baseline", "ours", partial(_threshold, refined=False), "CCR whose concepts stay as embedded"),
    Method(
        "ccr-ball",
        "CCR, ball",
        "ours",
        partial(_ball, dispersion=DISPERSION),
        "CCR as in the paper: concepts stay in a ball around their texts, all weights",
    ),
    Method(
        "ccr-angular",
        "CCR, ball, angular",
        "ours",
        partial(_ball, dispersion=Angular()),
        "the same, with concepts spread apart as in the paper",
    ),
    Method(
        "baseline-angular",
        "baseline, ball, angular",
        "ours",
        partial(_ball, dispersion=Angular(), refined=False),
        "the same as CCR, ball, angular, but concepts stay as embedded",
    ),
    Method(
        "ccr-none",
        "CCR, ball, undispersed",
        "ours",
        partial(_ball, dispersion=None),
        "the same, not spread apart at all",
    ),
    Method(
        "baseline-none",
        "baseline, ball, undispersed",
        "ours",
        partial(_ball, dispersion=None, refined=False),
        "the same as CCR, ball, undispersed, but concepts stay as embedded",
    ),
    Method(
        "ccr-unbound",
        "CCR, no bound",
        "ours",
        partial(_ball, dispersion=DISPERSION, radius=UNBOUND),
        "concepts may go anywhere, whatever they then mean",
    ),
    Method("ip-omp", "CLIP-IP-OMP", "others", partial(_pursuit, kind=IPOMP), "asks for one concept after the other"),
    Method("omp", "OMP", "others", partial(_pursuit, kind=OMP), "orthogonal matching pursuit on the concepts"),
    Method("label-free", "label-free CBM", "others", _label_free, "scores of all concepts, few weights per class"),
    Method("splice", "SpLiCE", "others", _splice, "a lasso of the image on the concepts"),
    Method("probe", "linear probe", "controls", _probe, "logistic regression without concepts: no explanation"),
    Method("zero-shot", "zero-shot", "controls", _zero_shot, "the nearest class name, nothing learned"),
    Method("random-words", "CCR, random words", "controls", _random_words, "CCR with unrelated words as concepts"),
    Method("random-vectors", "CCR, random vectors", "controls", _random_vectors, "CCR with random concepts"),
)
