// Storing the sums of tensor cores, of which a work-item holds pairs of neighbours: STORE_PAIR(first, second, at,
// left) stores two, or as many as are `left` of the row, to `out` or, with SPLIT, to `partial`. With PAIRS both go at
// once, to addresses that are aligned to them. FINISH_PAIR does so after the epilogue, for results in the matrix of
// the batch that i0, i1, i2 count.

#ifndef POLYHAL_PAIRS
#define POLYHAL_PAIRS

#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 2
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "epilogue.h"

#if SPLIT
#define STORE_ONE(value, at) (partial[at] = (value))
#define STORE_TWO(first, second, at) (*(__global float2 *)(partial + (at)) = (float2)(first, second))
#else
#define STORE_ONE(value, at) STORE(OUT_DTYPE, value, out, at)
#define STORE_TWO(first, second, at) CONCAT(store_two_, OUT_DTYPE)(first, second, out + (at))

inline void store_two_float32(float first, float second, __global float *to) {
    *(__global float2 *)to = (float2)(first, second);
}
inline void store_two_float16(float first, float second, __global half *to) {
    vstorea_half2_rte((float2)(first, second), 0, to);
}
inline void store_two_bfloat16(float first, float second, __global ushort *to) {
    *(__global ushort2 *)to = (ushort2)(bfloat16_of_float(first), bfloat16_of_float(second));
}
#endif

#define STORE_PAIR(first, second, at, left)           \
    if (PAIRS && (left) >= 2) {                       \
        STORE_TWO(first, second, at);                 \
    } else {                                          \
        if ((left) >= 1) STORE_ONE(first, at);        \
        if ((left) >= 2) STORE_ONE(second, (at) + 1); \
    }

#define FINISH_PAIR(first, second, row, column)                                    \
    if ((row) < m && (column) < n) {                                               \
        const uint left_here = min(2u, n - (column));                              \
        float2 sum = (float2)(first, second);                                      \
        EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left_here)                    \
        STORE_PAIR(sum.s0, sum.s1, (ulong)(row) * n + (column), left_here)         \
    }

#endif
