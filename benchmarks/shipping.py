"""A model in every form that it can take: do all say the same, and how long does one prediction take?

    python -m benchmarks.shipping                       # agreement on four sets of real embeddings; one embedding
    python -m benchmarks.shipping --photo apple.jpg     # also one photo end to end, with the bundled encoder
    python -m benchmarks.shipping --start MODEL         # a fresh process to its first prediction, and what it needs

Everything is timed in turns in one run; ratios are to the full model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from scipy import sparse

import ccr.runtime
from benchmarks.measuring import machine, take_turns
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.coding import TopRule
from ccr.coding.codes import CLOSE
from ccr.geometry import unit_rows

#: The four sets, and how many images of each a model is fitted on; the rest is predicted.
SETS = {"cifar10": 20_000, "cub": 5_994, "flowers": 1_000, "pets": 555}
#: What a fresh process does up to its first prediction.
STARTS = {
    "full": "from ccr import ConceptModel; model = ConceptModel.load(sys.argv[1])",
    "runtime": "import ccr.runtime; model = ccr.runtime.load(sys.argv[1])",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_option(parser)
    parser.add_argument("--photo", type=Path, help="also time this photo, from the file to the explanation")
    parser.add_argument("--model", type=Path, help="with --photo: a model fitted on a store of the bundled encoder")
    parser.add_argument("--start", type=Path, metavar="MODEL", help="time fresh processes with this model instead")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    print(machine())
    if options.start is not None:
        starts(options.start)
        return
    print("\n| data | rows | form | labels alike | largest difference of logits | codes that differ |")
    print("|---|--:|---|--:|--:|--:|")
    rounding = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, training in SETS.items():
            model, X = fitted(require(options.shared / "embeddings"), name, training)
            model.save(Path(scratch) / name)
            model.to_onnx(Path(scratch) / f"{name}.onnx")
            agreement(name, model, X, Path(scratch) / name)
            rounding.append(close_calls(name, model, X))
        print("\n| data | scores | largest error in float32 | decided in float64 |\n|---|--:|--:|--:|")
        print("\n".join(rounding))
        embedding(Path(scratch) / "cifar10", X, options.rounds)
        if options.photo is not None:
            photo(options.photo, options.model, Path(scratch), max(3, options.rounds // 10))


def fitted(folder: Path, name: str, training: int) -> tuple[ConceptModel, np.ndarray]:
    """A model of the set's first images, with class names and others as concepts, and all embeddings."""
    data, texts = np.load(folder / f"{name}.npz"), np.load(folder / "text_vit_b16_names.npz")
    X, labels = data["X"].astype(np.float32), data["names"][data["y"]]
    rows = np.random.default_rng(0).permutation(len(X))[:training]
    concepts = Concepts([str(word) for word in texts["names"]], unit_rows(texts["X"].astype(np.float32)))
    model = ConceptClassifier(concepts, coder=HardThreshold(length=12), max_iter=5, random_state=0)
    return model.fit(X[rows], labels[rows]).model_, X


