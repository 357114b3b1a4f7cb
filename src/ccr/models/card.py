"""Card: what is known about a model, as the Markdown page that a hub shows beside its files."""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

import ccr
from ccr.core.explain.drift import GROUNDED
from ccr.core.metrics import Fidelity, weights_per_class
from ccr.errors import MissingExtraError
from ccr.models.signature import signature_in_words
from ccr.texts import visible

#: Concepts per class and classes that a card lists at most; the folder holds all of them.
MOST_CONCEPTS, MOST_CLASSES = 5, 200
_MOST = 1e12  # no count and no measurement of a model is larger
TAGS = ("interpretability", "concept-bottleneck", "explainable-ai", "clip", "ccr")


def model_card(model: Any, *, name: str, license: str | None = None, pictures: Mapping[str, str] | None = None) -> str:
    """The card of a `ConceptModel`: metadata that hubs read, then data, encoder, measurements, concepts, classes,
    limits, and how to load it.

    `pictures` are {file beside the card: what it shows}.
    """
    sections = [_introduction(model, name), _loading(name), _measured(model), _pictures(pictures or {})]
    sections += [_certainty(model), _claims(model), _classes(model), _concepts(model), _origin(model), LIMITS]
    return f"---\n{_metadata(model, name, license)}\n---\n\n" + "\n\n".join(part for part in sections if part) + "\n"


def inert(text: object) -> str:
    """A name from outside as one line of Markdown that shows it and does nothing else."""
    escaped = html.escape(visible(str(text)), quote=False)
    return re.sub(r"([\\`*_\[\]()|~#!])", lambda found: f"&#{ord(found[0])};", escaped)


def _metadata(model: Any, name: str, license: str | None) -> str:
    """YAML, made and checked by the hub's own library."""
    try:
        from huggingface_hub import EvalResult, ModelCardData
    except ImportError as error:
        raise MissingExtraError('a model card needs huggingface_hub: pip install "ccr-xai[hub]"') from error
    results = [
        EvalResult(
            task_type="image-classification",
            dataset_type="custom",
            dataset_name="the images that the model was made for",
            dataset_split=split,
            metric_type=kind,
            metric_value=float(found[field]),
        )
        for split, found in _evaluations(model)
        for kind, field in (("accuracy", "accuracy"), ("f1", "macro_f1"))
        if _is_number(found.get(field))
    ]
    data = ModelCardData(
        library_name="ccr",
        license=license,
        pipeline_tag="image-classification",
        tags=list(TAGS),
        metrics=["accuracy"],
        model_name=name if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml()).strip()


def _introduction(model: Any, name: str) -> str:
    encoder = model.provenance.encoder
    reads = f"embeddings of {inert(encoder)}" if encoder else "embeddings of an encoder that it does not name"
    return (
        f"# {inert(name)}\n\nAn image classifier whose every prediction is a short, exact sum of named concepts, made "
        f"by ccr {ccr.__version__} (Constrained Concept Refinement). It tells {len(model.classes)} classes apart by "
        f"{len(model.names)} concepts, {weights_per_class(model.head):.1f} weights per class, and reads {reads}."
    )


def _loading(given: str) -> str:
    name = given if re.fullmatch(r"[\w./-]+", given) else "OWNER/NAME"
    return (
        '## How to use it\n\n```\npip install "ccr-xai[hub,bundled]"\n'
        f"ccr pull {name} --out model\nccr explain model PHOTO\n```\n\n"
        f'```python\nfrom ccr import ConceptModel\n\nmodel = ConceptModel.from_pretrained("{name}")\n'
        "model.predict(X), model.explain(X[0])   # X: embeddings, one row per image\n```\n\n"
        "Only `config.json` and `model.safetensors` are fetched; nothing is unpickled or executed."
    )


