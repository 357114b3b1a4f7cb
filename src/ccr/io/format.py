"""Format of a model folder: a configuration in JSON types, and tensors by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

import ccr
from ccr.calibration import Calibration
from ccr.coding import CODERS, rule_from_dict, rule_to_dict
from ccr.concepts import stored_concepts
from ccr.errors import FormatError
from ccr.explain.claims import ClaimEvidence
from ccr.geometry import ConeWidening
from ccr.grounding import Groups
from ccr.heads import LinearHead
from ccr.io.folder import ModelFolder
from ccr.io.provenance import Provenance, Signature
from ccr.knowledge import Knowledge
from ccr.refine.options import Epoch
from ccr.shown import STATED, Shown
from ccr.space import Angular, ImageMetric, Space, Symmetric
from ccr.utils.texts import check_name

if TYPE_CHECKING:
    from ccr.coding import Rule

# Validation of a model folder: its parts must fit together before a kernel reads any of it.
_LARGEST = float(np.finfo(np.float32).max)
_SWITCHES = ("positive", "information")  # entries of rules that are true or false
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
    found = tensors[name]
    if found.shape != shape or found.dtype not in _WIDTHS[: 1 if narrow else 2]:
        wanted = "float32" if narrow else "float32 or float64"
        raise FormatError(f"the model's {name!r} must be {wanted} {shape}, got {found.dtype} {found.shape}")
    if (np.isinf(found).any() and not infinite) or (np.isnan(found).any() and not unknown):
        raise FormatError(f"the model's {name!r} holds NaN or infinity: save it again")
    return found


def optional(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], **options: Any) -> np.ndarray | None:
    """The same where there is one, else None."""
    return tensor(tensors, name, shape, **options) if name in tensors else None


def known_classes(config: Mapping[str, Any]) -> np.ndarray:
    """The classes: at least two, different, sorted, exactly those that were written, with names that can be shown."""
    written = config["classes"]
    kind = np.dtype(config["class_type"])
    if not isinstance(written, list) or kind.kind not in "Ufiub":
        raise FormatError(f"the model's classes must be a list of texts, numbers or booleans, got {kind}")
    if kind.kind == "U":  # no wider than what was written, whatever the file says: it would take as much memory
        longest = max((len(name) for name in written if isinstance(name, str)), default=1)
        kind = min(kind, np.dtype(f"U{max(longest, 1)}"), key=lambda one: one.itemsize)
    classes = np.array(written, dtype=kind)
    if classes.ndim != 1 or len(classes) < 2 or classes.tolist() != written:
        raise FormatError(
            f"the model's classes are not what {kind.str} can hold: the file was changed after it was saved"
        )
    if not np.array_equal(classes, np.unique(classes)):
        raise FormatError("the model's classes must be different and sorted: the file was changed after it was saved")
    for name in classes:
        check_name(str(name), "a class's name")
    return classes


def known_names(written: Any) -> tuple[str, ...]:
    """Names of concepts as a configuration lists them: texts that can be shown, no two alike."""
    if not isinstance(written, list) or not all(isinstance(name, str) and name.strip() for name in written):
        raise FormatError("the model's concepts must be a list of names: the file was changed after it was saved")
    names = tuple(name.strip() for name in written)
    for name in names:
        check_name(name, "a concept's name")
    if len(set(names)) < len(names):
        raise FormatError("the model's concepts must have different names: the file was changed after it was saved")
    return names


def check_rule(rule: Rule, concepts: int) -> None:
    """The rule's numbers must be such that its codes exist over this many concepts."""
    check_rule_values(asdict(rule))  # type: ignore[call-overload]
    length, fewest = getattr(rule, "length", None), rule.fewest_concepts
    factors = getattr(rule, "factors", None)
    if factors is not None and len(factors) != concepts:
        raise FormatError(f"the model's rule has {len(factors)} factors of its threshold: it needs {concepts}")
    # A threshold or a penalty was calibrated to a mean length, and stays what it is when concepts leave.
    if not isinstance(fewest, int) or not 1 <= fewest <= concepts:
        raise FormatError(f"the model's rule has length {length!r}: it must be above 0 and at most {concepts}")


def check_rule_values(values: Mapping[str, Any]) -> None:
    """The entries of a rule: switches, numbers that float32 can hold, and a length above 0 or none."""
    for name, value in values.items():
        if name in _SWITCHES:
            if not isinstance(value, bool):
                raise FormatError(f"the model's rule has {name} {value!r}: it must be true or false")
            continue
        if value is None and name in ("length", "factors"):
            continue
        if name == "factors" and not isinstance(value, (list, tuple)):
            raise FormatError(f"the model's rule has {name} {value!r}: it must be a list of numbers")
        for number in value if name == "factors" else (value,):
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= _LARGEST:
                raise FormatError(f"the model's rule has {name} {number!r}: it must be a number from 0 to {_LARGEST:g}")
    length = values.get("length")
    if length is not None and not length > 0:
        raise FormatError(f"the model's rule has length {length!r}: it must be above 0")


