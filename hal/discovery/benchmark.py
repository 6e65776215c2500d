"""How fast a device trains, in one number: a miniature of what training does, timed beside plain NumPy.

`python -m polyhal.hal.discovery.benchmark DEVICE` measures one device and prints JSON. Each device is measured in a process
of its own: a driver that crashes or hangs takes nobody along, and a device that is not chosen leaves no threads and no memory
behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.discovery.probing import Candidate, kind
from polyhal.hal.dispatch import Array
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import BackendError, PolyhalError
from polyhal.hal.ops import FUNCTIONS

VERSION = 1
"""Raised when the work changes, so that older figures are not compared with newer ones."""
_TOLERANCE = 1e-3
"""Largest difference from NumPy, relative to the largest value of the result."""
_REPETITIONS = 9
_ENOUGH = 3
_BUDGET = 0.5
"""Seconds after which only repetitions that are still needed are made."""


class Sizes(NamedTuple):
    """How much work one pass is."""

    products: int
    """Products of two square matrices ..."""
    side: int
    """... of this many rows."""
    rows: int
    """Rows of 1024 elements that go through elementwise ops, a softmax and a norm."""
    launches: int
    """Additions of 1000 elements, which cost little but their launch."""


SMALL = Sizes(products=4, side=512, rows=1024, launches=100)
LARGE = Sizes(products=4, side=2048, rows=16384, launches=100)
"""For devices that SMALL would not fill."""


class CannotMeasureError(PolyhalError):
    """Nothing can be measured here, whatever the device."""


class Figures(NamedTuple):
    """Seconds of one pass on the device and in plain NumPy, and what a pass was: `Sizes.side`."""

    seconds: float
    numpy_seconds: float
    side: int


def measure(device: Device, sizes: Sizes | None = None) -> Figures:
    """Time the work on `device` beside NumPy. Raises BackendError where the results differ, or what the device raises."""
    sizes = sizes or (SMALL if kind(device.info) is DeviceType.CPU else LARGE)
    arrays = _arrays(sizes)
    tensors = [Array(device, *device.upload(a, float32)) for a in arrays]

    def on_device() -> list[Any]:
        results = _pass(sizes, *tensors)
        device.synchronize()
        return results

    # One after the other: the threads of a NumPy that has just computed would still be spinning for more.
    results = [device.download(tensor.ref) for tensor in on_device()]  # builds the kernels
    ours = _repeat(on_device, _ENOUGH)
    for i, (got, expected) in enumerate(zip(results, _reference(sizes, *arrays), strict=True)):
        difference = float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))
        if not difference <= _TOLERANCE:  # also where it is NaN
            raise BackendError(f"result {i} differs from NumPy's by {difference:.1e} of its largest value")
    # Work for a graphics card is slow in NumPy, and the comparison is only for people to read.
    theirs = _repeat(lambda: _reference(sizes, *arrays), 1)
    return Figures(ours, theirs, sizes.side)


def _repeat(run: Callable[[], object], enough: int) -> float:
    """The seconds of the fastest of at least `enough` calls, more while there is time: other programs only make it slower."""
    taken: list[float] = []
    while len(taken) < enough or (len(taken) < _REPETITIONS and sum(taken) < _BUDGET):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _arrays(sizes: Sizes) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    side, rows = sizes.side, sizes.rows
    shapes = [(side, side), (side, side), (rows, 1024), (1000,)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _pass(sizes: Sizes, a: Any, b: Any, x: Any, v: Any) -> list[Any]:
    op = FUNCTIONS
    product, total = a, v
    for _ in range(sizes.products):
        product = op["matmul"](a, b)
    activation = op["add"](op["multiply"](op["tanh"](op["multiply"](x, x)), x), x)
    for _ in range(sizes.launches):
        total = op["add"](total, v)
    return [product, activation, op["gelu"](x, approximate="tanh"), op["softmax"](x), op["layer_norm"](x)[0], total]


def _reference(sizes: Sizes, a: np.ndarray, b: np.ndarray, x: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """The same work as people write it in NumPy."""
    product, total = a, v
    for _ in range(sizes.products):
        product = a @ b
    activation = np.tanh(x * x) * x + x
    for _ in range(sizes.launches):
        total = total + v
    gelu = np.float32(0.5) * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    centred = x - x.mean(-1, keepdims=True)
    norm = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    return [product, activation, gelu, softmax, norm, total]


def in_a_process(candidate: Candidate, seconds: float) -> Figures:
    """Measure in a process of its own, which is ended after `seconds`.

    Raises RuntimeError with what that process said, and CannotMeasureError where there is no Python to start.
    """
    executable = sys.executable or ""
    # A program that contains Python names itself here, and would be started a second time.
    if getattr(sys, "frozen", False) or not Path(executable).name.lower().startswith(("python", "pypy")):
        raise CannotMeasureError(f"there is no Python to start a process with: {executable!r}")
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    try:
        done = subprocess.run(
            [executable, "-P", "-m", "polyhal.hal.discovery.benchmark", candidate.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            # Helpers that build kernels would disturb the clock.
            env=os.environ
            | {
                "PYTHONPATH": path,
                "POLYHAL_FALLBACK": "allow",
                "POLYHAL_MEASURE_TIMEOUT": "0",
                "POLYHAL_BUILD_AHEAD": "0",
            },
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no answer within {seconds:g} s") from error
    except OSError as error:
        raise CannotMeasureError(f"no process could be started: {describe(error)}") from error
    return _answer(done, candidate.info)


def _answer(done: subprocess.CompletedProcess[str], info: DeviceInfo) -> Figures:
    lines = done.stdout.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        answer = {}
    if not isinstance(answer, dict) or done.returncode or "seconds" not in answer:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        died = f"the process ended with code {done.returncode}" + (f": {said[-1].strip()}" if said else "")
        raise RuntimeError(answer.get("problem", died) if isinstance(answer, dict) else died)
    if (answer["device"], answer["driver"]) != (info.name, info.driver):
        raise RuntimeError(f"a new process found {answer['device']} ({answer['driver']}) under this name")
    return Figures(float(answer["seconds"]), float(answer["numpy_seconds"]), int(answer["side"]))


def main(name: str) -> int:
    """Measure the device called `name` and print the outcome as one line of JSON. Returns the exit code."""
    outcome: dict[str, Any]
    try:
        device = Device(name)
        figures = measure(device)
        outcome = {"device": device.info.name, "driver": device.info.driver, **figures._asdict()}
    except Exception as error:  # drivers raise anything; the parent process records it
        outcome = {"problem": describe(error)}
    print(f"\n{json.dumps(outcome)}", flush=True)
    return 1 if "problem" in outcome else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
