"""Device workers: host threads, one per device of a step, that enqueue the partitions of their device in order.

Additional workers run overlapped collectives and peer copies. A worker blocks only in cross-device ops (see `cross_device`).
The calling thread runs the first worker; the threads of the others come from a thread pool that is kept from run to run.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.scheduler.enqueue_collectives import EnqueuedCollective
from polyhal.hal.compile.scheduler.recorded_collectives import RecordedCollectives
from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.stream_selection import StreamSelection
from polyhal.hal.core.transfers.worker_link import WorkerKey, WorkerLink, WorkerStoppedError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from polyhal.hal.compile.scheduler.partitions import Partition
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device

_LEADING = 4
"""Number of leading partitions that are searched for a collective on compute streams."""
_MOST_THREADS = 4096
"""Size of the thread pool. It must exceed the number of workers at any time: a queued worker would block its consumers."""


class WorkerSpan(NamedTuple):
    """One action of a worker in a run. Times are in nanoseconds of `time.perf_counter_ns`."""

    worker: str
    ops: tuple[str, ...]
    begin: int
    end: int
    waited: int
    """Time of the span that was spent waiting for other workers."""


class DeviceWorker:
    """The partitions of one device, or of overlapped communication, that one thread runs in order: see `WorkerKey`."""

    def __init__(self, key: WorkerKey, partitions: Sequence[Partition], links: Sequence[WorkerLink]) -> None:
        self.key = key
        self.device: Device | None = partitions[0].device if partitions[0].worker is None else None
        """None for a communication worker, whose work overlaps with its devices' compute streams."""
        self.name = " to ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        self.ops = [tuple("copy" if n is None else n.op.name for n in p.nodes) for p in partitions]
        """Ops of each action."""
        self.partitions = partitions
        self.streams = _Streams()
        self.actions = [p.run if p.on_worker is None else partial(p.on_worker, self.streams) for p in partitions]
        self.leading = _leading(partitions)
        """Number of actions up to the first collective on compute streams, if the step begins with it; else 0."""
        self._links = links
        self.runs = 0
        self.elapsed = 0
        """Nanoseconds from the start to the end of the worker, summed over all runs."""

    @property
    def waited(self) -> int:
        """Part of `elapsed` that was spent waiting for other workers."""
        return sum(link.waited(self.key) for link in self._links)

    def catch_up(self) -> None:
        """Enqueue collectives that other devices already wait for. Called when all workers have stopped."""
        for partition, action in zip(self.partitions, self.actions, strict=True):
            if partition.link is not None and partition.link.is_behind(self.key):
                with suppress(Exception):  # the device may be lost; the others then wait until their timeout
                    action()

    def finish(self) -> None:
        """Wait for work that is still enqueued on the worker's own streams, and ignore its errors."""
        for stream in self.streams.values():
            with suppress(Exception):
                stream.synchronize()


class _Streams(dict["Device", "Stream"]):
    """Streams of a worker by device, opened on first use."""

    def __missing__(self, device: Device) -> Stream:
        stream = self[device] = device.stream()
        return stream


