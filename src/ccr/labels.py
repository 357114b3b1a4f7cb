"""Labels: class numbers and weights, images that are held out, and the parts of a store."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ccr.errors import CCRError
from ccr.inputs import RESIDENT_BYTES
from ccr.utils.parameters import is_number
from ccr.utils.texts import check_name

if TYPE_CHECKING:
    from sklearn.model_selection import StratifiedKFold

    from ccr.space import Space

# Validation of labels and weights: from any labels to class numbers and one weight per image.

ClassWeight = Mapping[Any, float] | Literal["balanced"] | None


#: More validation images than this make no choice better.
MOST_VALIDATION = 20_000


class Labels(NamedTuple):
    """`classes` (C,) sorted, and for each image its class number `y` (m,)."""

    classes: np.ndarray
    y: np.ndarray


def store_part(X: Any, name: str) -> Any:
    """Attribute of a store by name, such as its labels `y`, its `encoder` or its `fingerprint`; None for any other X.

    It must be an attribute of X's class: a data frame's column that happens to be called so does not count.
    """
    return getattr(X, name) if hasattr(type(X), name) else None


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """These rows of X; of a store, a store: photos are known by a store's paths."""
    return X[rows] if store_part(X, "select") is None else X.select(rows=rows)


def fit_parts(X: Any, y: Any, sample_weight: Any, validation: Any, fraction: float) -> tuple[Any, Any]:
    """Training data of a fit, and validation data that chooses its epoch: a store that is given alone, whole or its
    training split, is divided by its splits, as `ccr fit` does; everything else stays as it is given."""
    if y is not None or sample_weight is not None or store_part(X, "training") is None:
        return X, validation
    train = X.training
    if validation is None and fraction > 0:
        validation = train.validation
    return train, validation


def labels_of(X: Any, y: Any = None) -> Any:
    """The labels given, or those that a store X brings; None where there are none."""
    return store_part(X, "y") if y is None else y


def as_labels(y: Any, m: int) -> np.ndarray:
    """Labels as a one-dimensional array of m texts, numbers or booleans, none of them missing."""
    if y is None:
        raise CCRError("labels are needed, got None: fit(X, y) takes one label for each row of X")
    labels = np.asarray(y.cpu() if hasattr(y, "cpu") else y)
    if labels.dtype.kind == "U" and isinstance(y, (list, tuple)):
        labels = np.array(y, dtype=object)  # NumPy makes texts of numbers, and of NaN, that stand among texts
    if labels.ndim != 1:
        raise CCRError(f"labels must be one for each row of X, got shape {labels.shape}: try y.ravel()")
    if len(labels) != m:
        raise CCRError(f"there must be one label for each row of X, got {len(labels)} labels for {m} rows")
    if labels.dtype == object:
        labels = _of_one_kind(labels)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise CCRError("labels must not be missing, got NaN or infinity: drop those images")
    if labels.dtype.kind not in "Ufiub":
        raise CCRError(f"labels must be texts, numbers or booleans, got {labels.dtype}")
    return labels


def _of_one_kind(labels: np.ndarray) -> np.ndarray:
    """Labels in an array of objects, as data frames hold them, as an array of their own kind."""
    if not any(all(isinstance(label, kind) for label in labels) for kind in (str, np.bool_, Real)):
        kinds = {type(label).__name__ for label in labels}
        raise CCRError(f"labels must be all of one kind, got {', '.join(sorted(kinds))}: make them texts")
    return np.array(labels.tolist())


def number_labels(y: Any, m: int) -> Labels:
    """Class numbers for training; at least two classes."""
    classes, numbers = np.unique(as_labels(y, m), return_inverse=True)
    for name in classes:
        check_name(str(name), "a class's name")
    if len(classes) < 2:
        raise CCRError(
            f"a classifier needs at least two classes, got one class, {classes[0].item()!r}: check the labels"
        )
    return Labels(classes, numbers.astype(np.int64))


