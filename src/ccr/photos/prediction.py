"""Prediction: what a model says of one photo, in a line of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, overload

from ccr.encoders.assets import Log
from ccr.encoders.registry import Encoder, check_named, load_encoder
from ccr.errors import CCRError
from ccr.explain.terms import Contribution
from ccr.utils.arrays import to_frame


# Which encoder embeds a photo for a model: the one that it was fitted on, and no other.
def encoder_of_model(model: Any, given: Encoder | str | None, *, log: Log | None = None) -> Encoder:
    """The encoder given, by itself or by its spec, or else the one that the model names; checked to be the model's."""
    origin = model.provenance
    if given is None:
        if origin.encoder is None:
            raise CCRError(
                'the model does not say which encoder made its embeddings: give encoder="bundled" or another'
            )
        check_named(origin.encoder, "the model")
    loaded = load_encoder(given or origin.encoder, log=log) if given is None or isinstance(given, str) else given
    if origin.encoder_fingerprint not in (None, loaded.fingerprint):
        raise CCRError(
            f"the model was fitted on embeddings of encoder {origin.encoder_fingerprint} ({origin.encoder}), but "
            f"{loaded.name} is {loaded.fingerprint}: give the encoder with the same weights"
        )
    return loaded


@dataclass(frozen=True)
class Prediction:
    """One photo: its class, or the `error` for which there is none.

    `bias` + the sum of `concepts` + `others` == `logit`: the concepts with the largest contributions, as many as were
    asked for, and the other contributions together.
    """

    path: str
    prediction: Any = None
    probability: float | None = None
    runner_up: Any = None
    runner_up_probability: float | None = None
    logit: float | None = None
    bias: float | None = None
    concepts: tuple[Contribution, ...] = ()
    others: float | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        return {**asdict(self), "concepts": [asdict(term) for term in self.concepts]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Prediction:
        """Inverse of `to_dict`."""
        return cls(**{**values, "concepts": tuple(Contribution(**term) for term in values["concepts"])})


class Predictions(Sequence[Prediction]):
    """Predictions of several photos, in the order in which the photos were given."""

    def __init__(self, items: Sequence[Prediction], *, explained: int) -> None:
        self._items, self.explained = tuple(items), explained

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...

    @overload
    def __getitem__(self, index: slice) -> Predictions: ...

    def __getitem__(self, index: int | slice) -> Prediction | Predictions:
        if isinstance(index, slice):
            return Predictions(self._items[index], explained=self.explained)
        return self._items[index]

    def __repr__(self) -> str:
        unreadable = sum(item.error is not None for item in self)
        return f"Predictions({len(self)} photos" + (f", {unreadable} unreadable)" if unreadable else ")")

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per photo; "pandas" or "polars", None: the first of the two that is installed."""
        rows = [flat(item, self.explained) for item in self]
        return to_frame({name: [row[name] for row in rows] for name in column_names(self.explained)}, kind)


def checked_explain(explain: int, model: Any) -> int:
    """How many concepts are named per photo: what was asked for, and at most all that the model has."""
    if not isinstance(explain, Integral) or isinstance(explain, bool) or explain < 0:
        raise CCRError(
            f"explain must be a whole number from 0, got {explain!r}: it is how many concepts are named per photo"
        )
    return min(int(explain), len(model.names))


def column_names(explained: int) -> tuple[str, ...]:
    """Columns of a table of predictions with so many concepts each."""
    names = ["path", "prediction", "probability", "runner_up", "runner_up_probability"]
    if explained:
        names += ["logit", "bias"]
        for number in range(1, explained + 1):
            names += [f"concept_{number}", f"contribution_{number}", f"shown_{number}"]
        names.append("others")
    return (*names, "error")


def flat(item: Prediction, explained: int) -> dict[str, Any]:
    """A prediction as a row of such a table."""
    row: dict[str, Any] = dict.fromkeys(column_names(explained))
    row |= {name: value for name, value in vars(item).items() if name in row}
    for number, term in enumerate(item.concepts, start=1):
        row |= {
            f"concept_{number}": term.concept,
            f"contribution_{number}": term.contribution,
            f"shown_{number}": term.shown,
        }
    return row
