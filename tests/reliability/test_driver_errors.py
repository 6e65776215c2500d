"""The short form of the campaign of errors of real drivers, on each OpenCL device of the machine."""

from __future__ import annotations

import pytest

from benchmarks.reliability.driver_errors import KINDS, attempt
from benchmarks.reliability.machine_devices import names
from polyhal.hal.device import Device

NAMES = names("opencl")


@pytest.mark.parametrize("name", NAMES or [pytest.param("", marks=pytest.mark.skip(reason="no OpenCL device"))])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_driver_refuses_is_a_typed_error_and_the_device_goes_on(name: str, kind: str) -> None:
    outcome, left = attempt(Device(name), KINDS[kind])
    assert outcome == "refused" or (outcome == "works" and "local memory" in kind), outcome
    assert not left