def unpack_knowledge(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Knowledge | None:
    """The knowledge that the model was fitted with; None without any."""
    names = config.get("knowledge")
    if names is None:
        return None
    prefix = "knowledge_"
    arrays = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
    return Knowledge.unpacked(names, arrays)


def unpack_shown(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], concepts: int) -> Shown | None:
    """The map from scores to the probability that an image shows a concept; None without any."""
    facts = config.get("shown")
    if facts is None:
        return None
    intercepts, answers = (tensors.get(f"shown_{name}", np.zeros(0)) for name in ("intercepts", "answers"))
    fits = intercepts.shape == answers.shape == (concepts,) and answers.dtype == np.int64
    if not fits or not np.isfinite(intercepts).all() or facts.get("source") not in ("photos", "classes"):
        raise FormatError("the model's map from scores to probabilities is damaged: save it again")
    error = facts.get("error")
    return Shown(
        intercepts.astype(np.float64),
        positive(facts, "slope"),
        answers,
        facts["source"],
        math.nan if error is None else float(error),
        positive(facts, "stated") if "stated" in facts else STATED,
    )


def text_or_none(config: Mapping[str, Any], name: str) -> str | None:
    """A text of the configuration, or None."""
    value = config.get(name)
    if value is not None and not isinstance(value, str):
        raise FormatError(f"the model's {name} must be a text, got {value!r}: the file was changed after it was saved")
    return value


def positive(config: Mapping[str, Any], name: str) -> float:
    """A finite number of the configuration, above 0."""
    value = float(config[name])
    if not (math.isfinite(value) and value > 0):
        raise FormatError(f"the model's {name} must be a number above 0, got {value}: save it again")
    return value


def share(config: Mapping[str, Any], name: str) -> float:
    """A number of the configuration from 0 to 1."""
    value = config[name]
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise FormatError(f"the model's {name} must be a number from 0 to 1, got {value!r}: save it again")
    return value


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
    certainty, typical = pack_calibration(model.calibration)
    config = {
        **pack_common(model, KIND),
        **certainty,
        "concepts": list(model.concepts.names),
        "rule": rule_to_dict(model.rule),
        "dispersion_factor": getattr(model.space.dispersion, "factor", None),
        "edits": [dict(edit) for edit in origin.edits],
        "best_epoch": origin.best_epoch,
        "engine": origin.engine,
        "stopped": origin.stopped,
        "left_out": list(origin.left_out),
        "history": [{key: _finite(value) for key, value in asdict(epoch).items()} for epoch in origin.history],
    }
    assert origin.texts is not None
    tensors = {
        "concepts": origin.texts.embeddings,
        "initial": model.initial.embeddings,
        "refined": model.concepts.embeddings,
        "coef": model.head.coef,
        "intercept": model.head.intercept,
        **pack_space(model.space),
        **typical,
    }
    known, more = _pack_known(origin)
    config |= known
    tensors |= more
    if model.shown is not None:
        config["shown"] = {
            "slope": model.shown.slope,
            "source": model.shown.source,
            "error": _finite(model.shown.error),
            "stated": model.shown.stated,
        }
        tensors |= {
            "shown_intercepts": model.shown.intercepts.astype(np.float64),
            "shown_answers": model.shown.answers.astype(np.int64),
        }
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
    common_head = unpack_head(config, tensors, len(names))
    provenance = Provenance(
        **common,
        texts=stored_concepts(names, rows["concepts"]),
        history=tuple(_unpack_epoch(epoch) for epoch in config["history"]),
        best_epoch=int(config["best_epoch"]),
        engine=text_or_none(config, "engine"),  # folders of older versions have neither this nor edits
        stopped=text_or_none(config, "stopped"),
        edits=_unpack_edits(config.get("edits", [])),
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
        "calibration": unpack_calibration(config, tensors, len(names)),
        "shown": unpack_shown(config, tensors, len(names)),
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
    if coef.dtype != intercept.dtype:
        raise FormatError(f"the model's weights and bias must be of one type, got {coef.dtype} and {intercept.dtype}")
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
        dispersion = ConeWidening(axis, positive(config, "dispersion_factor"))
    elif "dispersion_matrix" in tensors:
        dispersion = tensor(tensors, "dispersion_matrix", square)
    whiten, color = (optional(tensors, f"metric_{name}", square) for name in ("whiten", "color"))
    if (whiten is None) != (color is None):
        raise FormatError("the model has one of metric_whiten and metric_color, not both: save it again")
    metric = None if whiten is None or color is None else ImageMetric(whiten, color)
    image_mean, concept_mean = (optional(tensors, name, line) for name in ("image_mean", "concept_mean"))
    return Space(image_mean, concept_mean, dispersion, metric)


def _pack_choice(value: Any) -> Any:
    if type(value).__name__ in CHOICES:
        given = value.get_params(deep=False)
        return {"type": type(value).__name__, **{name: _pack_choice(item) for name, item in given.items()}}
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
    given = dict(value)
    kind = given.pop("type")
    return dict(given["items"]) if kind == "mapping" else CHOICES[kind](**given)


def _plain(value: Any) -> Any:
    if type(value).__name__ == "device":  # of torch, which is not imported to see it
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _finite(value: float) -> float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unpack_left_out(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], dimension: int) -> dict[str, Any]:
    names = known_names(config.get("left_out", []))
    if "left_out" not in tensors:  # folders of older versions have names alone
        return {"left_out": names}
    texts = stored_concepts(names, tensor(tensors, "left_out", (len(names), dimension)))
    places = tensors.get("left_out_places", np.zeros(0))
    if places.shape != (len(names),) or places.dtype != np.int64 or (places < 0).any() or (np.diff(places) < 0).any():
        raise FormatError("the places of the concepts that the model left out are damaged: save it again")
    return {"left_out": texts.names, "left_out_texts": texts.embeddings, "left_out_places": places}


