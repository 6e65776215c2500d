"""Execution of packets: the effect of each command, its virtual time, and injected faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.lost_devices import REOPEN
from polyhal.backends.sim.address_space import PageFaultError
from polyhal.backends.sim.dma import TRANSFERS, DmaController
from polyhal.backends.sim.event_log import Action
from polyhal.backends.sim.failure import DeviceFailure
from polyhal.backends.sim.faults import FaultKind
from polyhal.backends.sim.kernel_arguments import ArgumentKind, decode_arguments
from polyhal.backends.sim.kernels import KernelObject
from polyhal.backends.sim.packets import INTERRUPT, Copy, CopyDirection, Dispatch, Packet, Wait
from polyhal.backends.sim.registers import Register
from polyhal.backends.sim.timing import Engine, kernel_ns
from polyhal.backends.sim.verification import snapshot
from polyhal.hal.errors import BackendError, DeviceLostError, DeviceTimeoutError, PolyhalError, message
from polyhal.hal.protocol import TRANSFER

if TYPE_CHECKING:
    from polyhal.backends.sim.gpu import SimulatedGPU

_LATE = 0.05
"""Default delay of late callbacks, in seconds."""


class PacketExecutor:
    """The engines of one device: compute units and DMA engines."""

    def __init__(self, gpu: SimulatedGPU) -> None:
        self._gpu = gpu
        self._compute = Engine("compute")
        self._dma = DmaController(gpu)
        self._free_at: dict[int, int] = {}
        """End of the last command, by queue."""

    def name_of(self, packet: Packet) -> str:
        """Return the name of a command: the kernel's, or the kind of command."""
        if isinstance(packet, Dispatch):
            known = 0 < packet.kernel <= len(self._gpu.kernels)
            return self._gpu.kernels[packet.kernel].name if known else f"kernel {packet.kernel}"
        return TRANSFERS[packet.direction] if isinstance(packet, Copy) else type(packet).__name__.lower()

    def execute(self, queue: int, packet: Packet) -> None:
        """Execute one packet, unless a planned fault prevents it. Errors become failures of the device.

        An indirect packet is a no-op here: its packets were already fetched.
        """
        gpu = self._gpu
        try:
            if gpu.faults.planned and self._is_struck(queue, packet):
                return
            match packet:
                case Dispatch():
                    self._dispatch(queue, packet)
                case Copy():
                    self._copy(queue, packet)
                case Wait():
                    self._wait(queue, packet)
                case _:
                    ready = self._ready(queue, packet)
                    self._complete(queue, packet, ready, ready)
        except PageFaultError as error:
            self.halt(queue, packet, str(error), address=error.address)
        except Exception as error:  # no packet may end the processor's thread: the host would deadlock
            self.halt(queue, packet, f"{type(error).__name__}: {error}")

    def _is_struck(self, queue: int, packet: Packet) -> bool:
        """Return whether a planned fault halts the device at this packet. A short stall delays the queue."""
        gpu, sequence, name = self._gpu, packet.header.sequence, self.name_of(packet)
        if gpu.faults.strike(FaultKind.DEVICE_LOST, sequence, name):
            self.halt(queue, packet, "it stopped responding")
            return True
        fault = gpu.faults.strike(FaultKind.STALLED_QUEUE, sequence, name)
        if fault is None:
            return False
        late, limit = fault.seconds, gpu.profile.watchdog_ns
        if late is None or late * 1e9 >= limit:
            problem = f"command {sequence} ({name}) did not end within {limit / 1e9:g} s, and the device was reset"
            error = DeviceTimeoutError(message(None, problem, fix=REOPEN, device=gpu.name))
            gpu.halt(DeviceFailure(sequence, error, True, problem, self._ready(queue, packet) + limit))
            return True
        self._free_at[queue] = self._ready(queue, packet) + round(late * 1e9)
        return False

    # --- commands ---------------------------------------------------------------------------------------------------

    def _dispatch(self, queue: int, packet: Dispatch) -> None:
        gpu, kernel = self._gpu, self._gpu.kernels[packet.kernel]
        if gpu.compute:
            self._run(kernel, packet)
        ready, duration = self._ready(queue, packet), kernel_ns(gpu.profile, kernel.cost)
        start = self._compute.reserve(ready, duration, packet.header.submitted_ns)
        end = start + duration
        if gpu.profiled is not None:
            gpu.profiled.append((kernel.name, start, end))
        if gpu.log is not None:
            reads, writes = self._addresses(kernel, packet)
            details = {**kernel.cost.to_json(), "reads": reads, "writes": writes, "queue": queue}
            self._log(Action.EXECUTE, packet, self._compute, start, end, kernel.describe(), **details)
        self._complete(queue, packet, start, end)

    def _addresses(self, kernel: KernelObject, packet: Dispatch) -> tuple[list[int], list[int]]:
        """Return the device addresses of inputs and outputs."""
        block = self._gpu.pinned_memory.at(packet.arguments)
        arguments, count = list(decode_arguments(block, packet.argument_count)), len(kernel.inputs)
        reads, writes = (
            [a for kind, a in part if kind is ArgumentKind.ADDRESS] for part in (arguments[:count], arguments[count:])
        )
        return reads, writes

    def _run(self, kernel: KernelObject, packet: Dispatch) -> None:
        """Run a kernel. The host raises an error of the computation at its next wait."""
        gpu, sequence = self._gpu, packet.header.sequence
        arguments = list(decode_arguments(gpu.pinned_memory.at(packet.arguments), packet.argument_count))
        try:
            inputs, outs = kernel.operands(gpu.memory, arguments)
            before = snapshot(inputs) if gpu.verification is not None else []
            kernel.compute(inputs, outs)
        except PageFaultError:
            raise
        except Exception as error:
            self._fail(packet, error)
            return
        if gpu.faults.planned and gpu.faults.strike(FaultKind.WRONG_RESULT, sequence, kernel.name):
            _spoil(outs[0])
        if gpu.verification is not None:
            gpu.verification.kernel(sequence, kernel, before, outs)
        if gpu.mirror is not None:
            for address, nbytes in kernel.written(arguments):
                gpu.mirror.write(*gpu.memory.find(address, nbytes), nbytes)

    def _copy(self, queue: int, packet: Copy) -> None:
        gpu, name = self._gpu, TRANSFERS[packet.direction]
        crc32, problem = self._dma.move(packet)
        if problem is not None:
            self._fail(packet, problem)
        engine, duration = self._dma.engine(packet.direction), self._dma.duration(packet)
        start = engine.reserve(self._ready(queue, packet), duration, packet.header.submitted_ns)
        end = start + duration
        if gpu.profiled is not None and packet.direction is CopyDirection.DEVICE_TO_DEVICE:
            gpu.profiled.append(("copy", start, end))
        elif gpu.profiled is not None and (
            packet.direction is CopyDirection.DEVICE_TO_PEER
            or (packet.direction is CopyDirection.HOST_TO_DEVICE and packet.header.signal)
        ):
            gpu.profiled.append((TRANSFER, start, end))
        if gpu.verification is not None:
            gpu.verification.transfer(packet.header.sequence, *self._dma.ends(packet))
        places = {"source": packet.source, "destination": packet.destination, "nbytes": packet.nbytes, "queue": queue}
        text = f"{packet.nbytes} bytes {name}, {packet.source:#x} -> {packet.destination:#x}"
        self._log(Action.TRANSFER, packet, engine, start, end, text, **places)
        self._complete(queue, packet, start, end, crc32)

    def _wait(self, queue: int, packet: Wait) -> None:
        """Continue the queue when the signal is complete, or fail if its device is lost."""
        owner = self._gpu.owner(packet)
        completion = owner.signals.read(packet.awaited)
        if not owner.signals.is_done(packet.awaited):
            problem = f"{owner.name} was lost while command {packet.header.sequence} waited for its work"
            self._fail(packet, BackendError(message(None, problem, fix=REOPEN, device=self._gpu.name)))
        after = max(self._ready(queue, packet), completion.end_ns)
        self._complete(queue, packet, after, after)

    # --- completion -------------------------------------------------------------------------------------------------

    def _ready(self, queue: int, packet: Packet) -> int:
        """Return when a packet may start: after its submission and the end of earlier packets."""
        return max(packet.header.submitted_ns, self._free_at.get(queue, 0))

    def _complete(self, queue: int, packet: Packet, start: int, end: int, value: int = 0) -> None:
        """Write the completion signal, and raise an interrupt if the packet's flag requests one."""
        gpu, header = self._gpu, packet.header
        self._free_at[queue] = end
        with gpu.bus:
            gpu.registers.write(Register.COMPLETED, header.sequence)
            if not header.signal:
                return
            gpu.signals.complete(header.signal, start, end, value)
            if header.flags & INTERRUPT:
                self._interrupt(packet)
            gpu.bus.notify_all()
        if gpu.watchers:
            gpu.notify_watchers()

    def _interrupt(self, packet: Packet) -> None:
        """Deliver the interrupt of a packet's signal to its handlers."""
        gpu, header = self._gpu, packet.header
        handlers = gpu.handlers.pop(header.signal, ())
        if handlers:
            gpu.registers.write(Register.INTERRUPTS, gpu.registers.read(Register.INTERRUPTS) + 1)
            late = gpu.faults.strike(FaultKind.LATE_CALLBACK, header.sequence, self.name_of(packet))
            for handler in handlers:
                gpu.interrupts.deliver(handler, (late.seconds or _LATE) if late else 0.0)

    def _fail(self, packet: Packet, error: Exception) -> None:
        """Record an error that the device survives."""
        gpu, name = self._gpu, self.name_of(packet)
        if not isinstance(error, PolyhalError):
            problem = f"the kernel failed with {type(error).__name__}: {error}"
            known, error = error, BackendError(message(name, problem, device=gpu.name))
            error.__cause__ = known
        gpu.fail(packet.header.sequence, error)

    def halt(self, queue: int, packet: Packet | None, problem: str, *, address: int = 0) -> None:
        """Record a fatal failure, and stop the device. `packet` is None if it could not be decoded."""
        gpu = self._gpu
        if packet is None:
            sequence, time_ns = gpu.registers.read(Register.COMPLETED) + 1, self._free_at.get(queue, 0)
            problem = f"the device was lost at command {sequence}: {problem}"
        else:
            sequence, time_ns = packet.header.sequence, self._ready(queue, packet)
            problem = f"the device was lost at command {sequence} ({self.name_of(packet)}): {problem}"
        gpu.halt(DeviceFailure(sequence, lost(gpu.name, problem), True, problem, time_ns), address)

    def _log(
        self, action: Action, packet: Packet, engine: Engine, start: int, end: int, text: str, **details: Any
    ) -> None:
        log, header = self._gpu.log, packet.header
        if log is not None:
            log.add(
                action,
                text,
                device=self._gpu.name,
                lane=engine.name,
                start_ns=start,
                end_ns=end,
                sequence=header.sequence,
                **details,
            )


def lost(device: str, problem: str) -> DeviceLostError:
    """Return the error of a lost device."""
    return DeviceLostError(message(None, problem, fix=REOPEN, device=device))


def _spoil(out: np.ndarray) -> None:
    """Invert the highest bit of the exponent, or of the number, in one element."""
    place = np.unravel_index(out.size // 2, out.shape)
    element = out[place].tobytes()
    spoiled = element[:-1] + bytes([element[-1] ^ (0x40 if out.dtype.kind != "b" else 1)])
    out[place] = np.frombuffer(spoiled, out.dtype)[0]
