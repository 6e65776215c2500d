"""Adding rows by index on CPUs: a work-item owns some columns and walks all indices, so the order is fixed."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor, Workspace, joint_name
from polyhal.backends.opencl_c.lowering.gather.problem import FIRST_WORKSPACE, RowScatter
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_MAX_COLUMNS, _MIN_COLUMNS = 64, 16
"""Columns per work-item; below the maximum only if that employs more compute units."""


def build(runtime: Runtime, p: RowScatter, out: Spec) -> Launch:
    """Build the launch. Half-precision sums are kept in a float32 workspace until the end. Raises KernelBuildError."""
    accumulator = dtypes.accumulator(p.out.dtype) if p.out.dtype.kind == "float" else p.out.dtype
    if accumulator is p.out.dtype:
        return _add(runtime, p, accumulator, Tensor(p.out.place))
    place = p.out.place
    wide = contiguous(accumulator, out.shape)
    add = _add(runtime, p, accumulator, Workspace(FIRST_WORKSPACE))
    widen, narrow = copy.copy(runtime, out, wide), copy.copy(runtime, wide, out)

    def run(*args: Any) -> None:
        sums = Ref(args[FIRST_WORKSPACE], wide)
        widen(args[place], sums)
        add(*args)
        narrow(sums, args[place])

    return SimpleLaunch(joint_name((widen, add, narrow)), run, (wide.nbytes,))


def _add(runtime: Runtime, p: RowScatter, accumulator: dtypes.DType, out: Tensor | Workspace) -> Launch:
    width, columns = p.source.width, _MAX_COLUMNS
    while columns > _MIN_COLUMNS and ceil_div(width, columns) < 2 * runtime.features.compute_units:
        columns //= 2
    definitions: dict[str, str | int | bool] = {
        "DTYPE": accumulator.name,
        "SOURCE_DTYPE": p.source.dtype.name,
        "INDEX_DTYPE": p.index.dtype.name,
        "WIDTH": runtime.features.vector_width if accumulator.itemsize <= 4 and width >= columns else 1,
    }
    return runtime.launch(
        "gather/cpu_scatter_add",
        definitions,
        {
            **p.index.args(),
            **p.source.args(),
            "out": out,
            "count": p.index.count,
            "width": width,
            "rows": p.out.rows,
            "columns": columns,
        },
        (ceil_div(width, columns),),
        (1,),
    )
