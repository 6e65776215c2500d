"""Quantised weights as floats: whole tables, and rows by number. Kernel: shaders/wgsl/quantized/dequantize.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.block_decoder import SPAN
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.quantized import blocks_in_tiles, rows_by_index
from polyhal.backends.wgpu.lowering.quantized.decoder import definitions
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.tiles import TILE

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_LANES = 4


def dequantize_blocks(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `dequantize_blocks`."""
    (out,) = outputs
    blocks = blocks_in_tiles(inputs[0], out, params)
    if isinstance(blocks, Declined):
        return blocks
    if too_large(runtime, blocks, out):
        return OPERAND_TOO_LARGE
    return _launch(runtime, params, out, out.shape[0], {"out": Tensor(1)}, out.shape[0])


def quantized_rows(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `quantized_rows`."""
    (out,) = outputs
    rows = rows_by_index(inputs, out, params)
    if isinstance(rows, Declined):
        return rows
    if too_large(runtime, rows.blocks, rows.index, out):
        return OPERAND_TOO_LARGE
    args: Arguments = {"index": Tensor(1), "index_step": rows.step, "out": Tensor(2)}
    return _launch(runtime, params, out, rows.index.size, args, rows.blocks.shape[0], rows.index)


def _launch(
    runtime: Runtime, params: Params, out: Spec, count: int, args: Arguments, rows: int, index: Spec | None = None
) -> Launch:
    k, size = out.shape[-1], runtime.features.group_size
    variables = {
        **definitions(params["format"]),
        "DTYPE": out.dtype.name,
        "INDEX": index.dtype.name if index is not None else "",
        "LANES": _LANES if out.aligned else 1,
        "GROUP": size,
    }
    items = round_up(count, TILE) * (k // SPAN)
    arguments: Arguments = {"blocks": Tensor(0), **args, "count": count, "k": k, "rows": rows}
    return runtime.launch("quantized/dequantize", variables, arguments, ceil_div(items, size))


LOWERINGS: dict[str, LoweringFunction] = {"dequantize_blocks": dequantize_blocks, "quantized_rows": quantized_rows}
