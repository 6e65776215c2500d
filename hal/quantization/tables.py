"""Formats whose codes of 4 bits number a table of values: iq4_nl, and the floats of 4 bits of mxfp4."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.quantization.block_format import BlockArithmetic, BlockFormat, Fields
from polyhal.hal.quantization.blocks_of_32 import nibble_codes
from polyhal.hal.quantization.bytes_of_fields import halfs, nibbles, rounded_to_half
from polyhal.hal.quantization.scale_search import inverse, signed_largest

_BLOCK = 32
IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Denser around zero, where weights are."""
MXFP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of floats with 2 bits of exponent and 1 of mantissa."""


def _decode_iq4_nl(a: BlockArithmetic, f: Fields) -> Any:
    return a.halfs(f["d"]) * a.looked_up(IQ4_NL_VALUES, nibble_codes(a, f["qs"]))


def _nearest(x: np.ndarray, values: tuple[int, ...]) -> np.ndarray:
    """The codes of the values nearest to x."""
    table = np.array(values, np.float32)
    order = np.argsort(table, kind="stable")
    middles = (table[order][1:] + table[order][:-1]) / 2
    return order[np.searchsorted(middles, x, side="left")]


def _encode_iq4_nl(x: np.ndarray) -> dict[str, np.ndarray]:
    table = np.array(IQ4_NL_VALUES, np.float32)
    weights, largest = x * x, signed_largest(x)
    best, gain = np.zeros(len(x), np.float32), np.full(len(x), -1.0)
    for step in range(-8, 8):
        q = table[_nearest(x * (inverse(largest) * (table[0] + step)), IQ4_NL_VALUES)]
        products, squares = (weights * x * q).sum(-1), np.maximum((weights * q * q).sum(-1), 1e-30)
        better = products**2 / squares > gain
        best, gain = np.where(better, products / squares, best), np.maximum(gain, products**2 / squares)
    d = rounded_to_half(best[:, None])
    return {"d": halfs(d), "qs": nibbles(_nearest(x * inverse(d), IQ4_NL_VALUES))}


def _decode_mxfp4(a: BlockArithmetic, f: Fields) -> Any:
    return a.powers(f["e"]) * a.looked_up(MXFP4_VALUES, nibble_codes(a, f["qs"]))


def _encode_mxfp4(x: np.ndarray) -> dict[str, np.ndarray]:
    largest = np.abs(x).max(-1, keepdims=True)
    exponent = np.frexp(largest)[1] - 1  # of the power of two at most as large
    e = np.where(largest > 0, np.clip(exponent - 2 + 127, 0, 254), 0)
    scaled = np.ldexp(x, 128 - e)
    errors = np.abs(np.array(MXFP4_VALUES, np.float32) - scaled[..., None])
    return {"e": e.astype(np.uint8), "qs": nibbles(errors.argmin(-1))}


IQ4_NL = BlockFormat("iq4_nl", _BLOCK, (("d", 2), ("qs", 16)), _decode_iq4_nl, _encode_iq4_nl)
MXFP4 = BlockFormat("mxfp4", _BLOCK, (("e", 1), ("qs", 16)), _decode_mxfp4, _encode_mxfp4)
