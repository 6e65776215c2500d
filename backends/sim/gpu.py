"""The hardware of one simulated device, as its driver uses it: memory, registers, doorbells, signals, interrupts.

The driver never calls into the command processor. It writes packets to a ring buffer in host memory, stores the ring's write
index in a doorbell register, and waits for a signal.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping

from polyhal.backends.sim.address_space import AddressSpace
from polyhal.backends.sim.command_processor import CommandProcessor
from polyhal.backends.sim.event_log import EventLog
from polyhal.backends.sim.failure import DeviceFailure
from polyhal.backends.sim.faults import FaultPlan
from polyhal.backends.sim.interrupts import InterruptController
from polyhal.backends.sim.kernels import KernelTable
from polyhal.backends.sim.mirror import OpenCLMirror
from polyhal.backends.sim.packets import Wait
from polyhal.backends.sim.pinned_memory import PinnedMemory
from polyhal.backends.sim.registers import MAX_QUEUES, QueueRegister, Register, Registers, Status, queue_register
from polyhal.backends.sim.ring import RingBuffer
from polyhal.backends.sim.signals import Signals
from polyhal.backends.sim.verification import Verification
from polyhal.hal.core.hardware.profile import DeviceProfile

_REPORTED = 64


class SimulatedGPU:
    """One device that is switched on."""

    def __init__(
        self,
        profile: DeviceProfile,
        name: str,
        *,
        memory: int = 0,
        compute: bool = True,
        faults: FaultPlan | None = None,
    ) -> None:
        """Power the device on.

        `memory` in bytes replaces the profile's size. Without `compute`, kernels only take virtual time.
        """
        self.profile = profile
        self.name = name
        self.compute = compute
        self.faults = faults or FaultPlan()
        size = memory or profile.memory
        limit = min(profile.max_allocation, size // 2) if memory else profile.max_allocation
        self.memory = AddressSpace(size, limit, backed=compute)
        self.pinned_memory = PinnedMemory()
        self.registers = Registers()
        self.signals = Signals()
        self.kernels = KernelTable()
        self.interrupts = InterruptController(name)
        self.failures: list[DeviceFailure] = []
        self.reported: deque[tuple[DeviceFailure, int]] = deque(maxlen=_REPORTED)
        """Failures that a wait has raised, each with the last command submitted before the wait: events up to it still
        report the failure."""
        self.number = 0
        """Number, unique in the machine: a device that is switched on again has a new one."""
        self.peers: Mapping[int, SimulatedGPU] = {}
        """Devices of the machine, by number."""
        self.watchers: dict[int, weakref.ref[SimulatedGPU]] = {}
        """Devices that wait for signals of this device, by number."""
        self.log: EventLog | None = None
        self.verification: Verification | None = None
        """Comparison of every result with NumPy's, while enabled."""
        self.mirror: OpenCLMirror | None = None
        """Real OpenCL buffers on which every command is also performed."""
        self.profiled: list[tuple[str, int, int]] | None = None
        """(kernel, start, end) of each dispatch, while profiling."""
        self.bus = threading.Condition()
        """Lock for writes of doorbells and signals; notified after both."""
        self.handlers: dict[int, list[Callable[[], None]]] = {}
        """Handlers of each signal's interrupt."""
        self.queues = 0
        self.powered = True
        self._processor = CommandProcessor(self)

    # --- written by the driver -------------------------------------------------------------------------------------

    def attach_queue(self, ring: RingBuffer) -> int:
        """Register a ring buffer, and return the number of its queue. Raises RuntimeError if all queues are in use."""
        if self.queues == MAX_QUEUES:
            raise RuntimeError(f"all {MAX_QUEUES} queues of the device are in use")
        queue = self.queues
        self.registers.write(queue_register(queue, QueueRegister.RING_SIZE), ring.size)
        self.registers.write(queue_register(queue, QueueRegister.RING_BASE), self.pinned_memory.pin(ring.memory))
        self.queues += 1
        return queue

    def ring_doorbells(self, written: Mapping[int, int]) -> None:
        """Store the write indices of several queues atomically, and wake the command processor."""
        with self.bus:
            for queue, index in written.items():
                self.registers.write(queue_register(queue, QueueRegister.DOORBELL), index)
            if not self.is_halted:
                self.registers.write(Register.STATUS, Status.BUSY)
            self._processor.start()
            self.bus.notify_all()

    def power_off(self) -> None:
        """Stop the threads of the device after pending work. Does not wait."""
        with self.bus:
            self.powered = False
            self.bus.notify_all()

    def finish_reads(self) -> None:
        """Wait until all registered callbacks have run, at the end of the program."""
        with self.bus:
            while self.handlers and not self.is_halted:
                self.bus.wait()
        self.interrupts.settle()

    # --- read by the driver --------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Value of the register STATUS."""
        return Status(self.registers.read(Register.STATUS))

    @property
    def is_halted(self) -> bool:
        """True if a fatal failure has halted the device."""
        return self.status is Status.HALTED

    def wait(self, signal: int) -> bool:
        """Block until a signal is done. Returns False if the device halts first."""
        with self.bus:
            while not self.signals.is_done(signal):
                if self.is_halted:
                    return False
                self.bus.wait()
            return True

    def when_done(self, signal: int, handler: Callable[[], None]) -> bool:
        """Register `handler` for the interrupt of a signal. Returns False if the signal is done or the device has halted."""
        with self.bus:
            if self.signals.is_done(signal) or self.is_halted:
                return False
            self.handlers.setdefault(signal, []).append(handler)
            return True

    def failure_before(self, sequence: int, *, fatal: bool) -> Exception | None:
        """Return the error of the first failed command up to `sequence`; if `fatal`, the failure that halted the device."""
        with self.bus:
            failed = [f for f in self.failures if f.sequence <= sequence or (f.fatal and fatal)]
            failed += [f for f, last in self.reported if f.sequence <= sequence <= last]
        return min(failed, key=lambda f: f.sequence).new_error() if failed else None

    def take_failure(self, sequence: int, submitted: int) -> Exception | None:
        """Return the error of the first command up to `sequence` that failed, and clear all but fatal errors.

        Callbacks of the commands `submitted` so far still report it.
        """
        with self.bus:
            failed = [f for f in self.failures if f.sequence <= sequence and not f.fatal]
            self.failures = [f for f in self.failures if f not in failed]
            self.reported.extend((f, submitted) for f in failed)
        return min(failed, key=lambda f: f.sequence).new_error() if failed else None

    # --- other devices ----------------------------------------------------------------------------------------------

    def owner(self, wait: Wait) -> SimulatedGPU:
        """Return the device that completes the awaited signal."""
        return self.peers[wait.owner - 1] if wait.owner else self

    def notify_watchers(self) -> None:
        """Wake the devices that wait for signals of this one. Called without the bus."""
        for watcher in list(self.watchers.values()):
            gpu = watcher()
            if gpu is not None:
                with gpu.bus:
                    gpu.bus.notify_all()

    # --- reported by the command processor -------------------------------------------------------------------------

    def fail(self, sequence: int, error: Exception) -> None:
        """Record an error of a command that the device survives."""
        with self.bus:
            self.failures.append(DeviceFailure(sequence, error))

    def halt(self, failure: DeviceFailure, address: int = 0) -> None:
        """Stop executing commands permanently, and interrupt all waiters."""
        with self.bus:
            self.failures.append(failure)
            self.registers.write(Register.FAULT_ADDRESS, address)
            self.registers.write(Register.FAULT_COMMAND, failure.sequence)
            self.registers.write(Register.STATUS, Status.HALTED)
            waiting, self.handlers = self.handlers, {}
            self.bus.notify_all()
        self.notify_watchers()
        for handlers in waiting.values():
            for handler in handlers:
                self.interrupts.deliver(handler)
