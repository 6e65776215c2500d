"""Calls of the size that training makes, for timing kernels; the samples of op declarations are too small for that."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.samples import Sample
from polyhal.hal.protocol import Feature, SupportsProfiling
from polyhal.hal.testing.kit.calling import given
from polyhal.hal.testing.kit.forward import check_results, run
from polyhal.hal.testing.kit.values import SEED, Call, Expectation

_SAMPLE = 0.004
"""Seconds that one timing takes at least: the calls in it are repeated until then."""
_MOST_CALLS = 200


@dataclass(frozen=True, slots=True)
class Workload:
    """A call that stands for its shape class."""

    op: str
    shapes: tuple[tuple[int, ...] | None, ...]
    """None for an input that is left out."""
    params: Mapping[str, Any]
    dtype: DType = dtypes.float32

    def call(self) -> Call:
        """The call on random values, the same every time."""
        rng = np.random.default_rng(SEED)
        values = tuple(
            None if s is None else rng.standard_normal(s, np.float32).astype(self.dtype.numpy) for s in self.shapes
        )
        op = OPS[self.op]
        return Call(op, values, {**op.schema.params, **self.params}, Sample(values), 0)


def workloads(kind: DeviceType) -> list[Workload]:
    """The calls that a search is made with: what training spends its time on, small, medium and large."""
    large = kind is not DeviceType.CPU
    sides = (256, 1024, 4096) if large else (256, 1024)
    rows = 8192 if large else 1024
    found = [Workload("matmul", ((n, n), (n, n)), {}) for n in sides]
    found += [Workload("linear", ((n, n), (n, n), (n,)), {}) for n in sides[:2]]
    found += [Workload("matmul", ((16, 1024), (1024, 1024)), {}), Workload("matmul", ((64, 64, 64), (64, 64, 64)), {})]
    found += [Workload("add", ((n,), (n,)), {}) for n in (2**14, 2**20, 2**24 if large else 2**22)]
    found += [Workload("sum", ((rows, 1024),), {"axis": axis}) for axis in (None, 1, 0)]
    found += [Workload("softmax", ((rows, 1024),), {"axis": -1}), Workload("softmax", ((rows, 128),), {"axis": -1})]
    found += [Workload("layer_norm", ((rows, 1024), (1024,), (1024,)), {})]
    found += [Workload("scaled_dot_product_attention", (*((4, 8, 256, 64),) * 3, None), {"causal": True})]
    found += [Workload("conv2d", ((4, 64, 56, 56), (64, 64, 3, 3), None), {"padding": (1, 1)})]
    if large:
        found += [Workload("matmul", ((n, n), (n, n)), {}, dtypes.float16) for n in sides[1:]]
        found += [Workload("sort_pairs", shape, {}) for shape in (((2**20,),), ((64, 16384),))]
    return [w for w in found if w.op in OPS]


class Runner:
    """A call with its inputs on a device."""

    def __init__(self, device: Device, call: Call) -> None:
        self._device, self._call = device, call
        # A launch takes the host several times as long as a small kernel takes a GPU, which has a clock of its own.
        self._own_clock = device.type is not DeviceType.CPU and bool(device.features & Feature.PROFILING)
        self._inputs = tuple(given(v, device, 0) if isinstance(v, np.ndarray) else v for v in call.values)
        self._calls = 0

    def run(self) -> Any:
        return run(self._call, self._inputs, self._device)

    def check(self, wanted: Expectation, what: str) -> None:
        """Raise ResultError unless the results are right."""
        check_results(self._call, self.run(), wanted, what)

    def sample(self) -> float:
        """Seconds per call, of as many calls as the clock needs: kernels alone on a GPU with a clock, else all of it."""
        if not self._calls:
            self._seconds(1)
            self._calls = max(1, min(_MOST_CALLS, math.ceil(_SAMPLE / max(self._seconds(1), 1e-7))))
        return self._seconds(self._calls)

    def _seconds(self, calls: int) -> float:
        if self._own_clock:
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


def in_turns(runners: Sequence[Runner], rounds: int) -> list[list[float]]:
    """Timings of each runner, one per round, so that a slow spell of the machine hits all alike."""
    samples: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for taken, runner in zip(samples, runners, strict=True):
            taken.append(runner.sample())
    return samples
