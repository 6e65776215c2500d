"""The device benchmark: the training speed of a device as one number, from a small training workload timed against NumPy.

`python -m polyhal.hal.system.discovery.benchmark DEVICE` benchmarks one device and prints JSON. Each device has a separate
process, so that a driver that crashes or hangs does no harm, and a rejected device leaves no threads or memory behind.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.core.plugins.probing import Candidate, hardware_type
from polyhal.hal.core.plugins.python_process import NoPythonError, command, environment
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import BackendError, PolyhalError
from polyhal.hal.ops import FUNCTIONS

VERSION = 2
"""Version of the workload, incremented with each change, so that results of different versions are not compared."""
_TOLERANCE = 1e-3
"""Largest difference from NumPy, relative to the largest value of the result."""
_MAX_REPETITIONS = 9
_MIN_REPETITIONS = 2
_BUDGET = 0.25
"""Seconds after which repetitions beyond the minimum are skipped."""
_HOPELESS = 4.0
"""Time of a pass relative to NumPy's at which it is stopped, and its time extrapolated."""
_UNFILLED = 0.01
"""Minimum seconds of a pass; for shorter passes launches may dominate on a card, so it also runs the larger workload."""


class WorkloadSize(NamedTuple):
    """Amount of work in one pass."""

    products: int
    """Number of products of two square matrices."""
    side: int
    """Rows of the matrices."""
    rows: int
    """Rows of 1024 elements for elementwise ops, a softmax and a norm."""
    launches: int
    """Additions of 1000 elements, which cost little more than their launch."""


SMALL = WorkloadSize(products=4, side=512, rows=1024, launches=100)
LARGE = WorkloadSize(products=1, side=2048, rows=16384, launches=100)
"""Workload with as many launches as SMALL, and 16 times its arithmetic and memory traffic."""


class BenchmarkUnavailableError(PolyhalError):
    """Devices cannot be benchmarked on this system."""


class BenchmarkTimes(NamedTuple):
    """Seconds of one pass of the smaller workload, on the device and in plain NumPy.

    For cards with a higher throughput in the larger workload: its seconds, scaled to the smaller one.
    """

    seconds: float
    numpy_seconds: float
    side: int
    """`WorkloadSize.side` of the timed workload."""


def run_benchmark(device: Device, size: WorkloadSize = SMALL, larger: WorkloadSize = LARGE) -> BenchmarkTimes:
    """Time the workload on `device` and in NumPy. Raises BackendError if the results differ, or any error of the device."""
    arrays = _arrays(size)
    once = size._replace(products=1, launches=1)
    expected = list(_numpy_workload(once, *arrays))
    # One after the other: NumPy's threads keep spinning for some time after a computation.
    in_numpy = _fastest(lambda: _numpy_workload(size, *arrays))
    tensors = [Array(device, *device.upload(a, float32)) for a in arrays]
    results = [device.download(result.ref) for result in _workload(once, *tensors)]  # builds the kernels
    for i, (result, right) in enumerate(zip(results, expected, strict=True)):
        difference = float(np.max(np.abs(result - right)) / np.max(np.abs(right)))
        if not difference <= _TOLERANCE:  # also if it is NaN
            raise BackendError(f"result {i} differs from NumPy's by {difference:.1e} of its largest value")
    numpy_seconds = sum(in_numpy)
    parts = _fastest(lambda: _synchronized(device, _workload(size, *tensors)), _HOPELESS * numpy_seconds)
    seconds = sum(parts) * numpy_seconds / sum(in_numpy[: len(parts)])  # extrapolated if the pass was stopped
    times = BenchmarkTimes(seconds, numpy_seconds, size.side)
    if seconds >= _UNFILLED or hardware_type(device.info) is DeviceType.CPU:
        return times
    tensors = [Array(device, *device.upload(a, float32)) for a in _arrays(larger)]
    parts = _fastest(lambda: _synchronized(device, _workload(larger, *tensors)))
    return min(times, BenchmarkTimes(sum(parts) * size.rows / larger.rows, numpy_seconds, larger.side))


