"""The error of a model that is not fitted yet."""

from sklearn.exceptions import NotFittedError as SklearnNotFittedError

from ccr.errors import CCRError


class NotFittedError(CCRError, SklearnNotFittedError):
    """A model was asked for something that only `fit` can give."""
