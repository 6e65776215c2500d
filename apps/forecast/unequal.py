"""Data parallelism on devices of several kinds: divides the batch so that all kinds finish at the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhal.forecast.cluster import Cluster, parse_cluster
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.prediction import Prediction
from polyhal.forecast.recipes import ModelRecipe
from polyhal.forecast.strategy import SHARDINGS, Constraints, Strategy
from polyhal.hal.errors import OutOfMemoryError, message


@dataclass(frozen=True, slots=True)
class Share:
    """Samples and prediction of the devices of one kind."""

    cluster: Cluster
    samples: int
    """Samples per device; 0 for devices that would slow the others down."""
    prediction: Prediction | None
    """Prediction; None for devices without samples."""


@dataclass(frozen=True, slots=True)
class UnequalPlan:
    """Division of a batch among kinds of devices."""

    batch: int
    shares: list[Share]
    seconds: float
    alone: float
    """Seconds of a step on only the fastest kind; infinite if the batch does not fit."""
    shard: str


class UnequalForecaster:
    """Predicts training steps on devices of several kinds, each with a replica of the model."""

    def __init__(self, recipe: ModelRecipe, kinds: Sequence[Cluster], dtype: str) -> None:
        """Raises ValueError for a dtype that training does not support."""
        self.kinds = kinds
        self.forecasters = [Forecaster(recipe, kind, dtype) for kind in kinds]
        self._known: dict[tuple[int, int, str], float] = {}

    def plan(self, batch: int, required: Constraints) -> UnequalPlan:
        """Find the division of a batch. Raises ValueError, and OutOfMemoryError if it does not fit."""
        if any(n not in (None, 1) for n in (required.tensor, required.pipeline)):
            raise ValueError(message(None, "layers or stages on unequal devices", expected="tensor=1 and pipeline=1"))
        shards = [s for s in SHARDINGS if required.shard in (None, s)]
        plans = [p for shard in shards for p in [self._plan(batch, shard)] if p is not None]
        if not plans:
            raise OutOfMemoryError(message(None, f"a batch of {batch} does not fit", fix="use a smaller batch"))
        return min(plans, key=lambda p: p.seconds)

    def _plan(self, batch: int, shard: str) -> UnequalPlan | None:
        """Return the plan for one kind of sharding; None if the batch does not fit."""
        kinds = range(len(self.kinds))
        counts = [kind.devices for kind in self.kinds]
        samples = [0] * len(self.kinds)
        left = batch
        while left > 0:
            # One more sample for each device of the kind that would finish it first.
            candidates = [k for k in kinds if counts[k] <= left or not any(counts[j] <= left for j in kinds)]
            times = {k: self._seconds(k, samples[k] + 1, shard) for k in candidates}
            best = min(times, key=lambda k: times[k])
            if times[best] == math.inf:
                return None
            samples[best] += 1
            left -= counts[best]
        shares = [
            Share(self.kinds[k], samples[k], self._predict(k, samples[k], shard) if samples[k] else None) for k in kinds
        ]
        alone = min(self._alone(k, batch, shard) for k in kinds)
        return UnequalPlan(
            sum(n * c for n, c in zip(samples, counts, strict=True)),
            shares,
            max(share.prediction.seconds for share in shares if share.prediction),
            alone,
            shard,
        )

    def _predict(self, kind: int, samples: int, shard: str) -> Prediction:
        """Predict a step of one kind of devices as part of all devices."""
        return self.forecasters[kind].predict(Strategy(self._all, micro_batch=samples, shard=shard), self._joined(kind))

    def _seconds(self, kind: int, samples: int, shard: str) -> float:
        """Return the time of a step, interpolated between powers of two; infinite if it does not fit the memory."""
        below = 1 << samples.bit_length() - 1
        low, high = (self._captured_seconds(kind, n, shard) for n in (below, 2 * below))
        if math.isinf(high):
            return self._captured_seconds(kind, samples, shard)
        return low + (high - low) * (samples - below) / below

    def _captured_seconds(self, kind: int, samples: int, shard: str) -> float:
        """Return the time of a step from a capture with this number of samples."""
        key = (kind, samples, shard)
        if key not in self._known:
            strategy = Strategy(self._all, micro_batch=samples, shard=shard)
            self._known[key] = _fitting_seconds(self.forecasters[kind], self._joined(kind), strategy)
        return self._known[key]

    def _alone(self, kind: int, batch: int, shard: str) -> float:
        cluster = self.kinds[kind]
        if batch % cluster.devices:
            return math.inf
        strategy = Strategy(cluster.devices, micro_batch=batch // cluster.devices, shard=shard)
        return _fitting_seconds(self.forecasters[kind], cluster, strategy)

    @property
    def _all(self) -> int:
        return sum(kind.devices for kind in self.kinds)

    def _joined(self, kind: int) -> Cluster:
        """Return all devices as one node that has the slowest link."""
        slowest = min((k.inside for k in self.kinds), key=lambda link: link.bandwidth)
        return replace(self.kinds[kind], devices=self._all, per_node=self._all, inside=slowest)


def _fitting_seconds(forecaster: Forecaster, cluster: Cluster, strategy: Strategy) -> float:
    """Return the time of a step; infinite if it does not fit the memory."""
    try:
        prediction = forecaster.predict(strategy, cluster)
    except OutOfMemoryError:
        return math.inf
    return prediction.seconds if prediction.memory.total <= cluster.memory else math.inf


def parse_kinds(devices: str, link: str) -> list[Cluster]:
    """Parse a list such as `2xh200,4xrx480`; all devices are in one node. Raises ValueError that lists the known names."""
    kinds = [parse_cluster(part, link) for part in devices.split(",")]
    if "," in link:
        raise ValueError(
            message(None, f"a network in {link!r}", expected="one link, because all devices are in one node")
        )
    return [replace(kind, per_node=kind.devices) for kind in kinds]
