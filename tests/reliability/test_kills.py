"""The short form of the campaign of kills; `python -m benchmarks.reliability.kills 25 50 10` is the long one."""

from __future__ import annotations

import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it forks and kills")]


def test_nothing_that_was_written_is_lost_by_a_kill() -> None:
    from benchmarks.reliability.kills import kills

    result = kills(writes=2, trainings=3)
    assert not result.findings, "\n".join(result.findings)
    assert result.kills >= 15
    assert result.resumed >= 1
