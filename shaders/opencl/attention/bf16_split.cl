// An operand of attention, float32, as PARTS bfloat16 numbers each: part 0 is the number rounded, the others what was left of it, rounded;
// three of them hold all bits of a number, at its full range. Rows are contiguous: `pitch` elements of each part, one part after the other,
// and what a row lacks of `pitch` is filled up with zeros. What is infinite becomes NaN, where it has more than one part.

#ifndef PARTS
#define PARTS 3
#endif
// Whether features lie in whole aligned vectors of eight.
#ifndef WHOLE
#define WHOLE 0
#endif
#define REAL float
#include "attention/arguments.h"

#define PER_ITEM 8

__kernel void attention_bf16_split(OPERAND(float32, x), __global ushort *parts, const uint count, const uint rows, const uint features,
                              const uint pitch, const uint batch1, const uint batch2, STRIDES(x)) {
    const uint pieces = pitch / PER_ITEM;
    const uint line = get_global_id(0) / pieces, at = get_global_id(0) % pieces * PER_ITEM;
    if (line >= count) return;
    HEAD_NUMBERS(line / rows);
    FIND(x);
    x += (long)(line % rows) * x_row + at * x_column;
    parts += (ulong)line * pitch * PARTS + at;
    float rest[PER_ITEM];
#if WHOLE
    if (at + PER_ITEM <= features) {
        const float4 low = *(__global const float4 *)x, high = *(__global const float4 *)(x + 4);
        const float8 all = (float8)(low, high);
        vstore8(all, 0, rest);
    } else
#endif
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) rest[i] = at + i < features ? x[i * x_column] : 0.0f;
#pragma unroll
    for (uint part = 0; part < PARTS; part++) {
        ushort bits[PER_ITEM];
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) {
            bits[i] = bfloat16_of_float(rest[i]);
            // The largest numbers must not be rounded to infinity: cut, they leave a rest as small.
            if (isinf(float_of_bfloat16(bits[i]))) bits[i] = (ushort)(as_uint(rest[i]) >> 16);
            rest[i] -= float_of_bfloat16(bits[i]);
        }
        *(__global ushort8 *)(parts + part * pitch) =
            (ushort8)(bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]);
    }
}
