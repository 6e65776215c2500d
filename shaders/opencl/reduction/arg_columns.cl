// Position of the first extreme element of columns: a work-item owns WIDTH neighbouring columns and walks down one part of their
// terms, `piece` neighbouring ones, UNROLL rows at a time.
//
// Arguments and results as in reduction/arg_rows.cl, where the inner kept axis has stride 1. POSITION is a signed type as wide as the element's.

#ifndef WIDTH
#define WIDTH 4
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

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
#ifndef PARTIAL
#define PARTIAL 0
#endif

#define T COMPUTE(DTYPE)
#define UNROLL 4
#define LANE(type, v, j) (((__private type *)&(v))[j])

// The first `lanes` elements, the rest zeros.
inline VEC(T) some(__global const STORAGE(DTYPE) *p, uint lanes) {
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

__kernel void reduction_arg_columns(__global const STORAGE(DTYPE) *x, const ulong x_offset,
#if PARTIAL
                                 __global T *values, __global ulong *places,
#else
                                 __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
                                 const ulong k0, const long k0s, const ulong k1, const long k1s, const long r0s, const ulong r1,
                                 const long r1s, const ulong length, const ulong parts, const ulong piece) {
    const ulong chunks = (k1 + WIDTH - 1) / WIDTH;
    const ulong item = get_global_id(0);
    const ulong slab = item / chunks;
    const ulong column = (item - slab * chunks) * WIDTH;
    const ulong part = slab / k0;
    const ulong outer_kept = slab - part * k0;
    if (part >= parts) return;
    const uint left = min((ulong)WIDTH, k1 - column);
    x += (long)x_offset + (long)outer_kept * k0s + (long)column;
    ulong at = part * piece;
    const ulong first = at, end = min(at + piece, length);
    VEC(T) best = (VEC(T))(0);
    VEC(POSITION) place = (VEC(POSITION))(0);
    if (at < end) best = some(x + (long)(at / r1) * r0s + (long)(at % r1) * r1s, left);
    while (at < end) {
        const ulong outer = at / r1;
        const ulong inner = at - outer * r1;
        const ulong count = min(end - at, r1 - inner);
        __global const STORAGE(DTYPE) *run = x + (long)outer * r0s + (long)inner * r1s;
        const POSITION base = (POSITION)(at - first);
        ulong i = 0;
        if (left == WIDTH) {
            for (; i + UNROLL <= count; i += UNROLL) {
                VEC(T) v[UNROLL];
                for (uint u = 0; u < UNROLL; u++) v[u] = LOADV(DTYPE, run + (long)(i + u) * r1s);
                for (uint u = 0; u < UNROLL; u++) COMPARE(v[u], base + (POSITION)(i + u))
            }
        }
        for (; i < count; i++) {
            const VEC(T) v = some(run + (long)i * r1s, left);
            COMPARE(v, base + (POSITION)i)
        }
        at += count;
    }
    for (uint j = 0; j < left; j++) {
        const ulong task = (outer_kept * k1 + column + j) * parts + part;
        // A part beyond the end has no place.
        const ulong found = first < end ? first + (ulong)LANE(POSITION, place, j) : ULONG_MAX;
#if PARTIAL
        values[task] = LANE(T, best, j);
        places[task] = found;
#else
        STORE(OUT_DTYPE, found, out, out_offset + task);
#endif
    }
}
