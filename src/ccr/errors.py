"""Errors and warnings of the library; every message names the rule, the value and the remedy."""


class CCRError(ValueError):
    """Input that cannot be worked with. The command line prints its message without a traceback."""


class FormatError(CCRError):
    """A file or folder is damaged, foreign, or of a newer format."""


class WriteError(OSError, CCRError):
    """A file or folder cannot be written: no permission, no space, a file where a folder must be."""

    def __str__(self) -> str:
        return str(self.strerror)


class UnreachableError(CCRError):
    """An object store or a cluster does not answer; what failed may work when it is tried again."""


class RefusedError(UnreachableError):
    """An object store refuses the credentials; with others, or rights of theirs, what failed may work."""


class MissingPlaceError(CCRError, FileNotFoundError):
    """There is no such object or bucket."""


class MissingExtraError(CCRError, ImportError):
    """An optional part is not installed; the message names the extra that brings it."""


class CCRWarning(UserWarning):
    """The result is well defined but probably not what was wanted."""
