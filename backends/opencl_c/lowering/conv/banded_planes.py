"""Resampling of planes in one pass, as products with a banded matrix along each of the last two axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_MAX_TAPS = 4
"""Maximum taps of an axis for which re-reading the elements of the other axis for each tap is faster than two passes."""
_ROWS_EACH = {True: 64, False: 8}
"""Rows per work-item, on CPUs and on GPUs."""
_LANES = 4
"""Columns per work-item of a GPU."""


def _banded_planes(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    x, *tables = inputs
    (out,) = outputs
    specs = [t for t in tables if isinstance(t, Spec) and t.is_contiguous]
    if not isinstance(x, Spec) or len(specs) != 4:
        return Declined("an operand is a number, or a matrix is not contiguous")
    (rows, down), (columns, across) = specs[1].shape, specs[3].shape
    if max(down, across) > _MAX_TAPS:
        return Declined(f"{down} by {across} taps: one axis at a time is faster")
    if (x.dtype.itemsize == 8) != (specs[1].dtype.itemsize == 8):
        return Declined("x and the weights differ in precision")
    lengths, (steps,) = collapse(x.shape[:-2], (x.strides[:-2],))
    if len(lengths) > 1:
        return Declined("the planes are not evenly spaced")
    if max(rows, columns, x.shape[-1] * abs(x.strides[-1])) >= 1 << 31:
        return Declined("2^31 elements or more")
    cpu, real = runtime.features.cpu, real_type(out.dtype)
    blocks = ceil_div(rows, _ROWS_EACH[cpu])
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name,
        "WEIGHT_DTYPE": specs[1].dtype.name,
        "REAL": real,
        "TAPS_DOWN": down,
        "TAPS_ACROSS": across,
    }
    args: Arguments = {
        "x": Strided(Tensor(0), {"plane": steps[0], "down": x.strides[-2], "across": x.strides[-1]}),
        "down_starts": Tensor(1),
        "down_weights": Tensor(2),
        "across_starts": Tensor(3),
        "across_weights": Tensor(4),
        "out": Tensor(5),
        "rows": rows,
        "columns": columns,
        "rows_each": _ROWS_EACH[cpu],
    }
    if cpu:
        definitions["WIDTH"] = max(2, runtime.features.vector_width // (2 if real == "double" else 1))
        items, group = (blocks, lengths[0]), (1, 1)
        return runtime.launch("conv/cpu_banded_planes", definitions, args, items, group, kernel="cpu_banded_planes")
    lanes = 1 if columns % _LANES or not out.aligned or out.dtype.itemsize > 4 else _LANES
    group_size = min(runtime.features.group_size, max(32, power_of_two_at_least(columns // lanes)))
    return runtime.launch(
        "conv/banded_planes",
        {**definitions, "LANES": lanes},
        args,
        (columns // lanes, blocks, lengths[0]),
        (group_size, 1, 1),
        kernel="banded_planes",
    )


LOWERINGS: dict[str, LoweringFunction] = {"banded_planes": _banded_planes}
