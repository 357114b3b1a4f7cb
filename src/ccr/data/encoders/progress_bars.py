"""Loading models without the bars that transformers draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_bars(wanted: bool = True) -> Iterator[None]:
    """While inside, transformers draws no progress bars (if `wanted`); afterwards all is as it was."""
    from transformers.utils import logging

    if not wanted or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