def known_labels(y: Any, m: int, classes: np.ndarray) -> np.ndarray:
    """Labels (m,), all of which are among the sorted `classes`."""
    labels = as_labels(y, m)
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        shown = ", ".join(repr(label) for label in unknown[:5].tolist()) + (", ..." if len(unknown) > 5 else "")
        raise CCRError(
            f"{len(unknown)} classes were not there when the model was fitted: {shown}; it knows "
            f"{len(classes)}; drop those images or fit again with them"
        )
    return labels


def labels_like(classes: np.ndarray, y: Any, m: int) -> np.ndarray:
    """Labels (m,) of the same kind as the `classes`, which may be others: texts are never equal to numbers."""
    labels = as_labels(y, m)
    if (labels.dtype.kind == "U") != (classes.dtype.kind == "U"):
        raise CCRError(
            f"labels must be of the kind that the model was fitted on, such as {classes[0].item()!r}, got "
            f"{labels[0].item()!r}: none could ever be right"
        )
    return labels


def validation_numbers(y: Any, m: int, classes: np.ndarray) -> np.ndarray:
    """Class numbers (m,) of validation labels."""
    labels = as_labels(y, m)
    known = np.isin(labels, classes)
    if not known.all():
        raise CCRError(f"validation has a class that the training data has not: {labels[~known].tolist()[0]!r}")
    return np.searchsorted(classes, labels).astype(np.int64)


def training_weights(labels: Labels, *, class_weight: ClassWeight, sample_weight: Any | None) -> np.ndarray | None:
    """One weight per image, of mean 1; None when all are equal."""
    if class_weight is None and sample_weight is None:
        return None
    m = len(labels.y)
    weight = np.ones(m) if sample_weight is None else sample_weights(sample_weight, m)
    if class_weight is not None:
        weight = weight * _class_weights(class_weight, labels)[labels.y]
    with np.errstate(over="ignore"):
        total = weight.sum()
    if not 0 < total < np.inf:
        raise CCRError(f"weights must have a finite sum above 0, got {total}: divide them by their largest")
    return (weight / (total / m)).astype(np.float32)


def sample_weights(weights: Any, m: int) -> np.ndarray:
    try:
        weight = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise CCRError(f"sample_weight must be {m} numbers, got {type(weights).__name__}: {error}") from None
    if weight.shape != (m,):
        raise CCRError(f"sample_weight must be {m} numbers, one for each image, got shape {weight.shape}")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        raise CCRError(
            f"sample_weight must be finite numbers >= 0, got {weight[bad[0]]} in row {bad[0]}: drop that row"
        )
    if not weight.any():
        raise CCRError("sample_weight must be above 0 for some images, got only zeros: None counts each image once")
    return weight


def _class_weights(given: ClassWeight, labels: Labels) -> np.ndarray:
    """The weight of each class (C,)."""
    from sklearn.utils.class_weight import compute_class_weight  # a second that only training waits for

    try:
        weight = compute_class_weight(given, classes=labels.classes, y=labels.classes[labels.y])
    except (TypeError, ValueError) as error:
        raise CCRError(f'class_weight must be None, "balanced" or {{class: weight}}: {error}') from None
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if len(bad):
        name = labels.classes[bad[0]].item()
        raise CCRError(
            f"class_weight must be finite numbers > 0, got {weight[bad[0]]} for {name!r}: drop the images of a class "
            "that should not count"
        )
    return weight


