"""Self-tests of a device: small computations compared with NumPy, and the dtypes that its capabilities claim."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, float32
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import FUNCTIONS

_TOLERANCE = 1e-4
_SIZE = 256
_SAMPLE = 24
"""Elements per dtype: more than a vector, and not a multiple of most vector widths."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of one self-test. `error` is the largest difference from NumPy, relative to the largest value."""

    name: str
    passed: bool
    seconds: float
    """Time from the call to the result on the host, with compiled kernels."""
    first_seconds: float
    """Time of the first call, which compiles the kernel or loads it from the cache."""
    error: float = 0.0
    problem: str = ""


def self_test(device: Device) -> tuple[SelfTest, ...]:
    """Add two vectors, multiply two matrices, and add in every dtype that `device` claims; compare with NumPy."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((_SIZE, _SIZE), np.float32) for _ in range(2))
    return (
        _check("a + b", "add", device, a, b, a + b),
        _check("a @ b", "matmul", device, a, b, a @ b),
        _check_dtypes(device),
    )


def _check(name: str, op: str, device: Device, a: np.ndarray, b: np.ndarray, expected: np.ndarray) -> SelfTest:
    seconds: list[float] = []
    try:
        for _ in range(2):
            x, y = (Array(device, *device.upload(v, float32)) for v in (a, b))
            begin = time.perf_counter()
            result = device.download(FUNCTIONS[op](x, y).ref)
            seconds.append(time.perf_counter() - begin)
    except Exception as error:  # a driver may raise anything; it is reported
        return SelfTest(name, False, 0.0, 0.0, problem=describe(error))
    difference = float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))
    passed = difference <= _TOLERANCE
    return SelfTest(
        name, passed, seconds[1], seconds[0], difference, "" if passed else "the result differs from NumPy's"
    )


def _check_dtypes(device: Device) -> SelfTest:
    """Check the claimed dtypes: values survive plain and reversed copies, and sums are correct."""
    problems: list[str] = []
    seconds: list[float] = []
    claimed: list[DType] = []
    for _ in range(2):
        begin = time.perf_counter()
        try:
            capabilities = device.capabilities
            claimed = [d for d in dtypes.ALL if d in capabilities.storage]
            checked = ((d, _dtype_problem(device, d, computed=d in capabilities.compute)) for d in claimed)
            problems = [f"{d.name} is claimed, but {problem}" for d, problem in checked if problem]
        except Exception as error:  # a broken backend may also fail here
            problems = [describe(error)]
        seconds.append(time.perf_counter() - begin)
    return SelfTest(f"{len(claimed)} dtypes", not problems, seconds[1], seconds[0], problem="; ".join(problems))


def _dtype_problem(device: Device, dtype: DType, *, computed: bool) -> str:
    """Return the reason why a claim about a dtype is wrong; empty if it is correct."""
    small = np.arange(_SAMPLE) % (2 if dtype.kind == "bool" else 60)
    values = small.astype(dtype.numpy)  # sums stay exact in every dtype
    try:
        buffer, ref = device.upload(values, dtype)
        tensor = Array(device, buffer, ref)
        backwards = Spec(dtype, ref.shape, (-1,), aligned=False)
        for name, expected, result in (
            ("a copy", values, device.download(ref)),
            ("a reversed copy", values[::-1], device.download(Ref(ref.handle, backwards, _SAMPLE - 1))),
        ):
            if not np.array_equal(result, expected):
                return f"{name} came back changed"
        if computed and dtype.kind != "bool":
            if not np.array_equal(device.download(FUNCTIONS["add"](tensor, tensor).ref), values + values):
                return "a sum is wrong"
        elif computed and not np.array_equal(device.download(FUNCTIONS["logical_not"](tensor).ref), ~values):
            return "a negation is wrong"
    except Exception as error:  # a driver may raise anything; it is reported
        return f"it raises {describe(error)}"
    return ""
