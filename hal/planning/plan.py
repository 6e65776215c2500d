"""Plans: ops resolved for fixed specs, and the cache in which the hot path finds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Ref, Spec
from polyhal.hal.memory.pool import bucket

if TYPE_CHECKING:
    from polyhal.hal.planning.resolution import Resolution

Run = Callable[[Sequence[Any], Sequence[Ref]], None]
"""Runs an op: takes inputs (refs, numbers, None) and outputs."""


class OpPlan:
    """How to run one op for fixed specs."""

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
        """`single` is a launch that takes the inputs and the only output; `view` the offset of a view in its input."""
        self.outputs = outputs
        self.run = run
        self.resolution = resolution
        self.single = single
        self.view = view
        self.tuple_result = tuple_result
        self.buckets = tuple(bucket(s.nbytes) for s in outputs)
        self.bucket = self.buckets[0] if outputs else 0
        self.spec = outputs[0] if outputs else None


class PlanCache(dict[Any, OpPlan]):
    """The plans of one device by call. A full cache drops its oldest quarter, because shapes may change for ever."""

    capacity = 8192

    def __setitem__(self, key: Any, plan: OpPlan) -> None:
        if len(self) >= self.capacity:
            for old in list(self)[: self.capacity // 4]:
                self.pop(old, None)
        super().__setitem__(key, plan)