def validation_rows(labels: Labels, fraction: float, *, seed: int, most: int) -> np.ndarray:
    """Rows to hold out: about `fraction` of every class, in all at most `most`, never the whole of a class."""
    if not (is_number(fraction) and 0 <= fraction < 1):
        raise CCRError(f"validation_fraction must be in [0, 1), got {fraction!r}: 0.1 holds out a tenth")
    fraction = min(fraction, most / len(labels.y))
    rng = np.random.default_rng([seed, 0x5EED])
    order = rng.permutation(len(labels.y))
    # Position of every image within its class, in random order; the first few of each class are held out.
    sorted_order = order[np.argsort(labels.y[order], kind="stable")]
    counts = np.bincount(labels.y, minlength=len(labels.classes))
    rank = np.arange(len(labels.y)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Random rounding, so that classes of three images still give one now and then.
    quota = np.minimum(np.floor(counts * fraction + rng.random(len(counts))), np.maximum(counts - 1, 0))
    return np.sort(sorted_order[rank < np.repeat(quota, counts)])


def seed_of(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: None, a whole number or a RandomState."""
    from sklearn.utils import check_random_state  # a second that only training waits for

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError):
        raise CCRError(
            f"random_state must be None, a RandomState or a whole number from 0 to 2**32 - 1, got {random_state!r}: "
            "the same number gives the same model"
        ) from None


def validation_pair(validation: Any) -> tuple[Any, Any]:
    """The X and y of `validation`: an (X, y), or a store, which brings its own labels."""
    if isinstance(validation, (tuple, list)) and len(validation) == 2:
        return validation[0], validation[1]
    if store_part(validation, "y") is not None:
        return validation, None
    given = f"{len(validation)} of them" if isinstance(validation, (tuple, list)) else type(validation).__name__
    raise CCRError(f"validation must be (X, y), or a store with labels, got {given}: validation=(X_val, y_val)")


def held_out(validation: Any, labels: Labels, *, space: Space, dimension: int, fraction: float, seed: int) -> Any:
    """Validation data that chooses the epoch: rows of the training data, or (X, y) in the space, with class numbers."""
    if validation is None:
        return validation_rows(labels, fraction, seed=seed, most=MOST_VALIDATION)
    X, y = validation_pair(validation)
    rows = space.images(X)
    rows.check_dimension(dimension)
    return rows.make_resident(), validation_numbers(labels_of(X, y), len(rows), labels.classes)


#: Share of the training images held out where there is no validation split.
HELD_OUT = 0.1
FOLDS = 3


class Part(NamedTuple):
    """Embeddings X (m, d), an array or a store, and their labels y (m,), of any kind."""

    X: Any
    y: np.ndarray

    @classmethod
    def of(cls, store: Any) -> Part:
        """A store, or a split of one, with its own labels."""
        return cls(store, store.y)

    def take(self, rows: np.ndarray) -> Part:
        """Only these rows (indices, or booleans (m,)); a part of a store stays on disk."""
        return Part(take_rows(self.X, rows), np.asarray(self.y)[rows])

    def resident(self) -> Part:
        """The same in memory if it is small, since every epoch of every fit reads it; else where it lies."""
        small = 4 * self.X.shape[0] * self.X.shape[1] <= RESIDENT_BYTES // 2
        return Part(np.array(self.X) if small else self.X, self.y)


def store_parts(store: Any, purpose: str) -> dict[str, Part]:
    """The splits train and test of a store, and val where there is one; `purpose` is named where one is missing. Images
    of test and val that have no label do not count."""
    present = set(store.splits)
    missing = sorted({"train", "test"} - present)
    if missing:
        raise CCRError(
            f"{purpose} needs the splits train and test, {store.path} has no {' and no '.join(missing)}: embed the "
            "images again with folders train/ and test/, or let `ccr embed` split them"
        )
    rows = {name: store.select(name) for name in ("train", "val", "test") if name in present}
    return {name: Part.of(part if name == "train" else part.with_labels() or part) for name, part in rows.items()}


def hold_out(train: Part, *, seed: int = 0) -> tuple[Part, Part]:
    """Training and validation images out of one part: a tenth of every class, always the same for one seed."""
    labels = number_labels(train.y, len(train.y))
    chosen = np.zeros(len(train.y), dtype=bool)
    chosen[validation_rows(labels, HELD_OUT, seed=seed, most=MOST_VALIDATION)] = True
    if not chosen.any():
        raise CCRError(f"{len(train.y)} images are too few to hold some out for validation: add a split val")
    return train.take(~chosen), train.take(chosen)


def stratified_folds() -> StratifiedKFold:
    """Three folds that every cross-validation here shares, classes in equal shares."""
    from sklearn.model_selection import StratifiedKFold  # a second that only training waits for

    return StratifiedKFold(FOLDS, shuffle=True, random_state=0)
