"""Quantised weights as floats: whole tables, and rows by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.common.problems.quantized import blocks_in_tiles
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal.hal.quantization.tiles import TILE

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_PARTS = {"q2_k": 16, "q3_k": 16, "q6_k": 16}
"""Weights with one scale, where they are not 32."""


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
    table, index = blocks_in_tiles(inputs[0], out, params), inputs[1]
    if isinstance(table, Declined):
        return table
    if not isinstance(index, Spec):
        return Declined("the index is a number")
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    args: Arguments = {"index": Strided(Tensor(1), {"step": step}), "out": Tensor(2)}
    return _launch(runtime, params, out, index.size, args, table.shape[0], index)


def _launch(
    runtime: Runtime, params: Params, out: Spec, count: int, args: Arguments, rows: int, index: Spec | None = None
) -> Launch:
    name, width = params["format"], out.shape[-1]
    definitions: dict[str, str | int | bool] = {"FORMAT": name, "DTYPE": out.dtype.name, "INDEXED": index is not None}
    if index is not None:
        definitions["INDEX_DTYPE"] = index.dtype.name
    return runtime.launch(
        "quantized/dequantize",
        definitions,
        {"blocks": Tensor(0), **args, "count": count, "k": width, "rows": rows},
        (round_up(count, TILE) * (width // _PARTS.get(name, 32)),),
        (runtime.features.group_size,),
    )


LOWERINGS = {"dequantize_blocks": dequantize_blocks, "quantized_rows": quantized_rows}
