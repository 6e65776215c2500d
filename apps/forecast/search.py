"""Search for the fastest strategy: all factorizations of a number of devices that fit the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyhal.forecast.cluster import Cluster
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.prediction import Prediction
from polyhal.forecast.strategy import SHARDINGS, Constraints, Strategy
from polyhal.hal.errors import OutOfMemoryError, message

_MOST_SAMPLES = 256
"""Maximum samples per pass. Devices are saturated at this size."""
_SLOWER = 2


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search on a number of devices."""

    cluster: Cluster
    batch: int
    fitting: list[Prediction]
    """Strategies that fit, the fastest first."""
    too_large: list[Prediction]
    """Strategies that exceed the memory, the smallest first."""

    @property
    def best(self) -> Prediction:
        """Fastest strategy. Raises OutOfMemoryError if none fits."""
        if self.fitting:
            return self.fitting[0]
        least = self.too_large[0]
        raise OutOfMemoryError(
            message(
                None,
                f"no strategy fits: {least.strategy} needs {least.memory.total / 2**30:.1f} GiB on each device",
                expected=f"at most {self.cluster.memory / 2**30:.1f} GiB",
                fix="use more devices, a smaller batch, or allow shard=parameters and recompute",
            )
        )


def search(forecaster: Forecaster, cluster: Cluster, batch: int, required: Constraints | None = None) -> Found:
    """Predict all strategies for `batch` samples per step. Raises ValueError if there are none."""
    required = required or Constraints()
    fitting: list[Prediction] = []
    too_large: list[Prediction] = []
    for data, tensor, pipeline in _factors(forecaster, cluster, required):
        if batch % data == 0:
            for prediction in _predictions(forecaster, cluster, batch, (data, tensor, pipeline), required):
                (fitting if prediction.memory.total <= cluster.memory else too_large).append(prediction)
    if not fitting and not too_large:
        raise ValueError(_nothing(forecaster, cluster, batch))
    fitting.sort(key=lambda p: p.seconds)
    too_large.sort(key=lambda p: p.memory.total)
    return Found(cluster, batch, fitting, too_large)


def _factors(forecaster: Forecaster, cluster: Cluster, required: Constraints) -> Iterator[tuple[int, int, int]]:
    """Yield degrees of data, tensor and pipeline parallelism that use all devices. Layers are split within a node only."""
    recipe, devices = forecaster.recipe, cluster.devices
    for tensor in _divisors(devices):
        whole = tensor == 1 or (recipe.split is not None and recipe.split.allows(tensor))
        near = cluster.used_per_node % tensor == 0 or required.tensor == tensor
        if not whole or not near:
            continue
        for pipeline in _divisors(devices // tensor):
            strategy = Strategy(devices // tensor // pipeline, tensor, pipeline)
            free = replace(required, micro_batch=None, shard=None, recompute=None)
            if pipeline <= max(1, recipe.layers) and free.allows(strategy):
                yield strategy.data, tensor, pipeline


def _predictions(
    forecaster: Forecaster, cluster: Cluster, batch: int, degrees: tuple[int, int, int], required: Constraints
) -> Iterator[Prediction]:
    """Yield predictions for growing micro-batches, until none fits or two in a row are not faster than the best."""
    share = batch // degrees[0]
    best, slower = math.inf, 0
    wanted = [n for n in _divisors(share) if required.micro_batch in (None, n)]
    for samples in wanted:
        if samples > _MOST_SAMPLES or slower == _SLOWER:
            return
        fits = False
        fastest = math.inf
        for recompute in (False, True):
            if (recompute and not forecaster.recipe.layers) or (fits and required.recompute is None):
                continue
            for shard in SHARDINGS if degrees[0] > 1 else SHARDINGS[:1]:
                strategy = Strategy(*degrees, samples, share // samples, shard, recompute)
                prediction = _attempt(forecaster, cluster, strategy) if required.allows(strategy) else None
                if prediction is not None:
                    fits = fits or prediction.memory.total <= cluster.memory
                    fastest = min(fastest, prediction.seconds)
                    yield prediction
        if not fits:
            return
        best, slower = min(best, fastest), 0 if fastest < best else slower + 1


def _attempt(forecaster: Forecaster, cluster: Cluster, strategy: Strategy) -> Prediction | None:
    """Predict a strategy; None if one of its tensors exceeds a device's largest allocation."""
    try:
        return forecaster.predict(strategy, cluster)
    except OutOfMemoryError:
        return None


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _nothing(forecaster: Forecaster, cluster: Cluster, batch: int) -> str:
    """Return the error message for a search space without strategies."""
    split = forecaster.recipe.split
    facts = f"each tensor can be allocated, a batch of {batch} is a multiple of the copies of the model"
    facts += f", {forecaster.recipe.layers} layers can be stages" if forecaster.recipe.layers else ", no stages"
    facts += f", and layers are shared by a divisor of {', '.join(map(str, split.divides))}" if split else ""
    return message(
        None,
        f"no strategy for {cluster.devices} devices and a batch of {batch} satisfies the constraints",
        expected=f"data * tensor * pipeline = {cluster.devices}, where {facts}",
    )
