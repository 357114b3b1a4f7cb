"""What a model folder must hold for its parts to fit together, checked before a kernel reads any of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ccr.errors import FormatError
from ccr.knowledge import Knowledge
from ccr.shown import STATED, Shown
from ccr.utils.texts import check_name

if TYPE_CHECKING:
    from ccr.coding import Rule

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
