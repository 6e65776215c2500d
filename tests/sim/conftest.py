"""Simulated devices for a single test, with a clock that starts at 0."""

from __future__ import annotations

import pytest
from simulated import OpenSim

from polyhal.backends.sim.backend import SimBackend
from polyhal.backends.sim.machine import SimulatedMachine
from polyhal.backends.sim.selector import parse_selector
from polyhal.hal.core.hardware.profile import load_profile
from polyhal.hal.device import Device


@pytest.fixture
def open_sim() -> OpenSim:
    """Return a function that opens a device for this test only."""

    def opened(selector: str = "") -> Device:
        parsed = parse_selector(selector)
        machine = SimulatedMachine(load_profile(parsed.profile), parsed.count)
        return Device.opened("sim", SimBackend(machine, parsed))

    return opened


@pytest.fixture
def sim(open_sim: OpenSim) -> Device:
    """Open the teaching GPU."""
    return open_sim()
