"""Forecasts of a model on a cluster: predictions of strategies from passes that are captured once each."""

from __future__ import annotations

from polyhal import Device
from polyhal.forecast.cluster import Cluster
from polyhal.forecast.optimizer_trace import OptimizerTrace, trace_optimizer
from polyhal.forecast.prediction import Prediction, predict
from polyhal.forecast.recipes import ModelRecipe
from polyhal.forecast.strategy import Strategy
from polyhal.forecast.trace import PassTrace, TraceKey, trace_pass
from polyhal.hal import dtypes
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import message

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of training: float32, or a half dtype for automatic mixed precision."""


class Forecaster:
    """Predicts training steps of one model on devices of one kind."""

    def __init__(self, recipe: ModelRecipe, cluster: Cluster, dtype: str = "float32") -> None:
        """Raises ValueError for a dtype that training does not support."""
        if dtype not in DTYPES:
            raise ValueError(message(None, f"training in {dtype!r}", expected=", ".join(DTYPES)))
        self.recipe = recipe
        self.cluster = cluster
        self.dtype = as_dtype(dtype)
        self._device: Device = cluster.open()
        self._traces: dict[TraceKey, PassTrace] = {}
        self._optimizer: OptimizerTrace | None = None

    def trace(self, key: TraceKey) -> PassTrace:
        """Return a captured pass, from the cache if possible."""
        found = self._traces.get(key)
        if found is None:
            found = self._traces[key] = trace_pass(self.recipe, self._device, key, self.dtype)
        return found

    @property
    def optimizer(self) -> OptimizerTrace:
        """Costs of an optimizer step."""
        if self._optimizer is None:
            model = self.recipe.build(min(self.recipe.layers, 2), self._device)
            self._optimizer = trace_optimizer(model, self._device)
        return self._optimizer

    def predict(self, strategy: Strategy, cluster: Cluster | None = None) -> Prediction:
        """Predict a step.

        Raises ValueError for a strategy that the model does not support, and OutOfMemoryError if a tensor of a pass exceeds
        the largest allocation of a device.
        """
        recipe = self.recipe
        if strategy.pipeline > max(1, recipe.layers):
            expected = f"1 to {max(1, recipe.layers)}"
            raise ValueError(message(None, f"{strategy.pipeline} stages of {recipe.name}", expected=expected))
        key = TraceKey(
            strategy.micro_batch, strategy.tensor, strategy.recompute and recipe.layers > 0, strategy.passes > 1
        )
        return predict(self.trace(key), recipe.layers, cluster or self.cluster, strategy, self.optimizer)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        sizes = self.trace(TraceKey(1)).parameters
        nbytes = sum(sizes.before) + self.recipe.layers * sum(sizes.layer) + sum(sizes.after)
        return nbytes // dtypes.float32.itemsize

    def utilization(self, prediction: Prediction) -> float | None:
        """Return the model FLOPs utilization (MFU): a fraction of the devices' peak rate; None if the peak is unknown.

        6 operations per parameter and token, and attention's: Chowdhery et al., arXiv:2204.02311, appendix B.
        """
        recipe = self.recipe
        if not recipe.layers or not self.cluster.peak:
            return None
        trace, word = self.trace(TraceKey(1)), dtypes.float32.itemsize
        sizes = trace.parameters
        used = (recipe.layers * sum(sizes.layer) + sum(sizes.after) + sizes.tied) // word
        length = recipe.units_per_sample
        width = trace.boundary // (word * length)
        operations = length * (6 * used + 12 * recipe.layers * width * length)
        peak = self.cluster.peak
        rate = peak.get(self.dtype.name, peak["float32"]) * prediction.strategy.devices
        return float(operations * prediction.samples_per_second / rate)
