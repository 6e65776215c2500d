"""Sums of rows by bags of indices, as in an embedding bag: each row is read once, and only sums are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Argument, Strided, Tensor
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_CPU_VECTORS = 8
"""Vectors of sums that a work-item of a CPU keeps in registers, at most."""
_ROWS_AHEAD = 8
"""Rows that a CPU prefetches: a table is larger than its caches."""


def sum_bags(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    """Lower the op `sum_bags`."""
    weight, index, starts, scales = inputs
    (out,) = outputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return Declined("an operand is a number")
    (rows, width), (row, column) = weight.shape, weight.strides
    if (column != 1 and width > 1) or (isinstance(starts, Spec) and starts.strides != (1,)):
        return Declined("the rows or the starts are not contiguous")
    step = flat_stride(index)
    if step is None or max(index.size, width, out.shape[0]) >= 1 << 31:
        return Declined("the index is not evenly spaced, or an axis is longer than 2^31")
    features, real = runtime.features, real_type(out.dtype)
    lanes = features.vector_width if real == "float" else max(1, features.vector_width // 2)
    while lanes > 1 and (width % lanes or row % lanes):
        lanes //= 2
    vectors = _CPU_VECTORS if features.cpu else 1
    while vectors > 1 and width % (vectors * lanes):
        vectors //= 2
    definitions: dict[str, str | int | bool] = {
        "DTYPE": out.dtype.name, "REAL": real, "INDEX_DTYPE": index.dtype.name, "WIDTH": lanes, "VECTORS": vectors,
        "ROWS_AHEAD": _ROWS_AHEAD if features.cpu and not features.quirks.disable_prefetch else 0,
        "ALIGNED": not features.cpu and weight.aligned and out.aligned, "STARTS": starts is not None,
        "SCALES": scales is not None,
    }  # fmt: skip
    bags = out.shape[0]
    args: dict[str, Argument] = {
        "index": Strided(Tensor(1), {"step": step}), "x": Strided(Tensor(0), {"row": row}), "out": Tensor(4),
        "rows": rows, "count": index.size, "bags": bags, "width": width, "length": params["length"], "marks": 0,
        "scales_step": 0,
    }  # fmt: skip
    if isinstance(starts, Spec):
        definitions["STARTS_DTYPE"] = starts.dtype.name
        args |= {"starts": Tensor(2), "marks": starts.shape[0]}
    if isinstance(scales, Spec):
        del args["scales_step"]
        args["scales"] = Strided(Tensor(3), {"step": scales.strides[0]})
    items = bags * (width // (lanes * vectors))
    return runtime.launch("gather/sum_bags", definitions, args, (items,), (1 if features.cpu else features.group_size,))
