"""A model is a folder: config.json and model.safetensors, written whole or not at all. Never pickle."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import ccr
from ccr.calibration import Calibration
from ccr.coding import CODERS, check_rule, rule_from_dict, rule_to_dict
from ccr.coding.heads import LinearHead
from ccr.concepts import stored_concepts
from ccr.errors import CCRError, FormatError
from ccr.explain.claims import ClaimEvidence
from ccr.explain.terms import plain
from ccr.geometry import ConeWidening
from ccr.io.files import (
    MOST_TENSOR_BYTES,
    check_writable,
    format_errors,
    read_object,
    read_regular,
    recover_folder,
    replace_folder,
    write_bytes,
    write_text,
)
from ccr.io.provenance import Provenance, Signature
from ccr.io.remote import AnyPath, Place, as_place
from ccr.knowledge import Knowledge
from ccr.knowledge.grounding import Groups
from ccr.knowledge.shown import STATED, Shown
from ccr.refine.options import Epoch
from ccr.space import Angular, ImageMetric, Space, Symmetric
from ccr.utils.texts import check_name

FORMAT = "ccr-model"
FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
#: Attempts to read a folder that is being replaced meanwhile.
REPLACED = 20


class ModelFolder(NamedTuple):
    """Content of a model folder: its `config` and its `tensors` by name."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]


def save_folder(path: str | os.PathLike[str], model: ModelFolder, reader: Callable[[ModelFolder], Any]) -> AnyPath:
    """Write the folder `path` whole or not at all: a crash leaves the old model or none.

    An existing model is replaced; any other folder that is not empty is refused, and so is a model that `reader` would
    not understand again.
    """
    target = as_place(path)
    check_target(target)
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in model.tensors.items()}
    blob = save_tensors(tensors)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "tensors_sha256": hashlib.sha256(blob).hexdigest(),
    }
    text = json.dumps({**header, **model.config}, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        reader(ModelFolder(json.loads(text), tensors))
    except CCRError as error:
        raise CCRError(f"this model could not be loaded again, so it is not saved at {target}: {error}") from None

    def write(folder: Path) -> None:
        write_bytes(folder / TENSORS, blob)
        write_text(folder / CONFIG, text)

    replace_folder(target, write)
    return target


def load_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read a folder written by `save_folder`; damaged, foreign or newer ones are refused with the reason."""
    folder = as_place(path)
    recover_folder(folder)
    for _ in range(REPLACED):
        before = _state(folder)
        try:
            config = _read_config(folder)
            blob = _read_tensors(folder, config)
            break
        except FormatError:
            # Another process may have replaced the folder between the two files: then both are read again.
            if _state(folder) == before:
                raise
    else:
        raise FormatError(f"{folder} is replaced over and over while it is read: wait until that ends")
    with format_errors(folder / TENSORS, "be safetensors", "copy or save it again"):
        tensors = load_tensors(blob)
    return ModelFolder(config, tensors)


def _state(folder: AnyPath) -> Any:
    """What changes whenever a model is replaced: the folder's identity, or in an object store its configuration. (The
    configuration alone would not do on a disk: two models may take turns, and be replaced twice between two reads.)"""
    try:
        if isinstance(folder, Place):
            return (folder / CONFIG).read_bytes()
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _read_tensors(folder: AnyPath, config: Mapping[str, Any]) -> bytes:
    """The file of tensors that belongs to a configuration."""
    try:
        blob = read_regular(folder / TENSORS, MOST_TENSOR_BYTES)
    except OSError as error:
        raise FormatError(
            f"{folder} is not a whole model: cannot read {TENSORS} ({error.strerror}); save it again"
        ) from None
    if hashlib.sha256(blob).hexdigest() != config.get("tensors_sha256"):
        raise FormatError(
            f"{folder / TENSORS} is damaged: its checksum is not the one in {CONFIG}; copy or save it again"
        )
    return blob


def read_folder(path: str | os.PathLike[str], reader: Callable[[ModelFolder], Any]) -> Any:
    """Read a model's folder by `reader`; an error, with the path, when its parts do not fit together."""
    folder = load_folder(path)
    try:
        with format_errors(path, "be a model whose config.json and tensors fit together", "copy or save it again"):
            return reader(folder)
    except CCRError as error:
        raise FormatError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    """Whether `path` holds a model of any version."""
    try:
        _read_config(as_place(path), check_version=False)
    except FormatError:
        return False
    return True


