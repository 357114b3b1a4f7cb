"""Controls: what embeddings allow without concepts, what class names give without training, and concepts that mean
nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from sklearn.utils import check_random_state

from ccr.core.concepts import Concepts
from ccr.core.explain import Explanation
from ccr.core.heads import LinearHead
from ccr.core.inputs import CHUNK_VALUES, Embeddings
from ccr.core.space import Center, Space
from ccr.core.threads import Workers
from ccr.errors import CCRError
from ccr.models.classifier import MOST_VALIDATION
from ccr.models.labels import Labels, as_labels, number_labels, validation_rows
from ccr.models.rivals.base import LinearConceptModel


class LinearProbe(LinearConceptModel):
    """Multinomial logistic regression on the embeddings themselves: what they allow without any concepts.

    Its "codes" are the embeddings' coordinates, measured from the training images' mean (`center="data"`) and made
    unit rows. For coordinates scaled to size 1, the head minimises mean cross-entropy + alpha / (2 m) |coef|^2 over
    the m training rows; of the `alphas`, the one of best accuracy on validation data is taken, of equals the largest.
    Validation data are given to `fit`, or `validation_fraction` of the rows is held out.

    Fitted attributes: `classes_`, `head_`, `names_`, `alpha_`, `validation_accuracy_` ({alpha: accuracy}).
    """

    def __init__(
        self,
        alphas: Sequence[float] = (0.3, 1.0, 3.0, 10.0, 30.0),
        *,
        center: Center = "data",
        validation_fraction: float = 0.1,
        tol: float = 1e-4,
        max_iter: int = 500,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.alphas = alphas
        self.center = center
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None) -> LinearProbe:
        """Fit a head for each alpha on X (m, d) and labels y (m,), and keep the best on `validation` (X, y)."""
        alphas = self._checked_alphas()
        plain = Embeddings(X)
        labels = number_labels(getattr(X, "y", None) if y is None else y, len(plain))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.image_mean_ = _mean(plain, self.center)
        embeddings = Embeddings(X, mean=self.image_mean_).make_resident()
        weight = np.ones(len(plain))
        if validation is None:
            rows = validation_rows(labels, self.validation_fraction, seed=seed, most=MOST_VALIDATION)
            weight[rows] = 0.0
            seen, truth = embeddings.take(rows).numpy(), labels.y[rows]
        else:
            given = Embeddings(validation[0], mean=self.image_mean_)
            given.check_dimension(plain.shape[1])
            seen, truth = _whole(given), _numbers(validation[1], len(given), labels.classes)
        problem = _DenseSoftmax(embeddings, labels, weight)
        self.validation_accuracy_, best, start = {}, -1.0, None
        for alpha in alphas:  # from strong to weak: each start is near, and ties stay with the stronger
            start = problem.solve(alpha / weight.sum(), start=start, tol=self.tol, max_iter=self.max_iter)
            head = problem.head(start)
            accuracy = float(np.mean(head.logits(seen).argmax(axis=1) == truth)) if len(truth) else 0.0
            self.validation_accuracy_[alpha] = accuracy
            if accuracy > best:
                best, self.alpha_, self.head_ = accuracy, alpha, head
        self.classes_, self.n_features_in_ = labels.classes, plain.shape[1]
        self.names_ = tuple(f"dimension {column}" for column in range(plain.shape[1]))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The embeddings' coordinates (m, d), as the head takes them."""
        self._check_fitted()
        embeddings = Embeddings(X, mean=self.image_mean_)
        embeddings.check_dimension(self.n_features_in_)
        return _whole(embeddings)

    def explain(self, x: Any) -> Explanation:
        raise CCRError(
            "a probe has no concepts, so its predictions cannot be explained by them: explain a ConceptClassifier's"
        )

    def _checked_alphas(self) -> list[float]:
        alphas = sorted({float(alpha) for alpha in self.alphas}, reverse=True)
        if not alphas or not all(math.isfinite(alpha) and alpha > 0 for alpha in alphas):
            raise CCRError(f"alphas must be one or more numbers > 0, got {self.alphas!r}: try (1, 3, 10)")
        return alphas


