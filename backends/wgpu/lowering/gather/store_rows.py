"""Replacement of rows, from a position per sequence on. Kernel: shaders/wgsl/gather/store_rows.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.wgpu.lowering.gather.gather import Inputs
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_AXES = 4


def _store_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    x, value, positions = inputs
    (out,) = outputs
    assert isinstance(x, Spec)
    assert isinstance(value, Spec)
    assert isinstance(positions, Spec)
    if value.dtype is not x.dtype:
        return Declined("the rows have another dtype")
    if value.ndim > _AXES:
        return Declined(f"more than {_AXES} axes")
    if too_large(runtime, value, out):
        return OPERAND_TOO_LARGE
    rows, width = value.shape[-2:]
    inner = value.shape[1] if value.ndim == _AXES else 1
    strides = (value.strides[0], *(0,) * (_AXES - value.ndim), *value.strides[1:])
    size = runtime.features.group_size
    names = ("outer_stride", "inner_stride", "row_stride", "column_stride")
    args: Arguments = {
        "value": Tensor(1),
        "positions": Tensor(2),
        "out": Tensor(3),
        "position_step": positions.strides[0],
        "items": value.size,
        "rows": rows,
        "width": width,
        "capacity": x.shape[-2],
        "inner": inner,
        **dict(zip(names, strides, strict=True)),
    }
    definitions = {"BYTES": out.dtype.itemsize, "GROUP": size}
    store = runtime.launch("gather/store_rows", definitions, args, ceil_div(value.size, size))
    copy_in = copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs)
    return LaunchSequence((copy_in, store))


LOWERINGS: dict[str, LoweringFunction] = {"store_rows": _store_rows}
