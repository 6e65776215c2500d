"""The short form of the campaign of hostile files; `python -m benchmarks.reliability.hostile_files 100000` is the long one."""

from __future__ import annotations

import sys

import pytest

from benchmarks.reliability.fuzzing.registry_names import NAMES
from benchmarks.reliability.hostile_files import hostile_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and time need Linux"),
]

INPUTS = 2000


def test_hostile_files_are_read_right_or_refused_by_name() -> None:
    result = hostile_files(INPUTS)
    assert not result.findings, "\n".join(result.findings)
    assert result.inputs >= INPUTS
    assert result.outcomes.keys() == set(NAMES)
    assert result.loaded > INPUTS / 10, "the inputs are so broken that they reach nothing"
    assert result.refused > INPUTS / 4
