"""Which engine takes the steps."""

from __future__ import annotations

import logging
from typing import Literal

from ccr.core import kernels
from ccr.core.coding import Coder, HardThreshold, TopK
from ccr.core.devices import resolve_device
from ccr.core.refine.options import Training
from ccr.errors import CCRError

log = logging.getLogger("ccr")

EngineName = Literal["auto", "dense", "sparse"]


def choose_engine(name: EngineName, coder: Coder, training: Training) -> Literal["dense", "sparse"]:
    """The engine that a name stands for; "auto" is sparse where it can work."""
    if name not in ("auto", "dense", "sparse"):
        raise CCRError(f'engine must be "auto", "sparse" or "dense", got {name!r}')
    device = resolve_device(training.device)
    obstacle = None
    if device.type != "cpu":
        obstacle = f"works on the CPU, not on {device.type}"
    elif not isinstance(coder, (HardThreshold, TopK)):  # the kernels select as the rules of these two do
        obstacle = f"knows HardThreshold and TopK, not {type(coder).__name__}"
    if name == "sparse" and obstacle is not None:
        raise CCRError(f'the sparse engine {obstacle}: use engine="auto"')
    if name == "dense" or obstacle is not None:
        return "dense"
    kernels.warm_up(log.info)
    return "sparse"