class DeviceWorkers:
    """Runner of a step's partitions on several devices, one worker each."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        links = list({id(p.link): p.link for p in partitions if p.link is not None}.values())
        self._in_graph_order = [p.run for p in partitions]
        parts: dict[WorkerKey, list[Partition]] = {}
        for p in partitions:
            parts.setdefault(p.worker or p.device, []).append(p)
        self.all = [DeviceWorker(key, own, links) for key, own in parts.items()]
        self.all.sort(key=lambda worker: worker.device is None)
        self._links = links
        self._locks = list({id(x.turn): x.turn for x in links if isinstance(x, _ON_COMPUTE_STREAMS)}.values())
        self._leads = all(w.device is not None and w.leading == len(w.actions) for w in self.all)
        """True if this thread enqueues everything, without blocking."""
        self._failure: BaseException | None = None
        """First error of a run."""
        self._spans: list[WorkerSpan] | None = None
        """Spans of all workers while they are recorded; None otherwise."""
        self.timed: Callable[[DeviceWorker], Iterator[Callable[[], None]]] | None = None
        """Replacement for the actions of a worker that also measures their times."""
        self._lock = threading.Lock()

    def run(self) -> None:
        """Enqueue and submit the work of all workers. Raises the first error, after all workers have stopped."""
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)
            self._run()

    def _run(self) -> None:
        own, *others = self.all
        if self._leads and self.timed is None and self._spans is None:
            others = []
        leading_enqueued = threading.Event()
        state = dict(vars(dispatch.thread))
        threads = _threads(os.getpid())
        futures: list[Future[None]] = []
        try:
            for worker in others:
                context, selection = copy_context(), _selection(worker)
                futures.append(
                    threads.submit(context.run, self._run_on_thread, worker, selection, state, leading_enqueued)
                )
            self._enqueue_leading_collective()
        except RuntimeError as error:  # an interpreter that shuts down cannot start threads
            if not futures:
                self._run_in_graph_order()
                return
            self._fail(error)
        except BaseException as error:
            self._fail(error)
        leading_enqueued.set()
        self._run_worker(own)
        for future in futures:
            self._join(future)
        failure, self._failure = self._failure, None
        if failure is not None:
            for worker in self.all:
                worker.catch_up()
            for worker in self.all:
                worker.finish()
            self.clear()
            try:
                raise failure
            finally:
                del failure  # its traceback refers to this frame

    def _enqueue_leading_collective(self) -> None:
        """Enqueue a leading collective on all devices from this thread, before the worker threads compete for the interpreter.

        The action after it may block on a full device queue, and thereby on the collective.
        """
        if self.timed is not None or self._spans is not None:
            return
        for worker in self.all:
            self._run_actions(worker, worker.actions[: worker.leading])

    @contextmanager
    def recording(self) -> Iterator[list[WorkerSpan]]:
        """Record the spans of all workers in the runs inside the block."""
        before, self._spans = self._spans, []
        try:
            yield self._spans
        finally:
            self._spans = before

    def _run_in_graph_order(self) -> None:
        """Enqueue the work of all workers on the calling thread, in graph order."""
        try:
            for action in self._in_graph_order:
                action()
        except BaseException:
            self.clear()
            raise
        for worker in self.all:
            if worker.device is not None:
                worker.device.flush()

    def clear(self) -> None:
        """Discard values that were sent and not received, after a run has failed."""
        for link in self._links:
            link.clear()

    def _run_on_thread(
        self,
        worker: DeviceWorker,
        selection: StreamSelection | None,
        state: dict[str, Any],
        leading_enqueued: threading.Event,
    ) -> None:
        """Run a worker with the executor, the modes and the stream of the calling thread."""
        leading_enqueued.wait()
        vars(dispatch.thread).update(state)
        try:
            with nullcontext() if selection is None else selection.on_this_thread():
                self._run_worker(worker)
        except BaseException as error:
            self._fail(error)
        finally:
            vars(dispatch.thread).clear()

    def _run_worker(self, worker: DeviceWorker) -> None:
        """Run a worker to its end, or until any worker has failed."""
        self._run_actions(worker, self._actions(worker))
        worker.runs += 1

    def _run_actions(self, worker: DeviceWorker, actions: Iterable[Callable[[], None]]) -> None:
        """Run actions of a worker and submit the enqueued work."""
        begin = time.perf_counter_ns()
        try:
            for action in actions:
                if self._failure is not None:
                    return
                action()
            if worker.device is not None:
                worker.device.flush()
        except WorkerStoppedError:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            worker.elapsed += time.perf_counter_ns() - begin

    def _actions(self, worker: DeviceWorker) -> Iterable[Callable[[], None]]:
        if self.timed is not None:
            return self.timed(worker)
        return worker.actions[worker.leading :] if self._spans is None else self._noted(worker, self._spans)

    def _noted(self, worker: DeviceWorker, spans: list[WorkerSpan]) -> Iterator[Callable[[], None]]:
        """Yield the actions of a worker and record a span for each, from its request to the request of the next."""
        for action, ops in zip(worker.actions, worker.ops, strict=True):
            begin, waited = time.perf_counter_ns(), worker.waited
            yield action
            spans.append(WorkerSpan(worker.name, ops, begin, time.perf_counter_ns(), worker.waited - waited))

    def _fail(self, error: BaseException) -> None:
        """Stop all workers."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
        for link in self._links:
            link.stop()

    def _join(self, future: Future[None]) -> None:
        """Wait for a worker. Ctrl-C stops all workers first."""
        while not future.done():
            try:
                future.result()
            except BaseException as error:
                self._fail(error)


def _leading(partitions: Sequence[Partition]) -> int:
    """Return the number of partitions up to and including a leading collective on compute streams; 0 without one.

    After any other cross-device op the count is 0: the collective then depends on other workers.
    """
    first = next((k for k, p in enumerate(partitions[:_LEADING]) if p.link is not None), None)
    return 0 if first is None or not isinstance(partitions[first].link, _ON_COMPUTE_STREAMS) else first + 1


def _selection(worker: DeviceWorker) -> StreamSelection | None:
    """Return the calling thread's stream selection on the device of a worker; None for communication workers."""
    return None if worker.device is None else StreamSelection(worker.device)


_ON_COMPUTE_STREAMS = (EnqueuedCollective, RecordedCollectives)
"""Links of collectives that no thread waits for."""


@functools.lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process. A forked child needs its own. The threads end with the program."""
    from concurrent.futures import ThreadPoolExecutor  # imports slowly

    return ThreadPoolExecutor(_MOST_THREADS, "polyhal-worker")


__all__ = ["DeviceWorker", "DeviceWorkers", "WorkerSpan"]
