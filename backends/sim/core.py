"""The required members of the contract on a simulated GPU: memory, transfers, and a kernel for each core member."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from polyhal.backends.common.reference.functions import BINARY, REDUCE, UNARY
from polyhal.backends.sim import transfers
from polyhal.backends.sim.driver import SimDriver
from polyhal.backends.sim.event_log import Action
from polyhal.backends.sim.faults import FaultKind
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.kernels import KernelObject, fill_kernel, member_kernel
from polyhal.backends.sim.launch import KernelLauncher
from polyhal.backends.sim.machine import SimulatedMachine
from polyhal.backends.sim.selector import SimSelector
from polyhal.hal.capabilities import Capabilities, DeviceInfo, Limits
from polyhal.hal.core.hardware.profile import DeviceProfile
from polyhal.hal.errors import KernelBuildError, OutOfMemoryError, message
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY, Handle, Number


def device_info(profile: DeviceProfile, selector: SimSelector) -> DeviceInfo:
    """Return the description of a device."""
    memory = selector.memory_bytes or profile.memory
    text = str(selector)
    name = f"Simulated {profile.title}"
    return DeviceInfo("sim", name, profile.type, memory, "simulator", f"sim{text and '-' + text}", text, profile.vendor)


def _capabilities(profile: DeviceProfile, gpu: SimulatedGPU) -> Capabilities:
    return Capabilities(
        unary=frozenset(UNARY) - REQUIRED_UNARY,
        binary=frozenset(BINARY) - REQUIRED_BINARY,
        reduce=frozenset(REDUCE) - REQUIRED_REDUCE,
        unified_memory=profile.unified_memory and gpu.compute,
        limits=Limits(max_allocation=gpu.memory.max_allocation),
        features={
            "profile": profile.name,
            "compute units": f"{profile.compute_units}" + (f" at {profile.clock_mhz} MHz" if profile.clock_mhz else ""),
            "local memory": f"{profile.local_memory >> 10} KiB",
            "memory bandwidth": f"{profile.bandwidth / 1e9:g} GB/s",
            "link": f"{profile.link.name}, {profile.link.bandwidth / 1e9:g} GB/s",
        },
        suballocation=True,
    )


class SimCore:
    """A simulated device without kernels for whole ops. A handle is a device address, as in CUDA."""

    def __init__(self, machine: SimulatedMachine, selector: SimSelector) -> None:
        """Switch the device on. Raises ValueError or OSError if the fault file cannot be read."""
        self.machine = machine
        self.gpu = machine.switch_on(selector)
        self.driver = SimDriver(self.gpu, machine.clock)
        self.launcher = KernelLauncher(self.driver)
        self.info = device_info(machine.profile, selector)
        self.capabilities = _capabilities(machine.profile, self.gpu)
        weakref.finalize(self, self.gpu.power_off).atexit = False

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        return self.gpu.memory.available

    def allocate(self, nbytes: int) -> Handle:
        """Allocate a range of device memory. Raises OutOfMemoryError."""
        self.driver.check()
        memory, device = self.gpu.memory, self.gpu.name
        number = memory.begin()
        if self.gpu.faults.strike(FaultKind.ALLOCATION_FAILURE, number, "allocate"):
            raise OutOfMemoryError(
                message(None, f"allocation {number} of {nbytes} bytes failed, as planned", device=device)
            )
        try:
            allocation = memory.allocate(nbytes, number)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(message(None, str(error), device=device)) from error
        address = allocation.address
        self.driver.log(
            Action.ALLOCATE, f"{nbytes} bytes at {address:#x}", handle=allocation.number, address=address, nbytes=nbytes
        )
        return address

    def deallocate(self, handle: Handle) -> None:
        """Free a range of device memory after all work that may use it. Raises BackendError if it is not allocated."""
        self.driver.check()
        self.driver.drain()
        old = self.gpu.memory.release(handle)
        if self.gpu.mirror is not None:
            self.gpu.mirror.forget(old)
        text = f"{old.nbytes} bytes at {handle:#x}"
        self.driver.log(Action.FREE, text, handle=old.number, address=handle, nbytes=old.nbytes)

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        transfers.write(self.driver, src, dst + offset)

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        transfers.read(self.driver, src + offset, dst).wait()

    def synchronize(self) -> None:
        self.driver.synchronize()

    # --- core -------------------------------------------------------------------------------------------------------

    def fill(self, value: Number, out: Ref) -> None:
        kernel = self._member(("fill", out.spec), lambda: fill_kernel(out.spec))
        self.launcher.launch(kernel, (value, out))

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy contiguous bytes by DMA, and others by a kernel. Command buffers always use the kernel."""
        in_a_row = src.dtype is out.dtype and src.is_contiguous and out.is_contiguous
        if in_a_row and not self.launcher.is_recording():
            size = src.dtype.itemsize
            places = (src.handle + src.offset * size, out.handle + out.offset * size)
            transfers.copy_within(self.driver, *places, src.size * size)
        else:
            self._core("copy", "", src, out)

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._core("unary", op, x, out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._core("binary", op, a, b, out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._core("where", "", cond, a, b, out)

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._core("reduce", op, x, out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._core("matmul", "", a, b, out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        self._core("gather", "", index, x, out)

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        self._core("scatter_add", "", index, src, out)

    def _core(self, name: str, op: str, *refs: Ref) -> None:
        """Enqueue a core member; the last reference is the output."""
        specs = tuple(r.spec for r in refs)
        kernel = self._member((name, op, specs), lambda: member_kernel(name, op, specs[:-1], specs[-1]))
        self.launcher.launch(kernel, refs)

    def _member(self, key: tuple[Any, ...], make: Callable[[], KernelObject]) -> int:
        """Return the number of the kernel for a key, built at first use."""
        return self.gpu.kernels.member(key, lambda: self.build(make()))

    def build(self, kernel: KernelObject) -> int:
        """Load a kernel on the device, and return its number. Raises KernelBuildError if a planned fault strikes."""
        self.driver.check()
        kernels = self.gpu.kernels
        number = kernels.begin()
        if self.gpu.faults.strike(FaultKind.BUILD_FAILURE, number, kernel.name):
            problem = f"build {number} failed, as planned"
            raise KernelBuildError(message(kernel.name, problem, device=self.gpu.name))
        self.driver.log(Action.BUILD, kernel.describe(), kernel=kernel.name)
        return kernels.load(kernel)
