"""Fit a profile to measurements: the time model, solved for its parameters.

Costs of measured ops follow the same rules as costs of predicted steps, so fitted rates have the units of their later
use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from polyhal.backends.sim.convolution_fit import ConvolutionFit, fit_convolutions
from polyhal.backends.sim.costs import kernel_cost
from polyhal.backends.sim.timing import KernelCost
from polyhal.hal.system.diagnostics.measurements import DriverTimes, MeasuredSample, Measurements

_HOST_BOUND = 1.5
"""Minimum duration of a sample, relative to the host's time to submit it, to be used: shorter ones measure the host."""
_FASTER = 1.15
"""Minimum ratio of small operands' bandwidth to large operands' from which a cache is inferred."""
_MEMORY_BOUND = 0.9
"""Minimum fraction of a kernel's time that its memory traffic would take, to count it as memory-bound."""
_DTYPES = ("float32", "float16", "bfloat16", "float64")
_SUM = "add"
"""Op that measures bandwidth: it does little but read and write."""


class TimedKernels(NamedTuple):
    """Kernels of one kind, and their total time in seconds."""

    op: str
    costs: tuple[KernelCost, ...]
    seconds: float

    @property
    def launches(self) -> int:
        """Number of started kernels, not counting kernels that pack operands."""
        return sum(c.launches for c in self.costs)

    @property
    def flops(self) -> int:
        """Total operations of the kernels."""
        return sum(c.flops for c in self.costs)

    @property
    def nbytes(self) -> int:
        """Total bytes read and written by the kernels."""
        return sum(c.nbytes for c in self.costs)


class FittedMemory(NamedTuple):
    """Bytes per second in and out of the cache, and the cache's size in bytes: 0 if small operands are not faster."""

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
    """Standard deviation of single measurements, relative to the rate."""
    measurements: int
    is_memory: bool
    """True if these kernels were memory-bound: the rate is then a lower bound."""


class FittedProfile(NamedTuple):
    """Measured figures of a profile, in seconds, bytes and operations."""

    launch: float
    sync: float
    latency: float
    memory: FittedMemory
    peak: dict[str, float]
    rates: dict[str, FittedRate]
    """Rates by family, or by family and dtype for dtypes other than float32."""
    convolutions: ConvolutionFit


def fit(measured: Measurements) -> FittedProfile:
    """Fit a profile. Raises ValueError if too few measurements are usable."""
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
    for kind in [k for k in rates if k.startswith("contraction")]:  # fused products are measured only in float32
        rates.setdefault(kind.replace("contraction", "fused"), rates[kind])
    submitting = driver.submit + driver.replay
    # A waiting host submits a mark while the kernel runs.
    sync = max(0.0, driver.turnaround - submitting - max(launch, driver.submit))
    latency = max(0.0, measured.link.latency - driver.submit - sync)
    return FittedProfile(launch, sync, latency, memory, _peak(measured.peak, rates), rates, fitted)


def _timed(sample: MeasuredSample) -> TimedKernels | None:
    """Return the costs of a sample; None if it ran kernels of several kinds, as on devices that lack a kernel."""
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
    """Return the device's time between consecutive kernels.

    It is the time per kernel of a series of tiny kernels, unless the host is slower to submit them on cores that it
    does not share with the device. Then it is the time of a vector sum extrapolated to length 0.
    """
    if shared or driver.kernel > _HOST_BOUND * driver.replay:
        return driver.kernel
    for short, long in pairwise(sums):
        if len(short.costs) == len(long.costs) and long.nbytes == 2 * short.nbytes:
            left = (2 * short.seconds - long.seconds) / len(short.costs)
            return min(max(0.0, left), driver.kernel)
    return driver.kernel


def _memory(sums: Sequence[TimedKernels], launch: float) -> FittedMemory:
    """Find the size above which sums of vectors are slower, and the bandwidth below and above it.

    Raises ValueError if all sums were shorter than their submission.
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
    """Return the sum of squared deviations from the mean."""
    return sum((v - _mean(values)) ** 2 for v in values)


def _rate(group: Sequence[TimedKernels], launch: float, memory: FittedMemory) -> FittedRate:
    """Return the mean rate of kernels of a kind, only of compute-bound ones if there are any."""
    arithmetic = [t for t in group if not _is_memory_bound(t, launch, memory)]
    logs = [math.log(t.flops / max(t.seconds - launch * t.launches, 1e-9)) for t in arithmetic or group]
    if not arithmetic:
        return FittedRate(math.exp(max(logs)), 0.0, len(logs), True)
    return FittedRate(math.exp(_mean(logs)), math.sqrt(_scatter(logs) / len(logs)), len(logs), False)


def _peak(measured: Mapping[str, float], rates: Mapping[str, FittedRate]) -> dict[str, float]:
    """Return the rates of multiply-adds in registers, or else of the fastest kernels.

    Products of other dtypes are then assumed to be as efficient as float32 products. Unsupported dtypes have the rate
    of float32. An efficiency may exceed 1: products of a dtype may be computed in another, and the rate of convolutions
    is the limit for infinitely long rows.
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
    """Return the rates by kind, relative to the peaks."""
    return {kind: r._replace(flops=r.flops / fitted.peak[_dtype_of(kind)]) for kind, r in fitted.rates.items()}
