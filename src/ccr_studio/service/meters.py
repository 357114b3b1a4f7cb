"""Meters: what the server counts, in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: Upper ends of the bins of seconds and of photos.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
PHOTOS = (1, 2, 4, 8, 16, 32, 64)
#: The content type of the text format.
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


def labels(**pairs: object) -> Labels:
    """Labels of one series."""
    return tuple((name, str(value)) for name, value in pairs.items())


@dataclass
class _Histogram:
    ends: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, value: float) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.ends) + 1)
        self.counts[next((at for at, end in enumerate(self.ends) if value <= end), len(self.ends))] += 1
        self.total += value


class Meters:
    """Counters and histograms by name and labels; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._help: dict[str, tuple[str, str]] = {}
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)

    def count(self, name: str, words: str, *, by: float = 1, labels: Labels = ()) -> None:
        """Add to a counter, which `words` explain."""
        with self._lock:
            self._help[name] = ("counter", words)
            self._counters[name][labels] += by

    def observe(
        self, name: str, words: str, value: float, *, ends: Sequence[float] = SECONDS, labels: Labels = ()
    ) -> None:
        """Put a value into a histogram, which `words` explain."""
        with self._lock:
            self._help[name] = ("histogram", words)
            self._histograms[name].setdefault(labels, _Histogram(ends)).add(value)

    def total(self, name: str) -> int:
        """The sum of a counter over its labels; 0 if nothing was counted."""
        with self._lock:
            return int(sum(self._counters.get(name, {}).values()))

    def text(self, gauges: Mapping[str, tuple[str, dict[Labels, float]]] | None = None) -> str:
        """Everything in Prometheus' text format; `gauges` are {name: (words, {labels: value now})}."""
        with self._lock:
            lines = [line for name in sorted(self._help) for line in self._lines(name)]
        for name, (words, series) in (gauges or {}).items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_braced(pairs)} {_number(value)}" for pairs, value in series.items()]
        return "\n".join(lines) + "\n"

    def _lines(self, name: str) -> Iterator[str]:
        kind, words = self._help[name]
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} {kind}"
        for pairs, value in self._counters.get(name, {}).items():
            yield f"{name}{_braced(pairs)} {_number(value)}"
        for pairs, histogram in self._histograms.get(name, {}).items():
            below = 0
            for end, count in zip((*histogram.ends, "+Inf"), histogram.counts, strict=True):
                below += count
                yield f"{name}_bucket{_braced((*pairs, ('le', str(end))))} {below}"
            yield f"{name}_sum{_braced(pairs)} {_number(histogram.total)}"
            yield f"{name}_count{_braced(pairs)} {below}"


def _braced(pairs: Labels) -> str:
    if not pairs:
        return ""
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{shown}}}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
