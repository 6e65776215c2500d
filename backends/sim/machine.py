"""The simulated machine: a host with a clock, and devices of one kind that reach each other's memory."""

from __future__ import annotations

import atexit
import functools
import os
from weakref import WeakSet, WeakValueDictionary

from polyhal.backends.sim.clock import VirtualClock
from polyhal.backends.sim.faults import load_faults
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.mirror import OpenCLMirror
from polyhal.backends.sim.profile import DeviceProfile, load_profile
from polyhal.backends.sim.selector import SimSelector


class SimulatedMachine:
    """A host with one or more devices of a kind. It exists as long as one of them is in use."""

    def __init__(self, profile: DeviceProfile, count: int) -> None:
        self.profile = profile
        self.count = count
        self.clock = VirtualClock()
        self._gpus: WeakValueDictionary[int, SimulatedGPU] = WeakValueDictionary()

    def switch_on(self, selector: SimSelector) -> SimulatedGPU:
        """Switch a device on, empty. Raises ValueError or OSError for options that cannot be met."""
        faults = load_faults(selector.faults) if selector.faults else None
        name = f"sim:{selector}".removesuffix(":")
        gpu = SimulatedGPU(
            self.profile, name, memory=selector.memory_bytes, compute=selector.compute, faults=faults
        )  # fmt: skip
        if selector.mirror:
            gpu.mirror = OpenCLMirror()
        _switched_on(os.getpid()).add(gpu)
        self._gpus[selector.index] = gpu
        gpu.number, gpu.peers = selector.index, self._gpus
        return gpu

    def is_in_use(self, index: int) -> bool:
        """Return whether a device is switched on and works."""
        gpu = self._gpus.get(index)
        return gpu is not None and gpu.powered and not gpu.is_halted


@functools.lru_cache(maxsize=1)
def _switched_on(pid: int) -> WeakSet[SimulatedGPU]:
    """The devices of this process. When it ends, it waits for reads that it has started."""
    atexit.register(_finish_reads)
    return WeakSet()


def _finish_reads() -> None:
    for gpu in _switched_on(os.getpid()):
        gpu.finish_reads()


@functools.lru_cache(maxsize=1)
def _machines(pid: int) -> WeakValueDictionary[str, SimulatedMachine]:
    """The machines of this process, by selector. A forked child gets its own, because threads do not survive a fork."""
    return WeakValueDictionary()


def find_machine(selector: SimSelector) -> SimulatedMachine:
    """Return the machine of a device, and a new one if there is none, or if the device is in use there already."""
    machines, name = _machines(os.getpid()), str(selector.machine)
    machine = machines.get(name)
    if machine is None or machine.is_in_use(selector.index):
        machine = machines[name] = SimulatedMachine(load_profile(selector.profile), selector.count)
    return machine
