"""The speed of one device, compared with NumPy, PyTorch and the shared results of other machines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from polyhal.reports.collect import figures
from polyhal.reports.machine_report import SpeedFigure
from polyhal.reports.supervision import TaskResult, run_task
from polyhal.reports.worker import ROOFLINE

_RATES = ("GB/s", "GFLOP/s")
"""Units in which results for unequal sizes are compared."""
SHARED = "reported_devices.jsonl"
"""File with the shared results, which `python -m tools.generate` writes."""


@dataclass(frozen=True, slots=True)
class BenchedDevice:
    """A device, of this machine or of a shared report, with its speeds."""

    name: str
    """Name of the device, or of another framework."""
    title: str
    """Name of the hardware."""
    driver: str
    figures: tuple[SpeedFigure, ...]
    problem: str = ""
    date: str = ""
    """Day of a shared report."""

    @property
    def speeds(self) -> dict[tuple[str, str], SpeedFigure]:
        """The workloads that were measured, by name and dtype."""
        return {(f.what, f.dtype): f for f in self.figures if not f.problem and f.value}


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """Results of `polyhal bench`."""

    device: BenchedDevice
    flops: float | None
    """Measured additions and multiplications per second of matrix products in float32; None if the measurement failed."""
    bandwidth: float | None
    """Measured bytes per second of elementwise kernels."""
    roofline: Mapping[str, float | None]
    """Greatest speed of each workload by the roofline model, in its unit."""
    peers: tuple[BenchedDevice, ...]
    shared: tuple[BenchedDevice, ...]

    def share(self, figure: SpeedFigure) -> float | None:
        """Return the fraction of the roofline that a workload reached; None if it is unknown."""
        limit = self.roofline.get(f"{figure.what}/{figure.dtype}")
        return figure.value / limit if limit and not figure.problem else None

    def to_json(self) -> dict[str, Any]:
        """Return plain data: speeds in the units that they name, rates per second, ratios relative to this device."""
        mine = self.device

        def facts(other: BenchedDevice) -> dict[str, Any]:
            return {**asdict(other), "device_is_faster": mean_ratio(mine, other)}

        return {
            "device": {
                **asdict(mine),
                "figures": [{**asdict(f), "share_of_roofline": self.share(f)} for f in mine.figures],
            },
            "flops_per_second": self.flops,
            "bytes_per_second": self.bandwidth,
            "peers": [facts(peer) for peer in self.peers],
            "shared": [facts(other) for other in self.shared],
        }


def ratio(mine: SpeedFigure | None, other: SpeedFigure | None) -> float | None:
    """Return how many times as fast the first is; None if one is missing, or the sizes of a training step differ."""
    if mine is None or other is None or not (mine.unit in _RATES or mine.size == other.size):
        return None
    return mine.value / other.value


def mean_ratio(mine: BenchedDevice, other: BenchedDevice) -> float | None:
    """Return the geometric mean of the ratios of all workloads that both ran; None if there are none."""
    ratios = [ratio(figure, other.speeds.get(key)) for key, figure in mine.speeds.items()]
    known = [math.log(r) for r in ratios if r is not None]
    return math.exp(sum(known) / len(known)) if known else None


def compare(name: str, seconds: float, progress: Callable[[str], object] = lambda text: None) -> DeviceComparison:
    """Measure a device, NumPy and PyTorch for about `seconds` in total, each in a process of its own.

    Failures do not raise: the results contain their reasons.
    """
    tasks: dict[str, dict[str, Any]] = {name: {"task": "benchmark", "device": name, "roofline": True}}
    if name.partition(":")[0] != "numpy":
        tasks["NumPy"] = {"task": "benchmark", "device": "numpy"}
    tasks["PyTorch"] = {"task": "baseline"}
    results = {}
    for who, task in tasks.items():
        progress(who)
        results[who] = run_task(task, seconds / len(tasks))
    first = results.pop(name)
    rates = next(iter(first.of("rates")), {})
    return DeviceComparison(
        _benched(name, first),
        rates.get("flops"),
        rates.get("bandwidth"),
        rates.get("roofline", {}),
        tuple(_benched(who, result) for who, result in results.items() if result.of("opened") or result.problem),
        tuple(shared_results()),
    )


def _benched(name: str, result: TaskResult) -> BenchedDevice:
    """Return the speeds of a task. Frameworks have the name and the device that they report."""
    opened = next(iter(result.of("opened")), {})
    facts = opened.get("facts", {"device": "", "driver": ""})
    found = [SpeedFigure(**f) for f in figures(result) if f"{f['what']}/{f['dtype']}" != ROOFLINE]
    return BenchedDevice(opened.get("name", name), facts["device"], facts["driver"], tuple(found), result.problem)


def shared_results() -> Iterable[BenchedDevice]:
    """Yield the results of machines whose reports were shared, from the installed package."""
    text = resources.files(__package__).joinpath(SHARED).read_text(encoding="utf-8")
    for line in text.splitlines():
        row = json.loads(line)
        speeds: Sequence[Sequence[Any]] = row.pop("figures")
        yield BenchedDevice(figures=tuple(SpeedFigure(*speed) for speed in speeds), **row)
