"""Samples of matrix products for matrix units: whole and ragged tiles, batches, many terms, epilogues.

The samples of the ops themselves are mostly too small for such units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.samples import Sample

_WIDE = {"out_dtype": dtypes.float32}
"""Sums stored without rounding: they differ from the reference only by rounding within the unit."""
_MATMUL: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((64, 64), (64, 64), _WIDE),
    ((130, 70), (70, 90), _WIDE),
    ((33, 67), (67, 65), {}),
    ((128, 96), (96, 192), {}),
    ((3, 72, 64), (3, 64, 136), _WIDE),
    ((2, 3, 40, 48), (48, 56), {}),
    ((48, 2100), (2100, 40), _WIDE),
)
_LARGE: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]] = ((1540, 72), (72, 1288), _WIDE)
"""A product with enough tiles of every size for the largest GPUs, so that the largest tiles are used."""


def product_ops(dtype: DType) -> Iterator[OpDef]:
    """Yield the products with such samples, in one dtype, each in several layouts of memory."""

    def matmul(rng: np.random.Generator) -> list[Sample]:
        return [Sample((rng.uniform(-1, 1, a), rng.uniform(-1, 1, b)), p, differentiable=False) for a, b, p in _MATMUL]

    def linear(rng: np.random.Generator) -> list[Sample]:
        shapes = (((5, 20, 72), 136, True), ((70, 64), 64, False), ((64, 33), 80, True))
        return [
            Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, (n, s[-1])), rng.uniform(-1, 1, n) if bias else None))
            for s, n, bias in shapes
        ]

    def fused(rng: np.random.Generator) -> list[Sample]:
        shapes: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
            (70, 64, 50, {"activation": "gelu_tanh", "scale": 0.5}),
            (128, 40, 72, {"activation": "relu"}),
        )
        return [
            Sample(tuple(rng.uniform(-1, 1, s) for s in ((m, k), (n, k), (n,), (m, n))), params)
            for m, k, n, params in shapes
        ]

    for name, samples in (("matmul", matmul), ("linear", linear), ("fused_linear", fused)):
        yield _with_samples(OPS[name], samples, (dtype,))


def large_product(dtype: DType) -> OpDef:
    """Return a product of many tiles, to be checked once: as an op of another primary dtype, in which all layouts would run."""

    def samples(rng: np.random.Generator) -> list[Sample]:
        a, b, params = _LARGE
        return [Sample((rng.uniform(-1, 1, a), rng.uniform(-1, 1, b)), params, differentiable=False)]

    return _with_samples(OPS["matmul"], samples, (dtypes.float32, dtype))


def _with_samples(op: OpDef, samples: Any, of: tuple[DType, ...]) -> OpDef:
    return replace(op, tests=op.tests._replace(samples=samples, dtypes=of))