def _read_config(folder: AnyPath, *, check_version: bool = True) -> dict[str, Any]:
    if not folder.is_dir():
        raise FormatError(f"{folder} is not a model: there is no such folder; `ccr fit ... --out {folder}` makes one")
    config = read_object(folder / CONFIG, "be the JSON of a model", "copy or save it again")
    if config.get("format") != FORMAT:
        raise FormatError(f"{folder} is not a ccr model: its {CONFIG} does not say format={FORMAT!r}")
    version = config.get("format_version")
    if check_version and version != FORMAT_VERSION:
        raise FormatError(
            f"{folder} has model format {version!r}, this ccr reads format {FORMAT_VERSION}: "
            f"it was written by ccr {config.get('library_version', 'unknown')}; install that version or newer"
        )
    return config


def check_target(target: AnyPath) -> None:
    """An error when a model could not be saved at `target`: better before the work than after it."""
    target = as_place(target)
    recover_folder(target)
    if target.exists() and not target.is_dir():
        raise CCRError(f"a model is a folder, but {target} is a file: choose another name")
    if target.is_dir() and any(target.iterdir()) and not is_model_folder(target):
        raise CCRError(f"{target} is not empty and not a ccr model, so it is left alone: choose another folder")
    check_writable(target if isinstance(target, Place) else target.absolute().parent)


# Validation: the parts of a folder must fit together before a kernel reads any of them.
_LARGEST = float(np.finfo(np.float32).max)
_WIDTHS = (np.dtype(np.float32), np.dtype(np.float64))


def tensor(
    tensors: Mapping[str, np.ndarray],
    name: str,
    shape: tuple[int, ...],
    *,
    narrow: bool = True,
    infinite: bool = False,
    unknown: bool = False,
) -> np.ndarray:
    """The tensor of this name and shape, float32 if `narrow`, with infinity only if `infinite` and NaN if `unknown`."""
    if name not in tensors:
        raise FormatError(f"the model has no tensor {name!r}: save it again")
    array, kinds = tensors[name], "float32" if narrow else "float32 or float64"
    fits = array.shape == shape and array.dtype in _WIDTHS[: 1 if narrow else 2]
    require(fits, f"{name!r} must be {kinds} {shape}, got {array.dtype} {array.shape}", "save it again")
    known = (infinite or not np.isinf(array).any()) and (unknown or not np.isnan(array).any())
    require(known, f"{name!r} holds NaN or infinity", "save it again")
    return array


def optional(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], **options: Any) -> np.ndarray | None:
    """The same where there is one, else None."""
    return tensor(tensors, name, shape, **options) if name in tensors else None


def require(fits: object, what: str, remedy: str = "the file was changed after it was saved") -> None:
    """An error that says what is wrong with the model unless it `fits`."""
    if not fits:
        raise FormatError(f"the model's {what}: {remedy}")


def known_classes(config: Mapping[str, Any]) -> np.ndarray:
    """The classes: at least two, different, sorted, exactly those that were written, with names that can be shown."""
    written, kind = config["classes"], np.dtype(config["class_type"])
    require(
        isinstance(written, list) and kind.kind in "Ufiub", f"classes must be texts, numbers or booleans, got {kind}"
    )
    if kind.kind == "U":  # no wider than what was written, whatever the file says: it would take as much memory
        longest = max((len(name) for name in written if isinstance(name, str)), default=1)
        kind = min(kind, np.dtype(f"U{max(longest, 1)}"), key=lambda one: one.itemsize)
    classes = np.array(written, dtype=kind)
    fits = classes.ndim == 1 and len(classes) >= 2 and classes.tolist() == written
    require(fits, f"classes are not what {kind.str} can hold")
    require(np.array_equal(classes, np.unique(classes)), "classes must be different and sorted")
    for name in classes:
        check_name(str(name), "a class's name")
    return classes


