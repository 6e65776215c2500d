"""The simulated machine: a host with a clock, and devices of one kind that can access each other's memory."""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from collections import defaultdict
from weakref import WeakSet, WeakValueDictionary

from polyhal.backends.sim.clock import VirtualClock
from polyhal.backends.sim.faults import load_faults
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.mirror import OpenCLMirror
from polyhal.backends.sim.selector import SimSelector
from polyhal.hal.core.hardware.profile import DeviceProfile, load_profile


class SimulatedMachine:
    """A host with one or more devices of a kind. It lives as long as one of them is in use."""

    def __init__(self, profile: DeviceProfile, count: int) -> None:
        self.profile = profile
        self.count = count
        self.clock = VirtualClock()
        self._gpus: WeakValueDictionary[int, SimulatedGPU] = WeakValueDictionary()
        """Most recently switched-on device, by index."""
        self._peers: WeakValueDictionary[int, SimulatedGPU] = WeakValueDictionary()
        """Every device that was ever switched on, by number."""
        self._numbers: set[int] = set()

    def switch_on(self, selector: SimSelector) -> SimulatedGPU:
        """Switch a device on, with empty memory. Raises ValueError or OSError for invalid options."""
        faults = load_faults(selector.faults) if selector.faults else None
        name = f"sim:{selector}".removesuffix(":")
        gpu = SimulatedGPU(self.profile, name, memory=selector.memory_bytes, compute=selector.compute, faults=faults)
        if selector.mirror:
            gpu.mirror = OpenCLMirror()
        _switched_on(os.getpid()).add(gpu)
        self._gpus[selector.index] = gpu
        gpu.number, gpu.peers = self._new_number(selector.index), self._peers
        self._peers[gpu.number] = gpu
        return gpu

    def _new_number(self, index: int) -> int:
        """Return the index, or another number for a device that is switched on again: packets may refer to the old one."""
        number = index if index not in self._numbers else max(self.count, *self._numbers) + 1
        self._numbers.add(number)
        return number

    def is_in_use(self, index: int) -> bool:
        """Return whether a device is switched on and not halted."""
        gpu = self._gpus.get(index)
        return gpu is not None and gpu.powered and not gpu.is_halted


@functools.lru_cache(maxsize=1)
def _switched_on(pid: int) -> WeakSet[SimulatedGPU]:
    """Return the devices of this process. At exit, the process waits for its pending reads."""
    atexit.register(_finish_reads)
    return WeakSet()


def _finish_reads() -> None:
    for gpu in _switched_on(os.getpid()):
        gpu.finish_reads()


@functools.lru_cache(maxsize=1)
def _machines(pid: int) -> defaultdict[str, list[weakref.ref[SimulatedMachine]]]:
    """Return the machines of this process, by selector, the newest last.

    A forked child starts with none, because threads do not survive a fork.
    """
    return defaultdict(list)


def find_machine(selector: SimSelector) -> SimulatedMachine:
    """Return the newest machine in which the device is not in use, or else a new one."""
    known = _machines(os.getpid())[str(selector.machine)]
    existing = [machine for reference in known if (machine := reference()) is not None]
    free = [machine for machine in existing if not machine.is_in_use(selector.index)]
    if not free:
        free = [SimulatedMachine(load_profile(selector.profile), selector.count)]
        existing += free
    known[:] = map(weakref.ref, existing)
    return free[-1]
