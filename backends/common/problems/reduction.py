"""Reductions as every shader language sees them: at most two kept and two reduced axes, and what partial results are held in.

A backend makes the launches for such axes (`Makers`); stranger layouts are copied first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec, collapse, contiguous, contiguous_strides, normalize_axes
from polyhal.hal.protocol import Declined, InputSpec, Launch

Operation = Literal["sum", "mean", "prod", "max", "min", "any", "all"]
OPERATIONS: tuple[Operation, ...] = ("sum", "mean", "prod", "max", "min", "any", "all")
POSITIONS = ("argmax", "argmin")

JOINS: Mapping[Operation, str] = {
    "sum": "sum", "mean": "sum", "prod": "prod", "max": "largest", "min": "smallest", "any": "either", "all": "both",
}  # fmt: skip
"""How two partial results are joined: the names in the shaders."""

Axis = tuple[int, int]
"""Length and stride."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Two kept and two reduced axes, the inner one last; an absent one has length 1 and stride 0."""

    kept: tuple[Axis, Axis]
    reduced: tuple[Axis, Axis]

    @property
    def results(self) -> int:
        return self.kept[0][0] * self.kept[1][0]

    @property
    def length(self) -> int:
        """Terms of each result."""
        return self.reduced[0][0] * self.reduced[1][0]

    @property
    def by_rows(self) -> bool:
        """Whether neighbouring terms, rather than the terms of neighbouring results, lie next to each other."""
        return self.reduced[1][1] == 1 or self.kept[1][1] != 1 or self.kept[1][0] == 1


@dataclass(frozen=True, slots=True)
class Makers:
    """How a backend makes the launches (x, out); `out` is contiguous and holds the kept axes in order."""

    copy: Callable[[Any, Spec, Spec], Launch]
    """(runtime, source, target)"""
    values: Callable[[Any, Operation, Spec, Axes, Spec], Launch]
    """(runtime, op, x, axes, out)"""
    positions: Callable[[Any, str, Spec, Axes, Spec], Launch | Declined]
    """(runtime, "argmax" or "argmin", x, axes, out)"""


def accumulator(op: Operation, dtype: DType) -> DType:
    """The dtype in which partial results are kept."""
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


def build(makers: Makers, runtime: Any, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch | Declined:
    """A launch (x, out) for contiguous `out` that holds the kept axes in order.

    `op` is one of OPERATIONS, which are never declined, or of POSITIONS. Raises UnsupportedOpError for others.
    """
    if op not in OPERATIONS and op not in POSITIONS:
        raise UnsupportedOpError(message(op, "there is no such reduction", expected=", ".join(OPERATIONS)))
    found = _merged(x, axes, ordered=op in POSITIONS)
    if found is None:
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        view = Spec(x.dtype, tuple(x.shape[a] for a in order), tuple(x.strides[a] for a in order), x.aligned)
        kept = math.prod(view.shape[: x.ndim - len(axes)])
        flat = contiguous(x.dtype, (kept, view.size // kept))
        inner = build(makers, runtime, op, flat, out, (1,))
        if isinstance(inner, Declined):
            return inner
        return _after_copy(makers.copy(runtime, view, contiguous(x.dtype, view.shape)), view, flat, inner)
    return (makers.positions if op in POSITIONS else makers.values)(runtime, op, x, found, out)  # type: ignore[arg-type]


def _after_copy(copy: Launch, view: Spec, flat: Spec, inner: Launch) -> Launch:
    """`inner` on a contiguous copy of the input, which takes the first workspace."""
    dense = contiguous(view.dtype, view.shape)

    def run(x: Ref, out: Ref, temporary: Any, *rest: Any) -> None:
        copy(Ref(x.handle, view, x.offset), Ref(temporary, dense))
        inner(Ref(temporary, flat), out, *rest)

    return LaunchSequence(inner.name, [run], (flat.nbytes, *inner.workspace))


def _merged(x: Spec, axes: tuple[int, ...], ordered: bool) -> Axes | None:
    """The axes of `x` merged to two kept and two reduced ones; None where there are more.

    `ordered` keeps the reduced axes in their order, as positions need it.
    """
    kept_axes = [i for i in range(x.ndim) if i not in axes]
    kept_shape = tuple(x.shape[i] for i in kept_axes)
    kept_strides = tuple(x.strides[i] for i in kept_axes)
    lengths, (steps, _) = collapse(kept_shape, (kept_strides, contiguous_strides(kept_shape)))
    # Where the order of reduced axes does not matter, the smallest stride last makes runs of neighbours.
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


def lowerings(makers: Makers) -> dict[str, LoweringFunction]:
    """The lowering functions of all reductions."""
    return {op: _lowering(makers, op) for op in (*OPERATIONS, *POSITIONS)}


def _lowering(makers: Makers, op: str) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x = inputs[0]
        assert isinstance(x, Spec)
        axes = normalize_axes(params.get("axis"), x.ndim)
        if not axes:
            return Declined("no axis is reduced")
        return build(makers, runtime, op, x, outputs[0], axes)

    return lower
