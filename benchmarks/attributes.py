"""Do codes mean what their names say? On CUB, against attributes that people saw.

    python -m benchmarks.attributes [--shared ../shared]

Concepts are CUB's own attributes in words. For each: the AUC with which a class's mean code on test images tells the
classes that half of the annotators saw it in from the others; mean over attributes, with its interval, where
refinement starts and where it ends. Controls stand in for the attributes one by one: unrelated words, random vectors.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np

from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, Concepts, HardThreshold, Symmetric
from ccr.data.encoders import load_encoder
from ccr.data.vocab import embed_concepts, random_words
from ccr.models.rivals import random_unit_concepts
from ccr.study.experiments.attributes import Agreement, agreement_before_and_after

LENGTHS = (5, 10, 20)
DISPERSIONS: dict[str, Any] = {"none": None, "symmetric 0.9": Symmetric(0.9)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_option(parser)
    data = np.load(require(parser.parse_args().shared / "embeddings" / "cub.npz"))
    truth = data["attributes"] >= 50
    used = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    truth, names = truth[:, used], [phrase(str(data["attribute_names"][column])) for column in used]
    encoder = load_encoder("bundled")
    concepts = embed_concepts(names, encoder)
    kinds = {
        "CUB's attributes": concepts,
        "random words": embed_concepts(random_words(len(names), seed=0, exclude=names), encoder),
        "random vectors": random_unit_concepts(concepts, seed=0),
    }
    print(f"{len(names)} attributes, {int((~data['is_train']).sum())} test images\n")
    print("| length | dispersion | concepts | accuracy, % | AUC before | AUC after |\n|--:|---|---|--:|--:|--:|")
    for length in LENGTHS:
        for spread, dispersion in DISPERSIONS.items():
            for kind, chosen in kinds.items():
                cells = _measure(chosen, data, truth, length=length, dispersion=dispersion)
                print(f"| {length} | {spread} | {kind} | {cells} |", flush=True)


def phrase(name: str) -> str:
    """ "curved bill shape" for "has_bill_shape::curved_(up_or_down)"."""
    part, value = name.removeprefix("has_").split("::")
    value = re.sub(r"_?\(.*\)", "", value)
    return re.sub(r"[_-]", " ", f"{value} {part.replace('_color', '')}")


def _measure(concepts: Concepts, data: Any, truth: np.ndarray, *, length: int, dispersion: Any) -> str:
    X, y, train = data["X"], data["y"].astype(int), data["is_train"]
    model = ConceptClassifier(concepts, coder=HardThreshold(length=length), dispersion=dispersion, random_state=0)
    model.fit(X[train], y[train])
    before, after = agreement_before_and_after(model, X[~train], y[~train], truth)
    return f"{100 * model.score(X[~train], y[~train]):.1f} | {_text(before)} | {_text(after)}"


def _text(agreement: Agreement) -> str:
    return f"{agreement.auc:.3f} ({agreement.interval.low:.3f} to {agreement.interval.high:.3f})"


if __name__ == "__main__":
    main()
