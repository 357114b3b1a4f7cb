"""Files read so that damage is an error in words: which file, what is wrong with it, and what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ccr.errors import CCRError, FormatError
from ccr.texts import visible

if TYPE_CHECKING:
    import numpy as np

    from ccr.places import AnyPath


@contextmanager
def understood(path: str | os.PathLike[str] | AnyPath, must: str, remedy: str) -> Iterator[None]:
    """Around the parsing of a file: whatever it raises becomes `path` must ..., the reason, the remedy.

    A parser that is fed damaged or hostile bytes may raise anything. Errors in words stay.
    """
    try:
        yield
    except CCRError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        raise FormatError(f"{path} must {must} ({visible(reason)}): {remedy}") from error


def read_object(path: AnyPath, must: str, remedy: str) -> dict[str, Any]:
    """The JSON object in a file."""
    with understood(path, must, remedy):
        content = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, not an object")
        return content


def map_array(path: Path, must: str, remedy: str) -> np.ndarray:
    """The array of a `.npy` file, memory-mapped."""
    import numpy as np

    with understood(path, must, remedy):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive of arrays")
        return array


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