def _fastest(start: Callable[[], Iterator[object]], most: float = math.inf) -> list[float]:
    """Return the seconds of each part of the fastest pass; `start` starts a pass, which ends early after `most` seconds.

    The minimum is the right statistic, because other programs can only make a pass slower.
    """
    passes: list[list[float]] = []
    while len(passes) < _MIN_REPETITIONS or (len(passes) < _MAX_REPETITIONS and sum(map(sum, passes)) < _BUDGET):
        times: list[float] = []
        parts, before = start(), time.perf_counter()
        for _ in parts:
            now = time.perf_counter()
            times.append(now - before)
            before = now
            if sum(times) > most:
                return times
        passes.append(times)
    return min(passes, key=sum)


def _synchronized(device: Device, parts: Iterator[Any]) -> Iterator[None]:
    """Yield after the device has computed each part."""
    for _ in parts:
        device.synchronize()
        yield


def _arrays(size: WorkloadSize) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(size.side, size.side), (size.side, size.side), (size.rows, 1024), (1000,)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _workload(size: WorkloadSize, a: Any, b: Any, x: Any, v: Any) -> Iterator[Any]:
    """Run one pass with ops. Yields the result of each part."""
    op = FUNCTIONS
    product, total = a, v
    for _ in range(size.products):
        product = op["matmul"](a, b)
    yield product
    yield op["add"](op["multiply"](op["tanh"](op["multiply"](x, x)), x), x)
    yield op["gelu"](x, approximate="tanh")
    yield op["softmax"](x)
    yield op["layer_norm"](x)[0]
    for _ in range(size.launches):
        total = op["add"](total, v)
    yield total


def _numpy_workload(size: WorkloadSize, a: Any, b: Any, x: Any, v: Any) -> Iterator[np.ndarray]:
    """Run the same pass in idiomatic NumPy."""
    product, total = a, v
    for _ in range(size.products):
        product = a @ b
    yield product
    yield np.tanh(x * x) * x + x
    yield np.float32(0.5) * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    yield exponentials / exponentials.sum(-1, keepdims=True)
    centred = x - x.mean(-1, keepdims=True)
    yield centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    for _ in range(size.launches):
        total = total + v
    yield total


def run_in_subprocess(candidate: Candidate, seconds: float) -> BenchmarkTimes:
    """Benchmark a device in a separate process, which is killed after `seconds`.

    Raises RuntimeError with the output of that process, and BenchmarkUnavailableError if there is no Python to start.
    """
    try:
        process = subprocess.run(
            command("polyhal.hal.system.discovery.benchmark", candidate.name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=environment(
                POLYHAL_FALLBACK="allow",
                POLYHAL_MEASURE_TIMEOUT="0",
                POLYHAL_BUILD_AHEAD="0",  # helpers that build kernels would disturb the clock
            ),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no answer within {seconds:g} s") from error
    except NoPythonError as error:
        raise BenchmarkUnavailableError(str(error)) from error
    except OSError as error:
        raise BenchmarkUnavailableError(f"no process could be started: {describe(error)}") from error
    return _parse(process, candidate.info)


def _parse(process: subprocess.CompletedProcess[str], info: DeviceInfo) -> BenchmarkTimes:
    """Return the times that a process printed for the device `info`. Raises RuntimeError."""
    lines = process.stdout.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        answer = {}
    if not isinstance(answer, dict) or process.returncode or "seconds" not in answer:
        errors = [line for line in process.stderr.splitlines() if line.strip()]
        death = f"the process ended with code {process.returncode}" + (f": {errors[-1].strip()}" if errors else "")
        raise RuntimeError(answer.get("problem", death) if isinstance(answer, dict) else death)
    if (answer["device"], answer["driver"]) != (info.name, info.driver):
        raise RuntimeError(f"a new process found {answer['device']} ({answer['driver']}) under this name")
    return BenchmarkTimes(float(answer["seconds"]), float(answer["numpy_seconds"]), int(answer["side"]))


def main(name: str) -> int:
    """Benchmark the device called `name` and print the result as one line of JSON. Returns the exit code."""
    result: dict[str, Any]
    try:
        device = Device(name)
        times = run_benchmark(device)
        result = {"device": device.info.name, "driver": device.info.driver, **times._asdict()}
    except Exception as error:  # drivers raise anything; the parent process records it
        result = {"problem": describe(error)}
    print(f"\n{json.dumps(result)}", flush=True)
    return 1 if "problem" in result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
