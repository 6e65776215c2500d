"""Makes a profile from measurements: the time model, solved for what it does not know.

Costs of the ops that were measured come from the same rules as those of predicted steps, so a rate here is in the units in
which it will be used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from polyhal.backends.sim.convolution_fit import ConvolutionFit, fit_convolutions
from polyhal.backends.sim.costs import kernel_cost
from polyhal.backends.sim.timing import KernelCost
from polyhal.hal.diagnostics.measurements import DriverTimes, MeasuredSample, Measurements

_HOST_BOUND = 1.5
"""Samples that take less than this many times what the host needs to submit them say little about the device."""
_FASTER = 1.15
"""So many times as fast must small operands be that there is a cache."""
_MEMORY_BOUND = 0.9
"""The share of a kernel's time, as long as it would take to read and write, from which on it waits for memory."""
_DTYPES = ("float32", "float16", "bfloat16", "float64")
_SUM = "add"
"""The op of which the bandwidth is known: it does next to nothing but read and write."""


class TimedKernels(NamedTuple):
    """Kernels of one kind, and the seconds that they took together."""

    op: str
    costs: tuple[KernelCost, ...]
    seconds: float

    @property
    def launches(self) -> int:
        """Kernels that the device starts, without those that pack operands."""
        return sum(c.launches for c in self.costs)

    @property
    def flops(self) -> int:
        """Operations of all kernels."""
        return sum(c.flops for c in self.costs)

    @property
    def nbytes(self) -> int:
        """Bytes that all kernels read and write."""
        return sum(c.nbytes for c in self.costs)


class FittedMemory(NamedTuple):
    """Bytes per second in and out of the cache, and the bytes that it holds: 0 where small operands are no faster."""

    bandwidth: float
    cache_bandwidth: float
    cache: int

    def seconds(self, cost: KernelCost) -> float:
        """Return the time of a kernel that only reads and writes."""
        return cost.nbytes / (self.cache_bandwidth if cost.nbytes <= self.cache else self.bandwidth)


class FittedRate(NamedTuple):
    """Operations per second of a kind of kernels."""

    flops: float
    spread: float
    """What single measurements differ by: the root of the mean square, relative to the rate."""
    measurements: int
    is_memory: bool
    """Whether memory was what these kernels waited for: the rate is then the least that it can be."""


class FittedProfile(NamedTuple):
    """Everything that a profile takes from measurements, in seconds, bytes and operations."""

    launch: float
    sync: float
    latency: float
    memory: FittedMemory
    peak: dict[str, float]
    rates: dict[str, FittedRate]
    """By family, or by family and dtype where that is not float32."""
    convolutions: ConvolutionFit


def fit(measured: Measurements) -> FittedProfile:
    """Fit a profile. Raises ValueError if too few measurements tell about the device."""
    driver = measured.driver
    timed = [t for t in map(_timed, measured.samples) if t is not None and not _is_host_bound(t, driver)]
    sums = [t for t in timed if t.op == _SUM]
    launch = _launch(driver, sums, shared=measured.facts.type == "cpu")
    memory = _memory(sums, launch)
    convolutions = [t for t in timed if t.costs[0].row and not _is_memory_bound(t, launch, memory)]
    kinds: dict[str, list[TimedKernels]] = {}
    for t in timed:
        if t.op != _SUM and not t.costs[0].row:
            kinds.setdefault(_kind(t.costs[0]), []).append(t)
    rates = {kind: _rate(group, launch, memory) for kind, group in kinds.items()}
    fitted = fit_convolutions([t.costs[0] for t in convolutions], [t.seconds for t in convolutions], launch)
    for family, flops in fitted.rates.items():
        count = sum(t.costs[0].family == family for t in convolutions)
        rates[family] = FittedRate(flops, fitted.error, count, False)
    pointwise = [r for kind, r in rates.items() if kind.endswith("elementwise")]
    if not pointwise or "contraction" not in rates:
        raise ValueError("elementwise kernels and products took less time than the host needs to submit them")
    rates["default"] = max(pointwise, key=lambda r: r.flops)
    for kind in [
        k for k in rates if k.startswith("contraction")
    ]:  # of fused products only those of float32 are measured
        rates.setdefault(kind.replace("contraction", "fused"), rates[kind])
    submitting = driver.submit + driver.replay
    # Who waits submits a mark, while the kernel runs.
    sync = max(0.0, driver.turnaround - submitting - max(launch, driver.submit))
    latency = max(0.0, measured.link.latency - driver.submit - sync)
    return FittedProfile(launch, sync, latency, memory, _peak(measured.peak, rates), rates, fitted)


