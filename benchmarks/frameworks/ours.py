"""Polyhal on each of its devices. Workloads name ops of Polyhal, so no translation is needed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import polyhal
from benchmarks.frameworks import WorkloadRunner
from benchmarks.op_workloads import OpWorkload
from benchmarks.timing import SETTLE_SECONDS
from polyhal import Device, Tensor
from polyhal.hal.errors import PolyhalError
from polyhal.hal.protocol import Feature

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Permutations of the axes of images that move the channels to the end, and back."""


class PolyhalRunner:
    def __init__(self, workload: OpWorkload, device: Device) -> None:
        self._device = device
        self._precision = workload.precision
        op = workload.definition
        self._call = (lambda *inputs, **params: op.call(inputs, **params)) if op.schema.variadic else op.call
        self._params = dict(workload.params)
        self._inputs = [self._tensor(workload, i, a) for i, a in enumerate(workload.arrays())]
        self._sources = [x for x in self._inputs if x is not None and x.requires_grad]
        self._expanded = workload.expanded
        self._channels_last = workload.channels_last
        self._out_grad: Tensor | None = None
        if self._sources:
            out = self._forward().detach()
            one = polyhal.ones((), dtype=out.dtype, device=out.device)
            self._out_grad = one.expand(out.shape) if workload.summed else polyhal.ones_like(out)

    def _tensor(self, workload: OpWorkload, place: int, array: np.ndarray | None) -> Tensor | None:
        if array is None:
            return None
        x = polyhal.tensor(array, device=self._device)
        if place not in workload.indices:
            x = x.to(workload.dtype)
            x = x.T if place in workload.transposed else x
            x = x.permute(_LAST).contiguous() if workload.channels_last else x
            x = x.detach().requires_grad_() if workload.backward else x
        return x

    def _forward(self) -> Tensor:
        inputs = list(self._inputs)
        for i, shape in self._expanded.items():
            inputs[i] = inputs[i].expand(shape)
        if self._channels_last:
            inputs = [x if x is None else x.permute(_FIRST) for x in inputs]
        out: Any = self._call(*inputs, **self._params)
        out = out[0] if isinstance(out, tuple) else out
        return out.permute(_LAST) if self._channels_last else out

    def _once(self) -> Any:
        out = self._forward()
        return out if self._out_grad is None else (out, polyhal.grad(out, self._sources, self._out_grad))

    @functools.cached_property
    def _captured(self) -> Callable[[], Any]:
        return polyhal.jit(self._once)

    def _run(self, calls: int, call: Callable[[], Any] | None = None) -> None:
        with polyhal.float32_matmul_precision(self._precision):
            for _ in range(calls):
                (call or self._once)()

    def _timed(self, calls: int, call: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        self._run(calls, call)
        self._device.synchronize()
        return (time.perf_counter() - begin) / calls

    def wall(self, calls: int) -> float:
        return self._timed(calls, self._once)

    def replayed(self, calls: int) -> float:
        if "_captured" not in self.__dict__:
            self._timed(3, self._captured)  # records, plans and replays once
        return self._timed(calls, self._captured)

    def device(self, calls: int) -> float:
        if not self._device.features & Feature.PROFILING:
            return self.wall(calls)
        backend: Any = self._device.backend
        backend.start_profiling()
        self._run(calls)
        return float(sum(end - start for _, start, end in backend.stop_profiling())) / 1e9 / calls

    def result(self) -> np.ndarray:
        with polyhal.float32_matmul_precision(self._precision):
            out = self._forward()
            return (out.permute(_FIRST) if self._channels_last else out).float().numpy()


class PolyhalCompetitor:
    settle = SETTLE_SECONDS

    def __init__(self, device: Device) -> None:
        self._device = device

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        try:
            return PolyhalRunner(workload, self._device)
        except PolyhalError as error:
            return str(error)


def competitors(devices: Sequence[Device]) -> dict[str, PolyhalCompetitor]:
    """Return Polyhal on each of the devices, by device name."""
    return {d.name: PolyhalCompetitor(d) for d in devices}
