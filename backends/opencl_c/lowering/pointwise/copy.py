"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems import transpose
from polyhal.backends.opencl_c.lowering.pointwise.elementwise import group
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}

_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_LOCAL_TILE, _LOCAL_GROUP = 32, 256
"""Side of the tile that a group of a GPU transposes in local memory, and work-items of the group."""
_CPU_BLOCK = 64
"""Side of the block that a work-item of a CPU transposes."""
_VECTOR_TILE, _REGISTER_BLOCK = 64, 4
"""Side of the tile of pointwise/transpose_vectors.cl, and of the block that each work-item transposes in registers."""


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """Build a launch (source, target) that copies between equal shapes of any strides and dtypes."""
    launch = _transpose(runtime, source, target)
    if launch is not None:
        return launch
    if source.dtype is target.dtype:
        # Copy bits: half precision needs no conversion to float and back, and one program serves all dtypes of a size.
        bits = _BITS[source.dtype.itemsize]
        source, target = source._replace(dtype=bits), target._replace(dtype=bits)
    return group(runtime, (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """Build a launch (number, target) that writes one number to all elements of any strides."""
    return group(runtime, (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def to_workspace(runtime: Runtime, source: Spec, place: int, target: Spec, at: int) -> SimpleLaunch:
    """Build a launch that copies argument `place`, read as `source`, to workspace `at`, which becomes a `target`."""
    launch = copy(runtime, source, target)

    def run(*args: Any) -> None:
        launch(Ref(args[place].handle, source, args[place].offset), Ref(args[at], target))

    return SimpleLaunch(launch.name, run)


def from_workspace(runtime: Runtime, source: Spec, at: int, target: Spec, place: int) -> SimpleLaunch:
    """Build a launch that copies workspace `at`, a `source`, to argument `place`, a `target`."""
    launch = copy(runtime, source, target)
    return SimpleLaunch(launch.name, lambda *args: launch(Ref(args[at], source), args[place]))


def fill_workspace(runtime: Runtime, target: Spec, at: int, number: int = 0) -> SimpleLaunch:
    """Build a launch that writes one number to all elements of workspace `at`, which becomes a `target`."""
    launch = fill(runtime, target)
    return SimpleLaunch(launch.name, lambda *args: launch(number, Ref(args[at], target)))


def number_dtype(dtype: DType) -> DType:
    """Return the dtype in which a Python number is passed to a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype


def _transpose(runtime: Runtime, source: Spec, target: Spec) -> Launch | None:
    """Build a tiled launch if the innermost axes of source and target differ; None otherwise."""
    t = transpose.match(source, target)
    if t is None:
        return None
    args: Arguments = {
        "x": Strided(Tensor(0), {"column": t.source_step, "b0": t.source_batch[0], "b1": t.source_batch[1]}),
        "out": Strided(Tensor(1), {"row": t.target_step, "b0": t.target_batch[0], "b1": t.target_batch[1]}),
        "rows": t.rows,
        "columns": t.columns,
        "b1": t.batch[1],
    }
    definitions: dict[str, str | int | bool] = {"UNIT": _UNITS[source.dtype.itemsize]}
    if runtime.features.cpu:
        kernel, items, size = "pointwise/cpu_transpose", t.tiles(_CPU_BLOCK), 1
        definitions["SIDE"] = _CPU_BLOCK
    else:
        size = min(_LOCAL_GROUP, runtime.features.group_size)
        vectors = size == _LOCAL_GROUP and source.aligned and target.aligned and t.vectorizable(_REGISTER_BLOCK)
        kernel = "pointwise/transpose_vectors" if vectors else "pointwise/transpose_local"
        if not vectors:
            definitions |= {"TILE": _LOCAL_TILE, "GROUP": size}
        items = t.tiles(_VECTOR_TILE if vectors else _LOCAL_TILE) * size
    return runtime.launch(kernel, definitions, args, (items,), (size,))
