"""The workloads of reports, written once for Polyhal and PyTorch, whose functions have equal names."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polyhal import Device
from polyhal.devices import hardware_type
from polyhal.hal.capabilities import DeviceType
from polyhal.reports.machine_report import SpeedFigure

_CALLS = 50
_MINIMUM = 3
"""Minimum number of timed calls, even if no time is left."""


class ReportSize(NamedTuple):
    """The amount of work in one call of each workload."""

    elements: int
    """Elements of the array that is read and written."""
    side: int
    """Rows of the square matrices."""
    images: tuple[int, int, int]
    """Batch, input and output channels, and height and width of the input of a 3 x 3 convolution."""
    attention: tuple[int, int, int, int]
    """Batch, heads, length, and width of a head."""
    training: tuple[int, int, int]
    """Batch, length and width of the inputs of a transformer layer."""


SMALL = ReportSize(2**24, 1024, (8, 64, 56), (1, 8, 512, 64), (8, 128, 256))
LARGE = ReportSize(2**26, 4096, (32, 256, 56), (4, 16, 2048, 64), (16, 512, 1024))
"""Sizes for discrete GPUs, which SMALL would not saturate."""
_LARGE_MEMORY = 4 << 30


@dataclass(frozen=True, slots=True)
class Framework:
    """Functions of a framework that workloads use."""

    nn: Any
    functional: Any
    optim: Any
    tensor: Callable[[np.ndarray, str], Any]
    """Function from an array and the name of a dtype to a tensor on the device."""
    place: Callable[[Any], Any]
    """Function that moves a module to the device."""
    compiled: Callable[[Callable[..., Any]], Callable[..., Any]]
    synchronize: Callable[[], object]


@dataclass(frozen=True, slots=True)
class ReportWorkload:
    """One workload in one dtype: `prepare` returns the function to time; one call does `work`."""

    what: str
    dtype: str
    size: str
    work: float
    unit: str
    prepare: Callable[[Framework], Callable[[], object]]
    nbytes: float = 0.0
    """Bytes of operands and results of one call; 0 if a call is several ops."""

    @property
    def name(self) -> str:
        """Unique name."""
        return f"{self.what}/{self.dtype}"

    def roofline(self, flops: float, bandwidth: float) -> float | None:
        """Return the greatest speed in `unit` by the roofline model, for rates per second in float32; None if unknown.

        Source: S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model", 2009.
        """
        if not self.nbytes or self.dtype != "float32":
            return None
        if self.unit == "GB/s":
            return bandwidth / _SCALE[self.unit]
        return min(flops, bandwidth * self.work / self.nbytes) / _SCALE[self.unit]


def polyhal_framework(device: Device) -> Framework:
    """Return Polyhal on a device."""
    import polyhal
    from polyhal import nn, optim
    from polyhal.nn import functional

    def tensor(array: np.ndarray, dtype: str) -> Any:
        return polyhal.tensor(array, device=device).astype(dtype)

    return Framework(nn, functional, optim, tensor, lambda m: m.to(device), polyhal.jit, device.synchronize)


def pytorch_framework() -> tuple[str, str, Framework]:
    """Return the name and version of PyTorch, its device, and its functions. Raises ImportError if it is not installed."""
    import torch

    place = "cuda" if torch.cuda.is_available() else "cpu"

    def tensor(array: np.ndarray, dtype: str) -> Any:
        return torch.from_numpy(array).to(place, getattr(torch, dtype))

    wait = torch.cuda.synchronize if place == "cuda" else _nothing
    functions = Framework(
        torch.nn, torch.nn.functional, torch.optim, tensor, lambda m: m.to(place), lambda step: step, wait
    )
    device = torch.cuda.get_device_name() if place == "cuda" else "cpu"
    return f"PyTorch {torch.__version__}", device, functions


def _nothing() -> None:
    """No-op: functions on a CPU return when they are complete."""


def size_for(device: Device) -> ReportSize:
    """Return the size for a device."""
    large = hardware_type(device.info) in (DeviceType.GPU, DeviceType.ACCELERATOR)
    return LARGE if large and device.info.memory >= _LARGE_MEMORY else SMALL


def workloads(size: ReportSize) -> Iterator[ReportWorkload]:
    """Yield all workloads, those in float32 first."""
    dtypes = ("float32", "float16")
    text = f"{size.elements * 4 / 2**20:g} MiB read, as much written"
    nbytes = 8.0 * size.elements
    yield ReportWorkload("memory", "float32", text, nbytes, "GB/s", lambda f: _scaled(f, size), nbytes)
    products = [_product(size, d) for d in dtypes]
    attentions = [_attention(size, d) for d in dtypes]
    yield products[0]
    yield _convolution(size)
    yield attentions[0]
    yield _training(size)
    yield products[1]
    yield attentions[1]


def _random(framework: Framework, dtype: str, *shape: int) -> Any:
    return framework.tensor(np.random.default_rng(0).standard_normal(shape, np.float32), dtype)


def _scaled(framework: Framework, size: ReportSize) -> Callable[[], object]:
    x = _random(framework, "float32", size.elements)
    return lambda: x * 2.0


def _product(size: ReportSize, dtype: str) -> ReportWorkload:
    n = size.side

    def prepare(framework: Framework) -> Callable[[], object]:
        a, b = _random(framework, dtype, n, n), _random(framework, dtype, n, n)
        return lambda: a @ b

    return ReportWorkload("product", dtype, f"{n} x {n} x {n}", 2.0 * n**3, "GFLOP/s", prepare, 12.0 * n**2)


def _convolution(size: ReportSize) -> ReportWorkload:
    batch, channels, side = size.images

    def prepare(framework: Framework) -> Callable[[], object]:
        x = _random(framework, "float32", batch, channels, side, side)
        weight = _random(framework, "float32", channels, channels, 3, 3)
        return lambda: framework.functional.conv2d(x, weight, padding=1)

    text = f"{batch} images, {channels} x {side} x {side}, 3 x 3 filters"
    work = 2.0 * batch * channels**2 * 9 * side**2
    nbytes = 4.0 * (2 * batch * channels * side**2 + 9 * channels**2)
    return ReportWorkload("convolution", "float32", text, work, "GFLOP/s", prepare, nbytes)


def _attention(size: ReportSize, dtype: str) -> ReportWorkload:
    batch, heads, length, width = size.attention

    def prepare(framework: Framework) -> Callable[[], object]:
        q, k, v = (_random(framework, dtype, *size.attention) for _ in range(3))
        return lambda: framework.functional.scaled_dot_product_attention(q, k, v)

    text = f"batch {batch}, {heads} heads, length {length}, width {width}"
    work = 4.0 * batch * heads * length**2 * width
    return ReportWorkload("attention", dtype, text, work, "GFLOP/s", prepare, 16.0 * batch * heads * length * width)


def _training(size: ReportSize) -> ReportWorkload:
    batch, length, width = size.training

    def prepare(framework: Framework) -> Callable[[], object]:
        layer = framework.place(
            framework.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
        )
        optimizer = framework.optim.AdamW(layer.parameters(), lr=1e-4)
        x = _random(framework, "float32", *size.training)

        def step(inputs: Any) -> Any:
            optimizer.zero_grad()
            loss = framework.functional.mse_loss(layer(inputs), inputs)
            loss.backward()
            optimizer.step()
            return loss

        compiled = framework.compiled(step)
        return lambda: compiled(x)

    text = f"a transformer layer of width {width}, {batch} samples of length {length}, AdamW"
    return ReportWorkload("training step", "float32", text, float(batch), "samples/s", prepare)


_SCALE = {"GB/s": 1e9, "GFLOP/s": 1e9, "samples/s": 1.0}


def measure(workload: ReportWorkload, framework: Framework, seconds: float) -> SpeedFigure:
    """Time a workload for about `seconds`, including its first calls. Raises the framework's errors."""
    end = time.perf_counter() + seconds
    run = workload.prepare(framework)
    for _ in range(2):  # compile kernels: the first call records captured steps, the second plans them
        run()
        framework.synchronize()
    times: list[float] = []
    while len(times) < _MINIMUM or (len(times) < _CALLS and time.perf_counter() < end):
        start = time.perf_counter()
        run()
        framework.synchronize()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    value = float(f"{workload.work / median / _SCALE[workload.unit]:.4g}")
    milliseconds = float(f"{median * 1e3:.4g}")
    return SpeedFigure(workload.what, workload.dtype, workload.size, value, workload.unit, milliseconds)
