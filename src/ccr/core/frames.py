"""Tables out: columns as a data frame of pandas or polars, whichever is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ccr.errors import CCRError, MissingExtraError

KINDS = ("pandas", "polars")


def to_frame(columns: Mapping[str, Sequence[Any]], kind: str | None = None) -> Any:
    """A data frame of these columns; `kind` is "pandas" or "polars", None: the first of the two that is installed."""
    if kind not in (None, *KINDS):
        raise CCRError(f"a data frame is one of {' or '.join(KINDS)}, got {kind!r}")
    for name in KINDS if kind is None else (kind,):
        try:
            library = import_module(name)
        except ImportError:
            continue
        return library.DataFrame(dict(columns))
    raise MissingExtraError(f"a data frame needs {kind or 'pandas or polars'}: pip install {kind or 'pandas'}")


def coded_frame(codes: Any, names: Any, kind: str, X: Any) -> Any:
    """Codes (m, n), CSR or dense, as a data frame with a column for each name, and the index of X if it has one.

    One of pandas has sparse columns; polars knows none, so that its frame is dense.
    """
    if kind == "pandas":
        pandas = import_module(kind)
        index = X.index if isinstance(X, pandas.DataFrame) else None
        if hasattr(codes, "tocsc"):
            return pandas.DataFrame.sparse.from_spmatrix(codes.tocsc(), index=index, columns=list(names))
        return pandas.DataFrame(codes, index=index, columns=list(names))
    dense = codes.toarray() if hasattr(codes, "toarray") else codes
    return to_frame({str(name): dense[:, column] for column, name in enumerate(names)}, kind)


def paths_of(given: Any) -> list[str]:
    """Paths in a list, a series, or a data frame's column "path"; one path alone is a list of one."""
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return [str(given)]
    if hasattr(given, "columns"):
        if "path" not in list(given.columns):
            raise CCRError(f'a data frame of photos needs a column "path", got {", ".join(map(str, given.columns))}')
        given = given["path"]
    return [str(path) for path in given]
