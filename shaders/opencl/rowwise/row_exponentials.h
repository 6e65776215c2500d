// The maximum of a row and the sum of its exponentials, for the kernels of lib/rows.h. ROW_EXPONENTIALS(x, at, top, sum) sets
// `top` to the maximum, or 0 if all elements are -inf, and `sum` to the sum of exp(x - top). A NaN affects `sum`, not
// `top`.
//
// CPUs, and groups with the row in registers, make two passes. Other rows are read from memory once, by an online softmax: the
// sum so far is rescaled whenever a block of vectors has a larger maximum (Milakov and Gimelshein, 2018, arXiv:1805.02867).

#ifndef POLYHAL_ROW_EXPONENTIALS
#define POLYHAL_ROW_EXPONENTIALS

#include "lib/exponential.h"

#define ROW_TOP(x, at, top) \
    { \
        DECLARE_ACCUMULATORS(tops, -INFINITY) \
        FOR_VECTORS tops[k] = LARGER(tops[k], ROW_VALUE(x, at)); \
        top = MAX_ACCUMULATORS(tops); \
        FOR_TAIL top = fmax(top, LOAD(DTYPE, x, at + i)); \
        GROUP_MAX(top) \
        if (IS_INFINITE(REAL, top)) top = top > 0 ? top : 0; \
    }

#if ROW_VECTORS || LANES == 1
#define ROW_EXPONENTIALS(x, at, top, sum) \
    ROW_TOP(x, at, top) \
    { \
        DECLARE_ACCUMULATORS(sums, 0) \
        FOR_VECTORS { \
            PREFETCH_NEXT_ROW(x, at) \
            sums[k] += EXP_FAST(ROW_VALUE(x, at) - top); \
        } \
        sum = SUM_ACCUMULATORS(sums); \
        FOR_TAIL sum += EXP_FAST_SCALAR(LOAD(DTYPE, x, at + i) - top); \
        GROUP_SUM(sum) \
    }
#else
#define ROW_EXPONENTIALS(x, at, top, sum) \
    { \
        REAL seen = -INFINITY, part = 0; \
        for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) { \
            V block[ACCUMULATORS]; \
            _Pragma("unroll") for (uint k = 0; k < ACCUMULATORS; k++) { \
                const uint i = begin + k * LANES; \
                block[k] = i < WHOLE ? ROW_VALUE(x, at) : (V)(-INFINITY); \
            } \
            const REAL higher = fmax(seen, MAX_ACCUMULATORS(block)); \
            const REAL base = IS_INFINITE(REAL, higher) && higher < 0 ? 0 : higher; \
            _Pragma("unroll") for (uint k = 0; k < ACCUMULATORS; k++) block[k] = EXP_FAST(block[k] - base); \
            part = part * EXP_FAST_SCALAR(seen - base) + SUM_ACCUMULATORS(block); \
            seen = higher; \
        } \
        FOR_TAIL { \
            const REAL value = LOAD(DTYPE, x, at + i); \
            const REAL higher = fmax(seen, value); \
            const REAL base = IS_INFINITE(REAL, higher) && higher < 0 ? 0 : higher; \
            part = part * EXP_FAST_SCALAR(seen - base) + EXP_FAST_SCALAR(value - base); \
            seen = higher; \
        } \
        top = seen; \
        GROUP_MAX(top) \
        if (IS_INFINITE(REAL, top)) top = top > 0 ? top : 0; \
        sum = part * EXP_FAST_SCALAR(seen - top); \
        GROUP_SUM(sum) \
    }
#endif

#endif
