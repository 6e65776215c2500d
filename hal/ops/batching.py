"""Batching rules: how an op is applied to a whole batch of calls at once, as `vmap` does.

A rule receives a `BatchedCall`, whose batched inputs have the batch as a further first axis, and returns the result, or
results, with the batch as the first axis. An op without a rule is batched through its decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef


@dataclass(frozen=True, slots=True)
class BatchedCall:
    """A call of an op some of whose inputs are batched."""

    op: OpDef
    inputs: tuple[Any, ...]
    """Arrays, numbers and None."""
    batched: tuple[bool, ...]
    """Which inputs have the batch as their first axis."""
    size: int
    """The number of calls in the batch."""
    params: Mapping[str, Any]
    """As the caller gave them."""

    def rank(self, i: int) -> int:
        """The number of axes of input `i` in one call."""
        return int(getattr(self.inputs[i], "ndim", 0)) - self.batched[i]

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of input `i` in one call."""
        shape: tuple[int, ...] = self.inputs[i].shape
        return shape[1:] if self.batched[i] else shape

    def expanded(self, i: int) -> Any:
        """Input `i` with a batch axis, which repeats it if it has none."""
        from polyhal.hal.ops.layout.views import broadcast_to

        x = self.inputs[i]
        return x if self.batched[i] or not hasattr(x, "ndim") else broadcast_to(x, (self.size, *x.shape))

    def numbers(self, i: int) -> Any:
        """The numbers of the calls, with the dtype and on the device of input `i`."""
        from polyhal.hal.ops.layout.creation import arange

        x = self.inputs[i]
        # A value that is traced has no device: its graph runs on any.
        return arange(0, self.size, 1, x.dtype, device=getattr(x, "device", None))

    def apply(self, *inputs: Any, **changed: Any) -> Any:
        """Apply the op to other inputs, with some parameters changed."""
        return dispatch.apply(self.op, inputs, tuple({**self.params, **changed}.values()))


BatchingRule = Callable[[BatchedCall], Any]
"""May return NotImplemented, which leaves the call to the decomposition."""


def pointwise(call: BatchedCall) -> Any:
    """Align the axes of the inputs from the last one on, so that they broadcast as in one call."""
    return call.apply(*(_aligned(call, i) for i in range(len(call.inputs))))


def _aligned(call: BatchedCall, i: int) -> Any:
    from polyhal.hal.ops.layout.views import reshape

    x = call.inputs[i]
    if not call.batched[i]:
        return x
    missing = max(call.rank(k) for k in range(len(call.inputs))) - call.rank(i)
    return reshape(x, (call.size, *(1,) * missing, *x.shape[1:])) if missing else x


def leading(call: BatchedCall) -> Any:
    """Pass the batch as one more leading axis, which the op ignores."""
    return call.apply(*(call.expanded(i) for i in range(len(call.inputs))))


def first_leading(call: BatchedCall) -> Any:
    """As `leading`, for ops whose other inputs are shared by all positions along the leading axes."""
    return NotImplemented if any(call.batched[1:]) else call.apply(*call.inputs)


def of_rows(call: BatchedCall) -> Any:
    """Pass the batch as one more leading axis of all inputs but `weight` and `bias`, which every row shares."""
    shared = [name in ("weight", "bias") for name in call.op.schema.inputs]
    if any(b and s for b, s in zip(call.batched, shared, strict=True)):
        return NotImplemented
    return call.apply(*(x if shared[i] else call.expanded(i) for i, x in enumerate(call.inputs)))


def along_axis(call: BatchedCall) -> Any:
    """Count the parameter `axis` from the axis after the batch. Inputs of the first one's rank get a batch axis."""
    rank = call.rank(0)
    if any(b and call.rank(i) != rank for i, b in enumerate(call.batched)):
        return NotImplemented
    axis = call.params["axis"]
    inputs = tuple(call.expanded(i) if call.rank(i) == rank else x for i, x in enumerate(call.inputs))
    if axis is None or not rank:
        return NotImplemented
    shifted = tuple(a % rank + 1 for a in axis) if isinstance(axis, (tuple, list)) else axis % rank + 1
    return call.apply(*inputs, axis=shifted)


def first_along_axis(call: BatchedCall) -> Any:
    """As `along_axis`, for ops whose other inputs are shared by all positions along the other axes."""
    if any(call.batched[1:]):
        return NotImplemented
    return call.apply(*call.inputs, axis=call.params["axis"] % call.rank(0) + 1)


def reduction(call: BatchedCall) -> Any:
    """As `along_axis`; without an axis, all axes of one call are reduced."""
    from polyhal.hal.ops.layout.views import reshape

    rank = call.rank(0)
    if call.params["axis"] is not None and rank:
        return along_axis(call)
    flat = reshape(call.inputs[0], (call.size, math.prod(call.shape(0))))
    keepdims = call.params.get("keepdims", False)
    out = call.apply(flat, axis=1, **({"keepdims": False} if "keepdims" in call.params else {}))
    return reshape(out, (call.size, *(1,) * rank)) if keepdims else out


BATCHING: dict[str, BatchingRule] = {"leading": leading, "pointwise": pointwise}
"""Rules that the kernels of users name."""
