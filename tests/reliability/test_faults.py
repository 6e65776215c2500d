"""The short form of the campaign of faults; `python -m benchmarks.reliability --only faults` is the long one."""

from __future__ import annotations

import pytest

from benchmarks.reliability.faults import faults
from polyhal.backends.sim.faults import FaultKind

pytestmark = pytest.mark.slow


def test_faults_are_survived_without_a_trace() -> None:
    result = faults(("mlp", "gpt"), exhaustive=(), each=1, checked=1, seed=1)
    assert not result.findings, "\n".join(result.findings)
    assert result.leaks == 0
    assert result.injected >= 30
    assert result.recovered >= 15
    assert result.detected >= 4
    assert set(result.outcomes) == {str(kind) for kind in FaultKind}