def known_names(written: Any) -> tuple[str, ...]:
    """Names of concepts as a configuration lists them: texts that can be shown, no two alike."""
    fits = isinstance(written, list) and all(isinstance(name, str) and name.strip() for name in written)
    require(fits, "concepts must be a list of names")
    names = tuple(name.strip() for name in written)
    for name in names:
        check_name(name, "a concept's name")
    require(len(set(names)) == len(names), "concepts must have different names")
    return names


#: What later work reads of an entry in a log of edits, by its action.
EDITED = {
    "suppress": ("concept",),
    "scale": ("concept",),
    "rename": ("concept", "to"),
    "set_weight": ("concept", "class"),
    "zero_weight": ("concept", "class"),
    "merge": ("first", "second"),
    "add": ("name",),
    "teach": ("name",),
}


def is_edit(entry: Any) -> bool:
    """Whether an entry of a file can be one of a log of edits: an action, with what is read of it later."""
    if not (isinstance(entry, dict) and isinstance(entry.get("action"), str)):
        return False
    photos = [entry.get(side, []) for side in ("shows", "lacks")]  # older versions kept their number alone
    rows = [row for side in photos for row in (side if isinstance(side, list) else [side])]
    names = [entry.get(name) for name in EDITED.get(entry["action"], ())]
    labels = (str, int, float)  # of classes
    fits = all(isinstance(name, labels) for name in names) and all(isinstance(row, int) for row in rows)
    return fits and isinstance(entry.get("weights", {}), dict)


def unpack_shown(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], classes: int, concepts: int
) -> Shown | None:
    """The map from scores to the probability that an image shows a concept; None without any."""
    facts = config.get("shown")
    if facts is None:
        return None
    intercepts = tensor(tensors, "shown_intercepts", (concepts,), narrow=False).astype(np.float64)
    answers = tensors.get("shown_answers", np.zeros(0))
    fits = answers.shape == (concepts,) and answers.dtype == np.int64 and bool((answers >= 0).all())
    fits = fits and facts.get("source") in ("photos", "classes")
    # Models saved before 2026-11-19 have none.
    by_class = optional(tensors, "shown_by_class", (2, classes, concepts), narrow=False)
    if by_class is not None:
        by_class = by_class.astype(np.float64)
        fits = fits and bool((by_class[1] > 0).all())
    slope = _positive(facts, "slope")
    stated = _positive(facts, "stated") if "stated" in facts else STATED
    largest = max(slope, *(float(np.abs(part).max(initial=0.0)) for part in (intercepts, by_class) if part is not None))
    fits = fits and stated <= 1.0 and largest <= _LARGEST  # sums of larger ones overflow
    require(fits, "map from scores to probabilities is damaged", "save it again")
    error = math.nan if facts.get("error") is None else _share(facts, "error")
    return Shown(intercepts, slope, answers, facts["source"], error, stated, by_class)


def text_or_none(config: Mapping[str, Any], name: str) -> str | None:
    """A text of the configuration, or None."""
    value = config.get(name)
    require(value is None or isinstance(value, str), f"{name} must be a text, got {value!r}")
    return value


def _positive(config: Mapping[str, Any], name: str) -> float:
    value = float(config[name])
    require(math.isfinite(value) and value > 0, f"{name} must be a number above 0, got {value}", "save it again")
    return value