def _evaluations(model: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for split, found in model.provenance.metrics.items():
        if isinstance(found, Mapping) and _is_number(found.get("accuracy")):
            yield str(split), found


def _measured(model: Any) -> str:
    rows = [
        f"| {inert(split)} | {_number(found.get('n'), 0)} | {_percent(found.get('accuracy'))} | {_interval(found)} | "
        f"{_number(found.get('in_play'))} | {_number(_inner(found, 'fidelity', 'mean'), 2)} | "
        f"{_number(_inner(found, 'fidelity', 'min'), 2)} | {_percent(found.get('calibration_error'))} |"
        for split, found in _evaluations(model)
    ]
    if not rows:
        rows_text = "Nothing was measured on labelled images when the model was made: `ccr evaluate` does."
    else:
        head = "| split | images | accuracy | 95 % interval | concepts in play | fidelity | least | calibration error |"
        rows_text = "\n".join([head, "|---|--:|--:|--:|--:|--:|--:|--:|", *rows])
    return (
        f"## Measured\n\n{rows_text}\n\nFidelity is the correlation, over images, of a concept's scores with those of "
        f"its own text: 1 sees exactly what its text sees.{_training_fidelity(model)}\n\n{_controls(model)}"
    )


def _training_fidelity(model: Any) -> str:
    if model.provenance.fidelity is None:
        return ""
    found = Fidelity.of(np.asarray(model.provenance.fidelity))
    return f" On the training images it is {found.mean:.2f} on average and {found.min:.2f} at least."


def _controls(model: Any) -> str:
    """Accuracy of random concepts beside the model's own: the gap is what the meaning of the words brings."""
    found = model.provenance.metrics.get("controls")
    known = {} if not isinstance(found, Mapping) else {name: _control(value) for name, value in found.items()}
    rows = [f"| {inert(name)} | {row} |" for name, row in known.items() if row]
    if not rows:
        return (
            "Controls: none were noted with this model. Random vectors in place of the concepts can classify as well "
            "as words do, so that accuracy alone does not show meaning; `ccr push --controls` measures the gap."
        )
    head = "| in place of the concepts | accuracy | meaning gap, points | 95 % interval |"
    return "\n".join(
        [
            "Controls: the same fit with concepts that mean nothing. The meaning gap is how far the model is ahead.",
            "",
            head,
            "|---|--:|--:|--:|",
            *rows,
        ]
    )


def _control(found: Any) -> str:
    """The cells of one control: an accuracy noted by hand, or what `ccr.study.controls` measured; else nothing."""
    if isinstance(found, float):
        return f"{_percent(found)} | not known | not known"
    if not isinstance(found, Mapping) or not _is_number(found.get("accuracy")):
        return ""
    gap, ends = found.get("gap"), _ends(found)
    points = f"{100 * gap:+.1f}" if _is_number(gap) else "not known"
    between = f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}" if ends else "not known"
    return f"{_percent(found['accuracy'])} | {points} | {between}"


def _certainty(model: Any) -> str:
    found = model.calibration
    if found is None:
        return ""
    return (
        f"## When it does not answer\n\nProbabilities are at temperature {found.temperature:.2f}. Prediction sets hold "
        f"the true class of {100 * found.coverage:g} % of images like the {found.images} that they were calibrated on; "
        f"a class is in a set if its probability is at least {found.least_probability:.3f}, and the model abstains "
        "where that is not exactly one."
    )


def _claims(model: Any) -> str:
    """What is known of the model's claims, and by whom."""
    known, signed = model.provenance.knowledge, signature_in_words(model)
    signed = "" if signed is None else f"\n\n**{inert(signed)}**"
    if known is None:
        return f"## Claims{signed}" if signed else ""
    counts = model.claim_counts
    total, parts = sum(counts.values()), ", ".join(f"{number:,} {status}" for status, number in counts.items())
    named = Counter(claim.source or "not named" for claim in model.claims() if claim.answer != "unknown")
    sources = ", ".join(f"{inert(source)} ({number:,})" for source, number in named.most_common()) or "none"
    measured = [value for value in (model.transfer or {}).values() if math.isfinite(value)]
    transfer = (
        f" Concepts recognise classes that they were not told about by an AUC of {np.mean(measured):.2f} on average "
        "(transfer; 0.5 is chance)."
        if measured
        else ""
    )
    return (
        f"## Claims\n\nA positive weight claims that the class shows the concept: {total:,} claims, {parts} by the "
        f"knowledge that the model was fitted with (digest {known.digest}).{transfer}\n\nSources of the answers: "
        f"{sources}.\n\n{GROUNDED}{signed}"
    )


