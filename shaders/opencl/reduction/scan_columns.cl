// Prefix sums, products or extrema down contiguous columns: a work-item scans WIDTH of them.
//
// x and out are (slabs, length, columns) with contiguous columns; x has the strides `x_slab` and `x_row`. With SPLIT the rows
// are cut into `splits` ranges of `split_length`: column_totals computes the totals (slabs, splits, columns) of the ranges,
// and each scan starts from those before it. Conversions as in reduction/scan_rows.cl, blocks as in reduction/running.h.

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/combine.h"
#include "reduction/running.h"

#define UNROLL 4
#define LANE(type, v, j) (((__private type *)&(v))[j])

typedef struct {
    long x_slab, x_row;
    uint slabs, length, columns, splits, split_length;
} ScanColumnsGeometry;
#define DECLARE_COLUMN                                                                                                \
    const long x_slab = geometry.x_slab, x_row = geometry.x_row;                                                      \
    const uint length = geometry.length, columns = geometry.columns, splits = geometry.splits;                        \
    const uint column_blocks = (columns + WIDTH - 1) / WIDTH;                                                         \
    const uint column = get_global_id(0) % column_blocks * WIDTH;                                                     \
    const uint split = get_global_id(0) / column_blocks % splits, slab = get_global_id(0) / column_blocks / splits;   \
    if (slab >= geometry.slabs) return;                                                                               \
    const uint first = min(split * geometry.split_length, length), last = min(first + geometry.split_length, length); \
    const uint lanes = min((uint)WIDTH, columns - column);                                                            \
    x += (long)x_offset + slab * x_slab + column

// The first `lanes` elements, the rest zeros.
static inline VEC(COMPUTE(DTYPE)) some(__global const STORAGE(DTYPE) *p, uint lanes) {
    VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(0);
    for (uint j = 0; j < lanes; j++) LANE(COMPUTE(DTYPE), v, j) = LOAD(DTYPE, p, j);
    return v;
}

// Add the rows from `row` to the end of their block to `near`. After each comes AFTER_ALL(row), or AFTER_SOME(row) of few lanes.
#define ADD_BLOCK(AFTER_ALL, AFTER_SOME)                                                       \
    const uint end = min(row + BLOCK, last);                                                   \
    if (lanes == WIDTH) {                                                                      \
        for (; row + UNROLL <= end; row += UNROLL) {                                           \
            VEC(COMPUTE(DTYPE)) loaded[UNROLL];                                                \
            for (uint u = 0; u < UNROLL; u++) loaded[u] = LOADV(DTYPE, x + (row + u) * x_row); \
            for (uint u = 0; u < UNROLL; u++) {                                                \
                const VEC(COMPUTE(DTYPE)) v = loaded[u];                                       \
                const VEC(ACCUMULATOR) mapped = MAP(v);                                        \
                near = COMBINE_VECTORS(near, mapped);                                          \
                AFTER_ALL(row + u)                                                             \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    for (; row < end; row++) {                                                                 \
        const VEC(COMPUTE(DTYPE)) v = some(x + row * x_row, lanes);                            \
        const VEC(ACCUMULATOR) mapped = MAP(v);                                                \
        near = COMBINE_VECTORS(near, mapped);                                                  \
        AFTER_SOME(row)                                                                        \
    }

#define NOTHING(row)
#define STORE_ALL(row)                                            \
    const VEC(ACCUMULATOR) prefix = COMBINE_VECTORS(carry, near); \
    STOREV(OUT_DTYPE, prefix, out + (ulong)(row)*columns);
#define STORE_SOME(row)                                           \
    const VEC(ACCUMULATOR) prefix = COMBINE_VECTORS(carry, near); \
    for (uint j = 0; j < lanes; j++)                              \
        STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))LANE(ACCUMULATOR, prefix, j), out, (ulong)(row)*columns + j);

__kernel void column_totals(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global ACCUMULATOR *totals,
                            const ScanColumnsGeometry geometry) {
    DECLARE_COLUMN;
    VEC(ACCUMULATOR) carry = (VEC(ACCUMULATOR))(IDENTITY), near = carry;
    for (uint row = first; row < last;) {
        ADD_BLOCK(NOTHING, NOTHING)
        FOLD_VECTORS(carry, near)
    }
    carry = COMBINE_VECTORS(carry, near);
    totals += ((ulong)slab * splits + split) * columns + column;
    for (uint j = 0; j < lanes; j++) totals[j] = LANE(ACCUMULATOR, carry, j);
}

__kernel void reduction_scan_columns(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                     __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#if SPLIT
                                     __global const ACCUMULATOR *totals,
#endif
                                     const ScanColumnsGeometry geometry) {
    DECLARE_COLUMN;
    out += out_offset + (ulong)slab * length * columns + column;
    VEC(ACCUMULATOR) carry = (VEC(ACCUMULATOR))(IDENTITY), near = carry;
#if SPLIT
    for (uint p = 0; p < split; p++) {
        VEC(ACCUMULATOR) before = (VEC(ACCUMULATOR))(IDENTITY);
        for (uint j = 0; j < lanes; j++) {
            LANE(ACCUMULATOR, before, j) = totals[((ulong)slab * splits + p) * columns + column + j];
        }
        near = COMBINE_VECTORS(near, before);
        FOLD_VECTORS(carry, near)
    }
#endif
    for (uint row = first; row < last;) {
        ADD_BLOCK(STORE_ALL, STORE_SOME)
        FOLD_VECTORS(carry, near)
    }
}
