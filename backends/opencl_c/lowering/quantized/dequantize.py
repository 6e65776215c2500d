"""Quantised weights as floats: whole tables, and rows by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems.quantized import blocks_in_tiles, rows_by_index
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.tiles import TILE

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_WEIGHTS = 8
"""Weights of a work-item (WIDTH of quantized/dequantize.cl)."""


def dequantize_blocks(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `dequantize_blocks`."""
    (out,) = outputs
    blocks = blocks_in_tiles(inputs[0], out, params)
    if isinstance(blocks, Declined):
        return blocks
    return _launch(runtime, params, out, out.shape[0], {"out": Tensor(1)}, out.shape[0])


def quantized_rows(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `quantized_rows`."""
    (out,) = outputs
    rows = rows_by_index(inputs, out, params)
    if isinstance(rows, Declined):
        return rows
    args: Arguments = {"index": Strided(Tensor(1), {"step": rows.step}), "out": Tensor(2)}
    return _launch(runtime, params, out, rows.index.size, args, rows.blocks.shape[0], rows.index)


def _launch(
    runtime: Runtime, params: Params, out: Spec, count: int, args: Arguments, rows: int, index: Spec | None = None
) -> Launch:
    width = out.shape[-1]
    definitions: dict[str, str | int | bool] = {
        "FORMAT": params["format"],
        "DTYPE": out.dtype.name,
        "INDEXED": index is not None,
        "ALIGNED": out.aligned,
    }
    if index is not None:
        definitions["INDEX_DTYPE"] = index.dtype.name
    return runtime.launch(
        "quantized/dequantize",
        definitions,
        {"blocks": Tensor(0), **args, "count": count, "k": width, "rows": rows},
        (round_up(count, TILE) * (width // _WEIGHTS),),
        (runtime.features.group_size,),
    )


LOWERINGS = {"dequantize_blocks": dequantize_blocks, "quantized_rows": quantized_rows}
