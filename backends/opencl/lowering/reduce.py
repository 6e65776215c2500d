"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

The input is seen as at most two kept and two reduced axes; stranger layouts are copied first. When there are too few
results to fill the device, each is made by several work-items, whose partial results a second pass joins. The split
depends on shapes and device only, so results repeat bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from polyhal.backends.common.expressions import register_class
from polyhal.backends.common.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.dialect import convert, type_name
from polyhal.backends.opencl.launch import KernelLaunch, Parameter
from polyhal.backends.opencl.lowering import movement
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec, collapse, contiguous, contiguous_strides, normalize_axes
from polyhal.hal.protocol import Declined, InputSpec, Launch

Operation = Literal["sum", "mean", "prod", "max", "min", "any", "all"]
OPERATIONS: tuple[Operation, ...] = ("sum", "mean", "prod", "max", "min", "any", "all")

_JOINS = {
    "sum": "sum", "mean": "sum", "prod": "prod", "max": "largest", "min": "smallest", "any": "either", "all": "both",
}  # fmt: skip
"""The names in reduce_operations.h."""

_STRIPS = 8
"""Vectors side by side that a CPU takes from each row when it reduces columns."""

_SHORTEST_PART = 1024
"""Elements below which a second pass costs more than it wins."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """Lengths and strides of two kept and two reduced axes; an absent one has length 1 and stride 0."""

    kept: tuple[tuple[int, int], tuple[int, int]]
    reduced: tuple[tuple[int, int], tuple[int, int]]

    @property
    def results(self) -> int:
        return self.kept[0][0] * self.kept[1][0]

    @property
    def length(self) -> int:
        return self.reduced[0][0] * self.reduced[1][0]


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


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """A launch (x, out) for contiguous `out` that holds the kept axes in order.

    `op` is one of OPERATIONS, argmax or argmin. Raises UnsupportedOpError for others.
    """
    arg = op in ("argmax", "argmin")
    if op not in OPERATIONS and not arg:
        raise UnsupportedOpError(message(op, "there is no such reduction", expected=", ".join(OPERATIONS)))
    found = _canonical(x, axes, ordered=arg)
    if found is None:
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        view = Spec(x.dtype, tuple(x.shape[a] for a in order), tuple(x.strides[a] for a in order), x.aligned)
        kept = math.prod(view.shape[: x.ndim - len(axes)])
        flat = contiguous(x.dtype, (kept, view.size // kept))
        inner = build(runtime, op, flat, out, (1,))
        return _after_copy(movement.copy(runtime, view, contiguous(x.dtype, view.shape)), view, flat, inner)
    if arg:
        return _positions(runtime, op, x.dtype, found, out.dtype)
    return _passes(runtime, op, x, found, out.dtype)


def _after_copy(copy: Launch, view: Spec, flat: Spec, inner: Launch) -> Launch:
    """`inner` on a contiguous copy of the input, which takes the first workspace."""
    dense = contiguous(view.dtype, view.shape)

    def run(x: Ref, out: Ref, temporary: Any, *rest: Any) -> None:
        copy(Ref(x.handle, view, x.offset), Ref(temporary, dense))
        inner(Ref(temporary, flat), out, *rest)

    return LaunchSequence(inner.name, [run], (flat.nbytes, *inner.workspace))


def _canonical(x: Spec, axes: tuple[int, ...], ordered: bool = False) -> _Axes | None:
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
    return _Axes(_pair(lengths, steps), _pair(reduced_lengths, reduced_steps))


def _pair(lengths: tuple[int, ...], steps: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    both = [(1, 0)] * (2 - len(lengths)) + list(zip(lengths, steps, strict=True))
    return both[0], both[1]


def _passes(runtime: Runtime, op: str, x: Spec, axes: _Axes, out: DType) -> Launch:
    by_rows = axes.reduced[1][1] == 1 or axes.kept[1][1] != 1 or axes.kept[1][0] == 1
    make = _rows if by_rows else _columns
    held = accumulator(op, x.dtype)  # type: ignore[arg-type]
    parts = _parts(runtime, axes, by_rows, x)
    if parts == 1:
        return make(runtime, op, x.dtype, x.aligned, axes, out, held, 1, axes.length, (Tensor(0), Tensor(1)))
    first = make(runtime, op, x.dtype, x.aligned, axes, held, held, parts, 0, (Tensor(0), Workspace(2)))
    joined = _Axes(((1, 0), (axes.results, parts)), ((1, 0), (parts, 1)))
    second = _rows(runtime, op, held, True, joined, out, held, 1, axes.length, (Workspace(2), Tensor(1)))
    return LaunchSequence(first.name, [first, second], (parts * axes.results * held.itemsize,))


def _parts(runtime: Runtime, axes: _Axes, by_rows: bool, x: Spec) -> int:
    features = runtime.features
    if features.cpu:
        workers = 4 * features.compute_units
        busy = axes.results if by_rows else ceil_div(axes.results, _STRIPS * features.vector_width)
    else:
        workers = 128 * features.compute_units
        busy = ceil_div(axes.results * _lanes(runtime, axes.length), 256) if by_rows else ceil_div(axes.results, 256)
    return max(1, min(workers // max(busy, 1), axes.length // _SHORTEST_PART, 16384))


def _lanes(runtime: Runtime, length: int) -> int:
    """Work-items that share one row."""
    if runtime.features.cpu:
        return 1
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(length, 4)))


def _definitions(op: str, source: DType, target: DType, held: DType, divides: bool) -> dict[str, str | int | bool]:
    from_class, to_class = register_class(source), register_class(held)
    if op in ("any", "all"):
        mapped = convert("v", source, dtypes.bool_, from_class, "int")
    else:
        mapped = convert("v", source, held, from_class, to_class)
    return {
        "DTYPE": source.name,
        "OUT_DTYPE": target.name,
        "ACCUMULATOR": type_name(to_class),
        "MAP(v)": mapped,
        "OPERATION": _JOINS[op],
        "IDENTITY": _identity(op, held),
        "DIVIDE": divides,
    }


def _identity(op: str, held: DType) -> str:
    if op in ("max", "min"):
        if held.kind == "float":
            return "-INFINITY" if op == "max" else "INFINITY"
        limits = {"int32": "INT", "int64": "LONG", "uint32": "UINT", "uint64": "ULONG"}[held.name]
        return f"{limits}_MIN" if op == "max" and held.kind == "int" else "0" if op == "max" else f"{limits}_MAX"
    return {"sum": "0", "mean": "0", "prod": "1", "any": "0", "all": "1"}[op]


def _geometry(axes: _Axes, parts: int, part_length: int, divisor: int, held: DType) -> list[Parameter]:
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    return [
        Constant(k0, "ulong"), Constant(k0s, "long"), Constant(k1, "ulong"), Constant(k1s, "long"),
        Constant(r0s, "long"), Constant(r1, "ulong"), Constant(r1s, "long"),
        Constant(axes.length, "ulong"), Constant(parts, "ulong"), Constant(part_length, "ulong"),
        Constant(divisor, type_name(register_class(held))),  # type: ignore[arg-type]
    ]  # fmt: skip


def _memory_definitions(operands: tuple[Parameter, Parameter]) -> dict[str, str | int | bool]:
    """Workspace has no offset parameter, tensors have."""
    return {
        "X_IS_WORKSPACE": isinstance(operands[0], Workspace),
        "OUT_IS_WORKSPACE": isinstance(operands[1], Workspace),
    }


def _rows(
    runtime: Runtime, op: str, source: DType, aligned: bool, axes: _Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter],
) -> KernelLaunch:  # fmt: skip
    features = runtime.features
    lanes = _lanes(runtime, ceil_div(axes.length, parts))
    unit = axes.reduced[1][1] == 1
    if features.cpu:
        width, whole = (features.vector_width if unit and axes.reduced[1][0] >= features.vector_width else 1), False
    else:
        steps = (axes.kept[0][1], axes.kept[1][1], axes.reduced[0][1], axes.reduced[1][0])
        whole = unit and aligned and all(s % 4 == 0 for s in steps) and ceil_div(axes.length, parts) >= 4 * lanes
        width = 4 if whole else 1
    part_length = round_up(ceil_div(axes.length, parts), width * lanes)
    group = features.group_size if not features.cpu else 64 if axes.results * parts >= 8192 else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "LANES": lanes, "GROUP": group,
    }  # fmt: skip
    parameters = [*operands, *_geometry(axes, parts, part_length, max(total, 1), held)]
    return runtime.launch(
        f"reduce.{op}", "reduce_rows", definitions, parameters, (axes.results * parts * lanes,), (group,)
    )


def _columns(
    runtime: Runtime, op: str, source: DType, aligned: bool, axes: _Axes, target: DType, held: DType, parts: int,
    total: int, operands: tuple[Parameter, Parameter],
) -> KernelLaunch:  # fmt: skip
    features = runtime.features
    columns = axes.kept[1][0]
    if features.cpu:
        width, whole = next((w for w in (features.vector_width, 4) if columns >= w), 1), False
    else:
        steps = (axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1])
        whole = aligned and columns % 4 == 0 and all(s % 4 == 0 for s in steps) and axes.results >= 2**16
        width = 4 if whole else 1
    strips = _STRIPS if features.cpu and columns >= _STRIPS * width else 1
    chunks = ceil_div(columns, strips * width)
    group = features.group_size if not features.cpu else 1
    divides = op == "mean" and total > 0
    definitions = {
        **_definitions(op, source, target, held, divides), **_memory_definitions(operands),
        "WIDTH": width, "ALIGNED": whole, "STRIPS": strips,
    }  # fmt: skip
    parameters = [*operands, *_geometry(axes, parts, ceil_div(axes.length, parts), max(total, 1), held)]
    items = axes.kept[0][0] * chunks * parts
    return runtime.launch(f"reduce.{op}", "reduce_columns", definitions, parameters, (items,), (group,))


def _positions(runtime: Runtime, op: str, source: DType, axes: _Axes, target: DType) -> KernelLaunch:
    lanes = _lanes(runtime, axes.length)
    group = runtime.features.group_size if not runtime.features.cpu else 64 if axes.results >= 8192 else 1
    definitions: dict[str, str | int | bool] = {
        "DTYPE": source.name, "OUT_DTYPE": target.name, "BETTER": ">" if op == "argmax" else "<",
        "LANES": lanes, "GROUP": group,
    }  # fmt: skip
    geometry = _geometry(axes, 1, axes.length, 1, source)[:-3]
    return runtime.launch(
        f"reduce.{op}", "reduce_arg", definitions, [Tensor(0), Tensor(1), *geometry], (axes.results * lanes,), (group,)
    )


# --- ops of the framework -------------------------------------------------------------------------------------------


def _lowering(op: str) -> Callable[..., Launch | Declined]:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        x = inputs[0]
        assert isinstance(x, Spec)
        axes = normalize_axes(params.get("axis"), x.ndim)
        if not axes:
            return Declined("no axis is reduced")
        return build(runtime, op, x, outputs[0], axes)

    return lower


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {op: _lowering(op) for op in (*OPERATIONS, "argmax", "argmin")}
