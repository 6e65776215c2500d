"""Devices for tests of device workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from polyhal.backends.numpy.backend import NumpyBackend
from polyhal.backends.numpy.backend import create as numpy_backend
from polyhal.backends.sim.backend import create as sim_backend
from polyhal.graphs.selection import recorded_step
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.device import Device

NUMPY = ("numpy", "numpy:no_f64", "numpy:contiguous_only")
SECONDS = 60
"""Timeout after which a deadlocked test ends the run and prints the stacks of all threads."""


def numpy_like(backend: NumpyBackend | None = None) -> Device:
    """Return a separate device that computes in NumPy."""
    return Device.opened("other", backend or NumpyBackend(replace(numpy_backend("").info, id="other")))


def sim() -> Device:
    return Device.opened("sim", sim_backend("teaching,memory=64MiB"))


def sim_peers() -> list[Device]:
    """Return two peer devices of a simulated machine.

    Its memory size is unique to this function, so that no other test shares the machine and leaves one of its devices in use.
    """
    return [Device.opened(f"sim:{i}", sim_backend(f"teaching*2:{i},memory=65MiB")) for i in range(2)]


def executable_of(step: Any) -> Executable:
    return recorded_step(step).executable  # type: ignore[union-attr]
