"""The methods of a comparison: CCR and its ablations, the others, and the controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from ccr.core.coding import IPOMP, OMP, HardThreshold, NonNegativeLasso, Sign
from ccr.core.concepts import Concepts
from ccr.core.heads import LinearHead
from ccr.core.space import Angular, Symmetric
from ccr.errors import CCRError
from ccr.models.bound import DEFAULT_STRENGTH
from ccr.models.classifier import ConceptClassifier
from ccr.models.rivals import LabelFreeCBM, LinearProbe, ZeroShot, random_unit_concepts
from ccr.study.experiments.compare.converged import converged_head
from ccr.study.experiments.compare.task import Task
from ccr.study.experiments.curves import UNBOUND
from ccr.study.experiments.part import Part

#: Of ours, unless a method says otherwise.
DISPERSION = Symmetric(DEFAULT_STRENGTH)
SIGNS: tuple[Sign, ...] = ("both", "positive")
#: Of the elastic net: as published first.
L1_RATIOS = (0.99, 0.8)
Group = Literal["ours", "others", "controls"]


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
            raise CCRError(f"there is no method {name!r}: choose from {', '.join(known)}")
    return tuple(method for method in METHODS if method.name in wanted)


def _concept_classifier(task: Task, train: Part, validation: Part, seed: int, **options: Any) -> Contender:
    settings = {"radius": 0.0, "center": task.center, "max_iter": task.max_iter, "random_state": seed, **options}
    model = ConceptClassifier(settings.pop("concepts", task.concepts), **settings)
    model.fit(train.X, train.y, validation=(validation.X, validation.y))
    numbers = np.searchsorted(model.classes_, train.y)
    held_out = Part(model.transform(validation.X), np.searchsorted(model.classes_, validation.y))
    best = converged_head(model.transform(train.X), numbers, held_out, classes=len(model.classes_), trained=model.head_)
    chosen = {"penalty": best.penalty, "coder": str(model.coder), "dispersion": str(model.dispersion)}
    return Contender(model, best.head, best.accuracy, chosen, len(model.concepts_))


def _best(task: Task, train: Part, validation: Part, seed: int, variants: Sequence[dict[str, Any]]) -> Contender:
    """The variant of best validation accuracy, the first of equals."""
    tried = [_concept_classifier(task, train, validation, seed, **variant) for variant in variants]
    return max(tried, key=lambda contender: contender.validation_accuracy)


def _threshold(task: Task, train: Part, validation: Part, seed: int, **options: Any) -> Contender:
    """CCR, or with radius 0 its baseline: codes of both signs, or one-sided as the released code makes them."""
    coders = [HardThreshold(length=task.length, sign=sign) for sign in SIGNS]
    variants = [{"radius": task.radius, "coder": coder, **options} for coder in coders]
    return _best(task, train, validation, seed, variants)


def _pursuit(task: Task, train: Part, validation: Part, seed: int, *, kind: Any) -> Contender:
    """A head on pursuit codes over concepts as they are embedded, or dispersed as ours are."""
    coder = kind(length=max(1, round(task.length)))
    variants = [{"coder": coder, "dispersion": spread} for spread in (None, DISPERSION)]
    return _best(task, train, validation, seed, variants)


def _splice(task: Task, train: Part, validation: Part, seed: int) -> Contender:
    """SpLiCE always measures from the means."""
    shared = {"coder": NonNegativeLasso(length=task.length), "center": "data"}
    return _best(task, train, validation, seed, [{**shared, "dispersion": spread} for spread in (None, DISPERSION)])


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


def _random_words(task: Task, train: Part, validation: Part, seed: int, **options: Any) -> Contender:
    if task.random_words is None:
        raise CCRError("random-word concepts need embedded words: give random_words")
    return _threshold(task, train, validation, seed, concepts=task.random_words, **options)


def _random_vectors(task: Task, train: Part, validation: Part, seed: int, **options: Any) -> Contender:
    concepts: Concepts = random_unit_concepts(task.concepts, seed=seed)
    return _threshold(task, train, validation, seed, concepts=concepts, **options)


METHODS = (
    Method("ccr", "CCR", "ours", partial(_threshold, dispersion=DISPERSION)),
    Method("baseline", "baseline", "ours", partial(_threshold, dispersion=DISPERSION, radius=0.0)),
    Method("ccr-angular", "CCR, angular", "ours", partial(_threshold, dispersion=Angular())),
    Method(
        "baseline-angular",
        "baseline, angular",
        "ours",
        partial(_threshold, dispersion=Angular(), radius=0.0),
    ),
    Method("ccr-none", "CCR, undispersed", "ours", partial(_threshold, dispersion=None)),
    Method("baseline-none", "baseline, undispersed", "ours", partial(_threshold, dispersion=None, radius=0.0)),
    Method("ccr-unbound", "CCR, no projection", "ours", partial(_threshold, dispersion=DISPERSION, radius=UNBOUND)),
    Method("ip-omp", "CLIP-IP-OMP", "others", partial(_pursuit, kind=IPOMP)),
    Method("omp", "OMP", "others", partial(_pursuit, kind=OMP)),
    Method("label-free", "label-free CBM", "others", _label_free),
    Method("splice", "SpLiCE", "others", _splice),
    Method("probe", "linear probe", "controls", _probe),
    Method("zero-shot", "zero-shot", "controls", _zero_shot),
    Method("random-words", "CCR, random words", "controls", partial(_random_words, dispersion=DISPERSION)),
    Method("random-vectors", "CCR, random vectors", "controls", partial(_random_vectors, dispersion=DISPERSION)),
)
