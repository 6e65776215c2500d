"""Formats with blocks of 256 weights, whose parts of 16 or 32 have small scales of their own: q2_k to q6_k."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.quantization.block_format import BlockArithmetic, BlockFormat, Fields
from polyhal.hal.quantization.bytes_of_fields import bit_fields, halfs, nibbles, rounded_to_half
from polyhal.hal.quantization.scale_search import affine, inverse, symmetric

_BLOCK = 256


def _lead(x: Any) -> tuple[int, ...]:
    return tuple(x.shape[:-1])


def _columns(a: BlockArithmetic, x: Any) -> Any:
    """One number per part, with an axis for the weights of the part."""
    return a.reshape(x, (*x.shape, 1))


def _shifted(a: BlockArithmetic, x: Any, bits: int, width: int) -> Any:
    """Codes of few bits, as `bit_fields` packs them, (..., parts of `width` codes, width)."""
    parts = a.reshape(x, (*_lead(x), x.shape[-1] // width, width))
    codes = a.stack([a.masked(a.right(parts, i), (1 << bits) - 1) for i in range(0, 8, bits)], -2)
    return a.reshape(codes, (*_lead(x), x.shape[-1] // width * (8 // bits), width))


def _six_bits(a: BlockArithmetic, s: Any) -> tuple[Any, Any]:
    """Eight scales and eight factors of least values in 12 bytes of q4_k and q5_k."""
    low, middle, high = (a.part(s, i, i + 4) for i in (0, 4, 8))
    scales = (a.masked(low, 63), a.masked(high, 15) + a.left(a.right(low, 6), 4))
    factors = (a.masked(middle, 63), a.right(high, 4) + a.left(a.right(middle, 6), 4))
    shape = (*_lead(s), 8)
    return a.floats(a.reshape(a.stack(scales, -2), shape)), a.floats(a.reshape(a.stack(factors, -2), shape))


def _packed_six_bits(scales: np.ndarray, factors: np.ndarray) -> np.ndarray:
    scales, factors = scales.astype(np.uint8), factors.astype(np.uint8)
    low = scales[:, :4] | scales[:, 4:] >> 4 << 6
    middle = factors[:, :4] | factors[:, 4:] >> 4 << 6
    return np.concatenate((low, middle, (scales[:, 4:] & 15) | (factors[:, 4:] & 15) << 4), -1)


def _with_least(a: BlockArithmetic, f: Fields, scales: Any, factors: Any, codes: Any) -> Any:
    scale = _columns(a, a.halfs(f["d"]) * scales)
    return scale * a.floats(codes) - _columns(a, a.halfs(f["dmin"]) * factors)


def _decode_2(a: BlockArithmetic, f: Fields) -> Any:
    scales, factors = a.floats(a.masked(f["scales"], 15)), a.floats(a.right(f["scales"], 4))
    codes = a.reshape(_shifted(a, f["qs"], 2, 32), (*_lead(f["qs"]), 16, 16))
    return _with_least(a, f, scales, factors, codes)


def _decode_3(a: BlockArithmetic, f: Fields) -> Any:
    low = a.part(f["scales"], 0, 8)
    low = a.reshape(a.stack((a.masked(low, 15), a.right(low, 4)), -2), (*_lead(low), 16))
    high = a.reshape(_shifted(a, a.part(f["scales"], 8, 12), 2, 4), (*_lead(low), 16))
    scales = _columns(a, a.halfs(f["d"]) * (a.floats(low + a.left(high, 4)) - 32.0))
    codes = _shifted(a, f["qs"], 2, 32) + a.left(_shifted(a, f["hmask"], 1, 32), 2)
    return scales * (a.floats(a.reshape(codes, (*_lead(low), 16, 16))) - 4.0)


def _decode_4(a: BlockArithmetic, f: Fields) -> Any:
    return _with_least(a, f, *_six_bits(a, f["scales"]), _shifted(a, f["qs"], 4, 32))


def _decode_5(a: BlockArithmetic, f: Fields) -> Any:
    codes = _shifted(a, f["qs"], 4, 32) + a.left(_shifted(a, f["qh"], 1, 32), 4)
    return _with_least(a, f, *_six_bits(a, f["scales"]), codes)


def _decode_6(a: BlockArithmetic, f: Fields) -> Any:
    low = a.reshape(_shifted(a, f["ql"], 4, 64), (*_lead(f["ql"]), 8, 32))
    codes = a.reshape(low + a.left(_shifted(a, f["qh"], 2, 32), 4), (*_lead(f["ql"]), 16, 16))
    scales = _columns(a, a.halfs(f["d"]) * a.floats(a.signed_bytes(f["scales"])))
    return scales * (a.floats(codes) - 32.0)


def _largest_part(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.max(-1, keepdims=True))


def _encoded_with_least(
    x: np.ndarray, top: int, top_scale: int, weights: np.ndarray, first: float, steps: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """The float16 fields, and scales, factors and codes as integers, of parts (blocks, parts, n)."""
    scale, least = affine(x, top, weights, first, steps)
    d, dmin = _largest_part(scale) / top_scale, _largest_part(-least) / top_scale
    scales = np.clip(np.rint(scale * inverse(d)), 0, top_scale)
    factors = np.clip(np.rint(-least * inverse(dmin)), 0, top_scale)
    steps_of, least_of = rounded_to_half(d) * scales, rounded_to_half(dmin) * factors
    codes = np.clip(np.rint((x + least_of[..., None]) * inverse(steps_of)[..., None]), 0, top)
    return {"d": halfs(d), "dmin": halfs(dmin)}, scales, factors, codes.reshape(len(x), -1)


def _encode_2(x: np.ndarray) -> dict[str, np.ndarray]:
    parts = x.reshape(-1, 16, 16)
    fields, scales, factors, codes = _encoded_with_least(parts, 3, 15, np.abs(parts), -0.5, 15)
    packed = scales.astype(np.uint8) | factors.astype(np.uint8) << 4
    return {**fields, "scales": packed, "qs": bit_fields(codes, 2, 32)}


def _encode_4_or_5(x: np.ndarray, five: bool) -> dict[str, np.ndarray]:
    parts = x.reshape(-1, 8, 32)
    weights = np.sqrt((parts**2).mean(-1, keepdims=True)) + np.abs(parts)
    top, first, steps = (31, -0.5, 15) if five else (15, -1.0, 20)
    fields, scales, factors, codes = _encoded_with_least(parts, top, 63, weights, first, steps)
    q = codes.astype(np.uint8)
    high = {"qh": bit_fields(q >> 4, 1, 32)} if five else {}
    return {**fields, "scales": _packed_six_bits(scales, factors), **high, "qs": nibbles(q & 15, 32)}


def _encoded_symmetric(x: np.ndarray, low: int, low_scale: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scale of each block, the integers of its parts' scales, and codes from 0, of parts (blocks, parts, n)."""
    scale = symmetric(x, low, x * x)
    largest = np.take_along_axis(scale, np.abs(scale).argmax(-1)[:, None], -1)
    d = rounded_to_half(largest / low_scale)
    scales = np.clip(np.rint(scale * inverse(d)), low_scale, -low_scale - 1)
    codes = np.clip(np.rint(x * inverse(d * scales)[..., None]), low, -low - 1) - low
    return d, scales, codes.reshape(len(x), -1).astype(np.uint8)


