"""The device benchmark: how fast a device trains, as one number, from a miniature of training timed beside plain NumPy.

`python -m polyhal.hal.discovery.benchmark DEVICE` benchmarks one device and prints JSON. Each device has a process of its own:
a driver that crashes or hangs does no harm, and a device that is not chosen leaves no threads and no memory behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.discovery.probing import Candidate, hardware_type
from polyhal.hal.discovery.python_process import NoPythonError, command, environment
from polyhal.hal.dispatch import Array
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import BackendError, PolyhalError
from polyhal.hal.ops import FUNCTIONS

VERSION = 1
"""Raised when the workload changes, so that older results are not compared with newer ones."""
_TOLERANCE = 1e-3
"""Largest difference from NumPy, relative to the largest value of the result."""
_MAX_REPETITIONS = 9
_MIN_REPETITIONS = 3
_BUDGET = 0.5
"""Seconds after which repetitions beyond the minimum are skipped."""


class WorkloadSize(NamedTuple):
    """The amount of work in one pass."""

    products: int
    """Number of products of two square matrices."""
    side: int
    """Rows of these matrices."""
    rows: int
    """Rows of 1024 elements that go through elementwise ops, a softmax and a norm."""
    launches: int
    """Additions of 1000 elements, which cost little more than their launch."""


SMALL = WorkloadSize(products=4, side=512, rows=1024, launches=100)
LARGE = WorkloadSize(products=4, side=2048, rows=16384, launches=100)
"""For devices that SMALL would not fill."""


class BenchmarkUnavailableError(PolyhalError):
    """No device can be benchmarked here."""


class BenchmarkTimes(NamedTuple):
    """Seconds of one pass on the device and in plain NumPy, and the size of the pass (`WorkloadSize.side`)."""

    seconds: float
    numpy_seconds: float
    side: int


def run_benchmark(device: Device, size: WorkloadSize | None = None) -> BenchmarkTimes:
    """Time the workload on `device` and in NumPy. Raises BackendError if the results differ, or what the device raises."""
    size = size or (SMALL if hardware_type(device.info) is DeviceType.CPU else LARGE)
    arrays = _arrays(size)
    tensors = [Array(device, *device.upload(a, float32)) for a in arrays]

    def on_device() -> list[Any]:
        results = _workload(size, *tensors)
        device.synchronize()
        return results

    # One after the other: the threads of a NumPy that has just computed would still be spinning for more work.
    results = [device.download(tensor.ref) for tensor in on_device()]  # builds the kernels
    device_seconds = _fastest(on_device, _MIN_REPETITIONS)
    for i, (result, expected) in enumerate(zip(results, _numpy_workload(size, *arrays), strict=True)):
        difference = float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))
        if not difference <= _TOLERANCE:  # also if it is NaN
            raise BackendError(f"result {i} differs from NumPy's by {difference:.1e} of its largest value")
    # Work for a graphics card is slow in NumPy, and the comparison is only for people to read.
    numpy_seconds = _fastest(lambda: _numpy_workload(size, *arrays), 1)
    return BenchmarkTimes(device_seconds, numpy_seconds, size.side)


def _fastest(run: Callable[[], object], repetitions: int) -> float:
    """Return the seconds of the fastest of at least `repetitions` calls, or more if time permits.

    The minimum is the right statistic, because other programs can only make a call slower.
    """
    times: list[float] = []
    while len(times) < repetitions or (len(times) < _MAX_REPETITIONS and sum(times) < _BUDGET):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _arrays(size: WorkloadSize) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(size.side, size.side), (size.side, size.side), (size.rows, 1024), (1000,)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _workload(size: WorkloadSize, a: Any, b: Any, x: Any, v: Any) -> list[Any]:
    """Run one pass with ops."""
    op = FUNCTIONS
    product, total = a, v
    for _ in range(size.products):
        product = op["matmul"](a, b)
    activation = op["add"](op["multiply"](op["tanh"](op["multiply"](x, x)), x), x)
    for _ in range(size.launches):
        total = op["add"](total, v)
    return [product, activation, op["gelu"](x, approximate="tanh"), op["softmax"](x), op["layer_norm"](x)[0], total]


def _numpy_workload(size: WorkloadSize, a: np.ndarray, b: np.ndarray, x: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """Run the same pass as people write it in NumPy."""
    product, total = a, v
    for _ in range(size.products):
        product = a @ b
    activation = np.tanh(x * x) * x + x
    for _ in range(size.launches):
        total = total + v
    gelu = np.float32(0.5) * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    centred = x - x.mean(-1, keepdims=True)
    norm = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    return [product, activation, gelu, softmax, norm, total]


def run_in_subprocess(candidate: Candidate, seconds: float) -> BenchmarkTimes:
    """Benchmark a device in a process of its own, which is killed after `seconds`.

    Raises RuntimeError with the output of that process, and BenchmarkUnavailableError if there is no Python to start.
    """
    try:
        process = subprocess.run(
            command("polyhal.hal.discovery.benchmark", candidate.name),
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
