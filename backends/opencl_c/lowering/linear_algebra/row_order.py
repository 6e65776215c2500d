"""The order of rows that pivots represent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.gather import row_stride
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_GROUP, _MIN_ROWS = 64, 64


def _row_order(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    pivots, rows = inputs[0], params["rows"]
    assert isinstance(pivots, Spec)
    if pivots.dtype is not dtypes.int32:
        return Declined("the pivots are not int32")
    matrix_step = row_stride(pivots)
    if matrix_step is None:
        return Declined("the batch axes of the pivots do not merge")
    group = 1 if runtime.features.cpu else min(_GROUP, runtime.features.max_group_size)
    size = max(_MIN_ROWS, power_of_two_at_least(rows))
    is_local = 4 * (size + 256) <= runtime.features.static_local_memory
    count = outputs[0].size // rows
    return runtime.launch(
        "linear_algebra/row_order",
        {"LOCAL_ORDER": is_local, "SIZE": size if is_local else 1, "GROUP": group},
        {
            "pivots": Tensor(0),
            "out": Tensor(1),
            "rows": rows,
            "steps": pivots.shape[-1],
            "first_row": params["first"],
            "start": params["start"],
            "matrix_step": matrix_step,
            "step": pivots.strides[-1],
        },
        (count * group,),
        (group,),
    )


LOWERINGS = {"row_order": _row_order}
