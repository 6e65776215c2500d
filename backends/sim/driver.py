"""The driver: turns requests into packets, and tracks resources in use by the device.

It runs on the calling host threads. Every command costs host time (`submit_ns`), every wait ends `sync_ns` after the
device. Doorbells ring at a wait or a flush, after a batch, and at each command while events are logged. A real driver
rings at each command, but here each ring wakes a thread. Virtual times do not depend on doorbells: packets carry the
time at which they were written.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from polyhal.backends.sim.clock import VirtualClock
from polyhal.backends.sim.event_log import Action
from polyhal.backends.sim.events import SimEvent
from polyhal.backends.sim.executor import lost
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.host_queue import RING_PACKETS, HostQueue, PinnedUntil, SelectedQueue
from polyhal.backends.sim.packets import INTERRUPT, Barrier, Header, Packet, Wait, describe_body
from polyhal.backends.sim.registers import MAX_QUEUES
from polyhal.hal.errors import BackendError, message

_BATCH = 128
"""Number of packets of a queue after which the doorbell rings."""
_MAX_BATCHES = 4
"""Maximum batches in flight. They fit into the ring, with the packets written until the next check."""
_MAX_STAGED = 64 << 20
"""Maximum staged bytes of pending copies before the host waits."""


class SimDriver:
    """Submits the commands of one process to one device. Methods may be called from any thread."""

    def __init__(self, gpu: SimulatedGPU, clock: VirtualClock) -> None:
        self.gpu = gpu
        self.clock = clock
        self.commands = 0
        """Number of commands so far, the sequence number of the last one."""
        self.profiled = 0
        """Number of commands so far that a profile lists: launches, and copies that overlap them."""
        self.queues = [HostQueue(gpu)]
        self.selected = SelectedQueue()
        self._lock = threading.RLock()
        self._staged = 0
        """Staged bytes of pending copies."""
        self._process = os.getpid()
        """Process that opened the device; its threads do not survive a fork."""
        self._lost = ""
        """Reason why the device is lost; empty until the host has noticed."""

    # --- submitting -------------------------------------------------------------------------------------------------

    @property
    def queue(self) -> HostQueue:
        """Queue of the calling thread."""
        return self.selected.queue or self.queues[0]

    def submit(
        self,
        packet: Callable[[Header], Packet],
        *,
        event: SimEvent | None = None,
        pinned: int = 0,
        staged: int = 0,
        commands: int = 1,
        profiled: int = 0,
    ) -> None:
        """Write a packet to the queue of this thread, after its pending waits.

        The packet completes `event`. `pinned` host memory, with `staged` bytes owned by the driver, is released when
        the packet is done. An indirect packet counts as several `commands`: their numbers follow its own.
        A profile lists `profiled` of them.
        """
        queue = self.queue
        with self._lock:
            self.check()
            awaited, queue.awaited = queue.awaited, []
            for other in awaited:
                self._write(queue, self._wait_packet(other))
                queue.pinned.append(PinnedUntil(queue.written, 0, 0, other))
            self._write(queue, packet, event, commands)
            queue.pinned.append(PinnedUntil(queue.written, pinned, staged, event))
            self._staged += staged
            self.profiled += profiled
        self._end_batch(queue)

    def _wait_packet(self, event: SimEvent) -> Callable[[Header], Packet]:
        """Return a constructor of a packet that waits for an event of a device of the machine."""
        owner = event.gpu
        if owner is self.gpu:
            return lambda header: Wait(header, event.signal)
        owner.watchers[self.gpu.number] = weakref.ref(self.gpu)
        return lambda header: Wait(header, event.signal, owner.number + 1)

    def _write(
        self, queue: HostQueue, packet: Callable[[Header], Packet], event: SimEvent | None = None, commands: int = 1
    ) -> None:
        """Write one packet."""
        first = self.commands + 1
        self.commands += commands
        self.clock.wait_until(queue.submitted_ns)
        now = queue.submitted_ns = self.clock.advance(self.gpu.profile.submit_ns)
        header = Header(first, now)
        if event is not None:
            event.sequence, event.queue, event.position = first, queue, queue.written + 1
            event.submitted_ns = now
            header = Header(first, now, event.signal, INTERRUPT)
        made = packet(header)
        encoded = made.encode()
        queue.ring.write(queue.written, encoded)
        queue.written += 1
        queue.in_batch += 1
        if self.gpu.log is not None:
            text = f"{' '.join(describe_body(made).split())}, slot {(queue.written - 1) % RING_PACKETS} of queue {queue.number}"
            self.log(Action.SUBMIT, text, first, packet=encoded.hex())
            self.flush()

    def _end_batch(self, queue: HostQueue) -> None:
        """If the batch is full, ring the doorbell, and wait for an older batch if too many are in flight."""
        too_much = self._staged > _MAX_STAGED
        if queue.in_batch < _BATCH and not too_much:
            return
        event = self.mark(queue)
        with self._lock:
            queue.in_batch = 0
            queue.batches.append(event)
            excess = len(queue.batches) - (0 if too_much else _MAX_BATCHES)
            old = [queue.batches.popleft() for _ in range(excess)]
        for event in old:
            self.finish(event)

    def mark(self, queue: HostQueue | None = None) -> SimEvent:
        """Return an event after all work enqueued on a queue, by default the thread's. Submits without waiting."""
        event, own = SimEvent(self), queue or self.queue
        with self._lock:
            self.check()
            self._write(own, Barrier, event)
            own.pinned.append(PinnedUntil(own.written, 0, 0, event))
            self.flush()
        if queue is None:
            self._end_batch(own)
        return event

    def fence(self) -> SimEvent:
        """Return an event after all work enqueued on the thread's queue, including its pending waits. Submits."""
        event = SimEvent(self)
        self.submit(Barrier, event=event)
        self.flush()
        return event

    def open_queue(self) -> HostQueue:
        """Return a queue for a stream. When all queues of the device are in use, streams share them."""
        with self._lock:
            if len(self.queues) == MAX_QUEUES:
                self.queues[1:] = [*self.queues[2:], self.queues[1]]
            else:
                self.queues.append(HostQueue(self.gpu))
            return self.queues[-1]

    def wait_for(self, event: SimEvent) -> None:
        """Make the next command of the thread's queue wait for an event.

        Raises BackendError for an event of another machine.
        """
        if event.gpu.peers is not self.gpu.peers:
            problem = f"the event belongs to {event.gpu.name}, a device of another simulated machine"
            expected, fix = "an event of the same machine", "call event.wait(), which blocks the host"
            raise BackendError(message(None, problem, expected=expected, fix=fix, device=self.gpu.name))
        self.clock.wait_until(event.submitted_ns)
        self.queue.awaited.append(event)

    def flush(self) -> None:
        """Ring the doorbell of each queue with new packets."""
        with self._lock:
            new = {q.number: q.written for q in self.queues if q.written > q.rung}
            if new:
                for queue in self.queues:
                    queue.rung = queue.written
                if self.gpu.log is not None:
                    self.log(Action.DOORBELL, ", ".join(f"queue {q} up to packet {n}" for q, n in new.items()))
                self.gpu.ring_doorbells(new)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, event: SimEvent) -> None:
        """Block until an event is complete. Raises the error of the first command before it that failed."""
        self.finish(event)
        self._raise_failure(event.sequence)

    def synchronize(self) -> None:
        """Wait for all queues. Raises the error of the first command that failed."""
        self.check()
        self.drain()
        self._raise_failure(self.commands)

    def drain(self) -> None:
        """Wait for all queues. Errors of commands stay pending."""
        with self._lock:
            events = [self.mark(queue) for queue in self.queues if queue.written > queue.waited]
        for event in events:
            self.finish(event)

    def finish(self, event: SimEvent) -> None:
        """Block until an event is complete. Raises DeviceLostError or DeviceTimeoutError if the device halts first."""
        self.flush()
        begin = self.clock.now
        if not self.gpu.wait(event.signal):
            self._lose_device()
        end = self.gpu.signals.read(event.signal).end_ns
        now = self.clock.wait_until(end + self.gpu.profile.sync_ns)
        if self.gpu.log is not None:
            self.log(Action.WAIT, "for the device", event.sequence, begin, now)
        with self._lock:
            queue = event.queue
            if queue is None:
                return
            queue.waited = max(queue.waited, event.position)
            while queue.pinned and queue.pinned[0].position <= event.position:
                done = queue.pinned.popleft()
                self._staged -= done.staged
                if done.address:
                    self.gpu.pinned_memory.unpin(done.address)

    # --- failures ---------------------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """True if the host has noticed that the device is lost."""
        return bool(self._lost)

    def check(self) -> None:
        """Raise DeviceLostError if the host has noticed that the device is lost, and BackendError in a forked child."""
        if self._lost:
            raise lost(self.gpu.name, self._lost)
        if os.getpid() != self._process:
            problem = "the device was opened before this process was forked"
            fix = "start processes with the method spawn, or open the device after the fork"
            raise BackendError(message(None, problem, fix=fix, device=self.gpu.name))

    def _lose_device(self) -> None:
        """Raise the error of a halted device: the original error first, DeviceLostError later."""
        self.check()
        failure = next(f for f in self.gpu.failures if f.fatal)
        self._lost = failure.problem
        self.clock.wait_until(failure.time_ns)
        raise failure.new_error()

    def _raise_failure(self, sequence: int) -> None:
        """Raise the error of the first command up to `sequence` that failed."""
        error = self.gpu.take_failure(sequence, self.commands)
        if error is not None:
            raise error

    # --- log --------------------------------------------------------------------------------------------------------

    def log(
        self, action: Action, text: str, sequence: int = 0, start_ns: int = -1, end_ns: int = 0, **details: Any
    ) -> None:
        """Log a step of the host, now by default, if a log is recording."""
        log, now = self.gpu.log, self.clock.now
        if log is not None:
            start = now if start_ns < 0 else start_ns
            log.add(action, text, device=self.gpu.name, start_ns=start, end_ns=end_ns, sequence=sequence, **details)