def _timed(sample: MeasuredSample) -> TimedKernels | None:
    """Return the costs of a sample; None if it ran kernels of several kinds, as devices without some kernel do."""
    costs = tuple(kernel_cost(c.op, c.inputs, c.outputs, c.params) for c in sample.calls)
    if not costs or len({(c.op, cost.family) for c, cost in zip(sample.calls, costs, strict=True)}) > 1:
        return None
    return TimedKernels(sample.calls[0].op, costs, sample.seconds)


def _is_host_bound(timed: TimedKernels, driver: DriverTimes) -> bool:
    return timed.seconds < _HOST_BOUND * (driver.submit + len(timed.costs) * driver.replay)


def _is_memory_bound(timed: TimedKernels, launch: float, memory: FittedMemory) -> bool:
    return sum(map(memory.seconds, timed.costs)) > _MEMORY_BOUND * (timed.seconds - launch * timed.launches)


def _kind(cost: KernelCost) -> str:
    return cost.family if cost.dtype.name == "float32" else f"{cost.family}_{cost.dtype.name}"


def _launch(driver: DriverTimes, sums: Sequence[TimedKernels], *, shared: bool) -> float:
    """What the device takes from one kernel to the next.

    Tiny kernels in a row tell, unless the host needs longer to submit them, on cores that are not the device's as well. Then it
    is what is left of the time of a sum of vectors if its length goes to 0.
    """
    if shared or driver.kernel > _HOST_BOUND * driver.replay:
        return driver.kernel
    for short, long in pairwise(sums):
        if len(short.costs) == len(long.costs) and long.nbytes == 2 * short.nbytes:
            left = (2 * short.seconds - long.seconds) / len(short.costs)
            return min(max(0.0, left), driver.kernel)
    return driver.kernel


def _memory(sums: Sequence[TimedKernels], launch: float) -> FittedMemory:
    """Find the size from which sums of vectors are slower, and the bandwidth on both sides of it.

    Raises ValueError if all sums were over before the host had submitted them.
    """
    rates = sorted((t.costs[0].nbytes, t.nbytes / max(t.seconds - launch * t.launches, 1e-9)) for t in sums)
    if not rates:
        raise ValueError("sums of vectors took less time than the host needs to submit them")
    sizes, logs = [size for size, _ in rates], [math.log(rate) for _, rate in rates]
    errors = [_scatter(logs[:cut]) + _scatter(logs[cut:]) for cut in range(len(logs))]
    cut = errors.index(min(errors))
    bandwidth = math.exp(_mean(logs[cut:]))
    if cut == 0 or math.exp(_mean(logs[:cut])) < _FASTER * bandwidth:
        overall = math.exp(_mean(logs))
        return FittedMemory(overall, overall, 0)
    return FittedMemory(bandwidth, math.exp(_mean(logs[:cut])), math.isqrt(sizes[cut - 1] * sizes[cut]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _scatter(values: Sequence[float]) -> float:
    """The sum of squares of the differences from the mean."""
    return sum((v - _mean(values)) ** 2 for v in values)


def _rate(group: Sequence[TimedKernels], launch: float, memory: FittedMemory) -> FittedRate:
    """Take the mean of what kernels of a kind reach, of those only that wait for arithmetic if there are such."""
    arithmetic = [t for t in group if not _is_memory_bound(t, launch, memory)]
    logs = [math.log(t.flops / max(t.seconds - launch * t.launches, 1e-9)) for t in arithmetic or group]
    if not arithmetic:
        return FittedRate(math.exp(max(logs)), 0.0, len(logs), True)
    return FittedRate(math.exp(_mean(logs)), math.sqrt(_scatter(logs) / len(logs)), len(logs), False)


def _peak(measured: Mapping[str, float], rates: Mapping[str, FittedRate]) -> dict[str, float]:
    """Multiply-adds in registers, or else what the fastest kernels reach.

    Products of other dtypes are then taken for as efficient as those of float32. Dtypes that the device lacks have the rate
    of float32. A share of the peak may be more than 1: products of a dtype may be computed in another, and the rate of
    convolutions is that of rows without an end.
    """
    fastest = max(r.flops for kind, r in rates.items() if _dtype_of(kind) == "float32")
    single = measured.get("float32", fastest)
    peak = {"float32": single}
    for dtype in _DTYPES[1:]:
        product = rates.get(f"contraction_{dtype}")
        estimate = single * product.flops / rates["contraction"].flops if product else single
        peak[dtype] = measured.get(dtype, estimate)
    return peak


def _dtype_of(kind: str) -> str:
    last = kind.rpartition("_")[2]
    return last if last in _DTYPES else "float32"


def shares(fitted: FittedProfile) -> dict[str, FittedRate]:
    """Return the rates by kind as shares of the peaks."""
    return {kind: r._replace(flops=r.flops / fitted.peak[_dtype_of(kind)]) for kind, r in fitted.rates.items()}
