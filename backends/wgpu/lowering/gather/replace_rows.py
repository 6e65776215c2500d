"""In-place replacement of rows by index. Kernel: shaders/wgsl/gather/replace_rows.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import RowUpdate
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.wgpu.lowering.gather.gather import Inputs
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _replace_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _row_update(runtime, inputs, outputs, wraps=False, distinct=params["distinct"])


def _write_rows(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _row_update(runtime, inputs, outputs, wraps=True, distinct=False)


def _row_update(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], *, wraps: bool, distinct: bool
) -> Launch | Declined:
    update = RowUpdate.of(inputs, distinct)
    if isinstance(update, Declined):
        return update
    (out,) = outputs
    if too_large(runtime, update.numbers, update.source, out):
        return OPERAND_TOO_LARGE
    size = runtime.features.group_size
    args: Arguments = {
        "index": Tensor(1),
        "source": Tensor(2),
        "out": Tensor(3),
        "items": update.items,
        "count": update.numbers.size,
        "width": out.shape[1],
        "rows": out.shape[0],
        "index_step": update.step,
        "source_row": update.row,
        "source_column": update.column,
    }
    definitions = {
        "INDEX": update.numbers.dtype.name,
        "BYTES": out.dtype.itemsize,
        "GROUP": size,
        "WRAP": wraps,
        "DISTINCT": update.distinct,
    }
    launch = runtime.launch("gather/replace_rows", definitions, args, ceil_div(update.items, size))
    return LaunchSequence((copy_unless_aliased(copy.copy, runtime, [(0, 0)], inputs, outputs), launch))


LOWERINGS: dict[str, LoweringFunction] = {"replace_rows": _replace_rows, "write_rows": _write_rows}
