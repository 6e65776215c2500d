"""`fused_quantized_matmul`: a product with quantised weights and an epilogue of pointwise ops, applied before it is stored.

Graph passes make it. Steps and numbers are as in `fused_matmul`, weights as in `quantized_matmul`, in tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import infer
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.fusion import EpiloguePattern
from polyhal.hal.ops.linear_algebra.fused_matmul import epilogue_inputs
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, call_steps, reference_steps, values_of
from polyhal.hal.ops.quantized.dequantize import sample_blocks
from polyhal.hal.ops.quantized.matmul import quantized_matmul


def _product_params(params: Params) -> dict[str, Any]:
    return {name: params[name] for name in ("format", "in_tiles", "transposed")}


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = infer(quantized_matmul.op, specs[:2], _product_params(params))
    dtype = params["out_dtype"] or dtype
    product = contiguous(dtype, shape)
    start = epilogue_inputs(product, specs, params)
    for value in values_of(start, params["steps"])[len(start) :]:
        if value.shape != shape or value.dtype is not dtype:
            raise ValueError(f"a step makes {value}; expected {product}, as the product")
    return [(dtype, shape)]


def _fused_quantized_matmul(
    *xs: Any,
    format: str,  # noqa: A002
    in_tiles: bool = False,
    transposed: bool = False,
    steps: Sequence[GroupStep] = (),
    numbers: Sequence[float] | tuple[int, ...] = (),
    out_dtype: Any = None,
) -> Any:
    """The last of the pointwise `steps` that are applied to `quantized_matmul` of the first two of `xs`."""
    product = quantized_matmul.op.reference(xs[0], xs[1], format=format, in_tiles=in_tiles, transposed=transposed)
    return reference_steps([product, *xs[2:], *numbers], steps)[-1]


def _opened(*xs: Any, steps: Any, numbers: Any, out_dtype: Any, **product: Any) -> Any:
    """Make the product, then its steps."""
    out = quantized_matmul(xs[0], xs[1], **product)
    out = out if out_dtype is None else cast(out, dtype=out_dtype)
    return call_steps([out, *xs[2:], *numbers], steps)[-1]


def _terms(specs: Specs, params: Params) -> int:
    """Kernels round x as in `quantized_matmul`."""
    return 1024 * first_tensor(specs).shape[-1]


def _samples(rng: np.random.Generator) -> list[Sample]:
    steps: tuple[GroupStep, ...] = (("multiply", (0, 3), ()), ("add", (4, 1), ()), ("add", (5, 2), ()))
    out = []
    for name, lead, blocks, rows in (("q4_0", (1,), 3, 48), ("q4_k", (2, 9), 2, 32), ("q6_k", (4,), 1, 16)):
        width = blocks * (32 if name == "q4_0" else 256)
        x, bias, residual = (rng.uniform(-1, 1, shape) for shape in ((*lead, width), (rows,), (*lead, rows)))
        params = {"format": name, "in_tiles": True, "steps": steps, "numbers": (0.5,)}
        out.append(
            Sample((x, sample_blocks(rng, name, rows, width, True), bias, residual), params, differentiable=False)
        )
    return out


fused_quantized_matmul = declare(
    _fused_quantized_matmul,
    name="fused_quantized_matmul",
    family="fused",
    infer=_infer,
    lowering=Decompose(_opened, widen=False),
    fuses=EpiloguePattern("quantized_matmul", {"fused_quantized_matmul": _opened}, max_steps=8, max_operands=4),
    public=False,
    samples=_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 32)), np.zeros((16, 18), np.uint8), np.zeros((5, 2, 16))),
            {"format": "q4_0", "steps": (("add", (0, 1), ()),)},
            ValueError,
            "as the product",
        )
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, floor=1.0, terms=_terms, rounded=1),
    flops=lambda specs, outs, params: 2 * outs[0].size * math.prod(first_tensor(specs).shape[-1:]),
    settings=("precision",),
    autocast=Autocast.HALF,
)
