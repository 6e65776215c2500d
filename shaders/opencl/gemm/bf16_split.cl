// Splits a batch of float32 matrices into BF16_TERMS bfloat16 matrices each (bf16x3): term 0 is the number rounded,
// each further one the rounded remainder. Three terms hold all bits of a float32 over its full range; infinities and
// NaN stay in term 0.
//
// Lines are contiguous, zero-padded to `pitch` elements, so that they can be copied in whole 16-byte chunks. The stride
// of matrices is lines * pitch elements, of terms term_size elements. With COPY_ONLY the elements have 16 bits and are
// only copied to this layout.

#ifndef BF16_TERMS
#define BF16_TERMS 3
#endif
// 1: four neighbours can be loaded as a vector.
#ifndef VECTORS
#define VECTORS 0
#endif
#ifndef COPY_ONLY
#define COPY_ONLY 0
#endif
#include "lib/dtypes.h"

#define PER_ITEM 4
#if COPY_ONLY
#define ELEMENT ushort
#else
#define ELEMENT float
#endif

__kernel void gemm_bf16_split(__global const ELEMENT *x, const ulong x_offset, __global ushort *terms, const uint length,
                              const uint lines, const uint pitch, const ulong term_size, const long x_line,
                              const long x_element, const uint batch1, const uint batch2, const long x_batch0,
                              const long x_batch1, const long x_batch2) {
    const uint at = get_global_id(0) * PER_ITEM, line = get_global_id(1), batch = get_global_id(2);
    if (at >= pitch || line >= lines) return;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    x += x_offset + (long)i0 * x_batch0 + (long)i1 * x_batch1 + (long)i2 * x_batch2 + line * x_line;
    terms += ((ulong)batch * lines + line) * pitch + at;
    ELEMENT rest[PER_ITEM];
    if (VECTORS && at + PER_ITEM <= length) {
        const CONCAT(ELEMENT, 4) all = *(__global const CONCAT(ELEMENT, 4) *)(x + at);
        rest[0] = all.s0;
        rest[1] = all.s1;
        rest[2] = all.s2;
        rest[3] = all.s3;
    } else {
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) rest[i] = at + i < length ? x[(at + i) * x_element] : (ELEMENT)0;
    }
#if COPY_ONLY
    *(__global ushort4 *)terms = (ushort4)(rest[0], rest[1], rest[2], rest[3]);
#else
#pragma unroll
    for (uint term = 0; term < BF16_TERMS; term++) {
        ushort bits[PER_ITEM];
#pragma unroll
        for (uint i = 0; i < PER_ITEM; i++) {
            bits[i] = bfloat16_of_float(rest[i]);
            rest[i] -= float_of_bfloat16(bits[i]);
        }
        *(__global ushort4 *)(terms + term * term_size) = (ushort4)(bits[0], bits[1], bits[2], bits[3]);
    }
#endif
}
