"""Predicted costs of a strategy on a cluster: the time of a step, its breakdown, and the memory of each device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from polyhal.forecast import collective_times as collectives
from polyhal.forecast.cluster import Cluster
from polyhal.forecast.collective_times import DeviceGroup, group_of
from polyhal.forecast.lanes import LaneTimes, Traffic, run_lanes
from polyhal.forecast.memory import StageMemory, owned_bytes, stage_memory
from polyhal.forecast.optimizer_trace import OptimizerTrace
from polyhal.forecast.pipeline_times import StageTimes, finish_times
from polyhal.forecast.stage import Part, PassSpan, Stage, make_stage, split_layers
from polyhal.forecast.strategy import Strategy
from polyhal.forecast.trace import PassTrace
from polyhal.parallel import BUCKET_BYTES

BUCKET = float(BUCKET_BYTES)
"""Bytes of gradients that are reduced by one collective, as in `DataParallel`."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A strategy with its costs. Times are in seconds per step, of the device that completes last."""

    strategy: Strategy
    seconds: float
    compute: float
    """Kernels, including the optimizer's."""
    tensor: float
    """Tensor-parallel all-reduces, on the critical path."""
    data: float
    """Exposed data-parallel communication: gradients and parameters for which computation waits."""
    hidden: float
    """Data-parallel communication that overlaps with computation."""
    bubble: float
    """Idle time between pipeline stages, including the transfer of activations."""
    memory: StageMemory
    """Memory of the device that needs the most."""
    layers: tuple[int, ...]
    """Number of layers per stage."""

    @property
    def communication_share(self) -> float:
        """Fraction of the step in which a device waits for others."""
        return 1 - self.compute / self.seconds

    @property
    def samples_per_second(self) -> float:
        """Throughput of all devices."""
        return self.strategy.batch / self.seconds


class _Costs:
    """Times of a strategy's collectives."""

    def __init__(self, cluster: Cluster, trace: PassTrace, strategy: Strategy) -> None:
        self.cluster = cluster
        self.strategy = strategy
        self.trace = trace
        self.tensor = group_of(cluster, strategy.tensor, 1)
        self.data = group_of(cluster, strategy.data, strategy.tensor)
        self.stride = strategy.tensor * strategy.data
        self.reduce = partial(collectives.reduce_scatter, cluster, self.data)
        self.all_reduce = partial(collectives.all_reduce, cluster, self.data)
        self.gather = partial(collectives.all_gather, cluster, self.data)

    def sum_tensor(self, nbytes: float) -> float:
        """Return the seconds of a sum over the devices that share a layer."""
        return collectives.all_reduce(self.cluster, self.tensor, nbytes)

    def sums(self) -> dict[Part, float]:
        """Return the seconds of the sums in each part of a forward pass. Split logits require maxima and sums."""
        layer = sum(map(self.sum_tensor, self.trace.sums))
        ends = (self.sum_tensor(n) for n in (self.trace.embedded, self.trace.logits_norm))
        return dict(zip(Part, (next(ends), layer, next(ends)), strict=True))

    def sums_back(self) -> dict[Part, float]:
        """Return the seconds of the sums in each part of a backward pass; recomputed layers repeat their sums."""
        layer = sum(map(self.sum_tensor, self.trace.sums)) * (2 if self.strategy.recompute else 1)
        output = self.sum_tensor(self.trace.sums[0]) if self.trace.logits_norm and self.trace.sums else 0.0
        return {Part.INPUT: 0.0, Part.LAYER: layer, Part.OUTPUT: output}

    def transfer(self) -> float:
        """Return the seconds of an activation's transfer from one stage to the next."""
        part = self.trace.boundary / self.strategy.tensor  # each device sends a part, and the next stage gathers them
        return collectives.send(self.cluster, self.stride, part) + collectives.all_gather(
            self.cluster, self.tensor, self.trace.boundary
        )

    def norm(self) -> float:
        """Return the seconds of the all-reduce of the gradients' squared norm, over all devices with different gradients."""
        different = self.strategy.tensor * self.strategy.pipeline
        different *= self.strategy.data if self.strategy.shard != "none" else 1
        return collectives.all_reduce(self.cluster, group_of(self.cluster, different, 1), 4) if different > 1 else 0.0

    def tied(self) -> float:
        """Return the seconds of the gradient sum of a tied table, between the first and the last stage."""
        if self.strategy.pipeline == 1 or not self.trace.parameters.tied:
            return 0.0
        pair = DeviceGroup(1, 2) if self.stride >= self.cluster.used_per_node else DeviceGroup(2, 1)
        return collectives.all_reduce(self.cluster, pair, self.trace.parameters.tied)


