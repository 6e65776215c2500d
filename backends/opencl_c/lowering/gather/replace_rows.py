"""Rows replaced by number, in place. Kernel: shaders/opencl/gather/replace_rows.cl."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, Strided, Tensor
from polyhal.backends.common.problems.gather import RowUpdate
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.opencl_c.lowering.gather.gather import UNITS
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_INDEX, _SOURCE, _OUT = 1, 2, 3
"""Positions in the argument list; x, which the result replaces, is 0."""


def replace_rows(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `replace_rows`."""
    return _row_update(runtime, inputs, outputs, wraps=False, distinct=params["distinct"])


def write_rows(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `write_rows`."""
    return _row_update(runtime, inputs, outputs, wraps=True, distinct=False)


def _row_update(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], *, wraps: bool, distinct: bool
) -> Launch | Declined:
    update = RowUpdate.of(inputs, distinct)
    if isinstance(update, Declined):
        return update
    (out,) = outputs
    if update.items >= 1 << 31:
        return Declined("2^31 elements or more")
    launch = runtime.launch(
        "gather/replace_rows",
        {
            "INDEX_DTYPE": update.numbers.dtype.name,
            "UNIT": UNITS[out.dtype.itemsize],
            "WRAP": wraps,
            "DISTINCT": update.distinct,
        },
        {
            "index": Strided(Tensor(_INDEX), {"step": update.step}),
            "source": Strided(Tensor(_SOURCE), {"row": update.row, "column": update.column}),
            "out": Tensor(_OUT),
            "count": update.numbers.size,
            "width": out.shape[1],
            "rows": out.shape[0],
        },
        (update.items,),
        (runtime.features.group_size,),
    )
    return LaunchSequence((copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs), launch))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"replace_rows": replace_rows, "write_rows": write_rows}
