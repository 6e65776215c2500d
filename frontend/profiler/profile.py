"""`polyhal.profile`: ops on the host and the device, kernels, copies and memory of a block of a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from polyhal.hal.compile.capture.scopes import ModuleScopes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import HOST_WORK, HostCalls
from polyhal.hal.core.transfers.uploads_observed import UPLOADS
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.profiler.executor import ProfilingExecutor
from polyhal.profiler.records import LaunchRecord, Records
from polyhal.profiler.rows import Row, busy, copy_rows, kernel_rows, line_rows, module_rows, op_rows
from polyhal.profiler.session import ProfileSession

MODULE_FOLLOWERS: list[Callable[[ModuleScopes], AbstractContextManager[None]]] = []
"""Functions that follow modules of other frameworks while a profile runs, such as PyTorch's."""
_SESSIONS: list[ProfileSession] = []
"""Sessions of profiles that are running, the innermost last."""


class _RunningProfile(NamedTuple):
    """The parts of a profile between the begin and the end of its block."""

    session: ProfileSession
    executor: ProfilingExecutor
    host_work: dict[str, HostCalls]
    """Counts of host work at the begin."""
    followers: ExitStack


class Profile:
    """A context manager that records the work of this thread on its devices. Results are there after the block."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = list(devices)
        """The devices that were given, and after the block all that were used."""
        self.host_work: dict[str, HostCalls] = {}
        """Ops that ran in NumPy on the host, and the bytes that they moved, on all threads."""
        self._state: _RunningProfile | Records | None = None
        """None before the block; in the block, its parts; afterwards, the records."""

    def __enter__(self) -> Self:
        if self._state is not None:
            raise PolyhalError(message("profile", "this profile has run already", fix="make a new one"))
        dispatch.require_execution("profile", "a step is being recorded", fix="profile the calls of the captured step")
        thread = dispatch.thread
        session = ProfileSession()
        session.start(self.devices)
        executor = ProfilingExecutor(thread.executor, session, thread.timer)
        followers = ExitStack()
        for follow in MODULE_FOLLOWERS:
            followers.enter_context(follow(executor.tape_hooks))
        self._state = _RunningProfile(session, executor, HOST_WORK.counts(), followers)
        thread.executor, thread.timer = executor, executor
        _SESSIONS.append(session)
        UPLOADS.append(session.uploaded)
        return self

    def __exit__(self, *exc: object) -> None:
        running = self._state
        if not isinstance(running, _RunningProfile):
            return
        session = running.session
        running.followers.close()
        running.executor.remove()
        UPLOADS.remove(session.uploaded)
        _SESSIONS.remove(session)
        self._state = session.stop()
        self.devices = session.devices
        self.host_work = HOST_WORK.since(running.host_work)

    @property
    def records(self) -> Records:
        """Every call, launch, copy, range and sample of memory. Raises PolyhalError before the end of the block."""
        if not isinstance(self._state, Records):
            raise PolyhalError(message("profile", "the profile has not ended", fix="look at it after the `with` block"))
        return self._state

    @property
    def elapsed(self) -> int:
        """Nanoseconds of the block."""
        return self.records.end - self.records.begin

    @property
    def busy(self) -> int:
        """Nanoseconds in which some device ran a kernel or a copy; 0 without timestamps."""
        return busy((x.begin, x.end) for x in self.records.launches)

    @property
    def is_virtual(self) -> bool:
        """True if launches have times of simulated devices, which differ from the host's."""
        return any(hasattr(device.backend, "virtual_time") for device in self.devices)

    @cached_property
    def ops(self) -> dict[str, Row]:
        """The ops by name. The launches of captured steps count for the ops that they compute."""
        return op_rows(self.records)

    @cached_property
    def kernels(self) -> dict[str, Row]:
        """The kernels by name, on devices with timestamps."""
        return kernel_rows(self.records.launches)

    @cached_property
    def modules(self) -> dict[str, Row]:
        """The modules by path, with the time of their own ops."""
        return module_rows(self.records)

    @cached_property
    def lines(self) -> dict[tuple[str, int], Row]:
        """The lines of the program, as (file, number). Ops of a backward pass count for the line that they differentiate."""
        return line_rows(self.records)

    @cached_property
    def copies(self) -> dict[str, Row]:
        """Copies between host and devices: `upload` and `read`."""
        return copy_rows(self.records)

    @property
    def launches(self) -> list[LaunchRecord]:
        """All launches in the order of their begin."""
        return self.records.launches

    def table(self, limit: int = 20) -> str:
        """Return the slowest ops, kernels, modules and lines, and all copies, in at most 80 columns."""
        from polyhal.profiler.table import table

        return table(self, limit)

    def to_json(self) -> dict[str, Any]:
        """Return all sums as plain data, with times in nanoseconds on host and device."""
        return {
            "devices": [device.name for device in self.devices],
            "elapsed_ns": self.elapsed,
            "busy_ns": self.busy,
            "ops": [row.to_json() for row in self.ops.values()],
            "kernels": [row.to_json() for row in self.kernels.values()],
            "modules": [row.to_json() for row in self.modules.values()],
            "lines": [{"file": file, "line": line, **row.to_json()} for (file, line), row in self.lines.items()],
            "copies": [row.to_json() for row in self.copies.values()],
            "host_work": [{"op": op, "calls": c.calls, "bytes": c.nbytes} for op, c in self.host_work.items()],
        }

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, with arrows from ops to their launches."""
        from polyhal.profiler.chrome_trace import write

        write(self.records, Path(path))

    def save_html(self, path: str | Path) -> None:
        """Write one HTML page without references to others: table, timeline, roofline and memory.

        Measures the rates of the devices for the roofline, once per process, which takes a fraction of a second each.
        """
        from polyhal.profiler.page import page

        Path(path).write_text(page(self), encoding="utf-8")

    def __str__(self) -> str:
        return self.table()


@top_level
def profile(*devices: Device | str) -> Profile:
    """Profile this thread inside a `with` block: `with polyhal.profile() as p: step()`; then `print(p)`.

    Records the ops with their time on host and device, the kernels that they launch, waiting, copies, memory, modules and
    lines of the program. Captured steps run as they are, and their kernels count for the ops that they compute. Devices are
    added as they are used; times of launches need a device with timestamps. Raises CaptureError while a step is recorded.

    >>> with polyhal.profile() as p:
    ...     _ = polyhal.ones((4, 4)) @ polyhal.ones((4, 4))
    >>> p.ops["matmul"].flops
    128
    """
    return Profile([Device(device) for device in devices])


@contextmanager
def record_function(name: str) -> Iterator[None]:
    """Name a block of the program in the profile that is running; without one, do nothing. As PyTorch's of this name."""
    begin = time.perf_counter_ns()
    try:
        yield
    finally:
        if _SESSIONS:
            _SESSIONS[-1].named(name, begin)


__all__ = ["Profile", "profile", "record_function"]
