"""Sums of rows by bags of indices, as in an embedding bag: each row is read once, and only sums are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.opencl_c.lowering.gather.bags import bags_of
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_CPU_VECTORS = 8
"""Maximum vectors of sums that a work-item of a CPU keeps in registers."""
_ROWS_AHEAD = 8
"""Rows that a CPU prefetches, because tables exceed its caches."""


def sum_bags(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `sum_bags`."""
    weight, (out,) = inputs[0], outputs
    if not isinstance(weight, Spec):
        return Declined("the table is a number")
    (rows, width), (row, column) = weight.shape, weight.strides
    if column != 1 and width > 1:
        return Declined("the rows are not contiguous")
    bags = bags_of(inputs, params)
    if isinstance(bags, Declined):
        return bags
    if max(out.shape) >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    features, real = runtime.features, real_type(out.dtype)
    lanes = features.vector_width if real == "float" else max(1, features.vector_width // 2)
    while lanes > 1 and (width % lanes or row % lanes):
        lanes //= 2
    vectors = _CPU_VECTORS if features.cpu else 1
    while vectors > 1 and width % (vectors * lanes):
        vectors //= 2
    definitions: dict[str, str | int | bool] = {
        **bags.definitions,
        "DTYPE": out.dtype.name,
        "REAL": real,
        "WIDTH": lanes,
        "VECTORS": vectors,
        "ROWS_AHEAD": _ROWS_AHEAD if features.cpu and features.quirks.builtin_prefetch else 0,
        "ALIGNED": not features.cpu and weight.aligned and out.aligned,
    }
    args: Arguments = {
        "x": Strided(Tensor(0), {"row": row}),
        "out": Tensor(4),
        **bags.args(out.shape[0], width, rows),
    }
    items = out.shape[0] * (width // (lanes * vectors))
    return runtime.launch("gather/sum_bags", definitions, args, (items,), (1 if features.cpu else features.group_size,))
