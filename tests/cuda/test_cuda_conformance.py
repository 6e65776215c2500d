"""The conformance kit on a lazy emulated device: transfers, reads, peers and recordings; all of it in the slow tests."""

from __future__ import annotations

import os
from typing import Any

import pytest

from polyhal.hal.testing import Scope, verify

ALL = bool(os.environ.get("POLYHAL_TEST_ALL"))
_OF_THE_DRIVER = ("identity", "memory", "transfers", "many_launches", "async_read/*", "peer_copy/*", "record/*")
"""Checks of the contract that depend on the driver more than on kernels."""


def check(device: Any, cases: str, scope: Scope | None = None) -> int:
    """Run the cases whose id matches the glob `cases`. Return how many passed."""
    report = verify(device, only=cases, scope=scope)
    assert report.ok, "\n\n".join(f"{o.id}: {o.problem}\n{o.detail}" for o in report.failed[:5])
    return report.passed


@pytest.mark.parametrize("cases", _OF_THE_DRIVER)
def test_the_contract_holds(emulate: Any, cases: str) -> None:
    assert check(emulate(capacity=2 << 30).device, f"contract/{cases}") >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "minimum"),
    [
        ("contract/*", 121),
        ("errors/*", 100),
        *(
            pytest.param(*case, marks=pytest.mark.skipif(not ALL, reason="minutes: POLYHAL_TEST_ALL=1"))
            for case in (("forward/*", 1700), ("gradient/*", 700), ("second_order/*", 190))
        ),
    ],
)
def test_the_kit_passes(emulate: Any, cases: str, minimum: int) -> None:
    assert check(emulate(capacity=4 << 30).device, cases, Scope(small=True)) >= minimum


@pytest.mark.skipif(not ALL, reason="minutes: POLYHAL_TEST_ALL=1")
@pytest.mark.slow
def test_the_contract_holds_on_a_device_that_works_at_once(emulate: Any) -> None:
    assert check(emulate(lazy=False, capacity=2 << 30).device, "contract/*") >= 121