def _share(config: Mapping[str, Any], name: str) -> float:
    value = config[name]
    require(isinstance(value, float) and 0 <= value <= 1, f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


#: A user's choices that a configuration can name.
CHOICES = {**CODERS, "Angular": Angular, "Symmetric": Symmetric}
#: Settings of models that were made before these could be chosen.
OLDER_SETTINGS = {
    "fidelity": None,
    "weights_per_class": None,
    "candidates": None,
    "coverage": None,
    "claims": "open",
    "min_transfer": None,
    "min_probability": None,
    "stated_truth": None,
}
#: Kind of a `ConceptModel` in its configuration.
KIND = "ConceptClassifier"


def pack(model: Any) -> ModelFolder:
    """The folder of a `ConceptModel`."""
    origin: Provenance = model.provenance
    assert origin.texts is not None
    certainty = None if model.calibration is None else vars(model.calibration)
    config = {
        **pack_common(model, KIND),
        **({} if certainty is None else {"calibration": {k: v for k, v in certainty.items() if k != "typical"}}),
        "concepts": list(model.concepts.names),
        "rule": rule_to_dict(model.rule),
        "dispersion_factor": getattr(model.space.dispersion, "factor", None),
        "edits": [dict(edit) for edit in origin.edits],
        "best_epoch": origin.best_epoch,
        "engine": origin.engine,
        "stopped": origin.stopped,
        "left_out": list(origin.left_out),
        "history": plain([asdict(epoch) for epoch in origin.history]),
    }
    tensors = {
        "concepts": origin.texts.embeddings,
        "initial": model.initial.embeddings,
        "refined": model.concepts.embeddings,
        "coef": model.head.coef,
        "intercept": model.head.intercept,
        **pack_space(model.space),
    }
    if certainty is not None:
        tensors["typical"] = certainty["typical"]
    _pack_known(origin, config, tensors)
    if model.shown is not None:
        config["shown"] = {name: plain(getattr(model.shown, name)) for name in ("slope", "source", "error", "stated")}
        tensors["shown_intercepts"] = model.shown.intercepts.astype(np.float64)
        tensors["shown_answers"] = model.shown.answers.astype(np.int64)
        if model.shown.by_class is not None:
            tensors["shown_by_class"] = model.shown.by_class.astype(np.float64)
    if model.signature is not None:
        config["signature"] = model.signature.to_dict()
    if origin.fidelity is not None:
        tensors["fidelity"] = origin.fidelity
    if origin.left_out_texts is not None and origin.left_out_places is not None:
        tensors |= {"left_out": origin.left_out_texts, "left_out_places": origin.left_out_places.astype(np.int64)}
    return ModelFolder(config, tensors)


def unpack(folder: ModelFolder) -> dict[str, Any]:
    """The fields of a `ConceptModel`; a folder that does not fit together is refused."""
    kind = folder.config.get("model")
    if kind != KIND:
        raise FormatError(f"this folder holds a {kind}, not a {KIND}: load it with the class of that name")
    config, tensors = folder
    names, rule, common = config["concepts"], rule_from_dict(config["rule"]), unpack_common(config)
    shape = (len(names), tensors["concepts"].shape[-1])
    rows = {name: tensor(tensors, name, shape) for name in ("concepts", "initial", "refined")}
    check_rule(rule, len(names))
    common["settings"] = OLDER_SETTINGS | common["settings"]
    edits = config.get("edits", [])
    require(isinstance(edits, list) and all(map(is_edit, edits)), "edits are not a list of actions")
    common_head = unpack_head(config, tensors, len(names))
    provenance = Provenance(
        **common,
        texts=stored_concepts(names, rows["concepts"]),
        history=tuple(Epoch(**_known_numbers(epoch)) for epoch in config["history"]),
        best_epoch=int(config["best_epoch"]),
        engine=text_or_none(config, "engine"),  # folders of older versions have neither this nor edits
        stopped=text_or_none(config, "stopped"),
        edits=tuple(edits),
        fidelity=optional(tensors, "fidelity", shape[:1], narrow=False, unknown=True),
        **_unpack_left_out(config, tensors, shape[-1]),
        **_unpack_known(config, tensors, len(common_head["classes"]), shape),
    )
    return {
        "space": unpack_space(config, tensors, shape[-1]),
        "concepts": stored_concepts(names, rows["refined"]),
        "initial": stored_concepts(names, rows["initial"]),
        "rule": rule,
        **common_head,
        "provenance": provenance,
        "calibration": _unpack_calibration(config, tensors, len(names)),
        "shown": unpack_shown(config, tensors, len(common_head["classes"]), len(names)),
        "signature": Signature.from_dict(config.get("signature")),
    }


def pack_common(model: Any, kind: str) -> dict[str, Any]:
    """Entries of config.json that all kinds of models share."""
    origin: Provenance = model.provenance
    return {
        "library_version": ccr.__version__,
        "model": kind,
        "parameters": {name: _pack_choice(value) for name, value in origin.settings.items()},
        "classes": model.classes.tolist(),
        "class_type": model.classes.dtype.str,
        "encoder": origin.encoder,
        "encoder_fingerprint": origin.encoder_fingerprint,
        "metrics": dict(origin.metrics),
    }


def unpack_common(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a provenance that all models have."""
    return {
        "settings": {name: _unpack_choice(value) for name, value in config["parameters"].items()},
        "encoder": text_or_none(config, "encoder"),
        "encoder_fingerprint": text_or_none(config, "encoder_fingerprint"),
        "metrics": dict(config["metrics"]),
    }


def unpack_head(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], columns: int) -> dict[str, Any]:
    """Head and classes, checked to fit together and to be finite."""
    classes = known_classes(config)
    coef = tensor(tensors, "coef", (len(classes), columns), narrow=False)
    intercept = tensor(tensors, "intercept", (len(classes),), narrow=False)
    require(coef.dtype == intercept.dtype, f"weights and bias must be of one type, got {coef.dtype}, {intercept.dtype}")
    return {"head": LinearHead(coef, intercept), "classes": classes}


def pack_space(space: Space) -> dict[str, np.ndarray]:
    """A space as tensors."""
    tensors = {"image_mean": space.image_mean, "concept_mean": space.concept_mean}
    if isinstance(space.dispersion, ConeWidening):
        tensors["dispersion_axis"] = np.asarray(space.dispersion.axis)
    elif space.dispersion is not None:
        tensors["dispersion_matrix"] = space.dispersion
    if space.metric is not None:
        tensors |= {"metric_whiten": space.metric.whiten, "metric_color": space.metric.color}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def unpack_space(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], dimension: int) -> Space:
    """The space of `pack_space`, of embeddings with this many dimensions."""
    line, square = (dimension,), (dimension, dimension)
    dispersion: ConeWidening | np.ndarray | None = None
    if "dispersion_axis" in tensors:
        axis = tensor(tensors, "dispersion_axis", line)
        dispersion = ConeWidening(axis, _positive(config, "dispersion_factor"))
    elif "dispersion_matrix" in tensors:
        dispersion = tensor(tensors, "dispersion_matrix", square)
    whiten, color = (optional(tensors, f"metric_{name}", square) for name in ("whiten", "color"))
    require((whiten is None) == (color is None), "metric must be both metric_whiten and metric_color", "save it again")
    metric = None if whiten is None or color is None else ImageMetric(whiten, color)
    image_mean, concept_mean = (optional(tensors, name, line) for name in ("image_mean", "concept_mean"))
    return Space(image_mean, concept_mean, dispersion, metric)


def _pack_choice(value: Any) -> Any:
    if type(value).__name__ in CHOICES:
        parameters = value.get_params(deep=False)
        return {"type": type(value).__name__, **{name: _pack_choice(item) for name, item in parameters.items()}}
    if isinstance(value, Mapping):  # class weights; JSON keys are texts, labels may be numbers
        return {"type": "mapping", "items": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, np.random.RandomState):
        return None  # a generator has no number to save
    return [_plain(item) for item in value] if isinstance(value, (tuple, list, np.ndarray)) else _plain(value)


def _unpack_choice(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    parameters = dict(value)
    kind = parameters.pop("type")
    return dict(parameters["items"]) if kind == "mapping" else CHOICES[kind](**parameters)


def _plain(value: Any) -> Any:
    if type(value).__name__ == "device":  # of torch, which is not imported to see it
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _unpack_left_out(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], dimension: int) -> dict[str, Any]:
    names = known_names(config.get("left_out", []))
    if "left_out" not in tensors:  # folders of older versions have names alone
        return {"left_out": names}
    texts = stored_concepts(names, tensor(tensors, "left_out", (len(names), dimension)))
    places = tensors.get("left_out_places", np.zeros(0))
    fits = places.shape == (len(names),) and places.dtype == np.int64
    require(fits and (places >= 0).all() and (np.diff(places) >= 0).all(), "places of left out concepts are damaged")
    return {"left_out": texts.names, "left_out_texts": texts.embeddings, "left_out_places": places}


def _pack_known(origin: Provenance, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Add knowledge, and what was measured with it, to configuration and tensors."""
    if origin.knowledge is not None:
        names, arrays = origin.knowledge.packed()
        config["knowledge"] = {"digest": origin.knowledge.digest, **names}
        tensors |= {f"knowledge_{name}": array for name, array in arrays.items()}
    if origin.transfer is not None:
        config["transfer"] = plain(origin.transfer)
    if origin.groups is not None:
        tensors["class_means"] = origin.groups.means.astype(np.float32)
        tensors["class_counts"] = origin.groups.counts.astype(np.int64)
    if origin.seen is not None:
        proof = origin.seen
        tensors["claims"] = proof.claim.astype(np.int64)
        tensors["claim_facts"] = np.column_stack([proof.shown, proof.anywhere, proof.gained]).astype(np.float64)
        config["claim_images"] = {"classes": proof.images.tolist(), "right": proof.right}


def _unpack_known(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], classes: int, shape: tuple[int, int]
) -> dict[str, Any]:
    """The fields of a `Provenance` that `_pack_known` wrote, checked to fit together."""
    transfer = config.get("transfer")
    if transfer is not None:
        values = transfer.values() if isinstance(transfer, dict) else [3]
        fits = all(value is None or (isinstance(value, float) and 0 <= value <= 1) for value in values)
        require(fits, "transfer must be shares by concept")
        transfer = _known_numbers(transfer)
    means, groups = optional(tensors, "class_means", (classes, shape[1])), None
    if means is not None:
        counts = tensors.get("class_counts", np.zeros(0))
        whole = counts.shape == (classes,) and counts.dtype == np.int64 and (counts >= 0).all()
        require(whole, "numbers of images by class are damaged", "save it again")
        groups = Groups(means.astype(np.float64), counts)
    prefix, names = "knowledge_", config.get("knowledge")
    arrays = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
    known = None if names is None else Knowledge.unpacked(names, arrays)
    return {"knowledge": known, "transfer": transfer, "groups": groups, "seen": _unpack_seen(config, tensors, classes)}


def _known_numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """NaN in place of None, which stands for it in JSON."""
    return {key: math.nan if value is None else value for key, value in record.items()}


def _unpack_seen(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], classes: int) -> ClaimEvidence | None:
    if "claims" not in tensors:
        return None
    claim, images = tensors["claims"], config["claim_images"]
    facts = tensor(tensors, "claim_facts", (len(claim), 3), narrow=False)
    counts = np.array(images["classes"], np.int64)
    fits = claim.ndim == 2 and claim.shape[1:] == (2,) and claim.dtype == np.int64 and counts.shape == (classes,)
    right = int(images["right"])
    fits = fits and bool((counts >= 0).all()) and 0 <= right <= counts.sum()
    require(fits, "evidence of images on its claims is damaged", "save it again")
    shown, anywhere, gained = facts.T
    return ClaimEvidence(claim, shown, anywhere, gained, counts, right)


def _unpack_calibration(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], n: int) -> Calibration | None:
    """The calibration; None for models without one, such as those of older versions."""
    stored = config.get("calibration")
    if stored is None:
        return None
    warmth, images = stored["temperature"], stored["images"]
    require(isinstance(warmth, float) and 0 < warmth < 1e6, f"temperature must be a number above 0, got {warmth!r}")
    fits = isinstance(images, int) and not isinstance(images, bool) and images >= 1
    require(fits, f"calibration must be on at least one image, got {images!r}")
    typical = tensor(tensors, "typical", (n,), narrow=False)
    return Calibration(warmth, _share(stored, "coverage"), _share(stored, "least_probability"), images, typical)
