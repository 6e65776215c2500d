// Position of the first extreme term of columns (argmax, argmin): a work-item takes one split of WIDTH contiguous columns,
// `chunk` neighbouring terms, UNROLL rows at a time.
//
// Axes and results as in reduction/arg_rows.cl, where the inner kept axis has stride 1. POSITION is a signed type as wide as
// an element.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "reduction/geometry.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE int64
#endif
#ifndef POSITION
#define POSITION int
#endif
#ifndef BETTER
#define BETTER >
#endif
#ifndef SPLIT
#define SPLIT 0
#endif

#define T COMPUTE(DTYPE)
#define UNROLL 4
#define LANE(type, v, j) (((__private type *)&(v))[j])

// The first `lanes` elements, the rest zeros.
static inline VEC(T) some(__global const STORAGE(DTYPE) *p, uint lanes) {
    VEC(T) v = (VEC(T))(0);
    for (uint j = 0; j < lanes; j++) LANE(T, v, j) = LOAD(DTYPE, p, j);
    return v;
}

// Later terms win only by a better value, or by being the first NaN.
#define COMPARE(value, position) \
    { \
        const VEC(POSITION) wins = CONVERT_MASK(((value) BETTER best) | (((value) != (value)) & (best == best))); \
        best = wins ? (value) : best; \
        place = wins ? (VEC(POSITION))(position) : place; \
    }
#if WIDTH == 1
#define CONVERT_MASK(condition) ((POSITION)(condition))
#else
#define CONVERT_MASK(condition) (condition)
#endif

#if SPLIT
// The best term of each split, and its position.
#define POSITIONS_RESULT __global T *values, __global ulong *positions
#else
#define POSITIONS_RESULT __global STORAGE(OUT_DTYPE) *out, const ulong out_offset
#endif

__kernel void reduction_arg_columns(__global const STORAGE(DTYPE) *x, const ulong x_offset, POSITIONS_RESULT,
                                    const ReductionGeometry geometry) {
    DECLARE_AXES;
    const ulong column_blocks = (kept_inner + WIDTH - 1) / WIDTH;
    const ulong item = get_global_id(0);
    const ulong slab = item / column_blocks;
    const ulong column = (item - slab * column_blocks) * WIDTH;
    const ulong split = slab / kept_outer;
    const ulong outer_kept = slab - split * kept_outer;
    if (split >= splits) return;
    const uint left = min((ulong)WIDTH, kept_inner - column);
    x += (long)x_offset + (long)outer_kept * kept_outer_stride + (long)column;
    ulong at = split * chunk;
    const ulong first = at, end = min(at + chunk, length);
    VEC(T) best = (VEC(T))(0);
    VEC(POSITION) place = (VEC(POSITION))(0);
    if (at < end) {
        const long start = (long)(at / reduced_inner) * reduced_outer_stride + (long)(at % reduced_inner) * reduced_inner_stride;
        best = some(x + start, left);
    }
    while (at < end) {
        const ulong outer = at / reduced_inner;
        const ulong inner = at - outer * reduced_inner;
        const ulong count = min(end - at, reduced_inner - inner);
        __global const STORAGE(DTYPE) *run =
            x + (long)outer * reduced_outer_stride + (long)inner * reduced_inner_stride;
        const POSITION base = (POSITION)(at - first);
        ulong i = 0;
        if (left == WIDTH) {
            for (; i + UNROLL <= count; i += UNROLL) {
                VEC(T) v[UNROLL];
                for (uint u = 0; u < UNROLL; u++) v[u] = LOADV(DTYPE, run + (long)(i + u) * reduced_inner_stride);
                for (uint u = 0; u < UNROLL; u++) COMPARE(v[u], base + (POSITION)(i + u))
            }
        }
        for (; i < count; i++) {
            const VEC(T) v = some(run + (long)i * reduced_inner_stride, left);
            COMPARE(v, base + (POSITION)i)
        }
        at += count;
    }
    for (uint j = 0; j < left; j++) {
        const ulong task = (outer_kept * kept_inner + column + j) * splits + split;
        // A split beyond the end has no position.
        const ulong found = first < end ? first + (ulong)LANE(POSITION, place, j) : ULONG_MAX;
#if SPLIT
        values[task] = LANE(T, best, j);
        positions[task] = found;
#else
        STORE(OUT_DTYPE, found, out, out_offset + task);
#endif
    }
}
