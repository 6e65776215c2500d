"""Counter-based random numbers: the same seed gives the same bits on every device.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), Philox4x32-10. The key is the seed and the
counter the offset plus the number of the block; each block yields four 32-bit words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import View
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    OutputRegion,
    Regions,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
)
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import stack
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import infer_same, reshape
from polyhal.hal.ops.pointwise.logic import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    greater_equal,
    less,
)
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_MASK = 0xFFFFFFFF
_PART = 1 << 18
"""Words, a multiple of a block, that NumPy computes in one step."""


def philox(seed: int, offset: int, blocks: int) -> np.ndarray:
    """`blocks` blocks of four uint32 words, in NumPy: shape (blocks, 4)."""
    counter = np.uint64(offset) + np.arange(blocks, dtype=np.uint64)
    c0, c1 = (counter & np.uint64(_MASK)), (counter >> np.uint64(32))
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        high0, low0 = p0 >> np.uint64(32), p0 & np.uint64(_MASK)
        high1, low1 = p1 >> np.uint64(32), p1 & np.uint64(_MASK)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), low1, high0 ^ c3 ^ np.uint64(k1), low0
        k0, k1 = (k0 + WEYL[0]) & _MASK, (k1 + WEYL[1]) & _MASK
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def blocks_for(size: int) -> int:
    """The number of blocks that `size` words take, by which a generator's offset advances."""
    return -(-size // 4)


# --- the generator made of ops on int32, which every device has ------------------------------------------------------


def signed_word(word: int) -> int:
    """Return the low 32 bits of a number as an int32."""
    return ((word & _MASK) ^ 1 << 31) - (1 << 31)


def shifted_right(words: TensorLike, bits: int) -> Any:
    """Shift 32-bit words in int32 right by 1 to 31 bits, with zeros from the left."""
    return bitwise_and(bitwise_right_shift(words, bits), (1 << (32 - bits)) - 1)


def unsigned(words: TensorLike) -> Any:
    """Map words in int32 to numbers with the order of their unsigned values."""
    return bitwise_xor(words, -(1 << 31))


def _word(number: int, *, word: int) -> Any:
    """Return one 32-bit word of an integer, counted from the lowest, as a tensor of one int32."""
    return np.array([signed_word(int(number) >> 32 * word)], np.int32)


def _signed_word_at(number: Any, word: int) -> Any:
    """Return `signed_word(number >> 32 * word)` by the arithmetic of runtime scalars."""
    return (number // (1 << 32 * word) + (1 << 31)) % (1 << 32) - (1 << 31)


_number_word = declare(
    _word,
    name="number_word",
    family="creation",
    infer=lambda specs, params: [(dtypes.int32, (1,))],
    lowering=Regions(
        lambda specs, outputs, params: [
            OutputRegion(View((1,), (1,)), source=0, of=lambda number: _signed_word_at(number, int(params["word"])))
        ]
    ),
    traits=Trait.CREATION | Trait.VARYING,
    public=False,
    samples=lambda rng: [Sample((n,), {"word": w}) for n in (7, (1 << 62) + 0xFFFF0001, -2) for w in (0, 1)],
    tolerance=Tolerance(0.0),
)


def multiply_words(a: TensorLike, b: Any) -> tuple[Any, Any]:
    """Return the high and the low word of a 32-bit product, from 16-bit halves: the contract has no wide multiplication.

    `b` is a tensor or a number. Words are in int32, with the bits of their unsigned values.
    """
    if isinstance(b, int):
        high, low = b >> 16, b & 0xFFFF
    else:
        high, low = shifted_right(b, 16), bitwise_and(b, 0xFFFF)
    a_low, a_high = bitwise_and(a, 0xFFFF), shifted_right(a, 16)
    ll, lh, hl, hh = a_low * low, a_low * high, a_high * low, a_high * high
    middle = shifted_right(ll, 16) + bitwise_and(lh, 0xFFFF) + bitwise_and(hl, 0xFFFF)
    top = hh + shifted_right(lh, 16) + shifted_right(hl, 16) + bitwise_right_shift(middle, 16)
    return top, bitwise_or(bitwise_left_shift(middle, 16), bitwise_and(ll, 0xFFFF))


def _random_words_decomposed(seed: TensorLike, offset: TensorLike, *, shape: tuple[int, ...]) -> Any:
    size = math.prod(shape)
    blocks = blocks_for(size)
    start, high = _number_word(offset, 0), _number_word(offset, 1)
    c0 = start + arange(0, blocks, 1, dtypes.int32)
    c1 = high + where(less(unsigned(c0), unsigned(start)), 1, 0).cast(dtype=dtypes.int32)
    c2 = bitwise_xor(c0, c0)
    c3 = c2
    k0, k1 = _number_word(seed, 0), _number_word(seed, 1)
    for i in range(ROUNDS):
        high0, low0 = multiply_words(c0, MULTIPLIERS[0])
        high1, low1 = multiply_words(c2, MULTIPLIERS[1])
        c0, c1 = bitwise_xor(bitwise_xor(high1, c1), k0), low1
        c2, c3 = bitwise_xor(bitwise_xor(high0, c3), k1), low0
        if i + 1 < ROUNDS:
            k0, k1 = k0 + signed_word(WEYL[0]), k1 + signed_word(WEYL[1])
    words = reshape(stack([c0, c1, c2, c3], 1), (blocks * 4,))
    return reshape(slice_(words, (0,), (size,), (1,)), shape)


# --- ops ------------------------------------------------------------------------------------------------------------

_SAMPLES: list[tuple[int, int, tuple[int, ...]]] = [
    (0, 0, (7,)),
    (12345678901234567, (1 << 32) - 2, (3, 5)),
    (1, 5, (33,)),
    (3, 0, ()),
]
"""Seeds, offsets and shapes; one counter crosses a word."""


def declare_random(
    reference: Callable[..., Any],
    *,
    name: str,
    decompose: Callable[..., Any],
    tolerance: Tolerance,
    words_dtype: DType = dtypes.uint32,
) -> OpFunction:
    """Declare an op of seed and offset that creates a tensor of `shape`.

    The result has the float `dtype` if the reference takes one, else it consists of words in `words_dtype`.
    """
    takes_dtype = "dtype" in (reference.__kwdefaults__ or {})

    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        shape = params["shape"]
        params["shape"] = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        if not takes_dtype:
            return [(words_dtype, params["shape"])]
        dtype = params["dtype"] = as_dtype(params["dtype"])
        if not dtype.is_floating_point:
            raise TypeError(f"dtype {dtype.name}; expected a floating-point dtype")
        return [(dtype, params["shape"])]

    dtype_params = [{"dtype": d} for d in (dtypes.float32, dtypes.float16)] if takes_dtype else [{}]
    wrong_dtype = ErrorSample((0, 0), {"shape": (2,), "dtype": dtypes.int32}, ValueError, "floating")
    return declare(
        reference,
        name=name,
        family="random",
        infer=infer,
        lowering=Decompose(decompose),
        traits=Trait.CREATION | Trait.VARYING,
        public=False,
        samples=lambda rng: [
            Sample((seed, offset), {"shape": shape, **params})
            for seed, offset, shape in _SAMPLES
            for params in dtype_params
        ],
        errors=[wrong_dtype] if takes_dtype else [],
        tolerance=tolerance,
    )


def from_words(
    seed: int, offset: int, shape: tuple[int, ...], dtype: Any, convert: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Convert each word that a random op of `shape` draws to a number in a dtype of NumPy.

    Works in parts, because intermediate results of all words would need many times the memory of the result.
    """
    out = np.empty(math.prod(shape), dtype)
    for start in range(0, out.size, _PART):
        part = out[start : start + _PART]
        words = philox(int(seed), int(offset) + start // 4, blocks_for(part.size)).reshape(-1)
        part[...] = convert(words[: part.size])
    return out.reshape(shape)


def words_of(seed: int, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    """The words that a random op of `shape` draws, in NumPy."""
    return from_words(seed, offset, shape, np.uint32, lambda words: words)


def _random_bits(seed: int, offset: int, *, shape: tuple[int, ...]) -> Any:
    """Uniformly distributed uint32 words; element i is word i % 4 of block `offset + i // 4` under key `seed`."""
    return words_of(seed, offset, shape)


def _random_words(seed: int, offset: int, *, shape: Any) -> Any:
    """Return the words of `random_bits` as int32, for devices without uint32."""
    return words_of(seed, offset, shape).view(np.int32)


random_words = declare_random(
    _random_words,
    name="random_words",
    decompose=_random_words_decomposed,
    tolerance=Tolerance(0.0),
    words_dtype=dtypes.int32,
)
random_bits = declare_random(
    _random_bits,
    name="random_bits",
    decompose=lambda seed, offset, *, shape: random_words(seed, offset, shape).cast(dtype=dtypes.uint32),
    tolerance=Tolerance(0.0),
)


def _uniform(seed: int, offset: int, *, shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Any:
    """Uniform numbers in [0, 1), multiples of 2^-24."""
    return from_words(seed, offset, shape, as_dtype(dtype).numpy, _uniform_numbers)


def _uniform_numbers(words: np.ndarray) -> np.ndarray:
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _uniform_decomposed(seed: TensorLike, offset: TensorLike, *, shape: tuple[int, ...], dtype: DType) -> Any:
    return shifted_right(random_words(seed, offset, shape), 8).cast(dtype=dtypes.float32) * 2.0**-24


uniform = declare_random(_uniform, name="uniform", decompose=_uniform_decomposed, tolerance=Tolerance(0.0))


def dropout_threshold(p: float) -> int:
    """Words below this drop an element with probability `p`."""
    return min(int(p * 2**32), _MASK)


def _dropout(x: Array, seed: int, offset: int, *, p: float) -> Any:
    """`x` with each element zeroed with probability `p`, the others scaled by 1/(1-p)."""
    x = np.asarray(x)
    keep = _random_bits(seed, offset, shape=x.shape) >= np.uint32(dropout_threshold(p))
    return np.where(keep, x * (1 / (1 - p)), 0)


def _infer_dropout(specs: Specs, params: Params) -> list[Output]:
    if not 0 <= params["p"] < 1:
        raise ValueError(f"p is {params['p']}; expected 0 <= p < 1")
    return infer_same(specs, params)


def _dropout_decomposed(x: TensorLike, seed: TensorLike, offset: TensorLike, *, p: float) -> Any:
    words = unsigned(random_words(seed, offset, x.shape))
    return where(greater_equal(words, dropout_threshold(p) - (1 << 31)), x * (1 / (1 - p)), 0.0)


def _dropout_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((rng.uniform(0.5, 2, s), 42, 3), {"p": p})
        for s, p in [((33,), 0.25), ((3, 5, 7), 0.5), ((4,), 0.0), ((0, 3), 0.1)]
    ]


dropout: OpFunction = declare(
    _dropout,
    name="dropout",
    family="random",
    infer=_infer_dropout,
    lowering=Decompose(_dropout_decomposed),
    traits=Trait.VARYING,
    public=False,
    gradient=lambda g, seed, offset, *, p: (dropout(g, seed, offset, p), None, None),
    samples=_dropout_samples,
    errors=[ErrorSample((np.zeros(2), 0, 0), {"p": 1.5}, ValueError, "expected 0 <= p < 1")],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(1.0),
)
