"""Lanes: the parts of a run on several devices, each enqueued by a host thread of its own.

A lane has the partitions of one device, in order; more have collectives and copies between peers. It waits for others only
where values cross (see `crossings`). The calling thread takes the first lane. Threads of the others are kept from run to run.
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

from polyhal.hal import dispatch
from polyhal.hal.memory.stream_selection import StreamSelection
from polyhal.hal.scheduler.in_line import InLineCall
from polyhal.hal.transfers.lane_link import LaneKey, LaneLink, LaneStoppedError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream
    from polyhal.hal.scheduler.partitions import Partition

_BEGINNING = 4
"""Partitions, of which one is a collective."""
_MOST_THREADS = 4096
"""More than there are lanes at any time: a lane without a thread would keep those waiting that need what it sends."""


class LaneSpan(NamedTuple):
    """A part of a run in one lane. Times are in nanoseconds of `time.perf_counter_ns`."""

    lane: str
    ops: tuple[str, ...]
    begin: int
    end: int
    waited: int
    """How long of this it waited for other lanes."""


class Lane:
    """The part of a run that one device does, or that runs beside the work of devices: see `LaneKey`."""

    def __init__(self, key: LaneKey, partitions: Sequence[Partition], links: Sequence[LaneLink]) -> None:
        self.key = key
        self.device: Device | None = partitions[0].device if partitions[0].lane is None else None
        """None for a lane that runs beside devices."""
        self.name = " to ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        self.ops = [tuple("copy" if n is None else n.op.name for n in p.nodes) for p in partitions]
        """The ops of each action."""
        self.partitions = partitions
        self.streams = _Streams()
        self.actions = [p.run if p.in_lane is None else partial(p.in_lane, self.streams) for p in partitions]
        self.beginning = _beginning(partitions)
        """How many actions it takes until the device has begun to wait for others, if that is at the start of the step."""
        self._links = links
        self.runs = 0
        self.elapsed = 0
        """Nanoseconds from its start to its end, over all runs."""

    @property
    def waited(self) -> int:
        """Nanoseconds of those that it waited for other lanes."""
        return sum(link.waited(self.key) for link in self._links)

    def catch_up(self) -> None:
        """Begin what other devices wait for, when all lanes have stopped."""
        for partition, action in zip(self.partitions, self.actions, strict=True):
            if partition.link is not None and partition.link.is_behind(self.key):
                with suppress(Exception):  # of a device that is lost, for which others wait until their time is up
                    action()

    def finish(self) -> None:
        """Wait for work that was left behind on the lane's own streams, whatever became of it."""
        for stream in self.streams.values():
            with suppress(Exception):
                stream.synchronize()


class _Streams(dict["Device", "Stream"]):
    """The streams of a lane, opened when they are needed."""

    def __missing__(self, device: Device) -> Stream:
        stream = self[device] = device.stream()
        return stream


