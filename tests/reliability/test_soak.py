"""The short form of the campaign of soak; `python -m benchmarks.reliability --only soak` is the long one."""

from __future__ import annotations

import pytest

from benchmarks.reliability.machine_devices import SIMULATED
from benchmarks.reliability.soak import soak

pytestmark = pytest.mark.slow


def test_nothing_grows_and_trainings_repeat_bit_by_bit() -> None:
    result = soak(0.06, ("numpy", SIMULATED), ("mlp",))
    assert not result.findings, "\n".join(result.findings)
    assert result.leaks == 0
    assert result.steps > 100
    assert result.repeated >= 2