def _pictures(pictures: Mapping[str, str]) -> str:
    if not pictures:
        return ""
    shown = "\n\n".join(f"![{inert(words)}]({file})" for file, words in pictures.items())
    return f"## Predictions, explained\n\n{shown}"


def _classes(model: Any) -> str:
    lines = ["## Classes", "", "| class | concepts that speak for it most, with their weights |", "|---|---|"]
    for label, weights in list(zip(model.classes.tolist(), model.head.coef, strict=True))[:MOST_CLASSES]:
        order = np.argsort(-weights, kind="stable")[:MOST_CONCEPTS]
        shown = ", ".join(f"{inert(model.names[row])} ({weights[row]:+.2f})" for row in order if weights[row] > 0)
        lines.append(f"| {inert(label)} | {shown or 'none'} |")
    more = len(model.classes) - MOST_CLASSES
    return "\n".join(lines) + (f"\n\nand {more} more." if more > 0 else "")


def _concepts(model: Any) -> str:
    listed = ", ".join(inert(name) for name in model.names)
    gone = model.provenance.left_out
    left = f"\n\nLeft out, because no class has a weight for them: {', '.join(map(inert, gone))}." if gone else ""
    return f"## Concepts\n\n{listed}.{left}"


def _origin(model: Any) -> str:
    origin = model.provenance
    settings = ", ".join(
        f"{inert(name)}={inert(value)}" for name, value in origin.settings.items() if value is not None
    )
    edits = ", ".join(inert(edit.get("action", "?")) for edit in origin.edits)
    print_of = inert(origin.encoder_fingerprint or "not known")
    lines = [
        "## Where it comes from",
        "",
        f"- Encoder: {inert(origin.encoder or 'not known')}, fingerprint {print_of}.",
        f"- Images: {_images(model)}.",
        f"- Training: {origin.epochs} epochs, of which the {origin.best_epoch}. was kept.",
        f"- Settings: {settings}.",
        f"- Changed by hand since: {edits or 'nothing'}.",
    ]
    return "\n".join(lines)


def _images(model: Any) -> str:
    """How many there were of each split, where that was noted."""
    found = model.provenance.metrics.get("images")
    counts = found.items() if isinstance(found, Mapping) else ()
    return ", ".join(f"{count:,.0f} {inert(split)}" for split, count in counts if _is_number(count)) or "not known"


LIMITS = """## Limits

- It knows its own classes alone: a photo of anything else is still given one of them, if surely so only where the
  model was calibrated to abstain.
- An explanation is exact about what the model computes. Whether a concept is true of a photo depends on the encoder:
  look at the fidelity, and at photos.
- Photos that differ from those it was fitted on, in camera, place or time, are answered worse than measured here."""


def _is_number(value: Any) -> TypeGuard[float]:
    """A number that a card can show: finite, and of so many digits that it is one of a measurement."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MOST


def _percent(value: Any) -> str:
    return f"{100 * value:.1f} %" if _is_number(value) else "not known"


def _number(value: Any, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if _is_number(value) else "not known"


def _interval(found: Mapping[str, Any]) -> str:
    ends = _ends(found)
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %" if ends else "not known"


def _ends(found: Mapping[str, Any]) -> tuple[float, float] | None:
    """Both ends of an interval, if it was noted."""
    ends = found.get("interval")
    known = isinstance(ends, (list, tuple)) and len(ends) == 2 and all(map(_is_number, ends))
    return (ends[0], ends[1]) if known and ends else None


def _inner(found: Mapping[str, Any], name: str, part: str) -> Any:
    inner = found.get(name)
    return inner.get(part) if isinstance(inner, Mapping) else None
