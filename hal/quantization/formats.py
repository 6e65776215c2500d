"""All formats of quantised weights by name, and conversion of rows of weights on the host."""

from __future__ import annotations

import numpy as np

from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.blocks_of_32 import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from polyhal.hal.quantization.numpy_arithmetic import NumpyArithmetic
from polyhal.hal.quantization.super_blocks import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from polyhal.hal.quantization.tables import IQ4_NL, MXFP4

FORMATS = {f.name: f for f in (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4)}
"""Formats by name."""
_NUMPY = NumpyArithmetic()
_BLOCKS = 4096
"""Blocks that are converted at a time, so that temporary arrays stay small."""


def format_named(name: str) -> BlockFormat:
    """Return a format. Raises ValueError for an unknown name."""
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}; expected one of {', '.join(FORMATS)}")
    return FORMATS[name]


def dequantize(blocks: np.ndarray, name: str) -> np.ndarray:
    """Weights (..., n), float32, of rows of blocks (..., bytes), uint8."""
    form = format_named(name)
    *lead, size = blocks.shape
    weights = form.row_weights(size)
    flat = np.ascontiguousarray(blocks).reshape(-1, form.block_bytes)
    out = np.empty((len(flat), form.block), np.float32)
    for i in range(0, len(flat), _BLOCKS):
        out[i : i + _BLOCKS] = form.weights(_NUMPY, flat[i : i + _BLOCKS].astype(np.int32))
    return out.reshape(*lead, weights)


def quantize(weights: np.ndarray, name: str) -> np.ndarray:
    """Rows of blocks (..., bytes), uint8, of weights (..., n). Raises ValueError unless n fills blocks."""
    form = format_named(name)
    *lead, count = weights.shape
    size = form.row_bytes(count)
    flat = np.ascontiguousarray(weights, np.float32).reshape(-1, form.block)
    out = np.empty((len(flat), form.block_bytes), np.uint8)
    for i in range(0, len(flat), _BLOCKS):
        fields = form.encode(flat[i : i + _BLOCKS])
        np.concatenate([fields[name] for name, _ in form.fields], -1, out=out[i : i + _BLOCKS])
    return out.reshape(*lead, size)
