"""The elastic-net path beside GLM-SAGA's own code, at the same objective and the same strengths of the penalty.

    pip download --no-deps glm-saga && tar xf glm_saga-*.tar.gz
    python -m benchmarks.elastic_net --glm-saga glm_saga-0.1.2

The objective of both is the mean cross-entropy + lam (0.99 |W|_1 + 0.005 |W|^2), on standardised codes of made-up
images. GLM-SAGA runs with the settings of its authors' example (batch 128, learning rate 0.1, stopping by its own
tolerance), and at most `--epochs` passes for each strength; ours with its defaults. "Worse" is how far each ends above
the other's objective at most, over the path: who is slower and worse has lost. One thread each, and seconds of that
thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time
import warnings
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader, TensorDataset

from ccr_lab.rivals.elastic_net import elastic_net_path

#: Images, concepts, classes, active concepts.
SHAPES = ((4000, 128, 10, 11), (4000, 208, 100, 20))
RATIO, STEPS, SMALLEST = 0.99, 5, 0.05


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--glm-saga", type=Path, required=True, help="folder of its source, in which glm_saga/ lies")
    parser.add_argument("--epochs", type=int, default=200, help="passes of GLM-SAGA for each strength, at most")
    given = parser.parse_args()
    sys.path.insert(0, str(given.glm_saga.resolve()))
    rival = importlib.import_module("glm_saga.elasticnet")
    torch.set_num_threads(1)
    print("| images, concepts, classes | ours, s | GLM-SAGA, s | ratio | ours worse by | GLM-SAGA worse by |")
    print("|---|--:|--:|--:|--:|--:|")
    with threadpool_limits(1):
        for shape in SHAPES:
            print(_compared(rival, shape, given.epochs), flush=True)


def _compared(rival: Any, shape: tuple[int, int, int, int], epochs: int) -> str:
    X, y = _images(*shape)
    classes = shape[2]
    start = time.process_time()
    path = elastic_net_path(X, y, classes=classes, l1_ratio=RATIO, n_alphas=STEPS, alpha_ratio=SMALLEST)
    ours = time.process_time() - start
    seconds, heads = _glm_saga(rival, X, y, classes, path.alphas, epochs)
    mine = [_objective(X, y, head.coef, head.intercept, lam) for head, lam in zip(path.heads, path.alphas, strict=True)]
    theirs = [_objective(X, y, *head, lam) for head, lam in zip(heads, path.alphas, strict=True)]
    above = np.array(mine) - np.array(theirs)
    work = ", ".join(f"{number:,}" for number in shape[:3])
    worse = " | ".join(f"{max(float(values.max()), 0.0):.1e}" for values in (above, -above))
    return f"| {work} | {ours:.2f} | {seconds:.2f} | {seconds / ours:.1f} times faster | {worse} |"


def _images(m: int, n: int, classes: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of which each class has some of its own, standardised, and the classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, m)
    own = rng.random((classes, n)) < 2.0 * length / n
    codes = np.where(rng.random((m, n)) < np.where(own[y], 0.5, 0.3 * length / n), rng.uniform(0.1, 0.4, (m, n)), 0.0)
    return (codes - codes.mean(axis=0)) / codes.std(axis=0), y


def _glm_saga(
    rival: Any, X: np.ndarray, y: np.ndarray, classes: int, lams: np.ndarray, epochs: int
) -> tuple[float, list[tuple[np.ndarray, np.ndarray]]]:
    """Its path over these strengths, each from the one before, as its own loop goes: seconds, weights and biases."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(X.shape[1], classes)
    data = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(y))
    loader = rival.add_index_to_dataloader(DataLoader(data, batch_size=128, shuffle=True))
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
    heads, state, start = [], None, time.process_time()
    for lam in lams:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            state = rival.train_saga(
                linear, loader, 0.1, epochs, float(lam), RATIO, group=False, state=state, n_ex=len(y),
                n_classes=classes, tol=1e-4, lookbehind=5,
            )  # fmt: skip
        heads.append(tuple(value.detach().double().numpy().copy() for value in linear.parameters()))
    return time.process_time() - start, heads


def _objective(X: np.ndarray, y: np.ndarray, coef: np.ndarray, intercept: np.ndarray, lam: float) -> float:
    logits = X @ coef.T + intercept
    loss = (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean()
    return float(loss + lam * (RATIO * np.abs(coef).sum() + (1 - RATIO) / 2 * np.square(coef).sum()))


if __name__ == "__main__":
    main()
