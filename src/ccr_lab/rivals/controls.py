"""Controls: a linear probe on the embeddings, and zero-shot by the names of the classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from ccr.classifier import FromModel
from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr.labels import FOLDS, Labels, labels_of, number_labels, stratified_folds, validation_numbers, validation_pair
from ccr.space import Center, Space
from ccr.utils.parameters import is_number
from ccr_lab.rivals.model import Rival


class LinearProbe(Rival):
    """scikit-learn's logistic regression on the embeddings themselves: what they allow without any concepts.

    Its "codes" are the embeddings' coordinates, measured from the training images' mean (`center="data"`) and made
    unit rows. For coordinates scaled to size 1, the head minimises mean cross-entropy + alpha / (2 m) |coef|^2 over
    the m training rows; of the `alphas`, the one of best accuracy is taken, of equals the largest: on the validation
    data given to `fit`, or else by cross-validation.

    Parameters
    ----------
    alphas : strengths of the penalty to choose from, each > 0.
    center : "data" or None.
    tol, max_iter : of the solver.

    Fitted attributes: `model_`, `classes_`, `head_`, `names_`, `alpha_`, `validation_accuracy_` ({alpha: accuracy}).
    """

    texts_parameter = None
    alpha_ = FromModel("facts.alpha")
    validation_accuracy_ = FromModel("facts.validation_accuracy")

    def __init__(
        self,
        alphas: Sequence[float] = (1.0, 3.0, 10.0, 30.0, 100.0),
        *,
        center: Center = "data",
        tol: float = 1e-4,
        max_iter: int = 500,
    ) -> None:
        self.alphas = alphas
        self.center = center
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> LinearProbe:
        """Fit a head for each alpha on X (m, d) and labels y (m,), and keep the best on `validation`: (X, y) or a
        store."""
        alphas, m = self._checked_alphas(), len(Embeddings(X))
        labels = number_labels(labels_of(X, y), m)
        dimension = Embeddings(X).shape[1]
        space = Space.of_images(X, center=self.center)
        rows = np.concatenate([chunk.numpy() for chunk in space.images(X).chunks()])
        if validation is None:
            accuracies = self._cross_validated(rows, labels, alphas)
            heads = None
        else:
            others, their_labels = validation_pair(validation)
            seen = space.images(others)
            seen.check_dimension(dimension)
            truth = validation_numbers(labels_of(others, their_labels), len(seen), labels.classes)
            heads = self._heads(rows, labels.y, alphas)
            accuracies = {alpha: _right(head, seen, truth) / len(truth) for alpha, head in heads.items()}
        best = max(alphas, key=lambda alpha: accuracies[alpha])  # from strong to weak: the stronger of equals
        head = (heads or self._heads(rows, labels.y, [best]))[best]
        names = tuple(f"dimension {column}" for column in range(dimension))
        self.model_ = self._model(space, names, head, labels.classes, alpha=best, validation_accuracy=accuracies)
        self.note_columns(X)
        return self

    def _heads(self, rows: np.ndarray, y: np.ndarray, alphas: Sequence[float]) -> dict[float, LinearHead]:
        """A head for each alpha, from strong to weak, so that each start is near; `y` (m,) are class numbers."""
        scale, heads = np.float32(np.sqrt(rows.shape[1])), {}
        # Two classes share one row of weights in scikit-learn: half the squares of two rows, so half the penalty.
        two = int(y.max()) == 1
        solver = LogisticRegression(tol=self.tol, max_iter=self.max_iter, warm_start=True)
        for alpha in alphas:
            solver.set_params(C=(2 if two else 1) / alpha).fit(rows * scale, y)
            coef, intercept = solver.coef_ * scale, solver.intercept_
            if two:
                coef, intercept = np.vstack([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
            heads[alpha] = LinearHead(np.ascontiguousarray(coef, np.float32), intercept.astype(np.float32))
        return heads

    def _cross_validated(self, rows: np.ndarray, labels: Labels, alphas: Sequence[float]) -> dict[float, float]:
        """Accuracy of each alpha on the images that the other folds are fitted without."""
        if np.bincount(labels.y).min() < FOLDS:
            raise CCRError(
                f"a probe needs {FOLDS} images of every class to choose its penalty by cross-validation: give "
                "validation=(X, y)"
            )
        right = dict.fromkeys(alphas, 0)
        for kept, left_out in stratified_folds().split(labels.y, labels.y):
            for alpha, head in self._heads(rows[kept], labels.y[kept], alphas).items():
                right[alpha] += int((head.logits(rows[left_out]).argmax(axis=1) == labels.y[left_out]).sum())
        return {alpha: count / len(labels.y) for alpha, count in right.items()}

    def _checked_alphas(self) -> list[float]:
        given = list(self.alphas) if isinstance(self.alphas, Iterable) else []
        if not given or not all(is_number(alpha) and alpha > 0 for alpha in given):
            raise CCRError(f"alphas must be one or more numbers > 0, got {self.alphas!r}: try (1, 3, 10)")
        return sorted({float(alpha) for alpha in given}, reverse=True)


class ZeroShot(Rival):
    """Predicts the class whose text is nearest to the image by cosine; nothing is learnt but the images' mean.

    Codes are the cosines over the class texts, the head is the identity.

    Parameters
    ----------
    class_concepts : a text's embedding for each class, named by its label, `str(label)`.
    center : "data" measures images from the training images' mean and texts from the mean of the classes' texts.
    """

    texts_parameter = "class_concepts"

    def __init__(self, class_concepts: Concepts | None = None, *, center: Center = "data") -> None:
        self.class_concepts = class_concepts
        self.center = center

    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None) -> ZeroShot:
        """Take the mean of X (m, d) and the texts of the classes in y; texts of other classes play no part."""
        if not isinstance(self.class_concepts, Concepts):
            raise CCRError(
                f"class_concepts must be a Concepts(names, embeddings), got {type(self.class_concepts).__name__}"
            )
        rows = Embeddings(X)
        rows.check_dimension(self.class_concepts.dimension)
        classes = number_labels(labels_of(X, y), len(rows)).classes
        names = [str(label).strip() for label in classes.tolist()]
        missing = [name for name in names if name not in set(self.class_concepts.names)]
        if missing:
            shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise CCRError(
                f"every class needs a text in class_concepts, {len(missing)} have none: {shown}; a text's name must be "
                "the class label"
            )
        texts = self.class_concepts.subset([self.class_concepts.index(name) for name in names])
        space = Space.fit(texts.embeddings, X, center=self.center, dispersion=None)
        head = LinearHead(np.eye(len(classes), dtype=np.float32), np.zeros(len(classes), np.float32))
        self.model_ = self._model(space, texts.names, head, classes, layer=space.texts(texts.embeddings))
        self.note_columns(X)
        return self


def _right(head: LinearHead, rows: Embeddings, truth: np.ndarray) -> int:
    """How many of the rows the head predicts as they are."""
    winners = [head.logits(chunk.numpy()).argmax(axis=1) for chunk in rows.chunks()]
    return int((np.concatenate(winners) == truth).sum())
