"""What goes wrong in words for people: every message names the rule, the value and the remedy."""

from sklearn.exceptions import NotFittedError as SklearnNotFittedError


class CCRError(ValueError):
    """Input that cannot be worked with. The command line prints its message without a traceback."""


class NotFittedError(CCRError, SklearnNotFittedError):
    """A model was asked for something that only `fit` can give."""


class FormatError(CCRError):
    """A file or folder is damaged, foreign, or of a newer format."""


class MissingExtraError(CCRError, ImportError):
    """An optional part is not installed; the message names the extra that brings it."""


class CCRWarning(UserWarning):
    """The result is well defined but probably not what was wanted."""
