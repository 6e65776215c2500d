"""The command processor: fetches packets from the rings and passes them to the executor.

One thread per device, which sleeps until a doorbell rings. Within a queue, packets run in order. Among the queues whose
next packet is ready, the one whose packet was submitted first comes next; so results do not depend on how threads are
scheduled. The virtual time of a command is computed separately, in `polyhal.backends.sim.timing`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from polyhal.backends.sim.address_space import PageFaultError
from polyhal.backends.sim.executor import PacketExecutor
from polyhal.backends.sim.packets import PACKET_BYTES, Indirect, InvalidPacketError, Packet, Wait, decode
from polyhal.backends.sim.registers import QueueRegister, Register, Status, queue_register

if TYPE_CHECKING:
    from polyhal.backends.sim.gpu import SimulatedGPU


class CommandProcessor:
    """Feeds the commands of one device to its engines."""

    def __init__(self, gpu: SimulatedGPU) -> None:
        self._gpu = gpu
        self._executor = PacketExecutor(gpu)
        self._thread: threading.Thread | None = None
        self._fetched: dict[int, deque[Packet]] = {}
        """Fetched packets that have not run, by queue."""
        self._fetching = 0
        """Queue being fetched from, for error messages."""

    def start(self) -> None:
        """Start the thread, unless it runs. The caller holds the bus."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"{self._gpu.name} commands", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        """Execute packets until the device halts, or is switched off and has nothing left to do."""
        while True:
            try:
                queue = self._await_packet()
            except Exception as error:  # the host would deadlock without this thread
                text = str(error) if isinstance(error, InvalidPacketError) else f"{type(error).__name__}: {error}"
                self._executor.halt(self._fetching, None, text)  # without the bus: halting wakes other devices
                continue
            if queue is None:
                return
            packet = self._fetched[queue].popleft()
            if isinstance(packet, Indirect):
                self._fetched[queue].extendleft(reversed(self._indirect(queue, packet)))
            self._executor.execute(queue, packet)

    # --- fetching ---------------------------------------------------------------------------------------------------

    def _await_packet(self) -> int | None:
        """Block until a queue has a packet that can run, and return the queue. None: the thread ends."""
        gpu = self._gpu
        with gpu.bus:
            while (queue := self._next_queue()) is None:
                if not gpu.powered or gpu.is_halted:
                    self._thread = None
                    gpu.interrupts.stop()
                    return None
                gpu.registers.write(Register.STATUS, Status.IDLE)
                gpu.bus.notify_all()
                gpu.bus.wait()
            return queue

    def _next_queue(self) -> int | None:
        """Return the queue whose ready packet was submitted first."""
        gpu = self._gpu
        if gpu.is_halted:
            return None
        ready = []
        for queue in range(gpu.queues):
            self._fetching = queue
            packet = self._head(queue)
            if packet is not None and self._is_ready(packet):
                ready.append((packet.header.sequence, queue))
        return min(ready)[1] if ready else None

    def _is_ready(self, packet: Packet) -> bool:
        if not isinstance(packet, Wait):
            return True
        owner = self._gpu.owner(packet)
        return owner.signals.is_done(packet.awaited) or (owner.is_halted and owner is not self._gpu)

    def _head(self, queue: int) -> Packet | None:
        """Return the next packet of a queue, fetched from the ring if necessary; None if the queue is empty."""
        fetched = self._fetched.setdefault(queue, deque())
        if fetched:
            return fetched[0]
        registers = self._gpu.registers
        index = registers.read(queue_register(queue, QueueRegister.READ_INDEX))
        if index == registers.read(queue_register(queue, QueueRegister.DOORBELL)):
            return None
        ring = self._gpu.pinned_memory.at(registers.read(queue_register(queue, QueueRegister.RING_BASE)))
        slot = index % registers.read(queue_register(queue, QueueRegister.RING_SIZE))
        registers.write(queue_register(queue, QueueRegister.READ_INDEX), index + 1)
        fetched += _decoded(ring[slot * PACKET_BYTES :], 1)
        return fetched[0]

    def _indirect(self, queue: int, packet: Indirect) -> list[Packet]:
        """Fetch the packets that an indirect packet refers to. An invalid packet halts the device."""
        try:
            return _decoded(self._gpu.pinned_memory.at(packet.address), packet.packet_count)
        except PageFaultError as error:
            self._executor.halt(queue, packet, str(error), address=error.address)
        except InvalidPacketError as error:
            self._executor.halt(queue, None, str(error))
        return []


def _decoded(memory: memoryview, count: int) -> list[Packet]:
    """Decode packets. Raises InvalidPacketError."""
    return [decode(memory[i : i + PACKET_BYTES]) for i in range(0, count * PACKET_BYTES, PACKET_BYTES)]
