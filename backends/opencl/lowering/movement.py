"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.elementwise import group
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, collapse
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}

_SHORTEST_SIDE = 8
"""Sides below which a transposition gains nothing from tiles."""
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_LOCAL_TILE, _LOCAL_GROUP, _BLOCK_TILE = 32, 256, 16


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """A launch (source, target) for equal shapes of any strides and dtypes."""
    return _transpose(runtime, source, target) or group(runtime, "copy", (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """A launch (number, target) for any strides."""
    return group(runtime, "fill", (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def number_dtype(dtype: DType) -> DType:
    """The dtype in which a Python number reaches a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype


def _transpose(runtime: Runtime, source: Spec, target: Spec) -> Launch | None:
    """A tiled kernel where the source's neighbours lie along another axis than the target's, or None."""
    if source.dtype.itemsize != target.dtype.itemsize or source.dtype is not target.dtype:
        return None
    order = sorted(range(target.ndim), key=lambda axis: -abs(target.strides[axis]))
    axes, (x, out) = collapse(
        tuple(target.shape[a] for a in order),
        (tuple(source.strides[a] for a in order), tuple(target.strides[a] for a in order)),
    )
    if not 2 <= len(axes) <= 4 or out[-1] != 1 or x[-1] in (0, 1) or 1 not in x:
        return None
    row = x.index(1)
    if min(axes[row], axes[-1]) < _SHORTEST_SIDE:
        return None
    batch = [(1, 0, 0)] * 2 + [(axes[a], x[a], out[a]) for a in range(len(axes) - 1) if a != row]
    (b0, x0, out0), (b1, x1, out1) = batch[-2:]
    parameters: list[Parameter] = [
        Tensor(0), Tensor(1), Constant(axes[row], "ulong"), Constant(axes[-1], "ulong"), Constant(x[-1], "long"),
        Constant(out[row], "long"), Constant(b1, "ulong"), *[Constant(v, "long") for v in (x0, x1, out0, out1)],
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {"UNIT": _UNITS[source.dtype.itemsize]}
    tile = _BLOCK_TILE if runtime.features.cpu else _LOCAL_TILE
    squares = ceil_div(axes[row], tile) * ceil_div(axes[-1], tile) * b0 * b1
    if runtime.features.cpu:
        parameters.append(Constant(squares, "ulong"))
        return runtime.launch(
            "transpose", "transpose_block", {**definitions, "TILE": tile}, parameters, (squares,), (4,)
        )
    size = min(_LOCAL_GROUP, runtime.features.group_size)
    definitions |= {"TILE": tile, "GROUP": size}
    return runtime.launch("transpose", "transpose_local", definitions, parameters, (squares * size,), (size,))
