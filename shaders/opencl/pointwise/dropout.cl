// Dropout: zeroes elements of x at random and scales the others. Each work-item handles the four elements of one Philox block,
// so the gradient drops the same elements when given the same seed and counter.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// 1: x has up to three axes with strides, the last two of lengths length1 and length2; 0: x is contiguous.
#ifndef STRIDED
#define STRIDED 0
#endif
#define WIDTH 4
#ifndef ALIGNED
#define ALIGNED 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/philox.h"

__kernel void pointwise_dropout(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                                const ulong out_offset, const ulong size, const ulong seed, const ulong counter,
                                const uint threshold, const REAL scale, const ulong length1, const ulong length2,
                                const long x_stride0, const long x_stride1, const long x_stride2) {
    const ulong first = (ulong)get_global_id(0) * 4;
    if (first >= size) return;
    uint words[4];
    philox(counter + get_global_id(0), seed, words);
    const ulong left = size - first;
#if !STRIDED
    if (left >= 4) {
        const VEC(REAL) values = LOADV(DTYPE, x + x_offset + first) * scale;
        const VEC(REAL) kept = (VEC(REAL))(words[0] >= threshold ? values.s0 : 0, words[1] >= threshold ? values.s1 : 0,
                                           words[2] >= threshold ? values.s2 : 0, words[3] >= threshold ? values.s3 : 0);
        STOREV(DTYPE, kept, out + out_offset + first);
        return;
    }
#endif
    for (uint i = 0; i < 4; i++) {
        if (i >= left) break;
        const ulong at = first + i;
#if STRIDED
        const ulong row = at / length2;
        const long from = (long)(row / length1) * x_stride0 + (long)(row % length1) * x_stride1 +
                          (long)(at % length2) * x_stride2;
#else
        const ulong from = at;
#endif
        const REAL value = LOAD(DTYPE, x + x_offset, from);
        STORE(DTYPE, words[i] >= threshold ? value * scale : (REAL)0, out + out_offset, at);
    }
}