class ZeroShot(LinearConceptModel):
    """Predicts the class whose text is nearest to the image by cosine; nothing is learnt but the images' mean.

    `class_concepts` holds a text's embedding for each class, named by its label, `str(label)`. With `center="data"`,
    images are measured from the training images' mean and texts from the mean of the classes' texts, as in
    `ccr.core.space`. Codes are the cosines over the class texts, the head is the identity.
    """

    def __init__(self, class_concepts: Concepts | None = None, *, center: Center = "data") -> None:
        self.class_concepts = class_concepts
        self.center = center

    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None) -> ZeroShot:
        """Take the mean of X (m, d) and the texts of the classes in y; texts of other classes play no part."""
        if not isinstance(self.class_concepts, Concepts):
            raise CCRError(
                f"class_concepts must be a Concepts(names, embeddings), got {type(self.class_concepts).__name__}"
            )
        plain = Embeddings(X)
        plain.check_dimension(self.class_concepts.dimension)
        classes = number_labels(getattr(X, "y", None) if y is None else y, len(plain)).classes
        names = [str(label).strip() for label in classes.tolist()]
        missing = [name for name in names if name not in set(self.class_concepts.names)]
        if missing:
            shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise CCRError(
                f"every class needs a text in class_concepts, {len(missing)} have none: {shown}; a text's name must be "
                "the class label"
            )
        texts = self.class_concepts.subset([self.class_concepts.index(name) for name in names])
        space = Space.fit(texts.embeddings, _mean(plain, self.center), center=self.center, dispersion=None)
        self.image_mean_, self.texts_ = space.image_mean, space.place(texts.embeddings)
        self.classes_, self.names_ = classes, texts.names
        self.head_ = LinearHead(np.eye(len(classes), dtype=np.float32), np.zeros(len(classes), np.float32))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Cosines (m, classes) of the rows of X with the class texts."""
        self._check_fitted()
        embeddings = Embeddings(X, mean=self.image_mean_)
        embeddings.check_dimension(self.texts_.shape[1])
        return np.concatenate([chunk.numpy() @ self.texts_.T for chunk in embeddings.chunks()])


def random_unit_concepts(concepts: Concepts, *, seed: int) -> Concepts:
    """As many isotropic random unit vectors as there are concepts, of their dimension, called "random 0", ..."""
    rows = np.random.default_rng(seed).normal(size=concepts.embeddings.shape)
    return Concepts([f"random {row}" for row in range(len(rows))], rows)


class _DenseSoftmax:
    """Multinomial logistic regression on all coordinates of X, scaled to size 1, for one penalty after the other.

    Parameters are (classes, d + 1), the last column the intercept, which is not penalised. L-BFGS works on them in
    coordinates in which the curvature is about the same in all directions. Products are float32, sums float64.
    """

    def __init__(self, X: Embeddings, labels: Labels, weight: np.ndarray) -> None:
        self.X, self.classes = X, len(labels.classes)
        self.y = torch.from_numpy(labels.y)
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

            options = {"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20}
            result = minimize(objective, (start @ lower).ravel(), jac=True, method="L-BFGS-B", options=options)
        return original(result.x)

    def _chances(self, parameters: np.ndarray, x: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities (classes, b); classes first, for which the products are fastest."""
        weights = torch.from_numpy(parameters[:, :-1] * self.scale).float()
        return torch.log_softmax((weights @ x.T).double() + torch.from_numpy(parameters[:, -1:].copy()), dim=0)

    def _slope(self, parameters: np.ndarray, part: slice) -> tuple[float, np.ndarray]:
        """Loss of some rows and its gradient."""
        x, own, share = self.X.span(part.start, part.stop), self.y[None, part], self.share[None, part]
        chances = self._chances(parameters, x)
        loss = -float((share * chances.gather(0, own)).sum())
        slope = chances.exp_()
        slope.scatter_add_(0, own, -torch.ones_like(share))
        slope *= share
        products = (slope.float() @ x).double() * self.scale
        return loss, torch.cat([products, slope.sum(dim=1, keepdim=True)], dim=1).numpy()

    def _curvature(self, parameters: np.ndarray, part: slice) -> np.ndarray:
        """Second derivatives (d + 1, d + 1) by one class's parameters, of some rows, averaged over classes."""
        x = self.X.span(part.start, part.stop)
        chances = self._chances(parameters, x).exp_()
        weight = (chances * (1.0 - chances)).mean(dim=0) * self.share[part]
        x = torch.cat([x * self.scale, torch.ones(len(x), 1)], dim=1)
        return (x.T @ (x * weight[:, None].float())).double().numpy()


def _mean(X: Embeddings, center: Any) -> np.ndarray | None:
    if center not in (None, "data"):
        raise CCRError(f'center must be None or "data", got {center!r}')
    return X.unit_mean() if center else None


def _whole(X: Embeddings) -> np.ndarray:
    return np.concatenate([chunk.numpy() for chunk in X.chunks()])


def _numbers(y: Any, m: int, classes: np.ndarray) -> np.ndarray:
    """Class numbers of validation labels."""
    labels = as_labels(y, m)
    known = np.isin(labels, classes)
    if not known.all():
        raise CCRError(f"validation has a class that the training data has not: {labels[~known].tolist()[0]!r}")
    return np.searchsorted(classes, labels)
