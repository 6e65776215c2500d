"""Scaling curves: throughput over the number of devices, each time with the best strategy."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.prediction import Prediction
from polyhal.forecast.search import search
from polyhal.forecast.strategy import Constraints
from polyhal.hal.errors import OutOfMemoryError, message

_BATCH = re.compile(r"(?P<samples>\d+)(?P<each>/device)?")


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples per step: a fixed number, or a number per device."""

    samples: int
    per_device: bool = False

    def of(self, devices: int) -> int:
        """Return the samples per step on a number of devices."""
        return self.samples * devices if self.per_device else self.samples


def parse_batch(text: str) -> Batch:
    """Read a number of samples, such as `512`, or `16/device`. Raises ValueError."""
    match = _BATCH.fullmatch(text.strip())
    if match is None or not int(match["samples"]):
        raise ValueError(message(None, f"invalid batch {text!r}", expected="a number such as 512, or 16/device"))
    return Batch(int(match["samples"]), match["each"] is not None)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The best strategy on a number of devices."""

    devices: int
    prediction: Prediction
    efficiency: float
    """Throughput per device, relative to the smallest number of devices on which the model fits."""


def curve(forecaster: Forecaster, batch: Batch, required: Constraints | None = None) -> list[CurvePoint]:
    """Search at 1, 2, 4, ... devices and at all devices of the cluster; skip numbers on which nothing fits.

    `required` constrains strategies for all devices; on fewer devices the degrees of parallelism are free.
    """
    cluster = forecaster.cluster
    counts = [1 << n for n in range(cluster.devices.bit_length()) if 1 << n < cluster.devices] + [cluster.devices]
    required = required or Constraints()
    free = replace(required, data=None, tensor=None, pipeline=None, micro_batch=None)
    points: list[CurvePoint] = []
    for devices in counts:
        if devices > cluster.per_node and devices % cluster.per_node:
            continue
        allowed = required if devices == cluster.devices else free
        try:
            best = search(forecaster, cluster.of(devices), batch.of(devices), allowed).best
        except (OutOfMemoryError, ValueError):
            continue
        rate = best.samples_per_second / devices
        first = points[0].prediction.samples_per_second / points[0].devices if points else rate
        points.append(CurvePoint(devices, best, rate / first))
    return points
