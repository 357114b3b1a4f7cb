"""The seconds of a fit are those of the fit."""

from __future__ import annotations

import pytest

from ccr.kernels import tiers
from ccr_lab.experiments.runs import resource_usage


def test_kernels_are_there_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_ready", set())
    with resource_usage() as usage:
        assert tiers._ready == set(tiers.GROUPS)
        inside = usage.seconds
    assert inside == 0.0 < usage.seconds
