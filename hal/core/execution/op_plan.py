"""Plans of ops resolved for fixed specs, and their cache, which the hot path looks up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.layout import Ref, Spec

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.resolution import Resolution
    from polyhal.hal.device import Device
    from polyhal.hal.protocol import Launch

V = TypeVar("V")
Run = Callable[[Sequence[Any], Sequence[Ref]], None]
"""Callable that runs an op, given inputs (refs, numbers, None) and outputs."""


def launch_run(device: Device, launch: Launch) -> Run:
    """Return a run of one launch, with temporaries from the pool."""
    if not launch.workspace:
        return lambda args, outs: launch(*args, *outs)
    sizes = [bucket(n) for n in launch.workspace]
    take = device.pool.take

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        buffers = [take(n) for n in sizes]
        launch(*args, *outs, *[b.handle for b in buffers])

    return run


class OpPlan:
    """Plan of one op for fixed specs."""

    __slots__ = ("bucket", "buckets", "outputs", "resolution", "run", "single", "spec", "tuple_result", "view")

    def __init__(
        self,
        outputs: tuple[Spec, ...],
        run: Run,
        resolution: Resolution,
        *,
        single: Callable[..., None] | None = None,
        view: int | None = None,
        tuple_result: bool = False,
    ) -> None:
        """Create a plan; `single` is a launch that takes the inputs and the only output, `view` the offset of a view."""
        self.outputs = outputs
        self.run = run
        self.resolution = resolution
        self.single = single
        self.view = view
        self.tuple_result = tuple_result
        self.buckets = tuple(bucket(s.nbytes) for s in outputs)
        self.bucket = self.buckets[0] if outputs else 0
        self.spec = outputs[0] if outputs else None


class BoundedCache(dict[Any, V]):
    """Cache that evicts its oldest entries, a quarter of its capacity, when it is full: shapes may change indefinitely."""

    capacity = 8192
    """Maximum total weight of the entries."""

    def __init__(self) -> None:
        super().__init__()
        self._weight = 0
        """Upper bound of the total weight: replaced or removed entries count until the cache is full."""

    def weight(self, value: V) -> int:
        """Return the weight of an entry."""
        return 1

    def __setitem__(self, key: Any, value: V) -> None:
        weight = self.weight(value)
        if self._weight + weight > self.capacity:
            self._make_room(weight)
        self._weight += weight
        super().__setitem__(key, value)

    def _make_room(self, weight: int) -> None:
        weights = [(key, self.weight(value)) for key, value in list(self.items())]
        total = sum(w for _, w in weights)
        if total + weight > self.capacity:
            for key, freed in weights:
                if total + weight <= self.capacity * 3 // 4:
                    break
                self.pop(key, None)
                total -= freed
        self._weight = total


_RESOLVED_OPS = 16384
"""Maximum number of resolved ops in a cache, a few KB each. A decomposition counts as its dozens or hundreds of ops."""


class PlanCache(BoundedCache[OpPlan]):
    """Plans of one device by call."""

    capacity = _RESOLVED_OPS

    def __init__(self) -> None:
        super().__init__()
        self.parts = PartCache()
        """Runs of decomposition nodes by signature: decompositions have many nodes in common."""

    def weight(self, value: OpPlan) -> int:
        """Return the number of ops that the plan runs, without the ops of its parts, which other plans share."""
        return 1 + len(value.resolution.parts)

    def clear(self) -> None:
        """Drop all plans and the parts that they share."""
        super().clear()
        self.parts.clear()


class PartCache(BoundedCache[tuple[Run, "Resolution"]]):
    """Runs of decomposition nodes, by signature."""

    capacity = _RESOLVED_OPS

    def weight(self, value: tuple[Run, Resolution]) -> int:
        """Return the number of ops that the node runs, without the ops of its own parts."""
        return 1 + len(value[1].parts)
