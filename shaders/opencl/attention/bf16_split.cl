// Split a float32 operand of attention into BF16_TERMS bfloat16 terms per element: term 0 is the element rounded, each
// further term the rounded remainder. Three terms (bf16x3) hold all bits of a float32, at its full range.
//
// A row of the result is `pitch` elements of each term, one term after the other, padded with zeros. With more than one
// term, infinite elements become NaN.

#ifndef BF16_TERMS
#define BF16_TERMS 3
#endif
// 1: features are contiguous, in whole aligned vectors of eight.
#ifndef ALIGNED_ROWS
#define ALIGNED_ROWS 0
#endif
#define REAL float
#include "attention/geometry.h"

#define PER_ITEM 8

typedef struct {
    STRIDES(x);
    uint count, rows, features, pitch, batch1, batch2;
} SplitGeometry;

__kernel void attention_bf16_split(OPERAND(float32, x), __global ushort *terms, const SplitGeometry geometry) {
    const uint features = geometry.features, pitch = geometry.pitch, vectors = pitch / PER_ITEM;
    const uint line = get_global_id(0) / vectors, at = get_global_id(0) % vectors * PER_ITEM;
    if (line >= geometry.count) return;
    HEAD_INDICES(line / geometry.rows);
    SELECT_HEAD(x);
    x += (long)(line % geometry.rows) * x_row + at * x_column;
    terms += (ulong)line * pitch * BF16_TERMS + at;
    float rest[PER_ITEM];
#if ALIGNED_ROWS
    if (at + PER_ITEM <= features) {
        const float4 low = *(__global const float4 *)x, high = *(__global const float4 *)(x + 4);
        const float8 all = (float8)(low, high);
        vstore8(all, 0, rest);
    } else
#endif
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) rest[i] = at + i < features ? x[i * x_column] : 0.0f;
#pragma unroll
    for (uint term = 0; term < BF16_TERMS; term++) {
        ushort bits[PER_ITEM];
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) {
            bits[i] = bfloat16_of_float(rest[i]);
            // The largest floats must not round to infinity: truncated, they leave a remainder just as small.
            if (IS_INFINITE(float, float_of_bfloat16(bits[i]))) bits[i] = (ushort)(as_uint(rest[i]) >> 16);
            rest[i] -= float_of_bfloat16(bits[i]);
        }
        *(__global ushort8 *)(terms + term * pitch) =
            (ushort8)(bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7]);
    }
}
