"""The memory of a stage on one device: parameters, optimizer state and gradients, sharded or not, and activations."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.forecast.optimizer_trace import OptimizerTrace
from polyhal.forecast.ownership import largest_share
from polyhal.forecast.stage import PassSpan, Stage
from polyhal.forecast.strategy import Strategy
from polyhal.forecast.trace import PassTrace


class StageMemory(NamedTuple):
    """Bytes by kind."""

    parameters: float
    state: float
    gradients: float
    """Gradients live at the peak of temporaries."""
    temporaries: float
    """Activations, workspace and other temporaries of passes."""
    communication: float
    """Buckets, gathered parameters, and activations in flight."""
    fixed: float
    """Arguments, results and constants."""

    @property
    def total(self) -> float:
        """Sum of all kinds."""
        return sum(self)


def stage_memory(
    trace: PassTrace, stage: Stage, strategy: Strategy, optimizer: OptimizerTrace, in_flight: int, bucket: float
) -> StageMemory:
    """Return the peak memory of a stage with `in_flight` micro-batches between their two passes."""
    data = strategy.data
    whole = float(stage.parameters)
    share = owned_bytes(stage, strategy, bucket)
    # With a sharded optimizer, a device has copies of all parameters, in addition to the parameters that it owns.
    parameters = share if strategy.shard == "parameters" else whole + share if share < whole else whole
    peak, gradients = _peak(trace, stage, strategy, bucket)
    waiting = (in_flight - 1) * stage.layers * trace.kept
    parcels = 2.0 * in_flight * trace.boundary if strategy.pipeline > 1 else 0.0
    if data > 1:
        parcels += 2 * min(bucket, stage.parameters)
    if strategy.shard == "parameters" and data > 1:
        # The current span, and the next one, whose parameters are being gathered.
        parcels += 2 * max(span.parameters for span in (*stage.forward, *stage.backward))
    return StageMemory(
        parameters=parameters,
        state=share * optimizer.state_per_byte,
        gradients=gradients,
        temporaries=peak * trace.overhead + waiting,
        communication=parcels,
        fixed=trace.fixed,
    )


def owned_bytes(stage: Stage, strategy: Strategy, bucket: float) -> float:
    """Return the bytes of the parameters that a device updates, for the device that updates the most."""
    if strategy.data == 1 or strategy.shard == "none":
        return float(stage.parameters)
    if strategy.shard == "parameters":
        return stage.parameters / strategy.data
    return float(largest_share(stage.sizes, strategy.data, bucket))


def _peak(trace: PassTrace, stage: Stage, strategy: Strategy, bucket: float) -> tuple[float, float]:
    """Return the bytes of temporaries and of gradients at the peak of their sum."""
    best = (0.0, 0.0)
    complete = 0
    for back, spans in ((False, stage.forward), (True, stage.backward)):
        for span in spans:
            before, own = complete, float(span.own + span.below * trace.kept)
            complete += sum(e.nbytes for e in span.gradients) if back else 0
            best = max(best, (own, _gradients(stage, strategy, span, (before, complete), bucket)), key=sum)
    return best


def _gradients(stage: Stage, strategy: Strategy, span: PassSpan, complete: tuple[int, int], bucket: float) -> float:
    """Return the bytes of gradients at a span's peak; `complete` are those computed before its start and before its end."""
    shared = strategy.shard if strategy.data > 1 else "none"
    if shared == "parameters":
        return stage.gradients / strategy.data + sum(e.nbytes for e in span.gradients)
    if strategy.passes > 1:
        return float(stage.gradients)
    if shared == "optimizer":
        return complete[1] / strategy.data + min(complete[1], bucket)
    return float(complete[0] + span.own_with_gradients - span.own)
