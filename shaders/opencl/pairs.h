// Finishing and storing the sums of tensor cores, of which four neighbouring work-items hold a row: groups of eight
// columns, of which each has two neighbours.
//
// FINISH_ROW(to, row, column, groups, FIRST, SECOND) does so with so many groups of a row: FIRST(j) and SECOND(j) are this
// work-item's sums of group j, which belong at to[8 * j] and to[8 * j + 1], and `column` is where the first of them is.
// Results, or, with SPLIT, float32 sums that are added up later, are of type TARGET; i0, i1, i2 count the matrices of the
// batch. All work-items of a warp take part, also those whose row is not there.
//
// With PAIRS, where rows consist of whole pairs, both neighbours go at once, to addresses that are aligned to them. With
// OCTETS, where rows of 16-bit results consist of whole groups, the four trade places first, and each stores a whole
// group: a store of two numbers fills no sector of the second-level cache, and takes several times as long per byte.

#ifndef POLYHAL_PAIRS
#define POLYHAL_PAIRS

#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 2
#endif
#ifndef OCTETS
#define OCTETS 0
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "epilogue.h"

#if SPLIT
#define TARGET float
#define STORE_ONE(to, value, at) ((to)[at] = (value))
#define STORE_TWO(to, first, second, at) store_two_float32(first, second, (to) + (at))
#else
#define TARGET STORAGE(OUT_DTYPE)
#define STORE_ONE(to, value, at) STORE(OUT_DTYPE, value, to, at)
#define STORE_TWO(to, first, second, at) CONCAT(store_two_, OUT_DTYPE)(first, second, (to) + (at))
#endif

inline void store_two_float32(float first, float second, __global float *to) {
    *(__global float2 *)to = (float2)(first, second);
}
inline void store_two_float16(float first, float second, __global half *to) {
    vstorea_half2_rte((float2)(first, second), 0, to);
}
inline void store_two_bfloat16(float first, float second, __global ushort *to) {
    *(__global ushort2 *)to = (ushort2)(bfloat16_of_float(first), bfloat16_of_float(second));
}

// One pair, after the epilogue.
#define FINISH(sum, row, column)                              \
    const uint left_here = PAIRS ? 2 : min(2u, n - (column)); \
    EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left_here)

#if OCTETS && TENSOR_CORES && !SPLIT

inline uint packed_float16(float low, float high) {
    uint word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

inline uint packed_bfloat16(float low, float high) {
    uint word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

inline uint from_lane(uint word, uint distance) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(word), "r"(distance));
    return other;
}

// Word j of the four lanes' i becomes word i of their j.
inline void turn_four(uint words[4]) {
    const uint lane = get_local_id(0) % 4;
#pragma unroll
    for (uint distance = 1; distance <= 2; distance *= 2)
#pragma unroll
        for (uint i = 0; i < 2; i++) {
            const uint low = distance == 1 ? 2 * i : i, high = low + distance;
            const bool upper = lane & distance;
            const uint other = from_lane(upper ? words[low] : words[high], distance);
            words[low] = upper ? other : words[low];
            words[high] = upper ? words[high] : other;
        }
}

#define FINISH_ROW(to, row, column, groups, FIRST, SECOND)                                                     \
    _Pragma("unroll") for (uint j = 0; j < (groups); j += 4) {                                                 \
        uint words[4];                                                                                         \
        _Pragma("unroll") for (uint g = 0; g < 4; g++) {                                                       \
            float2 sum = (float2)(FIRST(j + g), SECOND(j + g));                                                \
            if (EPILOGUE && (row) < m && (column) + 8 * (j + g) < n) {                                         \
                FINISH(sum, row, (column) + 8 * (j + g))                                                       \
            }                                                                                                  \
            words[g] = CONCAT(packed_, OUT_DTYPE)(sum.s0, sum.s1);                                             \
        }                                                                                                      \
        turn_four(words);                                                                                      \
        const uint lane = get_local_id(0) % 4;                                                                 \
        if ((row) < m && (column) - 2 * lane + 8 * (j + lane) < n)                                             \
            *(__global uint4 *)((to) + 6 * lane + 8 * j) = (uint4)(words[0], words[1], words[2], words[3]);     \
    }

#else

#define FINISH_ROW(to, row, column, groups, FIRST, SECOND)                       \
    _Pragma("unroll") for (uint j = 0; j < (groups); j++) {                      \
        if ((row) < m && (column) + 8 * j < n) {                                 \
            float2 sum = (float2)(FIRST(j), SECOND(j));                          \
            FINISH(sum, row, (column) + 8 * j)                                   \
            if (PAIRS) {                                                         \
                STORE_TWO(to, sum.s0, sum.s1, 8 * j);                            \
            } else {                                                             \
                STORE_ONE(to, sum.s0, 8 * j);                                    \
                if (left_here == 2) STORE_ONE(to, sum.s1, 8 * j + 1);            \
            }                                                                    \
        }                                                                        \
    }

#endif

#endif