def _encode_3(x: np.ndarray) -> dict[str, np.ndarray]:
    d, scales, codes = _encoded_symmetric(x.reshape(-1, 16, 16), -4, -32)
    s = (scales + 32).astype(np.uint8)
    packed = np.concatenate((s[:, :8] & 15 | (s[:, 8:] & 15) << 4, bit_fields(s >> 4, 2, 4)), -1)
    return {"hmask": bit_fields(codes >> 2, 1, 32), "qs": bit_fields(codes & 3, 2, 32), "scales": packed, "d": halfs(d)}


def _encode_6(x: np.ndarray) -> dict[str, np.ndarray]:
    d, scales, codes = _encoded_symmetric(x.reshape(-1, 16, 16), -32, -128)
    return {
        "ql": nibbles(codes & 15, 64),
        "qh": bit_fields(codes >> 4, 2, 32),
        "scales": scales.astype(np.int8).view(np.uint8),
        "d": halfs(d),
    }


Q2_K = BlockFormat("q2_k", _BLOCK, (("scales", 16), ("qs", 64), ("d", 2), ("dmin", 2)), _decode_2, _encode_2)
Q3_K = BlockFormat("q3_k", _BLOCK, (("hmask", 32), ("qs", 64), ("scales", 12), ("d", 2)), _decode_3, _encode_3)
Q4_K = BlockFormat(
    "q4_k",
    _BLOCK,
    (("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128)),
    _decode_4,
    lambda x: _encode_4_or_5(x, five=False),
)
Q5_K = BlockFormat(
    "q5_k",
    _BLOCK,
    (("d", 2), ("dmin", 2), ("scales", 12), ("qh", 32), ("qs", 128)),
    _decode_5,
    lambda x: _encode_4_or_5(x, five=True),
)
Q6_K = BlockFormat("q6_k", _BLOCK, (("ql", 128), ("qh", 64), ("scales", 16), ("d", 2)), _decode_6, _encode_6)
