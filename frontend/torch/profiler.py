"""Polyhal's kernels as device events of `torch.profiler`.

PyTorch takes the events of packages' devices from C++. So its profile class, which `torch.profiler` creates for each cycle,
is extended: it starts and stops the device's timestamps, and adds the kernels to the parsed events and to exported traces.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

from polyhal.hal.core import dispatch
from polyhal.hal.protocol import TRANSFER
from polyhal.profiler.device_clock import DeviceClock
from polyhal.torch.device import NAME, current

_PROCESS = 1 << 30
"""Number of the device's row in chrome traces, which no process has."""

_Base: Any = profiler.profile
_Event: Any = profiler.FunctionEvent


class KernelEvent(NamedTuple):
    """One launch. Times are in nanoseconds of the host's real-time clock, as PyTorch's."""

    name: str
    start: int
    end: int


class TorchProfile(_Base):  # type: ignore[misc]
    """PyTorch's profile, which contains the kernels of the device if that is among its activities."""

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        """Create a profile. For the device, PyTorch's older kind of profile, without Kineto, would need C++."""
        if options.get("use_device") == NAME:
            options["use_kineto"] = True
        super().__init__(enabled, **options)
        self._timestamps: DeviceClock | None = None
        self.kernels: list[KernelEvent] = []

    def _start_trace(self) -> None:
        super()._start_trace()
        if self.use_device == NAME and dispatch.thread.executor.recorder is None:
            self._timestamps = DeviceClock(current())

    def __exit__(self, *error: Any) -> Any:
        if self.enabled and self._timestamps is not None:
            launches, self._timestamps = self._timestamps.stop(), None
            epoch = time.time_ns() - time.perf_counter_ns()
            self.kernels = [
                KernelEvent(x.kernel, x.begin + epoch, x.end + epoch) for x in launches if x.kernel != TRANSFER
            ]
        return super().__exit__(*error)

    def _parse_kineto_results(self, result: Any, *args: Any, **options: Any) -> list[Any]:
        events = super()._parse_kineto_results(result, *args, **options)
        first, begin = max((e.id for e in events), default=0) + 1, result.trace_start_ns()
        events += [
            _Event(
                id=first + i,
                name=kernel.name,
                trace_name=kernel.name,
                overload_name="",
                thread=0,
                start_us=(kernel.start - begin) / 1e3,
                end_us=(kernel.end - begin) / 1e3,
                input_shapes=[],
                concrete_inputs=[],
                kwinputs={},
                stack=[],
                use_device=NAME,
                device_type=torch.autograd.DeviceType.PrivateUse1,  # type: ignore[attr-defined]
                device_index=0,
            )
            for i, kernel in enumerate(self.kernels)
        ]
        events.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
        return events  # type: ignore[no-any-return]

    def export_chrome_trace(self, path: str, *args: Any, **options: Any) -> Any:
        """Write the trace of the last cycle, with the kernels as a process of their own."""
        result = super().export_chrome_trace(path, *args, **options)
        if self.kernels:
            _add_to_trace(Path(path), self.kernels)
        return result


def _add_to_trace(path: Path, kernels: list[KernelEvent]) -> None:
    trace = json.loads(path.read_text(encoding="utf-8"))
    base = trace.get("baseTimeNanoseconds", 0)
    row = {"pid": _PROCESS, "tid": 0}
    name = {"name": f"{NAME}:0 {current().info.name}"}
    trace["traceEvents"] += [
        {"ph": "M", "name": "process_name", **row, "args": name},
        *(
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel.name,
                **row,
                "ts": (kernel.start - base) / 1e3,
                "dur": (kernel.end - kernel.start) / 1e3,
                "args": {"device": 0},
            }
            for kernel in kernels
        ),
    ]
    path.write_text(json.dumps(trace), encoding="utf-8")


def install() -> None:
    """Let PyTorch create profiles of this class."""
    profiler.profile = TorchProfile  # type: ignore[misc]
