"""Explanations of many images at once: a sequence, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from ccr.core.explain.explanation import Explanation
from ccr.core.explain.picture import picture
from ccr.core.explain.terms import plain
from ccr.core.frames import to_frame

#: Pictures that a notebook shows of a sequence.
MOST_PICTURES = 6
COLUMNS = ("image", "prediction", "probability", "logit", "bias", "concept", "code", "weight", "contribution", "shown")


class Explanations(Sequence[Explanation]):
    """Explanations in the order of the images; `names` are what the images are called: rows, or paths."""

    def __init__(self, items: Sequence[Explanation], names: Sequence[Any] | None = None) -> None:
        self._items = tuple(items)
        self.names = tuple(range(len(self._items)) if names is None else names)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...

    @overload
    def __getitem__(self, index: slice) -> Explanations: ...

    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        if isinstance(index, slice):
            return Explanations(self._items[index], self.names[index])
        return self._items[index]

    def __repr__(self) -> str:
        return f"Explanations({len(self)} images)"

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, ready for JSON."""
        pairs = zip(self.names, self, strict=True)
        return {"explanations": [{"image": plain(name), **item.to_dict()} for name, item in pairs]}

    def to_frame(self, kind: str | None = None) -> Any:
        """One row per contribution: of an image, `bias` and the sum of `contribution` are its `logit`.

        An image without any contribution has one row, without a concept. `kind` is "pandas" or "polars"; None: the
        first of the two that is installed.
        """
        rows = [row for name, item in zip(self.names, self, strict=True) for row in _rows(name, item)]
        return to_frame({name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}, kind)

    def _repr_html_(self) -> str:
        shown = [picture(item, title=str(name)) for name, item in zip(self.names, self[:MOST_PICTURES], strict=False)]
        rest = len(self) - len(shown)
        return "".join(shown) + (f"<div>and {rest} more</div>" if rest else "")


def _rows(name: Any, item: Explanation) -> Iterator[tuple[Any, ...]]:
    start = (name, plain(item.prediction), item.probability, item.logit, item.bias)
    for term in item.contributions:
        yield (*start, term.concept, term.code, term.weight, term.contribution, term.shown)
    if not item.contributions:
        yield (*start, None, 0.0, 0.0, 0.0, None)
