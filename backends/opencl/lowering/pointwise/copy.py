"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems import transpose
from polyhal.backends.opencl.lowering.pointwise.elementwise import group
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}

_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_LOCAL_TILE, _LOCAL_GROUP = 32, 256
_CPU_SIDE = 64
"""Sides of the squares that a work-item of a CPU moves."""
_VECTOR_TILE, _BLOCK = 64, 4
"""Sides of the squares that a group moves in vectors, and of the blocks that its work-items turn."""


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """A launch (source, target) for equal shapes of any strides and dtypes."""
    moved = _transpose(runtime, source, target)
    if moved is not None:
        return moved
    if source.dtype is target.dtype:
        # As bits: half precision needs no conversion to float and back, and programs serve all types of a size.
        bits = _BITS[source.dtype.itemsize]
        source, target = source._replace(dtype=bits), target._replace(dtype=bits)
    return group(runtime, "copy", (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """A launch (number, target) for any strides."""
    return group(runtime, "fill", (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def number_dtype(dtype: DType) -> DType:
    """The dtype in which a Python number reaches a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype


def _transpose(runtime: Runtime, source: Spec, target: Spec) -> Launch | None:
    """A tiled kernel where the source's neighbours lie along another axis than the target's, or None."""
    t = transpose.match(source, target)
    if t is None:
        return None
    args: Arguments = {
        "x": Strided(Tensor(0), {"column": t.source_step, "b0": t.source_batch[0], "b1": t.source_batch[1]}),
        "out": Strided(Tensor(1), {"row": t.target_step, "b0": t.target_batch[0], "b1": t.target_batch[1]}),
        "rows": t.rows, "columns": t.columns, "b1": t.batch[1],
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {"UNIT": _UNITS[source.dtype.itemsize]}
    if runtime.features.cpu:
        definitions |= {"SIDE": _CPU_SIDE}
        return runtime.launch("transpose", "pointwise/cpu_transpose", definitions, args, (t.tiles(_CPU_SIDE),), (1,))
    size = min(_LOCAL_GROUP, runtime.features.group_size)
    if size == _LOCAL_GROUP and source.aligned and target.aligned and t.vectorizable(_BLOCK):
        return runtime.launch(
            "transpose",
            "pointwise/transpose_vectors",
            definitions,
            args,
            (t.tiles(_VECTOR_TILE) * size,),
            (size,),
        )
    definitions |= {"TILE": _LOCAL_TILE, "GROUP": size}
    items = t.tiles(_LOCAL_TILE) * size
    return runtime.launch("transpose", "pointwise/transpose_local", definitions, args, (items,), (size,))