def forms(folder: Path) -> dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]]:
    """Logits and codes of rows in every form but the full model's."""
    light, full = ccr.runtime.load(folder), ConceptModel.load(folder)
    module, session = full.to_torch().eval(), onnx_session(folder.with_suffix(".onnx"))

    def by_torch(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            logits, codes = module(torch.from_numpy(rows))
        return logits.numpy(), codes.numpy()

    return {
        "runtime": lambda rows: (light.logits(rows), light.encode(rows)),
        "ONNX": lambda rows: tuple(session.run(["logits", "codes"], {"embeddings": rows})),  # type: ignore[return-value]
        "torch": by_torch,
    }


def onnx_session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def agreement(name: str, model: ConceptModel, X: np.ndarray, folder: Path) -> None:
    """What every form says of all rows, beside the full model."""
    expected, active = model.logits(X), model.encode(X).toarray() != 0
    for form, run in forms(folder).items():
        logits, codes = run(X)
        alike = (logits.argmax(axis=1) == expected.argmax(axis=1)).mean()
        largest, flipped = np.abs(logits - expected).max(), ((codes != 0) != active).sum()
        print(
            f"| {name} | {len(X):,} | {form} | {alike:.4%} | {largest:.1e} | {flipped} of {active.size:,} |", flush=True
        )


def close_calls(name: str, model: ConceptModel, X: np.ndarray) -> str:
    """How far the kernels' scores are from those in float64, and how many lie too near to the threshold for them."""
    images, concepts = model.images(X), model.concepts.embeddings
    entries = TopRule(len(concepts)).encoder(concepts)(images.span(0, len(X)))
    scores = sparse.csr_matrix((entries.data, entries.indices, entries.pointers), (len(X), len(concepts))).toarray()
    error = np.abs(scores - images.exact(np.arange(len(X))) @ concepts.T.astype(np.float64)).max()
    near = (np.abs(scores - model.rule.threshold) < CLOSE).sum()
    return f"| {name} | {scores.size:,} | {error:.1e} | {near} |"


def embedding(folder: Path, X: np.ndarray, rounds: int) -> None:
    """One embedding to its class, probabilities and explanation."""
    full, light, x = ConceptModel.load(folder), ccr.runtime.load(folder), X[:1]
    module, session = full.to_torch().eval(), onnx_session(folder.with_suffix(".onnx"))

    def by_torch() -> None:
        with torch.inference_mode():
            module(torch.from_numpy(x))

    show(
        "one embedding",
        take_turns(
            {
                "full: predict": lambda: full.predict(x),
                "full: explain": lambda: full.explain(x[0]),
                "runtime: predict": lambda: light.predict(x),
                "runtime: explain": lambda: light.explain(x[0]),
                "ONNX: everything": lambda: session.run(None, {"embeddings": x}),
                "torch: logits and codes": by_torch,
            },
            rounds=rounds,
        ),
    )


def photo(path: Path, folder: Path, scratch: Path, rounds: int) -> None:
    """One photo from the file to the explanation."""
    from ccr.data.datasets import load_image
    from ccr.encoders import load_encoder

    full, light, encoder = ConceptModel.load(folder), ccr.runtime.load(folder), load_encoder("bundled", threads=1)
    full.to_onnx(scratch / "photo.onnx")
    full.to_onnx(scratch / "pixels.onnx", with_encoder=True)
    alone, joined = onnx_session(scratch / "photo.onnx"), onnx_session(scratch / "pixels.onnx")
    module = full.to_torch().eval()

    def embedded() -> np.ndarray:
        return encoder.embed_images([load_image(path)])

    def by_torch() -> None:
        with torch.inference_mode():
            module(torch.from_numpy(embedded()))

    show(
        "one photo, end to end",
        take_turns(
            {
                "full: explain": lambda: full.explain(embedded()[0]),
                "runtime: explain": lambda: light.explain(embedded()[0]),
                "ONNX: everything": lambda: alone.run(None, {"embeddings": embedded()}),
                "torch: logits and codes": by_torch,
                "ONNX with encoder": lambda: joined.run(None, {"pixels": np.asarray(load_image(path))}),
            },
            rounds=rounds,
        ),
    )


def starts(folder: Path) -> None:
    """Fresh processes to their first prediction."""

    def start(line: str) -> Callable[[], object]:
        code = f"import sys, numpy as np; {line}; model.predict(np.ones((1, model.dimension), np.float32))"
        return lambda: subprocess.run([sys.executable, "-c", code, str(folder)], check=True)

    show("a fresh process to its first prediction", take_turns({k: start(v) for k, v in STARTS.items()}, rounds=3))


def show(title: str, seconds: dict[str, float]) -> None:
    first = next(iter(seconds.values()))
    print(f"\n| {title} | ms | times the first |\n|---|--:|--:|")
    for name, value in seconds.items():
        print(f"| {name} | {1e3 * value:.2f} | {value / first:.2f} |")


if __name__ == "__main__":
    main()