@dataclass(frozen=True, slots=True)
class _StagePasses:
    """A stage with its collectives, in seconds: forward and backward passes, the first forward and the last backward pass."""

    stage: Stage
    sums: float
    """Seconds of tensor-parallel sums in one forward and backward pass."""
    forward: float
    first_forward: float
    backward: float
    last_backward: float
    busy: float
    """Seconds of data-parallel collectives in a step, including overlapped ones."""
    optimizer: float


def predict(
    trace: PassTrace,
    layers: int,
    cluster: Cluster,
    strategy: Strategy,
    optimizer: OptimizerTrace,
    bucket: float = BUCKET,
) -> Prediction:
    """Predict a step from a pass of `strategy.micro_batch` samples with layers split among `strategy.tensor` devices."""
    costs = _Costs(cluster, trace, strategy)
    ranges = split_layers(trace, layers, strategy.pipeline) if strategy.pipeline > 1 else [(0, layers)]
    made = {r: make_stage(trace, layers, *r) for r in set(ranges)}
    passes = {r: _passes(stage, costs, optimizer, bucket) for r, stage in made.items()}
    stages = [passes[r] for r in ranges]
    ends = finish_times([StageTimes(s.forward, s.backward) for s in stages], strategy.passes, costs.transfer())
    delay = max(s.first_forward - s.forward for s in stages)
    tails = [s.last_backward - s.backward + s.optimizer for s in stages]
    tails[0] += costs.tied() if len(stages) > 1 else 0.0
    slowest = max(range(len(stages)), key=lambda i: ends[i] + tails[i])
    seconds = ends[slowest] + tails[slowest] + delay + costs.norm()
    s = stages[slowest]
    compute = strategy.passes * s.stage.seconds + s.optimizer
    tensor = strategy.passes * s.sums
    own = (strategy.passes - 1) * (s.forward + s.backward) + s.first_forward + s.last_backward + s.optimizer
    data = max(0.0, own - compute - tensor)
    memories = [
        stage_memory(trace, s.stage, strategy, optimizer, min(strategy.passes, len(stages) - i), bucket)
        for i, s in enumerate(stages)
    ]
    return Prediction(
        strategy=strategy,
        seconds=seconds,
        compute=compute,
        tensor=tensor,
        data=data,
        hidden=max(0.0, s.busy - data),
        bubble=max(0.0, seconds - compute - tensor - data),
        memory=max(memories, key=lambda m: m.total),
        layers=tuple(stop - start for start, stop in ranges),
    )


def _passes(stage: Stage, costs: _Costs, optimizer: OptimizerTrace, bucket: float) -> _StagePasses:
    """Return the times of a stage's passes, including exposed communication."""
    strategy = costs.strategy
    forward = _with_sums(stage.forward, costs.sums())
    backward = _with_sums(stage.backward, costs.sums_back())
    plain = tuple(sum(s.seconds for s in spans) for spans in (forward, backward))
    total_sums = sum(plain) - stage.seconds
    update = optimizer.seconds(owned_bytes(stage, strategy, bucket))
    if strategy.data == 1:
        return _StagePasses(stage, total_sums, plain[0], plain[0], plain[1], plain[1], 0.0, update)
    if strategy.shard == "parameters":
        there = run_lanes(forward, Traffic(costs.gather, 1))
        back = run_lanes(backward, Traffic(costs.gather, 1, costs.reduce, bucket))
        # Reductions still in flight at the end of a pass delay the gathers of the next pass, but not its first.
        busy = strategy.passes * (there.busy + back.busy)
        steady = max(back.computed, back.busy)
        return _StagePasses(stage, total_sums, there.computed, there.computed, steady, back.end, busy, update)
    sharded = strategy.shard == "optimizer"
    back = run_lanes(backward, Traffic(reduce=costs.reduce if sharded else costs.all_reduce, bucket=bucket))
    there = run_lanes(forward, Traffic(costs.gather)) if sharded else LaneTimes(plain[0], 0.0, 0.0)
    return _StagePasses(stage, total_sums, plain[0], there.computed, plain[1], back.end, there.busy + back.busy, update)


def _with_sums(spans: tuple[PassSpan, ...], sums: dict[Part, float]) -> tuple[PassSpan, ...]:
    """Return spans whose times include the sums on which they depend."""
    return tuple(span._replace(seconds=span.seconds + sums[span.part]) for span in spans)
