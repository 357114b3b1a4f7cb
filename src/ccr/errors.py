"""Errors and warnings of the library; every message names the rule, the value and the remedy."""

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/\s?#]*@")


def without_credentials(text: str) -> str:
    """The text, in whose addresses no name and password stand: they are never printed, also not in an error."""
    return _CREDENTIALS.sub("", text)


class CCRError(ValueError):
    """Input that cannot be worked with. The command line prints its message without a traceback.

    A message repeats no credentials: what other packages say of an address may hold those of the environment."""

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class FormatError(CCRError):
    """A file or folder is damaged, foreign, or of a newer format."""


class WriteError(OSError, CCRError):
    """A file or folder cannot be written: no permission, no space, a file where a folder must be."""

    def __str__(self) -> str:
        return without_credentials(str(self.strerror))


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
