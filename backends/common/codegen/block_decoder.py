"""Code that decodes quantised blocks, derived from the declarations of the formats (`hal.quantization`).

Kernels decode spans of 32 weights. In every format a weight is `scale * (code - zero)`, possibly plus a least value, where the
scale is common to a part of 16 or 32 weights. Codes are computed for four weights at a time, as four bytes of a word, so that
one shift or mask serves all four. The code of all spans of a block is the same, up to numbers that depend on the span's number:
these become expressions of it.

Texts are expressions that OpenCL C and WGSL share. "@" stands for a prefix that a kernel chooses: `@span` is the span's number
in its block, `@w0`, `@w1`, ... are the words of `BlockDecoder.words`, `@h8` is the float16 number in the field that begins at
byte 8, as a float, and `@b8` the byte there. Functions: `select(no, yes, condition)`, `float_of` and `signed_of` (of a byte),
`power_of` (2^(x - 128)), `looked_up` (four bytes of `BlockDecoder.table` for four indices).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from polyhal.backends.common.codegen.block_symbols import (
    Binary,
    Bits,
    BlockConstant,
    BlockExpression,
    Byte,
    Float,
    Half,
    Lookup,
    Power,
    Signed,
    weights_of_a_block,
)
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.formats import format_named

SPAN = 32
"""Weights that are decoded together."""
_QUAD = 4
_EACH_BYTE = 0x01010101
_NUMBER = re.compile(r"<(\d+)>")
_WORD = re.compile(r"W\[(\d+);([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class BlockDecoder:
    """Texts that decode a span."""

    spans: int
    """Spans of a block."""
    block_bytes: int
    words: tuple[tuple[int, str], ...]
    """Words of four bytes that the texts read: first byte of the field, and number of the word in it."""
    halfs: tuple[int, ...]
    """Fields of float16 numbers that the texts read, by their first byte."""
    bytes: tuple[int, ...]
    """Fields of one byte that the texts read."""
    codes: tuple[str, ...]
    """Words of four codes, one per byte."""
    zero: int
    scales: tuple[str, ...]
    """Scales of the parts of a span."""
    leasts: tuple[str, ...]
    """Least values of the parts; empty if they are zero."""
    table: tuple[int, ...]
    """Table of `looked_up`, whose length is a power of two; empty without one."""


@dataclass(frozen=True, slots=True)
class _Weight:
    scale: BlockExpression
    code: BlockExpression
    """An integer from 0 to 255."""
    zero: int
    least: BlockExpression | None


@lru_cache
def decoder(name: str) -> BlockDecoder:
    """Derive the decoder of a format. Raises NotImplementedError if its weights do not have the form that kernels decode."""
    form = format_named(name)
    weights = [_factored(w) for w in weights_of_a_block(form)]
    part = _part(weights)
    spans = range(form.block // SPAN)
    zeros, tables = {w.zero for w in weights}, {w.code.table for w in weights if isinstance(w.code, Lookup)}
    if form.block % SPAN or len(zeros) != 1 or len(tables) > 1:
        raise NotImplementedError(
            f"{name}: blocks of {form.block} weights with {len(zeros)} zeros and {len(tables)} tables"
        )

    def fitted(offset: int, text: Callable[[Sequence[_Weight]], str]) -> str:
        return _fitted({s: text(weights[s * SPAN + offset :]) for s in spans})

    codes = [fitted(q, lambda at: _packed([w.code for w in at[:_QUAD]])[0]) for q in range(0, SPAN, _QUAD)]
    scales = [fitted(i, lambda at: _float(at[0].scale)) for i in range(0, SPAN, part)]
    leasts = [fitted(i, lambda at: _float(_some(at[0].least))) for i in range(0, SPAN, part) if weights[0].least]
    return _with_words(form, [*codes, *scales, *leasts], len(codes), len(scales), zeros.pop(), tables)


def _some(x: BlockExpression | None) -> BlockExpression:
    if x is None:
        raise NotImplementedError("weights with and without a least value in one block")
    return x


def _factored(weight: BlockExpression) -> _Weight:
    """Return a weight as scale, code, zero and least value."""
    match weight:
        case Binary("+", Binary("*", scale, values), least):
            return _Weight(scale, *_code(values), least)
        case Binary("-", Binary("*", scale, values), least):
            return _Weight(scale, *_code(values), least * -1.0)
        case Binary("*", scale, values):
            return _Weight(scale, *_code(values), None)
    raise NotImplementedError(f"a weight is {weight}; kernels decode scale * (code - zero) + least")


def _code(values: BlockExpression) -> tuple[BlockExpression, int]:
    """Return the code, from 0 to 255, and the zero of a weight without its scale."""
    match values:
        case Binary("-", Float(code), BlockConstant(zero)):
            return code, int(zero)
        case Lookup(table, code):
            lowest = int(min(table))
            return Lookup(tuple(x - lowest for x in table), code), -lowest
        case Float(Signed()):
            return values.integer, 1 << 7
        case Float(code):
            return code, 0
    raise NotImplementedError(f"the values of weights are {values}; kernels decode codes, tables and signed bytes")


def _part(weights: Sequence[_Weight]) -> int:
    """Return the number of weights with a common scale, at most a span."""

    def common(i: int, j: int) -> bool:
        return weights[i].scale == weights[j].scale and weights[i].least == weights[j].least

    part = SPAN
    while not all(common(i, i - i % part) for i in range(len(weights))):
        part //= 2
    if part < _QUAD:
        raise NotImplementedError(f"a scale for every {part} weights; kernels decode {_QUAD} at a time")
    return part


def _packed(quad: Sequence[BlockExpression]) -> tuple[str, int]:
    """Return a word whose bytes are four integers, and their maximum."""
    match quad:
        case [Byte(field, first), Byte(), Byte(), Byte()] if first % _QUAD == 0 and list(quad) == [
            Byte(field, first + i) for i in range(_QUAD)
        ]:
            return _word(field, first // _QUAD), 255
        case [Signed(), Signed(), Signed(), Signed()]:
            word, _ = _packed([e.byte for e in quad if isinstance(e, Signed)])
            return f"({word} ^ {_hex(128)})", 255
        case [Lookup(table, _), Lookup(), Lookup(), Lookup()]:
            word, most = _packed([e.index for e in quad if isinstance(e, Lookup)])
            if most < len(table):
                return f"looked_up({word})", int(max(table))
        case [Binary("+"), Binary("+"), Binary("+"), Binary("+")]:
            sides = [(e.left, e.right) for e in quad if isinstance(e, Binary)]
            (left, a), (right, b) = (_packed(side) for side in zip(*sides, strict=True))
            if a + b <= 255:
                return f"({left} + {right})", a + b
        case [Bits(operation, _, n), Bits(), Bits(), Bits()]:
            if all(isinstance(e, Bits) and (e.operation, e.number) == (operation, n) for e in quad):
                return _packed_bits(operation, n, [e.operand for e in quad if isinstance(e, Bits)])
    words = [f"({_integer(e)} << {8 * i}u)" for i, e in enumerate(quad)]
    return f"({' | '.join(words)})", 255


def _packed_bits(operation: str, number: int, operands: Sequence[BlockExpression]) -> tuple[str, int]:
    shifts = [e.number if isinstance(e, Bits) and e.operation == ">>" else 0 for e in operands]
    inner = [e.operand if isinstance(e, Bits) and e.operation == ">>" else e for e in operands]
    if operation == "&" and number == 1 and len(set(inner)) == 1 and shifts == [shifts[0] + i for i in range(_QUAD)]:
        # Four bits of one byte, to the lowest bits of four bytes.
        return f"((((({_integer(inner[0])}) >> {_hole(shifts[0])}) & 15u) * 0x00204081u) & {_hex(1)})", 1
    if operation == "&" and len(set(shifts)) == 1 and number <= 255 >> shifts[0]:
        word, most = _packed(inner)
        shifted = f"({word} >> {_hole(shifts[0])})" if shifts[0] or _varies(operands) else word
        return f"({shifted} & {_hex(number)})", min(number, most)
    word, most = _packed(operands)
    if operation == "&":
        return f"({word} & {_hex(number)})", min(number, most)
    if operation == ">>":
        return f"(({word} >> {_hole(number)}) & {_hex(255 >> number)})" if number else word, most >> number
    if most << number > 255:
        raise NotImplementedError(f"codes up to {most << number}; expected bytes")
    return f"({word} << {_hole(number)})", most << number


def _varies(operands: Sequence[BlockExpression]) -> bool:
    """Return whether other spans may shift these operands: a shift by 0 is then written, too."""
    return all(isinstance(e, Bits) and e.operation == ">>" for e in operands)


def _integer(e: BlockExpression) -> str:
    match e:
        case Byte(field, index):
            return f"(({_word(field, index // _QUAD)} >> {_hole(8 * (index % _QUAD))}) & 255u)"
        case Bits(operation, operand, number):
            return f"({_integer(operand)} {operation} {_hole(number) if operation != '&' else f'{number}u'})"
        case Binary("+", left, right):
            return f"({_integer(left)} + {_integer(right)})"
    raise NotImplementedError(f"{e} among integers of a format")


def _float(e: BlockExpression) -> str:
    match e:
        case Half(field):
            return f"@h{field}"
        case BlockConstant(value):
            return f"({value!r}f)"
        case Float(Signed(Byte() as byte)):
            return f"signed_of({_integer(byte)})"
        case Float(integer):
            return f"float_of({_integer(integer)})"
        case Power(Byte(field, 0)):
            return f"power_of(@b{field})"
        case Binary(operation, left, right):
            return f"({_float(left)} {operation} {_float(right)})"
    raise NotImplementedError(f"{e} among floats of a format")


def _word(field: int, index: int) -> str:
    return f"W[{field};{_hole(index)}]"


def _hole(n: int) -> str:
    """Return a number that may depend on the span."""
    return f"<{n}>"


def _hex(byte: int) -> str:
    return f"0x{byte * _EACH_BYTE:08x}u"


def _fitted(texts: Mapping[int, str]) -> str:
    """Return one text for all spans, with expressions of the span's number for the numbers in which they differ."""
    if len({_NUMBER.sub("<>", t) for t in texts.values()}) == 1:
        numbers = [[int(n) for n in _NUMBER.findall(t)] for t in texts.values()]
        of_holes = [_as_bits(dict(zip(texts, column, strict=True))) for column in zip(*numbers, strict=True)]
        if all(of_holes):
            found = iter(of_holes)
            return _NUMBER.sub(lambda _: str(next(found)), next(iter(texts.values())))
    differing = [b for b in range(8) if len({s >> b & 1 for s in texts}) == 2]
    if not differing:
        raise NotImplementedError("the spans of a block are decoded in too many ways")
    bit = differing[-1]
    no, yes = (_fitted({s: t for s, t in texts.items() if s >> bit & 1 == side}) for side in (0, 1))
    return f"select({no}, {yes}, (@span & {1 << bit}u) != 0u)"