class Lanes:
    """Runs the partitions of a step on several devices."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        links = list({id(p.link): p.link for p in partitions if p.link is not None}.values())
        self._in_turn = [p.run for p in partitions]
        parts: dict[LaneKey, list[Partition]] = {}
        for p in partitions:
            parts.setdefault(p.lane or p.device, []).append(p)
        self.all = [Lane(key, own, links) for key, own in parts.items()]
        self.all.sort(key=lambda lane: lane.device is None)
        self._links = links
        self._turns = list({id(x.turn): x.turn for x in links if isinstance(x, InLineCall)}.values())
        self._failure: BaseException | None = None
        """The first error of a run."""
        self._spans: list[LaneSpan] | None = None
        """What each lane does when, while that is recorded."""
        self.timed: Callable[[Lane], Iterator[Callable[[], None]]] | None = None
        """Gives the actions of a lane with what measures their time between them."""
        self._lock = threading.Lock()

    def run(self) -> None:
        """Enqueue the work of all lanes and submit it. Raises the first error, after all lanes have stopped."""
        with ExitStack() as stack:
            for turn in self._turns:
                stack.enter_context(turn)
            self._run()

    def _run(self) -> None:
        own, *others = self.all
        begun = threading.Event()
        state = dict(vars(dispatch.thread))
        threads = _threads(os.getpid())
        futures: list[Future[None]] = []
        try:
            for lane in others:
                futures.append(threads.submit(copy_context().run, self._run_on_thread, lane, _selection(lane), state, begun))
            self._begin_together()
        except RuntimeError as error:  # a program that ends starts no threads any more
            if not futures:
                self._run_in_turn()
                return
            self._fail(error)
        except BaseException as error:
            self._fail(error)
        begun.set()
        self._run_lane(own)
        for future in futures:
            self._join(future)
        failure, self._failure = self._failure, None
        if failure is not None:
            for lane in self.all:
                lane.catch_up()
            for lane in self.all:
                lane.finish()
            self.clear()
            try:
                raise failure
            finally:
                del failure  # whose traceback refers to this frame

    def _begin_together(self) -> None:
        """Let devices that begin with a collective begin at once, before their threads share the interpreter.

        The action after it may wait for room in a device's queue, and so for the collective.
        """
        if self.timed is not None or self._spans is not None:
            return
        for lane in self.all:
            self._run_actions(lane, lane.actions[: lane.beginning])

    @contextmanager
    def recording(self) -> Iterator[list[LaneSpan]]:
        """Note in a list what each lane does in the runs inside the block, part by part."""
        before, self._spans = self._spans, []
        try:
            yield self._spans
        finally:
            self._spans = before

    def _run_in_turn(self) -> None:
        """Enqueue the work of all lanes on the calling thread."""
        try:
            for action in self._in_turn:
                action()
        except BaseException:
            self.clear()
            raise
        for lane in self.all:
            if lane.device is not None:
                lane.device.flush()

    def clear(self) -> None:
        """Forget what was sent and not received, after a run has failed."""
        for link in self._links:
            link.clear()

    def _run_on_thread(
        self, lane: Lane, selection: StreamSelection | None, state: dict[str, Any], begun: threading.Event
    ) -> None:
        """Run a lane with the executor, the modes and the stream of the thread that runs the step."""
        begun.wait()
        vars(dispatch.thread).update(state)
        try:
            with nullcontext() if selection is None else selection.on_this_thread():
                self._run_lane(lane)
        except BaseException as error:
            self._fail(error)
        finally:
            vars(dispatch.thread).clear()

    def _run_lane(self, lane: Lane) -> None:
        """Run a lane to its end, or until one of them has failed."""
        self._run_actions(lane, self._actions(lane))
        lane.runs += 1

    def _run_actions(self, lane: Lane, actions: Iterable[Callable[[], None]]) -> None:
        """Run actions of a lane, and submit what they have enqueued."""
        begin = time.perf_counter_ns()
        try:
            for action in actions:
                if self._failure is not None:
                    return
                action()
            if lane.device is not None:
                lane.device.flush()
        except LaneStoppedError:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            lane.elapsed += time.perf_counter_ns() - begin

    def _actions(self, lane: Lane) -> Iterable[Callable[[], None]]:
        if self.timed is not None:
            return self.timed(lane)
        return lane.actions[lane.beginning :] if self._spans is None else self._noted(lane, self._spans)

    def _noted(self, lane: Lane, spans: list[LaneSpan]) -> Iterator[Callable[[], None]]:
        """The actions of a lane, each timed from when it is asked for until the next one is."""
        for action, ops in zip(lane.actions, lane.ops, strict=True):
            begin, waited = time.perf_counter_ns(), lane.waited
            yield action
            spans.append(LaneSpan(lane.name, ops, begin, time.perf_counter_ns(), lane.waited - waited))

    def _fail(self, error: BaseException) -> None:
        """Stop all lanes."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
        for link in self._links:
            link.stop()

    def _join(self, future: Future[None]) -> None:
        """Wait for a lane. Ctrl-C stops it first."""
        while not future.done():
            try:
                future.result()
            except BaseException as error:
                self._fail(error)


def _beginning(partitions: Sequence[Partition]) -> int:
    """How many partitions there are up to the first collective in line, if a device begins with that; else 0.

    Where it meets other lanes before, these have to run as well.
    """
    first = next((k for k, p in enumerate(partitions[:_BEGINNING]) if p.link is not None), None)
    return 0 if first is None or not isinstance(partitions[first].link, InLineCall) else first + 1


def _selection(lane: Lane) -> StreamSelection | None:
    """What the calling thread has selected on the device of a lane. Others have streams of their own."""
    return None if lane.device is None else StreamSelection(lane.device)


@functools.lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    """The threads of this process. A forked child has none of its parent's. They end with the program."""
    from concurrent.futures import ThreadPoolExecutor  # imports slowly

    return ThreadPoolExecutor(_MOST_THREADS, "polyhal-lane")


__all__ = ["Lane", "LaneSpan", "Lanes"]
