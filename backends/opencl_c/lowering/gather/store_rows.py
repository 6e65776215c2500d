"""Consecutive rows of tensors replaced, each from its own position on, as in a key-value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, Strided, Tensor
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.opencl_c.lowering.gather.gather import UNITS
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.vectors import vector_of
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_VALUE, _POSITIONS, _OUT = 1, 2, 3
"""Positions in the argument list; x, which the result replaces, is 0."""
_AXES = 4


def store_rows(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `store_rows`."""
    x, value, positions = inputs
    (out,) = outputs
    assert isinstance(x, Spec)
    assert isinstance(value, Spec)
    assert isinstance(positions, Spec)
    if value.dtype is not x.dtype:
        return Declined("rows of another dtype")
    if value.ndim > _AXES or max(out.size, value.size) >= 1 << 31:
        return Declined("more than 4 axes, or 2^31 elements or more")
    inner = value.shape[1] if value.ndim == _AXES else 1
    strides = (value.strides[0], *(0,) * (_AXES - value.ndim), *value.strides[1:])
    rows, width = value.shape[-2:]
    together = vector_of(runtime, x.dtype, width) if strides[-1] == 1 and x.dtype.itemsize <= 8 else 1
    store = runtime.launch(
        "gather/store_rows",
        {"UNIT": UNITS[x.dtype.itemsize], **({"WIDTH": together} if together > 1 else {})},
        {
            "value": Strided(Tensor(_VALUE), dict(zip(("b0", "b1", "row", "column"), strides, strict=True))),
            "out": Tensor(_OUT),
            "positions": Strided(Tensor(_POSITIONS), {"step": positions.strides[0]}),
            "size": value.size,
            "rows": rows,
            "width": width,
            "capacity": x.shape[-2],
            "b1": inner,
        },
        (value.size // together,),
        (runtime.features.group_size,),
    )
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs)
    return LaunchSequence((copied, store))
