"""Softmax regression on all coordinates of the embeddings, read in chunks: what a linear probe needs."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular

from ccr.heads import LinearHead, lbfgs
from ccr.inputs import CHUNK_VALUES, Embeddings
from ccr.utils.threads import Workers


class DenseSoftmax:
    """Multinomial logistic regression on the coordinates of X (m, d), scaled to size 1, one penalty after the other.

    Parameters are (classes, d + 1), the last column the intercept, which is not penalised. L-BFGS works on them in
    coordinates in which the curvature is about the same in all directions. Products are float32, sums float64.
    `y` (m,) holds class numbers, `weight` (m,) how much each row counts.
    """

    def __init__(self, X: Embeddings, y: np.ndarray, classes: int, weight: np.ndarray) -> None:
        self.X, self.classes = X, classes
        self.y = torch.from_numpy(y)
        self.share = torch.from_numpy(weight / weight.sum())
        self.scale = math.sqrt(X.shape[1])
        size = max(1, CHUNK_VALUES // X.shape[1])
        self.parts = [slice(start, min(start + size, len(X))) for start in range(0, len(X), size)]

    def solve(self, alpha: float, *, start: np.ndarray | None, tol: float, max_iter: int) -> np.ndarray:
        """Parameters that minimise weighted mean cross-entropy + alpha/2 |coef|^2."""
        shape = (self.classes, self.X.shape[1] + 1)
        if start is None:
            start = self._descend(np.zeros(shape), alpha, tol=10 * tol, max_iter=max_iter)
        return self._descend(start, alpha, tol=tol, max_iter=max_iter)

    def head(self, parameters: np.ndarray) -> LinearHead:
        """The head for coordinates as they are."""
        coef = np.ascontiguousarray(parameters[:, :-1] * self.scale, np.float32)
        return LinearHead(coef, parameters[:, -1].astype(np.float32))

    def _descend(self, start: np.ndarray, alpha: float, *, tol: float, max_iter: int) -> np.ndarray:
        """L-BFGS from `start`, in coordinates in which the curvature there, averaged over classes, is the identity."""
        penalty = np.full(start.shape[1], alpha)
        penalty[-1] = 0.0
        with Workers() as workers:
            curvature = np.sum(workers.map(lambda part: self._curvature(start, part), self.parts), axis=0)
            lower = cholesky(curvature + np.diag(penalty + 1e-9), lower=True)

            def original(flat: np.ndarray) -> np.ndarray:
                return solve_triangular(lower, flat.reshape(start.shape).T, lower=True, trans="T").T

            def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
                parameters = original(flat)
                results = workers.map(lambda part: self._slope(parameters, part), self.parts)
                loss = sum(loss for loss, _ in results) + alpha / 2 * float((parameters[:, :-1] ** 2).sum())
                slope = np.sum([slope for _, slope in results], axis=0) + penalty * parameters
                return loss, solve_triangular(lower, slope.T, lower=True).T.ravel()

            return original(lbfgs(objective, (start @ lower).ravel(), tol=tol, max_iter=max_iter))

    def _log_probabilities(self, parameters: np.ndarray, x: torch.Tensor) -> torch.Tensor:
        """(classes, b): classes first, for which the products are fastest."""
        weights = torch.from_numpy(parameters[:, :-1] * self.scale).float()
        return torch.log_softmax((weights @ x.T).double() + torch.from_numpy(parameters[:, -1:].copy()), dim=0)

    def _slope(self, parameters: np.ndarray, part: slice) -> tuple[float, np.ndarray]:
        """Loss of some rows and its gradient."""
        x, y, share = self.X.span(part.start, part.stop), self.y[None, part], self.share[None, part]
        log_probabilities = self._log_probabilities(parameters, x)
        loss = -float((share * log_probabilities.gather(0, y)).sum())
        slope = log_probabilities.exp_()
        slope.scatter_add_(0, y, -torch.ones_like(share))
        slope *= share
        products = (slope.float() @ x).double() * self.scale
        return loss, torch.cat([products, slope.sum(dim=1, keepdim=True)], dim=1).numpy()

    def _curvature(self, parameters: np.ndarray, part: slice) -> np.ndarray:
        """Second derivatives (d + 1, d + 1) by one class's parameters, of some rows, averaged over classes."""
        x = self.X.span(part.start, part.stop)
        probabilities = self._log_probabilities(parameters, x).exp_()
        weight = (probabilities * (1.0 - probabilities)).mean(dim=0) * self.share[part]
        x = torch.cat([x * self.scale, torch.ones(len(x), 1)], dim=1)
        return (x.T @ (x * weight[:, None].float())).double().numpy()
