"""The team of a fit on a cluster: the processes of `ray.train`'s TorchTrainer, which torch.distributed connects."""

from __future__ import annotations

import numpy as np
import torch
from torch import distributed


class TorchTeam:
    """A `ccr.core.team.Team` of torch.distributed's default group."""

    def __init__(self) -> None:
        grouped = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if grouped else 0
        self.size = distributed.get_world_size() if grouped else 1

    def sum(self, array: np.ndarray) -> np.ndarray:
        if self.size > 1:
            array = np.ascontiguousarray(array)
            distributed.all_reduce(torch.from_numpy(array))
        return array

    def first(self, array: np.ndarray) -> np.ndarray:
        if self.size > 1:
            array = np.array(array, order="C")
            distributed.broadcast(torch.from_numpy(array), src=0)
        return array
