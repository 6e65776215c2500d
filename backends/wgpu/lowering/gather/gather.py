"""Embedding: rows of a table by index. Kernel: shaders/wgsl/gather/gather.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.wgpu.lowering.support.windows import SubLaunch
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]
Places = tuple[int, int, int]
"""Argument indices of the index tensor, the data and the output."""

MAX_LENGTH = 1 << 31
"""Limit of the length of an axis."""


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """Return a launch (index, x, out): rows of `x`, or zeros where an index is out of range. All are contiguous."""
    launch = _gather(runtime, index, x, out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: Places) -> Launch | Declined:
    """Gather rows of `x`. Tables and outputs beyond the binding size limit are split into parts of rows."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    (rows, width), count = x.shape, index.size
    if max(count, rows, width) >= MAX_LENGTH:
        return Declined("an axis is longer than 2^31")
    table_rows = _rows_per_binding(runtime, rows, abs(x.strides[0]) * x.dtype.itemsize)
    out_row_bytes = max(width * x.dtype.itemsize, abs(step) * index.dtype.itemsize)
    out_rows = _rows_per_binding(runtime, count, out_row_bytes)
    if table_rows == rows and out_rows == count:
        return _launch(runtime, (index, x, out), step, places, (0, rows))
    launches = []
    for start in range(0, count, out_rows):
        n = min(out_rows, count - start)
        index_part = Spec(index.dtype, (n,), (step,), index.aligned)
        out_part = contiguous(out.dtype, (n, width))._replace(aligned=out.aligned)
        for first in range(0, rows, table_rows):
            x_part = x._replace(shape=(min(table_rows, rows - first), width))
            specs = (index_part, x_part, out_part)
            offsets = (start * step, first * x.strides[0], start * width)
            (_, first_spec, first_offset), (_, second_spec, second_offset), (_, out_spec, out_offset) = sorted(
                zip(places, specs, offsets, strict=True)
            )
            part = SubLaunch((first_spec, second_spec), (out_spec,), (first_offset, second_offset, out_offset))
            launches.append(part.bind(_launch(runtime, specs, step, places, (first, rows))))
    return LaunchSequence(launches)


def _rows_per_binding(runtime: Runtime, rows: int, nbytes: int) -> int:
    """Return how many of `rows` rows of `nbytes` bytes a kernel can bind; parts begin at aligned elements."""
    fitting = (runtime.features.max_binding - 512) // max(nbytes, 1)
    return rows if fitting >= rows else max(fitting // ALIGNMENT * ALIGNMENT, 1)


def _launch(
    runtime: Runtime, specs: tuple[Spec, Spec, Spec], step: int, places: Places, table: tuple[int, int]
) -> Launch:
    """Return the launch for part of a table: `table` is the part's first row and the length of the whole table."""
    index, x, out = specs
    nbytes, itemsize = _load_bytes(x, out), x.dtype.itemsize
    ratio = nbytes // itemsize
    width = x.shape[1] // ratio
    items = index.size * width
    size = runtime.features.group_size
    first, length = table
    args: Arguments = {
        "index": Tensor(places[0]),
        "x": Tensor(places[1]),
        "out": Tensor(places[2]),
        "items": items,
        "width": width,
        "length": length,
        "first": first,
        "rows": x.shape[0],
        "writes_zeros": first == 0,
        "index_step": step,
        "x_row": x.strides[0] // ratio,
        "x_column": x.strides[1] if width > 1 and ratio == 1 else 1,
    }
    definitions = {"INDEX": index.dtype.name, "ITEM": itemsize, "BYTES": nbytes, "GROUP": size}
    return runtime.launch("gather/gather", definitions, args, ceil_div(items, size))


def _load_bytes(x: Spec, out: Spec) -> int:
    """Return the bytes per load: the largest size that divides rows and their strides."""
    itemsize, width = x.dtype.itemsize, x.shape[1]
    if x.aligned and out.aligned and (width == 1 or x.strides[1] == 1):
        for nbytes in (16, 8, 4):
            if nbytes > itemsize and width * itemsize % nbytes == 0 and x.strides[0] * itemsize % nbytes == 0:
                return nbytes
    return itemsize


def _embedding(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    return _gather(runtime, index, weight, outputs[0], (1, 0, 2))


LOWERINGS: dict[str, LoweringFunction] = {"embedding": _embedding}
