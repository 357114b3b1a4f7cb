"""The methods of a comparison: CCR and its ablations, the others, and the controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ccr.classifier import ConceptClassifier
from ccr.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, Sign
from ccr.controls import random_unit_concepts
from ccr.errors import CCRError
from ccr.heads import LinearHead
from ccr.labels import Part
from ccr.refine.region import DEFAULT_STRENGTH, PAPER_RADIUS, bound_in_words, unrefined
from ccr.space import Angular, Symmetric
from ccr.utils.texts import did_you_mean
from ccr_lab.experiments.compare.converged import PENALTIES, converged_head
from ccr_lab.experiments.compare.task import Task
from ccr_lab.experiments.curves import UNBOUND
from ccr_lab.rivals import LabelFreeCBM, LinearProbe, ZeroShot

#: Of concepts that are refined in a ball, and of pursuit, unless a method says otherwise.
DISPERSION = Symmetric(DEFAULT_STRENGTH)
#: Of the elastic net: as published first.
L1_RATIOS = (0.99, 0.8)
Group = Literal["ours", "others", "controls"]
#: CCR itself, and what stands in for its concepts at the same settings: a comparison with the first has the others too.
NAMED, STAND_INS = "ccr", ("random-words", "random-vectors")


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


Fit = Callable[[Task, Part, Part, int], Contender]


@dataclass(frozen=True)
class Method:
    """A name to call it by, what it is, and how it is fitted to a task's training and validation images."""

    name: str
    title: str
    group: Group
    fit: Fit


def methods_named(names: Iterable[str] | None = None) -> tuple[Method, ...]:
    """The methods with these names, in the order of `METHODS`; None: all of them."""
    if names is None:
        return METHODS
    wanted = list(dict.fromkeys(names))
    known = {method.name: method for method in METHODS}
    for name in wanted:
        if name not in known:
            raise CCRError(f"there is no method {name!r}{did_you_mean(name, known)}: choose from {', '.join(known)}")
    return tuple(method for method in METHODS if method.name in wanted)


def with_controls(names: Sequence[str]) -> list[str]:
    """The same names, and with CCR those of its controls: without them nobody knows what its names are worth."""
    return [*names, *(STAND_INS if NAMED in names else ())]


def all_methods(task: Task) -> tuple[Method, ...]:
    """Every method once: where the task itself asks for a ball, CCR is the one in the ball."""
    same = bound_in_words(_in_ball(task).settings) == bound_in_words(task.settings)
    return tuple(method for method in METHODS if not (same and method.name == "ccr-ball"))


def _concept_classifier(task: Task, train: Part, validation: Part, seed: int, **options: Any) -> Contender:
    settings = {"center": task.center, "max_iter": task.max_iter, "random_state": seed, **options}
    concepts = settings.pop("concepts", task.concepts)
    model = ConceptClassifier(concepts, **settings)
    model.fit(train.X, train.y, validation=(validation.X, validation.y))
    numbers = np.searchsorted(model.classes_, train.y)
    held_out = Part(model.transform(validation.X), np.searchsorted(model.classes_, validation.y))
    # A solved head has every weight: where few were asked for, the trained one stands.
    penalties = PENALTIES if model.weights_per_class is None else ()
    best = converged_head(
        model.transform(train.X),
        numbers,
        held_out,
        classes=len(model.classes_),
        trained=model.head_,
        penalties=penalties,
    )
    chosen = {"penalty": best.penalty, "coder": str(model.coder), "dispersion": str(model.dispersion)}
    return Contender(model, best.head, best.accuracy, chosen, len(concepts))


def _best(task: Task, train: Part, validation: Part, seed: int, variants: Sequence[dict[str, Any]]) -> Contender:
    """The variant of best validation accuracy, the first of equals."""
    tried = [_concept_classifier(task, train, validation, seed, **variant) for variant in variants]
    return max(tried, key=lambda contender: contender.validation_accuracy)


