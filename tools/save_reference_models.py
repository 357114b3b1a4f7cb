"""Write the reference models of tests/io/saved: one of each coder, with what they say about some rows.

    python -m tools.save_reference_models tests/io/saved

They were written on 2026-11-16 by the code of commit ba4c83e and must load and predict alike
for ever: do not write them
again. A new format gets a folder of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from llvmlite import binding
from sklearn.datasets import load_digits

from ccr import IPOMP, OMP, Angular, ConceptClassifier, Concepts, HardThreshold, NonNegativeLasso, Symmetric, TopK
from ccr.geometry import unit_rows

#: By name: the settings that tell one saved model from another.
MODELS = {
    "threshold-both": {"coder": HardThreshold(length=6, sign="both")},
    "threshold-positive": {"coder": HardThreshold(length=5, sign="positive"), "dispersion": None},
    "threshold-fixed": {"coder": HardThreshold(threshold=0.2, sign="both"), "center": None, "dispersion": Angular()},
    "threshold-fixed-positive": {"coder": HardThreshold(threshold=0.2, sign="positive"), "class_weight": "balanced"},
    "top": {"coder": TopK(length=4), "dispersion": Symmetric(0.5), "class_weight": {3: 2.0, 7: 1.0}},
    "omp": {"coder": OMP(length=3), "radius": 0.0},
    "ip-omp": {"coder": IPOMP(length=4), "radius": 0.0, "dispersion": None},
    "lasso": {"coder": NonNegativeLasso(length=4), "radius": 0.0, "dispersion": None},
}
#: What all have in common: the defaults of their day.
SHARED = {"radius": 0.1, "weights_per_class": None, "dropout": 0.1, "max_iter": 5, "random_state": 0}
ROWS = 40


def main(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    strokes = unit_rows(X[:20] - X.mean(axis=0))
    concepts = Concepts([f"stroke {row}" for row in range(20)], strokes)
    seen = X[1200 : 1200 + ROWS].astype(np.float32)
    answers = {"rows": seen, "cpu": np.array(binding.get_host_cpu_name())}
    for name, settings in MODELS.items():
        kept = np.isin(y, [3, 7]) if isinstance(settings.get("class_weight"), dict) else np.ones(len(y), bool)
        train = np.flatnonzero(kept)[:600]
        model = ConceptClassifier(concepts, **{**SHARED, **settings}).fit(X[train], y[train])
        model.save(folder / name)
        codes = model.transform(seen)
        answers |= {
            f"{name}.pointers": codes.indptr,
            f"{name}.indices": codes.indices,
            f"{name}.codes": codes.data,
            f"{name}.logits": model.decision_function(seen),
            f"{name}.predictions": model.predict(seen),
            f"{name}.probabilities": model.predict_proba(seen),
            f"{name}.contributions": np.array([term.contribution for term in model.explain(seen[0]).contributions]),
        }
    np.savez_compressed(folder / "answers.npz", **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
