"""How few photos per class will do: settings at one to twenty of the demo's training photos per class.

    python -m benchmarks.few_images [--demo ccr-demo] [--draws 3] [--each 1,2,5,10,20]

Photos are drawn at random, the same for all settings; accuracy on all test photos, mean over the draws. Nothing is held
out: the last epoch counts.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.private_data import require
from ccr import ConceptClassifier, Concepts, EmbeddingStore
from ccr.errors import CCRError
from ccr_lab.rivals import LinearProbe

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "three weights": {"weights_per_class": 3},
    "all weights": {"weights_per_class": None},
    "fidelity 0.95": {"fidelity": 0.95},
    "three weights, fidelity 0.95": {"weights_per_class": 3, "fidelity": 0.95},
    "not refined": {"fidelity": 1.0},
}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("ccr-demo"), help="folder that `ccr demo` made")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--each", default="1,2,5,10,20", help="photos per class")
    given = parser.parse_args()
    store = EmbeddingStore.open(require(given.demo / "store"))
    concepts = ConceptClassifier.load(given.demo / "model").concepts
    assert concepts is not None
    counts = [int(text) for text in given.each.split(",")]
    print(f"| accuracy, %, with photos per class: | {' | '.join(map(str, counts))} |")
    print(f"|---|{'--:|' * len(counts)}")
    for name, options in SETTINGS.items():
        found = [_mean(concepts, store, count, given.draws, options) for count in counts]
        print(f"| {name} | {' | '.join(found)} |", flush=True)
    print(f"| linear probe | {' | '.join(_mean(None, store, count, given.draws, {}) for count in counts)} |")


def _mean(concepts: Concepts | None, store: EmbeddingStore, count: int, draws: int, options: dict[str, Any]) -> str:
    """Mean accuracy of this setting over draws; without concepts, of a linear probe."""
    train, test = store.select("train"), store.select("test")
    shares = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        rows = np.concatenate([rng.permutation(np.flatnonzero(train.y == name))[:count] for name in store.classes])
        model: Any = LinearProbe()
        if concepts is not None:
            model = ConceptClassifier(concepts, random_state=seed, validation_fraction=0.0, **options)
        try:
            shares.append(model.fit(np.asarray(train[:], np.float32)[rows], train.y[rows]).score(test, test.y))
        except CCRError:  # a probe chooses its penalty by cross-validation, which takes three photos per class
            return "-"
    return f"{100 * np.mean(shares):.1f}"


if __name__ == "__main__":
    main()
