"""Rows picked by index, as in an embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Strided, Tensor
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "uint4"}
"""Types in which elements are moved as bits, by size."""
_ELEMENTS_EACH = 4096
"""Minimum elements per work-item of a CPU, in whole rows."""
_GROUPS_PER_UNIT = 4
_LOADS = 4
"""Loads that a work-item of a GPU keeps in flight."""


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """Build a launch (index, x, out) that copies rows of `x`, and zeros where an index is out of range.

    All are contiguous.
    """
    launch = _gather(runtime, index, x, out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def embedding(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `embedding`."""
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    return _gather(runtime, index, weight, outputs[0], (1, 0, 2))


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: tuple[int, int, int]) -> Launch | Declined:
    """Build the launch; `places` are the positions of index, x and out in the argument list."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    count, (rows, width), (row, column) = index.size, x.shape, x.strides
    if max(count, width) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    nbytes, column = x.dtype.itemsize, column if width > 1 else 1
    cpu = runtime.features.cpu
    if not cpu and x.aligned and out.aligned and column == 1:
        # The widest unit that divides a row and the distance between rows.
        while nbytes < 16 and width % 2 == 0 and row % 2 == 0:
            nbytes, width, row = nbytes * 2, width // 2, row // 2
    rows_each = max(1, min(_ELEMENTS_EACH // width, ceil_div(count, _GROUPS_PER_UNIT * runtime.features.compute_units)))
    definitions: dict[str, str | int | bool] = {
        "INDEX_DTYPE": index.dtype.name,
        "UNIT": UNITS[nbytes],
        "WHOLE_ROWS": cpu,
        "LOADS": _LOADS,
        "ELEMENTS_PER_UNIT": nbytes // x.dtype.itemsize,
    }
    index_at, x_at, out_at = (Tensor(i) for i in places)
    return runtime.launch(
        "gather/gather",
        definitions,
        {
            "index": Strided(index_at, {"step": step}),
            "x": Strided(x_at, {"row": row, "column": column}),
            "out": out_at,
            "count": count,
            "width": width,
            "rows": rows,
            "rows_each": rows_each,
        },
        (ceil_div(count, rows_each) if cpu else ceil_div(count * width, _LOADS),),
        (1 if cpu else runtime.features.group_size,),
    )
