"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

If there are too few results to fill the device, several blocks reduce each result, and a second pass combines their
partial results. The split depends only on shapes and device, so results are reproducible bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import reduction
from polyhal.backends.common.problems.reduction import COMBINE, Axes, Operation, ReductionBuilders, accumulator
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.dialect import convert, register_type
from polyhal_cupy.launch import KernelLaunch
from polyhal_cupy.lowering.pointwise import copy
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_SPAN_THREADS = 32
_BLOCKS_PER_UNIT = 8
"""Blocks per multiprocessor: about twice the resident number, so that no processor idles for long at the end."""
_MOST_PARTS = 16384
_SHORTEST_PART = 1024
"""Minimum elements per part for which a second pass is faster."""
_SHORTEST_COLUMN = 64


@dataclass(frozen=True, slots=True)
class _Pass:
    """Work of one kernel: reduce elements of `source` at `x` into `target` at `out`."""

    op: Operation
    source: DType
    target: DType
    held: DType
    """Dtype of partial results."""
    aligned: bool
    axes: Axes
    parts: int
    divisor: int
    """Divisor of a mean; 0 if another pass divides."""
    x: Tensor | Workspace
    out: Tensor | Workspace


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, out: Spec) -> Launch:
    held = accumulator(op, x.dtype)
    parts = _row_parts(runtime, axes) if axes.by_rows else _column_parts(runtime, axes)
    make = _rows if axes.by_rows else _columns
    if parts == 1:
        return make(runtime, _Pass(op, x.dtype, out.dtype, held, x.aligned, axes, 1, axes.length, Tensor(0), Tensor(1)))
    first = make(runtime, _Pass(op, x.dtype, held, held, x.aligned, axes, parts, 0, Tensor(0), Workspace(2)))
    if axes.by_rows:
        joined = Axes(((1, 0), (axes.results, parts)), ((1, 0), (parts, 1)))
    else:
        joined = Axes(((1, 0), (axes.results, 1)), ((1, 0), (parts, axes.results)))
    # Partial results of `any` and `all` are already numbers, combined by the same operation.
    second = make(runtime, _Pass(op, held, out.dtype, held, True, joined, 1, axes.length, Workspace(2), Tensor(1)))
    return LaunchSequence([first, second], (parts * axes.results * held.itemsize,))


def _row_parts(runtime: Runtime, axes: Axes) -> int:
    busy = ceil_div(axes.results * _lanes(axes.length), _BLOCK)
    return max(1, min(_BLOCKS_PER_UNIT * runtime.units // busy, axes.length // _SHORTEST_PART, _MOST_PARTS))


def _column_parts(runtime: Runtime, axes: Axes) -> int:
    busy = axes.kept[0][0] * ceil_div(axes.kept[1][0], 4 * _SPAN_THREADS)
    return max(1, min(_BLOCKS_PER_UNIT * runtime.units // busy, axes.length // _SHORTEST_COLUMN))


def _lanes(length: int) -> int:
    """Return the number of threads per row."""
    return min(_BLOCK, power_of_two_at_least(ceil_div(length, 4)))


def _definitions(p: _Pass) -> dict[str, str | int | bool]:
    mapped = convert("v", p.source, p.held)
    if p.op in ("any", "all") and p.source is not p.held:
        mapped = convert("v", p.source, dtypes.bool_)
    return {
        "DTYPE": p.source.name,
        "OUT_DTYPE": p.target.name,
        "ACCUMULATOR": register_type(p.held),
        "MAP(v)": mapped,
        "OPERATION": COMBINE[p.op].capitalize(),
        "IDENTITY": _identity(p.op, p.held),
        "DIVIDE": p.op == "mean" and p.divisor > 0,
        "BLOCK": _BLOCK,
    }


def _identity(op: Operation, held: DType) -> str:
    if op not in ("max", "min"):
        return {"sum": "0", "mean": "0", "prod": "1", "any": "0", "all": "1"}[op]
    if held.kind == "float":
        return "-INFINITY" if op == "max" else "INFINITY"
    limits = dtypes.iinfo(held)
    if op == "max":
        return f"({limits.min + 1}ll - 1)" if limits.min else "0"
    return f"{limits.max}{'ull' if held.kind == 'uint' else 'll'}"


def _geometry(axes: Axes) -> dict[str, Argument]:
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    return {
        "k0": k0, "k0s": k0s, "k1": k1, "k1s": k1s, "r0s": r0s, "r1": r1, "r1s": r1s, "length": axes.length
    }  # fmt: skip


def _arguments(p: _Pass, part_length: int) -> dict[str, Argument]:
    return {
        "x": p.x, "out": p.out, **_geometry(p.axes), "splits": p.parts, "split_length": part_length,
        "divisor": max(p.divisor, 1),
    }  # fmt: skip


def _width(p: _Pass, *steps: int) -> int:
    """Return the elements per load: 16 bytes if they are aligned."""
    width = min(8, 16 // p.source.itemsize)
    return width if p.aligned and all(s % width == 0 for s in steps) else 1


def _rows(runtime: Runtime, p: _Pass) -> KernelLaunch:
    axes = p.axes
    terms = ceil_div(axes.length, p.parts)
    lanes = _lanes(terms)
    width = 1
    if axes.reduced[1][1] == 1:
        # A part may start inside a run, which must then consist of whole vectors.
        run = axes.reduced[1][0] if axes.reduced[0][0] > 1 else 0
        width = _width(p, axes.kept[0][1], axes.kept[1][1], axes.reduced[0][1], run)
    if terms < width * lanes:
        width = 1
    definitions = _definitions(p) | {"WIDTH": width, "LANES": lanes}
    blocks = ceil_div(axes.results * p.parts * lanes, _BLOCK)
    args = _arguments(p, round_up(terms, width * lanes))
    return runtime.launch(f"reduce.{p.op}", "reduction/rows", definitions, args, blocks, _BLOCK, kernel="reduce_rows")


def _columns(runtime: Runtime, p: _Pass) -> KernelLaunch:
    axes = p.axes
    columns = axes.kept[1][0]
    width = _width(p, columns, axes.kept[0][1], axes.reduced[0][1], axes.reduced[1][1])
    if columns < width * _SPAN_THREADS // 2:
        width = 1
    definitions = _definitions(p) | {
        "WIDTH": width, "SPAN_THREADS": _SPAN_THREADS, "FLAT": axes.reduced[0][0] == 1
    }  # fmt: skip
    blocks = axes.kept[0][0] * ceil_div(columns, width * _SPAN_THREADS) * p.parts
    args = _arguments(p, ceil_div(axes.length, p.parts))
    return runtime.launch(
        f"reduce.{p.op}", "reduction/columns", definitions, args, blocks, _BLOCK, kernel="reduce_columns"
    )


def _positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> KernelLaunch:
    lanes = _lanes(axes.length)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "BETTER": ">" if op == "argmax" else "<", "LANES": lanes,
        "BLOCK": _BLOCK, "FLAT": axes.reduced[0][0] == 1,
    }  # fmt: skip
    blocks = ceil_div(axes.results * lanes, _BLOCK)
    args = {"x": Tensor(0), "out": Tensor(1), **_geometry(axes)}
    return runtime.launch(f"reduce.{op}", "reduction/arg", definitions, args, blocks, _BLOCK, kernel="reduce_arg")


_BUILDERS = ReductionBuilders(copy=copy.copy, values=_values, positions=_positions)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """Return a launch (x, out, workspace...) for a reduction over `axes`. Raises UnsupportedOpError."""
    launch = reduction.build(_BUILDERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined)
    return launch


LOWERINGS = reduction.lowerings(_BUILDERS)
