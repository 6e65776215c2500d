"""Formats with blocks of 32 weights and float16 scales: q8_0, and codes of 4 and 5 bits with or without a least value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.quantization.block_format import BlockArithmetic, BlockFormat, Fields
from polyhal.hal.quantization.bytes_of_fields import halfs, nibbles
from polyhal.hal.quantization.scale_search import inverse, signed_largest

_BLOCK = 32


def nibble_codes(a: BlockArithmetic, qs: Any) -> Any:
    """Codes of 4 bits (..., 32) of 16 bytes: the low halves first."""
    codes = a.stack((a.masked(qs, 15), a.right(qs, 4)), -2)
    return a.reshape(codes, (*qs.shape[:-1], 2 * qs.shape[-1]))


def _five_bits(a: BlockArithmetic, f: Fields) -> Any:
    """Codes of 5 bits: bit i of the field `qh` is the highest of code i."""
    qh = f["qh"]
    high = a.stack([a.masked(a.right(qh, i), 1) for i in range(8)], -1)
    return nibble_codes(a, f["qs"]) + a.left(a.reshape(high, (*qh.shape[:-1], _BLOCK)), 4)


def _decode_8(a: BlockArithmetic, f: Fields) -> Any:
    return a.halfs(f["d"]) * a.floats(a.signed_bytes(f["qs"]))


def _encode_8(x: np.ndarray) -> dict[str, np.ndarray]:
    d = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    scaled = x * inverse(d)
    q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero
    return {"d": halfs(d), "qs": q.astype(np.int8).view(np.uint8)}


def _symmetric(codes: Callable[[BlockArithmetic, Fields], Any], zero: int) -> Callable[[BlockArithmetic, Fields], Any]:
    return lambda a, f: a.halfs(f["d"]) * (a.floats(codes(a, f)) - float(zero))


def _affine(codes: Callable[[BlockArithmetic, Fields], Any]) -> Callable[[BlockArithmetic, Fields], Any]:
    return lambda a, f: a.halfs(f["d"]) * a.floats(codes(a, f)) + a.halfs(f["m"])


def _four(a: BlockArithmetic, f: Fields) -> Any:
    return nibble_codes(a, f["qs"])


def _encode_symmetric(zero: int, five: bool) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    def encode(x: np.ndarray) -> dict[str, np.ndarray]:
        d = signed_largest(x) / np.float32(-zero)
        # The product is rounded once, as ggml's compilers contract it and the sum.
        q = np.float32(x * inverse(d).astype(np.float64) + zero + 0.5)
        return {"d": halfs(d), **_code_fields(np.clip(np.trunc(q), 0, 2 * zero - 1), five)}

    return encode


def _encode_affine(top: int, five: bool) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    def encode(x: np.ndarray) -> dict[str, np.ndarray]:
        least = x.min(-1, keepdims=True)
        d = (x.max(-1, keepdims=True) - least) / np.float32(top)
        q = np.clip(np.trunc((x - least) * inverse(d) + np.float32(0.5)), 0, top)
        return {"d": halfs(d), "m": halfs(least), **_code_fields(q, five)}

    return encode


def _code_fields(q: np.ndarray, five: bool) -> dict[str, np.ndarray]:
    q = q.astype(np.uint8)
    high = {"qh": np.packbits(q >> 4, axis=-1, bitorder="little")} if five else {}
    return {**high, "qs": nibbles(q & 15)}


Q8_0 = BlockFormat("q8_0", _BLOCK, (("d", 2), ("qs", 32)), _decode_8, _encode_8)
Q4_0 = BlockFormat("q4_0", _BLOCK, (("d", 2), ("qs", 16)), _symmetric(_four, 8), _encode_symmetric(8, False))
Q4_1 = BlockFormat("q4_1", _BLOCK, (("d", 2), ("m", 2), ("qs", 16)), _affine(_four), _encode_affine(15, False))
Q5_0 = BlockFormat(
    "q5_0", _BLOCK, (("d", 2), ("qh", 4), ("qs", 16)), _symmetric(_five_bits, 16), _encode_symmetric(16, True)
)
Q5_1 = BlockFormat(
    "q5_1", _BLOCK, (("d", 2), ("m", 2), ("qh", 4), ("qs", 16)), _affine(_five_bits), _encode_affine(31, True)
)
