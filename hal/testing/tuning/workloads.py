"""Calls of realistic training sizes for timing kernels; the samples of op declarations are too small for that."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.samples import Sample
from polyhal.hal.protocol import Feature, SupportsProfiling
from polyhal.hal.system.reference.op_calls import ExpectedResults, OpCall
from polyhal.hal.testing.kit.forward import check_results, run_call
from polyhal.hal.testing.kit.member_calls import as_input
from polyhal.hal.testing.kit.sample_calls import SEED

_MIN_SECONDS = 0.004
"""Minimum duration of one timing: the call is repeated until then."""
_MAX_CALLS = 200


@dataclass(frozen=True, slots=True)
class Workload:
    """A call that represents its shape class."""

    op: str
    shapes: tuple[tuple[int, ...] | None, ...]
    """Shapes of the inputs; None for an absent input."""
    params: Mapping[str, Any]
    dtype: DType = dtypes.float32

    def specs(self) -> tuple[Spec | None, ...]:
        """Return the specs of the inputs."""
        return tuple(None if s is None else contiguous(self.dtype, s) for s in self.shapes)

    def call(self) -> OpCall:
        """Return the call on random values, equal every time."""
        rng = np.random.default_rng(SEED)
        values = tuple(
            None if s is None else rng.standard_normal(s, np.float32).astype(self.dtype.numpy) for s in self.shapes
        )
        op = OPS[self.op]
        return OpCall(op, values, {**op.schema.params, **self.params}, Sample(values), 0)


def workloads(kind: DeviceType) -> list[Workload]:
    """Return the calls for tuning: the most time-consuming ones of training, in small, medium and large sizes."""
    large = kind is not DeviceType.CPU
    sides = (256, 1024, 4096) if large else (256, 1024)
    rows = 8192 if large else 1024
    out = [Workload("matmul", ((n, n), (n, n)), {}) for n in sides]
    out += [Workload("linear", ((n, n), (n, n), (n,)), {}) for n in sides[:2]]
    out += [Workload("matmul", ((16, 1024), (1024, 1024)), {}), Workload("matmul", ((64, 64, 64), (64, 64, 64)), {})]
    out += [Workload("add", ((n,), (n,)), {}) for n in (2**14, 2**20, 2**24 if large else 2**22)]
    out += [Workload("sum", ((rows, 1024),), {"axis": axis}) for axis in (None, 1, 0)]
    out += [Workload("softmax", ((rows, 1024),), {"axis": -1}), Workload("softmax", ((rows, 128),), {"axis": -1})]
    out += [Workload("layer_norm", ((rows, 1024), (1024,), (1024,)), {})]
    out += [Workload("scaled_dot_product_attention", (*((4, 8, 256, 64),) * 3, None), {"causal": True})]
    out += [Workload("conv2d", ((4, 64, 56, 56), (64, 64, 3, 3), None), {"padding": (1, 1)})]
    if large:
        out += [Workload("matmul", ((n, n), (n, n)), {}, dtypes.float16) for n in sides[1:]]
        out += [Workload("linear", ((8, 4096), (4096, 4096), (4096,)), {}, dtypes.float16)]
        out += [Workload("sort_pairs", shape, {}) for shape in (((2**20,),), ((64, 16384),))]
    return [w for w in out if w.op in OPS]


class Runner:
    """A call with its inputs on a device, ready to be timed."""

    def __init__(self, device: Device, call: OpCall) -> None:
        self._device, self._call = device, call
        # For a small kernel, the host's launch takes several times as long as its run on a GPU, which has its own clock.
        self._device_clock = device.type is not DeviceType.CPU and bool(device.features & Feature.PROFILING)
        self._inputs = tuple(as_input(v, device, 0) if isinstance(v, np.ndarray) else v for v in call.values)
        self._calls = 0

    def run(self) -> Any:
        """Run the call once; may return before the device is done."""
        return run_call(self._call, self._inputs, self._device)

    def check(self, expected: ExpectedResults, what: str) -> None:
        """Raise ResultError unless the results are correct."""
        check_results(self._call, self.run(), expected, what)

    def sample(self) -> float:
        """Return seconds per call: only of the kernels on a GPU with a clock, else of the whole call."""
        if not self._calls:
            self._seconds(1)
            self._calls = max(1, min(_MAX_CALLS, math.ceil(_MIN_SECONDS / max(self._seconds(1), 1e-7))))
        return self._seconds(self._calls)

    def _seconds(self, calls: int) -> float:
        if self._device_clock:
            backend = cast("SupportsProfiling", self._device.backend)
            backend.start_profiling()
            for _ in range(calls):
                self.run()
            return sum(end - begun for _, begun, end in backend.stop_profiling()) / 1e9 / calls
        begun = time.perf_counter()
        for _ in range(calls):
            self.run()
        self._device.synchronize()
        return (time.perf_counter() - begun) / calls
