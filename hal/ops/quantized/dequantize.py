"""Weights of blocks as floats: `dequantize` of whole rows, and `quantized_rows`, which looks rows up by number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    IndexRange,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import embedding
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.quantized.arithmetic import DeviceArithmetic
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.quantization import formats
from polyhal.hal.quantization.tiles import TILE, from_tiles, tiled

_DEVICE = DeviceArithmetic()


def in_rows(blocks: Array, name: str, in_tiles: bool) -> Array:
    """Blocks in the order of a file."""
    if not in_tiles:
        return blocks
    return np.asarray(from_tiles(blocks, formats.format_named(name), np.reshape, np.transpose, np.concatenate))


def blocks_and_weights(specs: Specs, params: Params, at: int) -> tuple[Spec, int]:
    """The spec of input `at`, rows of blocks, and the weights of a row. Raises ValueError for others."""
    blocks = tensor_at(specs, at)
    if blocks.dtype is not dtypes.uint8 or blocks.ndim != 2:
        raise ValueError(f"blocks are {blocks.dtype.name}{blocks.shape}; expected uint8 (rows, bytes of a row)")
    if params["in_tiles"] and blocks.shape[0] % TILE:
        raise ValueError(f"{blocks.shape[0]} rows of blocks in tiles; expected a multiple of {TILE}")
    return blocks, formats.format_named(params["format"]).row_weights(blocks.shape[1])


def sample_blocks(rng: np.random.Generator, name: str, rows: int, width: int, in_tiles: bool) -> Array:
    """Blocks of normal weights whose products with `width` values around 1 are around 1."""
    weights = rng.standard_normal((rows, width)) / np.sqrt(width)
    blocks = formats.quantize(weights.astype(np.float32), name)
    return tiled(blocks, formats.format_named(name)) if in_tiles else blocks


def _dequantize(blocks: Array, *, format: str, in_tiles: bool = False, dtype: Any = dtypes.float32) -> Any:  # noqa: A002
    """The weights (N, K) of rows of blocks (N, bytes); `in_tiles` if they are in `hal.quantization.tiles`' order."""
    weights = formats.dequantize(in_rows(np.asarray(blocks), format, in_tiles), format)
    return weights.astype(dtypes.as_dtype(dtype).numpy)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    blocks, width = blocks_and_weights(specs, params, 0)
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    return [(params["dtype"], (blocks.shape[0], width))]


def _decomposed(blocks: TensorLike, *, format: str, in_tiles: bool, dtype: Any) -> Any:  # noqa: A002
    form = formats.format_named(format)
    if in_tiles:
        blocks = from_tiles(blocks, form, reshape, permute, concat)
    return cast(form.weights(_DEVICE, cast(blocks, dtype=dtypes.int32)), dtype=dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (sample_blocks(rng, name, 16, 2 * form.block, in_tiles),),
            {"format": name, "in_tiles": in_tiles, "dtype": dtypes.float32 if in_tiles else dtypes.float16},
        )
        for name, form in formats.FORMATS.items()
        for in_tiles in (False, True)
    ]


dequantize: OpFunction = declare(
    _dequantize,
    name="dequantize_blocks",
    family="quantized",
    infer=_infer,
    lowering=Decompose(_decomposed),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample((np.zeros((3, 17), np.uint8),), {"format": "q4_0"}, ValueError, "a row of 17 bytes in q4_0"),
        ErrorSample((np.zeros((3, 18), np.uint8),), {"format": "q4_0", "in_tiles": True}, ValueError, "multiple of 16"),
        ErrorSample((np.zeros((3, 18), np.int32),), {"format": "q4_0"}, ValueError, "expected uint8"),
    ],
    tolerance=Tolerance(
        2.0, floor=0.25
    ),  # a product and a difference; parts of a difference are below twice a weight's bound
)


def _quantized_rows(
    blocks: Array,
    index: Array,
    *,
    format: str,  # noqa: A002
    in_tiles: bool = False,
    dtype: Any = dtypes.float32,
) -> Any:
    """Rows of quantised weights by number: index (...) to (..., K). Numbers outside the table as in `embedding`."""
    rows = in_rows(np.asarray(blocks), format, in_tiles)
    inside = (index >= 0) & (index < len(rows))
    weights = formats.dequantize(rows[np.where(inside, index, 0)], format)
    return np.where(inside[..., None], weights, np.float32(0)).astype(dtypes.as_dtype(dtype).numpy)


def _infer_rows(specs: Specs, params: dict[str, Any]) -> list[Output]:
    _, width = blocks_and_weights(specs, params, 0)
    index = tensor_at(specs, 1)
    if not index.dtype.is_integral:
        raise ValueError(f"the index is {index.dtype.name}; expected integers")
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    return [(params["dtype"], (*index.shape, width))]


def _rows_decomposed(blocks: TensorLike, index: TensorLike, *, format: str, in_tiles: bool, dtype: Any) -> Any:  # noqa: A002
    count, size = math.prod(index.shape), blocks.shape[1]
    numbers = reshape(index, (count,))
    if in_tiles:
        tile = numbers // TILE
        whole = embedding(reshape(blocks, (blocks.shape[0] // TILE, TILE * size)), tile)
        whole = from_tiles(reshape(whole, (count * TILE, size)), formats.format_named(format), reshape, permute, concat)
        rows = embedding(whole, arange(0, count, dtype=numbers.dtype) * TILE + (numbers - tile * TILE))
    else:
        rows = embedding(blocks, numbers)
    weights = dequantize(rows, format=format, in_tiles=False, dtype=dtype)
    return reshape(weights, (*index.shape, weights.shape[-1]))


def _batched_rows(call: BatchedCall) -> Any:
    return NotImplemented if call.batched[0] else call.apply(*call.inputs)


def _rows_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (sample_blocks(rng, name, 32, width, in_tiles), rng.integers(0, 32, shape)),
            {"format": name, "in_tiles": in_tiles, "dtype": dtypes.float32},
        )
        for name, width, shape, in_tiles in [
            ("q4_0", 64, (5,), True),
            ("q6_k", 256, (2, 3), True),
            ("q8_0", 32, (), False),
            ("q4_k", 512, (0,), False),
        ]
    ]


quantized_rows: OpFunction = declare(
    _quantized_rows,
    name="quantized_rows",
    family="quantized",
    infer=_infer_rows,
    lowering=Decompose(_rows_decomposed),
    batching=_batched_rows,
    index_range=lambda specs, params: IndexRange(1, 0, tensor_at(specs, 0).shape[0]),
    public=False,
    samples=_rows_samples,
    errors=[
        ErrorSample((np.zeros((3, 18), np.uint8), np.zeros(2)), {"format": "q4_0"}, ValueError, "expected integers")
    ],
    tolerance=Tolerance(2.0, floor=0.25),
)
