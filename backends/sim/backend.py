"""The contract on a simulated GPU: every op is one kernel that runs the op's NumPy reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.launch_recorder import record_launches
from polyhal.backends.sim import transfers
from polyhal.backends.sim.address_space import BASE
from polyhal.backends.sim.command_buffer import SimCommandBuffer
from polyhal.backends.sim.core import SimCore, device_info
from polyhal.backends.sim.event_log import EventLog
from polyhal.backends.sim.events import ReadEvent, SimEvent
from polyhal.backends.sim.faults import FaultPlan
from polyhal.backends.sim.host_queue import HostQueue
from polyhal.backends.sim.kernels import op_kernel, user_kernel
from polyhal.backends.sim.launch import SimLaunch
from polyhal.backends.sim.machine import find_machine
from polyhal.backends.sim.profile_text import profile_text
from polyhal.backends.sim.selector import SimSelector, parse_selector
from polyhal.backends.sim.verification import Verification
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.hardware.profile import load_profile
from polyhal.hal.launch_resources import LaunchResources
from polyhal.hal.layout import Spec
from polyhal.hal.ops.lowering import OnHost
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.protocol import ComputeBackend, Declined, Handle, InputSpec, Launch, UserKernel
from polyhal.hal.system.diagnostics.measurements import Measurements

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def probe() -> Sequence[DeviceInfo]:
    """Return the default device. Other devices are opened by their selectors."""
    return [device_info(load_profile(SimSelector().profile), SimSelector())]


def create(selector: str) -> SimBackend:
    """Open a device: see `polyhal.backends.sim.selector`. Raises ValueError for an invalid selector."""
    parsed = parse_selector(selector)
    return SimBackend(find_machine(parsed), parsed)


class SimBackend(SimCore):
    """An opened simulated device."""

    # --- inspecting the simulation --- -------------------------------------------------------------------------------

    @property
    def faults(self) -> FaultPlan:
        """Planned faults, and faults that have happened."""
        return self.gpu.faults

    @property
    def commands(self) -> int:
        """Number of commands so far."""
        return self.driver.commands

    @property
    def allocations(self) -> int:
        """Number of allocations so far, including failed ones."""
        return self.gpu.memory.count

    @property
    def builds(self) -> int:
        """Number of kernels built so far, including failed builds."""
        return self.gpu.kernels.builds

    @property
    def virtual_time(self) -> int:
        """Virtual time of the calling host thread, in nanoseconds since the machine was switched on."""
        return self.machine.clock.now

    def is_lost(self) -> bool:
        """Return whether a call has found the device lost."""
        return self.driver.is_lost

    @contextmanager
    def record_events(self, log: EventLog | None = None) -> Iterator[EventLog]:
        """Log every step of driver and device inside the block, in `log` if several devices share one."""
        log = EventLog() if log is None else log
        self.driver.drain()
        before = self.gpu.log
        if before is not log:
            log.outer = before
        self.gpu.log = log
        try:
            yield log
            self.driver.drain()
            self.gpu.interrupts.settle()
        finally:
            self.gpu.log, log.outer = before, None

    @contextmanager
    def verify_results(self) -> Iterator[Verification]:
        """Compare every result of kernels and transfers inside the block with NumPy's."""
        self.driver.drain()
        before, verification = self.gpu.verification, Verification()
        self.gpu.verification = verification
        try:
            yield verification
            self.driver.drain()
        finally:
            self.gpu.verification = before

    def describe(self) -> dict[str, Any]:
        """Describe the device as plain data in bytes, bytes per second and operations per second."""
        return {**self.gpu.profile.to_json(), "memory": self.gpu.memory.size, "memory_base": BASE}

    @staticmethod
    def fitted_profile(measured: Measurements) -> str:
        """Return the text of a card that fits measurements. Raises ValueError if too few of them are usable."""
        return profile_text(measured)

    # --- kernels ----------------------------------------------------------------------------------------------------

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Run any op as one kernel, except ops that other GPUs also run by fills, copies or the host."""
        if op not in OPS:
            return Declined(f"sim has no kernel for {op}")
        definition = OPS[op]
        if definition.family in ("movement", "creation"):
            return Declined("runs as fills and copies")
        host = definition.strategy(OnHost)
        if host is not None:
            return Declined(f"runs on the host: {host.reason}")
        return SimLaunch(self.launcher, self.build(op_kernel(op, inputs, outputs, params)), op)

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Params,
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Run a user's kernel by its NumPy function."""
        if "numpy" not in kernel.sources:
            return Declined(f"{kernel.name} has no NumPy function")
        return SimLaunch(self.launcher, self.build(user_kernel(kernel, inputs, outputs, params)), kernel.name)

    def record(self, calls: Sequence[Callable[[], None]]) -> SimCommandBuffer:
        """Record the launches of `calls` as packets that each submission writes to the ring again."""
        return SimCommandBuffer(self.driver, *record_launches(self.launcher, calls))

    # --- asynchronous transfers -------------------------------------------------------------------------------------

    def copy_from_device_async(self, src: Handle, offset: int, dst: memoryview) -> ReadEvent:
        return transfers.read(self.driver, src + offset, dst)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        """Return host memory. No-op for pinning: the driver maps any host memory for the time of a copy."""
        return memoryview(bytearray(nbytes))

    def copy_to_device_async(self, src: memoryview, dst: Handle, offset: int) -> SimEvent:
        return transfers.write_pinned(self.driver, src, dst + offset)

    # --- other devices of the machine -------------------------------------------------------------------------------

    def can_copy_from(self, peer: ComputeBackend) -> bool:
        """Return whether `peer` is a device of the same machine."""
        return isinstance(peer, SimBackend) and peer.machine is self.machine

    def copy_from_peer(
        self, peer: ComputeBackend, src: Handle, src_offset: int, dst: Handle, dst_offset: int, nbytes: int
    ) -> SimEvent:
        """Start a copy over the link between two devices. The DMA engine of the peer writes to this device's memory."""
        assert isinstance(peer, SimBackend)
        if peer is self:
            transfers.copy_within(self.driver, src + src_offset, dst + dst_offset, nbytes)
            return self.driver.fence()
        peer.driver.wait_for(self.driver.fence())
        event = transfers.copy_to_peer(peer.driver, src + src_offset, self.gpu.number, dst + dst_offset, nbytes)
        self.driver.wait_for(event)
        self.driver.fence()
        return event

    # --- queues -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.driver.flush()

    def open_stream(self) -> HostQueue:
        """Return a new queue, or a shared one if all queues of the device are in use."""
        return self.driver.open_queue()

    def switch_stream(self, stream: HostQueue | None) -> HostQueue | None:
        selected = self.driver.selected
        previous, selected.queue = selected.queue, stream
        return previous

    def mark(self) -> SimEvent:
        return self.driver.mark()

    def wait_for(self, event: SimEvent) -> None:
        self.driver.wait_for(event)

    def begin_to_wait(self) -> None:
        """Submit a barrier packet, which carries the waits."""
        self.driver.fence()

    _unprofiled = 0
    """Number of launches and overlapping copies before `start_profiling`."""

    # --- profiling --------------------------------------------------------------------------------------------------

    def start_profiling(self) -> None:
        """Record the virtual times of later launches."""
        self.driver.synchronize()
        self.gpu.profiled, self._unprofiled = [], self.driver.profiled

    def stop_profiling(self) -> Sequence[tuple[str, int, int]]:
        """Return (kernel, start, end) of every launch since `start_profiling`, in nanoseconds of virtual time."""
        self.driver.synchronize()
        profiled, self.gpu.profiled = self.gpu.profiled, None
        return profiled or []

    def profiled_launches(self) -> int:
        """Return the number of launches and overlapping copies since `start_profiling`."""
        return self.driver.profiled - self._unprofiled

    def launch_resources(self) -> Sequence[LaunchResources | None]:
        """Return no facts: a simulated kernel has no registers or local memory."""
        return [None] * self.profiled_launches()