def _as_bits(values: Mapping[int, int]) -> str | None:
    """Return an expression of the span's number with these values: a sum over its bits. None if there is none."""
    first = min(values)
    start = values[first]
    steps = {b: values[first | 1 << b] - start for b in range(8) if not first >> b & 1 and first | 1 << b in values}
    if any(
        start + sum(step for b, step in steps.items() if s >> b & 1 and not first >> b & 1) != v
        for s, v in values.items()
    ):
        return None
    if any(step < 0 for step in steps.values()):
        return None
    terms, bits = [], [b for b, step in steps.items() if step]
    while bits:
        low = high = bits.pop(0)
        while bits and bits[0] == high + 1 and steps[bits[0]] == 2 * steps[high]:
            high = bits.pop(0)
        shifted = f"(@span >> {low}u)" if low else "@span"
        masked = f"({shifted} & {(2 << high - low) - 1}u)"
        terms.append(masked if steps[low] == 1 else f"{masked} * {steps[low]}u")
    if not terms:
        return f"{start}u"
    return f"({' + '.join([f'{start}u', *terms] if start else terms)})"


def _with_words(
    form: BlockFormat, texts: Sequence[str], codes: int, parts: int, zero: int, tables: set[tuple[float, ...]]
) -> BlockDecoder:
    words: dict[tuple[int, str], int] = {}

    def named(found: re.Match[str]) -> str:
        return f"@w{words.setdefault((int(found[1]), found[2]), len(words))}"

    done = tuple(_WORD.sub(named, t) for t in texts)

    def fields(letter: str) -> tuple[int, ...]:
        return tuple(sorted({int(n) for t in done for n in re.findall(rf"@{letter}(\d+)", t)}))

    return BlockDecoder(
        spans=form.block // SPAN,
        block_bytes=form.block_bytes,
        words=tuple(words),
        halfs=fields("h"),
        bytes=fields("b"),
        codes=done[:codes],
        zero=zero,
        scales=done[codes : codes + parts],
        leasts=done[codes + parts :],
        table=tuple(int(x) for x in next(iter(tables), ())),
    )