def _threshold(
    task: Task,
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


def _ball(task: Task, train: Part, validation: Part, seed: int, *, dispersion: Any, **options: Any) -> Contender:
    """CCR as in the paper: in a ball of the encoder's space, with all weights, whatever bounds the task's other
    concepts; codes of both signs, or one-sided as the released code makes them."""
    shared = {"dispersion": dispersion, "weights_per_class": None, "signs": ("both", "positive")}
    return _threshold(_in_ball(task), train, validation, seed, **{**shared, **options})


def _in_ball(task: Task) -> Task:
    return replace(task, fidelity=None, radius=PAPER_RADIUS if task.radius is None else task.radius)


def _pursuit(task: Task, train: Part, validation: Part, seed: int, *, kind: Any) -> Contender:
    """A head on pursuit codes over concepts as they are embedded, or dispersed as ours are."""
    coder = kind(length=max(1, round(task.length)))
    return _best(task, train, validation, seed, _fixed(coder))


def _splice(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    """SpLiCE always measures from the means."""
    variants = [{**variant, "center": "data"} for variant in _fixed(NonNegativeLasso(length=task.length))]
    return _best(task, train, validation, seed, variants)


def _fixed(coder: Any) -> list[dict[str, Any]]:
    """A head of all weights on codes over concepts that stay: as they are embedded, or dispersed as ours are."""
    shared = {"radius": 0.0, "weights_per_class": None, "coder": coder}
    return [{**shared, "dispersion": spread} for spread in (None, DISPERSION)]


def _label_free(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    tried = []
    for l1_ratio in L1_RATIOS:
        options = {"length": task.length, "center": task.center, "l1_ratio": l1_ratio, "random_state": seed}
        model = LabelFreeCBM(task.concepts, **options)
        model.fit(train.X, train.y, validation=(validation.X, validation.y))
        accuracy = float(np.mean(model.predict(validation.X) == validation.y))
        chosen = {"l1_ratio": l1_ratio, "alpha": model.alpha_}
        tried.append(Contender(model, model.head_, accuracy, chosen, len(task.concepts), dense=True))
    return max(tried, key=lambda contender: contender.validation_accuracy)


def _probe(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    model = LinearProbe(center=task.center)
    model.fit(train.X, train.y, validation=(validation.X, validation.y))
    accuracy = float(np.mean(model.predict(validation.X) == validation.y))
    return Contender(model, model.head_, accuracy, {"penalty": model.alpha_}, None, dense=True)


def _zero_shot(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    if task.class_texts is None:
        raise CCRError("zero-shot needs the embedded names of the classes: give class_texts")
    model = ZeroShot(task.class_texts, center=task.center)
    model.fit(train.X, train.y)
    accuracy = float(np.mean(model.predict(validation.X) == validation.y))
    return Contender(model, model.head_, accuracy, {}, None, dense=True)


def _random_words(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    if task.random_words is None:
        raise CCRError("random-word concepts need embedded words: give random_words")
    return _threshold(task, train, validation, seed, concepts=task.random_words)


def _random_vectors(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    return _threshold(task, train, validation, seed, concepts=random_unit_concepts(task.concepts, seed=seed))


METHODS = (
    Method("ccr", "CCR", "ours", _threshold),
    Method("baseline", "baseline", "ours", partial(_threshold, refined=False)),
    Method("ccr-ball", "CCR, ball", "ours", partial(_ball, dispersion=DISPERSION)),
    Method("ccr-angular", "CCR, ball, angular", "ours", partial(_ball, dispersion=Angular())),
    Method(
        "baseline-angular",
        "baseline, ball, angular",
        "ours",
        partial(_ball, dispersion=Angular(), refined=False),
    ),
    Method("ccr-none", "CCR, ball, undispersed", "ours", partial(_ball, dispersion=None)),
    Method("baseline-none", "baseline, ball, undispersed", "ours", partial(_ball, dispersion=None, refined=False)),
    Method("ccr-unbound", "CCR, no bound", "ours", partial(_ball, dispersion=DISPERSION, radius=UNBOUND)),
    Method("ip-omp", "CLIP-IP-OMP", "others", partial(_pursuit, kind=IPOMP)),
    Method("omp", "OMP", "others", partial(_pursuit, kind=OMP)),
    Method("label-free", "label-free CBM", "others", _label_free),
    Method("splice", "SpLiCE", "others", _splice),
    Method("probe", "linear probe", "controls", _probe),
    Method("zero-shot", "zero-shot", "controls", _zero_shot),
    Method("random-words", "CCR, random words", "controls", _random_words),
    Method("random-vectors", "CCR, random vectors", "controls", _random_vectors),
)
