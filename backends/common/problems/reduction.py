"""Reduction problems: at most two kept and two reduced axes after merging, and the dtype of partial results.

A backend builds the launches for such axes (`ReductionBuilders`); inputs with more axes are made contiguous first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.launch import joint_name
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec, collapse, contiguous, contiguous_strides, normalize_axes
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Operation = Literal["sum", "mean", "prod", "max", "min", "any", "all"]
OPERATIONS: tuple[Operation, ...] = ("sum", "mean", "prod", "max", "min", "any", "all")
POSITIONS = ("argmax", "argmin")

COMBINE: Mapping[Operation, str] = {
    "sum": "sum",
    "mean": "sum",
    "prod": "prod",
    "max": "largest",
    "min": "smallest",
    "any": "either",
    "all": "both",
}
"""Shader function that combines two partial results."""

Axis = tuple[int, int]
"""Length and stride of an axis."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Two kept and two reduced axes, the inner one last; missing axes have length 1 and stride 0."""

    kept: tuple[Axis, Axis]
    reduced: tuple[Axis, Axis]

    @property
    def results(self) -> int:
        """Number of elements of the output."""
        return self.kept[0][0] * self.kept[1][0]

    @property
    def length(self) -> int:
        """Number of terms of each result."""
        return self.reduced[0][0] * self.reduced[1][0]

    @property
    def by_rows(self) -> bool:
        """True if memory is contiguous along the terms of a result (row reduction), not across results (column reduction)."""
        return self.reduced[1][1] == 1 or self.kept[1][1] != 1 or self.kept[1][0] == 1


@dataclass(frozen=True, slots=True)
class ReductionBuilders:
    """A backend's builders of launches (x, out); `out` is contiguous and holds the kept axes in order."""

    copy: Callable[[Any, Spec, Spec], Launch]
    """Builder (runtime, source, target)."""
    values: Callable[[Any, Operation, Spec, Axes, Spec], Launch]
    """Builder (runtime, op, x, axes, out)."""
    positions: Callable[[Any, str, Spec, Axes, Spec], Launch | Declined]
    """Builder (runtime, "argmax" or "argmin", x, axes, out)."""


def accumulator(op: Operation, dtype: DType) -> DType:
    """Return the dtype of partial results."""
    if op in ("any", "all"):
        return dtypes.int32
    if op in ("sum", "mean", "prod"):
        return dtypes.accumulator(dtype) if op != "mean" or dtype.kind == "float" else dtypes.float32
    return {
        "float": dtypes.float32,
        "double": dtypes.float64,
        "long": dtypes.int64,
        "ulong": dtypes.uint64,
        "uint": dtypes.uint32,
    }.get(register_class(dtype), dtypes.int32)


def build(
    builders: ReductionBuilders, runtime: Any, op: str, x: Spec, out: Spec, axes: tuple[int, ...]
) -> Launch | Declined:
    """Build a launch (x, out) for contiguous `out` that holds the kept axes in order.

    `op` is one of OPERATIONS, which are never declined, or of POSITIONS. Raises UnsupportedOpError for others.
    """
    if op not in OPERATIONS and op not in POSITIONS:
        raise UnsupportedOpError(message(op, "unknown reduction", expected=", ".join(OPERATIONS)))
    merged = _merge(x, axes, ordered=op in POSITIONS)
    if merged is None:
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        view = Spec(x.dtype, tuple(x.shape[a] for a in order), tuple(x.strides[a] for a in order), x.aligned)
        kept = math.prod(view.shape[: x.ndim - len(axes)])
        flat = contiguous(x.dtype, (kept, view.size // kept))
        inner = build(builders, runtime, op, flat, out, (1,))
        if isinstance(inner, Declined):
            return inner
        return _after_copy(builders.copy(runtime, view, contiguous(x.dtype, view.shape)), view, flat, inner)
    return (builders.positions if op in POSITIONS else builders.values)(runtime, op, x, merged, out)  # type: ignore[arg-type]


def _after_copy(copy: Launch, view: Spec, flat: Spec, inner: Launch) -> Launch:
    """Run `inner` on a contiguous copy of the input in the first workspace."""
    dense = contiguous(view.dtype, view.shape)

    def run(x: Ref, out: Ref, workspace: Any, *rest: Any) -> None:
        copy(Ref(x.handle, view, x.offset), Ref(workspace, dense))
        inner(Ref(workspace, flat), out, *rest)

    return SimpleLaunch(joint_name((copy, inner)), run, (flat.nbytes, *inner.workspace))


def _merge(x: Spec, axes: tuple[int, ...], ordered: bool) -> Axes | None:
    """Merge the axes of `x` to two kept and two reduced ones; None if more remain.

    `ordered` keeps the order of the reduced axes, which argmax and argmin require.
    """
    kept_axes = [i for i in range(x.ndim) if i not in axes]
    kept_shape = tuple(x.shape[i] for i in kept_axes)
    kept_strides = tuple(x.strides[i] for i in kept_axes)
    lengths, (steps, _) = collapse(kept_shape, (kept_strides, contiguous_strides(kept_shape)))
    # If the order does not matter, the smallest stride comes last for contiguous access.
    order = axes if ordered else sorted(axes, key=lambda a: -abs(x.strides[a]))
    reduced_lengths, (reduced_steps,) = collapse(
        tuple(x.shape[a] for a in order), (tuple(x.strides[a] for a in order),)
    )
    if len(lengths) > 2 or len(reduced_lengths) > 2:
        return None
    return Axes(_pair(lengths, steps), _pair(reduced_lengths, reduced_steps))


def _pair(lengths: tuple[int, ...], steps: tuple[int, ...]) -> tuple[Axis, Axis]:
    both = [(1, 0)] * (2 - len(lengths)) + list(zip(lengths, steps, strict=True))
    return both[0], both[1]


def lowerings(builders: ReductionBuilders) -> dict[str, LoweringFunction]:
    """Return the lowering functions of all reductions."""
    return {op: _lowering(builders, op) for op in (*OPERATIONS, *POSITIONS)}


def _lowering(builders: ReductionBuilders, op: str) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x = inputs[0]
        assert isinstance(x, Spec)
        axes = normalize_axes(params.get("axis"), x.ndim)
        if not axes:
            return Declined("no axis is reduced")
        return build(builders, runtime, op, x, outputs[0], axes)

    return lower
