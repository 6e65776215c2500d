"""cumsum, cumprod and running extrema. If rows are few, they are split, with a first launch for the totals of the splits.

Kernel: shaders/wgsl/reduction/scan.wgsl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.reduction import COMBINE, Operation, accumulator
from polyhal.backends.common.problems.rows import StridedRows, rows_along
from polyhal.backends.wgpu.dialect import convert, type_name
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.rows import members
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_VECTOR = 4
_GPU_TERMS = 8
"""Elements of a tile per invocation of a GPU, if they are contiguous; 4 otherwise."""
_MIN_TILES = 4
"""Minimum tiles of a split."""
_MAX_SPLITS = 512
"""Maximum splits of a row, because each reads the totals of the others."""
_COALESCED = 16
"""Adjacent rows with elements next to each other in memory that are scanned by one invocation each."""


def _lowering(operation: Operation) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        x, out = inputs[0], outputs[0]
        assert isinstance(x, Spec)
        if too_large(runtime, x, out):
            return OPERAND_TOO_LARGE
        rows = rows_along((x, out), params["axis"])
        if isinstance(rows, Declined):
            return rows
        return _scan(runtime, operation, x, out, rows)

    return lower


def _lanes(runtime: Runtime, rows: StridedRows, terms: int) -> int:
    """Return the number of invocations that share a split of a row."""
    features = runtime.features
    coalesced = rows.strides[0][2] == 1 and rows.outer[2] >= _COALESCED
    if features.cpu or (not rows.contiguous and coalesced):
        return 1
    most = power_of_two_at_most(features.max_group_size)
    return min(most, power_of_two_at_least(ceil_div(rows.length, terms)))


def _scan(runtime: Runtime, operation: Operation, x: Spec, out: Spec, rows: StridedRows) -> Launch:
    total = accumulator(operation, x.dtype)
    distances = [rows.length, *(s for strides in rows.strides for s in strides)]
    vectors = rows.contiguous and x.aligned and out.aligned and all(d % _VECTOR == 0 for d in distances)
    terms = _VECTOR if not vectors or runtime.features.cpu else _GPU_TERMS
    lanes = _lanes(runtime, rows, terms)
    tile = lanes * terms
    split = split_k(
        rows.length,
        rows.count * lanes,
        group_reduce.busy_invocations(runtime),
        _MAX_SPLITS,
        min_terms=_MIN_TILES * tile,
        multiple=tile,
    )
    definitions: dict[str, Any] = {
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.dtype.name,
        "T": type_name(register_class(total)),
        "MAP": convert("v", x.dtype, total),
        "RESULT": convert("total", total, out.dtype),
        "OPERATION": COMBINE[operation],
        "TERMS": terms,
        "WIDTH": _VECTOR if vectors else 1,
        "SPLIT": split.splits > 1,
        "LANES": lanes,
        "GROUP": group_reduce.group_size(runtime, lanes, rows.count * split.splits),
    }
    totals: Arguments = {"totals": Workspace(2)} if split.splits > 1 else {}
    args: Arguments = {"x": Tensor(0), "splits": split.splits, "split_length": split.terms, **totals}
    groups = ceil_div(rows.count * split.splits * lanes, definitions["GROUP"])
    written: Arguments = {**args, "out": Tensor(1), **members(rows, "x", "out")}
    scan = runtime.launch("reduction/scan", definitions, written, groups)
    if split.splits == 1:
        return scan
    first = runtime.launch("reduction/scan", {**definitions, "TOTALS": True}, {**args, **members(rows, "x")}, groups)
    return LaunchSequence([first, scan], (rows.count * split.splits * total.itemsize,))


LOWERINGS: dict[str, LoweringFunction] = {
    "cumsum": _lowering("sum"),
    "cumprod": _lowering("prod"),
    "running_max": _lowering("max"),
    "running_min": _lowering("min"),
}