def _pack_known(origin: Provenance) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Knowledge, and what was measured with it, as configuration and tensors; nothing without knowledge."""
    config: dict[str, Any] = {}
    tensors: dict[str, np.ndarray] = {}
    if origin.knowledge is not None:
        names, arrays = origin.knowledge.packed()
        config["knowledge"] = {"digest": origin.knowledge.digest, **names}
        tensors |= {f"knowledge_{name}": array for name, array in arrays.items()}
    if origin.transfer is not None:
        config["transfer"] = {name: _finite(value) for name, value in origin.transfer.items()}
    if origin.groups is not None:
        tensors |= {
            "class_means": origin.groups.means.astype(np.float32),
            "class_counts": origin.groups.counts.astype(np.int64),
        }
    seen = origin.seen
    if seen is not None:
        facts = np.column_stack([seen.shown, seen.anywhere, seen.gained]).astype(np.float64)
        tensors |= {"claims": seen.claim.astype(np.int64), "claim_facts": facts}
        config["claim_images"] = {"classes": seen.images.tolist(), "right": seen.right}
    return config, tensors


def _unpack_known(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], classes: int, shape: tuple[int, int]
) -> dict[str, Any]:
    """The fields of a `Provenance` that `_pack_known` wrote, checked to fit together."""
    known = unpack_knowledge(config, tensors)
    transfer = config.get("transfer")
    if transfer is not None:
        values = transfer.values() if isinstance(transfer, dict) else [None]
        if any(value is not None and not (isinstance(value, float) and 0 <= value <= 1) for value in values):
            raise FormatError("the model's transfer must be shares by concept: the file was changed after it was saved")
        transfer = {name: math.nan if value is None else value for name, value in transfer.items()}
    means, groups = optional(tensors, "class_means", (classes, shape[1])), None
    if means is not None:
        counts = tensors.get("class_counts", np.zeros(0))
        if counts.shape != (classes,) or counts.dtype != np.int64 or (counts < 0).any():
            raise FormatError("the numbers of images of the model's classes are damaged: save it again")
        groups = Groups(means.astype(np.float64), counts)
    return {"knowledge": known, "transfer": transfer, "groups": groups, "seen": _unpack_seen(config, tensors, classes)}


def _unpack_seen(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], classes: int) -> ClaimEvidence | None:
    if "claims" not in tensors:
        return None
    claim, images = tensors["claims"], config["claim_images"]
    facts = tensor(tensors, "claim_facts", (len(claim), 3), narrow=False)
    counts = np.array(images["classes"], np.int64)
    if claim.ndim != 2 or claim.shape[1:] != (2,) or claim.dtype != np.int64 or counts.shape != (classes,):
        raise FormatError("what images say of the model's claims is damaged: save it again")
    shown, anywhere, gained = facts.T
    return ClaimEvidence(claim, shown, anywhere, gained, counts, int(images["right"]))


def _unpack_edits(edits: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(edits, list) or not all(isinstance(edit, dict) and "action" in edit for edit in edits):
        raise FormatError("the model's edits are not a list of actions: the file was changed after it was saved")
    return tuple(edits)


def _unpack_epoch(record: Mapping[str, Any]) -> Epoch:
    values: dict[str, Any] = {key: math.nan if value is None else value for key, value in record.items()}
    return Epoch(**values)


def pack_calibration(found: Calibration | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Entries of the configuration and tensors for a calibration; empty for a model without one."""
    if found is None:
        return {}, {}
    numbers = {key: value for key, value in vars(found).items() if key != "typical"}
    return {"calibration": numbers}, {"typical": found.typical}


def unpack_calibration(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], n: int) -> Calibration | None:
    """Calibration as packed by `pack_calibration`; None for models without one, such as those of older versions."""
    found = config.get("calibration")
    if found is None:
        return None
    temperature, images = found["temperature"], found["images"]
    if not isinstance(temperature, float) or not 0 < temperature < 1e6:
        raise FormatError(f"the model's temperature must be a number above 0, got {temperature!r}: save it again")
    if not isinstance(images, int) or isinstance(images, bool) or images < 1:
        raise FormatError(f"the model's calibration must be on at least one image, got {images!r}: save it again")
    typical = tensor(tensors, "typical", (n,), narrow=False)
    return Calibration(temperature, share(found, "coverage"), share(found, "least_probability"), images, typical)
