"""Products of activations with quantised weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.matmul import as_rows, op_matmul
from polyhal.hal.ops.quantized.dequantize import blocks_and_weights, dequantize, in_rows, sample_blocks
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.quantization import formats


def _quantized_matmul(
    x: Array,
    blocks: Array,
    *,
    format: str,  # noqa: A002
    in_tiles: bool = False,
    transposed: bool = False,
) -> Any:
    """`x @ W.T`, or `x @ W` if `transposed`, of the weights W (N, K) in rows of blocks (N, bytes).

    x is (..., K), or (..., N) if `transposed`. `in_tiles`: the bytes are in the order of `polyhal.hal.quantization.tiles`.
    """
    weights = formats.dequantize(in_rows(np.asarray(blocks), format, in_tiles), format)
    weights = weights.astype(np.result_type(weights, x))
    return np.matmul(x, weights if transposed else weights.T)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x = tensor_at(specs, 0)
    blocks, width = blocks_and_weights(specs, params, 1)
    inner, outer = (blocks.shape[0], width) if params["transposed"] else (width, blocks.shape[0])
    if not x.dtype.is_floating_point:
        raise TypeError(f"x is {x.dtype.name}; expected floats")
    if x.ndim < 1 or x.shape[-1] != inner:
        raise ValueError(f"x {x.shape} does not fit weights ({blocks.shape[0]}, {width}); expected (..., {inner})")
    return [(x.dtype, (*x.shape[:-1], outer))]


def _decomposed(x: TensorLike, blocks: TensorLike, *, format: str, in_tiles: bool, transposed: bool) -> Any:  # noqa: A002
    weights = dequantize(blocks, format=format, in_tiles=in_tiles, dtype=x.dtype)
    out = op_matmul(as_rows(x), weights if transposed else permute(weights, (1, 0)))
    return reshape(out, (*x.shape[:-1], out.shape[-1]))


def _gradient(g: TensorLike, blocks: TensorLike, *, format: str, in_tiles: bool, transposed: bool) -> Any:  # noqa: A002
    return quantized_matmul(g, blocks, format=format, in_tiles=in_tiles, transposed=not transposed)


def _batched(call: BatchedCall) -> Any:
    """A batch of inputs is a further axis of them."""
    return NotImplemented if call.batched[1] else call.apply(*call.inputs)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(
        name: str, lead: tuple[int, ...], blocks: int, rows: int, in_tiles: bool, transposed: bool, note: str = ""
    ) -> Sample:
        width = blocks * formats.FORMATS[name].block
        x = rng.uniform(-1, 1, (*lead, rows if transposed else width))
        params = {"format": name, "in_tiles": in_tiles, "transposed": transposed}
        return Sample((x, sample_blocks(rng, name, rows, width, in_tiles)), params, note=note)

    return [
        *(sample(name, (3,), 2, 32, True, False, f"{name} in tiles") for name in formats.FORMATS),
        sample("q4_0", (), 3, 5, False, False),
        sample("q4_0", (), 5, 48, True, False),
        sample("q4_k", (2, 17), 3, 16, True, False, "many rows and terms"),
        sample("q6_k", (0,), 1, 16, True, False),
        sample("q4_k", (5,), 1, 16, True, True),
    ]


def _terms(specs: Specs, params: Params) -> int:
    """Kernels round each 32 numbers of x to 16 bits, which is off by 2^-16.8 of the largest (root mean square).

    With x up to 1 and n weights of root mean square 1 / sqrt(n), as in the samples, that is the standard deviation of a result.
    The bound of 1024 n roundings of float32 is 7 of them for 64 terms, and more for longer sums.
    """
    return 1024 * tensor_at(specs, 0).shape[-1]


def _gradient_terms(specs: Specs, params: Params) -> int:
    """As `_terms`: the gradient is a sum over the other axis of the weights."""
    blocks, width = blocks_and_weights(specs, params, 1)
    return 1024 * max(blocks.shape[0], width)


quantized_matmul: OpFunction = declare(
    _quantized_matmul,
    name="quantized_matmul",
    family="contraction",
    infer=_infer,
    lowering=Decompose(_decomposed, widen=False),  # halves may run on matrix units, which accumulate in float32
    batching=_batched,
    gradient=(_gradient, None),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((4, 18), np.uint8)), {"format": "q4_0"}, ValueError, "does not fit"),
        ErrorSample((np.zeros((2, 32)), np.zeros((4, 18), np.uint8)), {"format": "q9"}, ValueError, "no format 'q9'"),
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(4.0, floor=1.0, terms=_terms, gradient_terms=_gradient_terms, rounded=1),
    flops=lambda specs, outs, params: 2 * outs[0].size * math.prod(tensor_at(specs, 0).shape[-1:]),
    settings=("precision",),
    autocast=Autocast.HALF,
)
