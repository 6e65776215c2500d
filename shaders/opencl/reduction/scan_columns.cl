// Running sums or products down columns that lie side by side: a work-item walks down WIDTH neighbouring ones.
//
// x and out are (slabs, length, columns) with contiguous columns; `x_slab` and `x_row` are the elements from one slab of x, and from one
// row, to the next. With PARTS the rows are cut into `parts` of `part_length`, of which column_totals gives the totals (slabs, parts,
// columns), so that each can begin with those before it. Conversions as in reduction/scan_rows.cl.

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
#ifndef PARTS
#define PARTS 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/combine.h"

#define UNROLL 4
#define LANE(type, v, j) (((__private type *)&(v))[j])

#define COLUMN_PARAMETERS \
    const uint slabs, const uint length, const uint columns, const long x_slab, const long x_row, const uint parts, \
        const uint part_length
#define COLUMN \
    const uint chunks = (columns + WIDTH - 1) / WIDTH; \
    const uint column = get_global_id(0) % chunks * WIDTH; \
    const uint part = get_global_id(0) / chunks % parts, slab = get_global_id(0) / chunks / parts; \
    if (slab >= slabs) return; \
    const uint first = min(part * part_length, length), last = min(first + part_length, length); \
    const uint lanes = min((uint)WIDTH, columns - column); \
    x += (long)x_offset + slab * x_slab + column;

// The first `lanes` elements, the rest zeros.
inline VEC(COMPUTE(DTYPE)) some(__global const STORAGE(DTYPE) *p, uint lanes) {
    VEC(COMPUTE(DTYPE)) v = (VEC(COMPUTE(DTYPE)))(0);
    for (uint j = 0; j < lanes; j++) LANE(COMPUTE(DTYPE), v, j) = LOAD(DTYPE, p, j);
    return v;
}

__kernel void column_totals(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global ACCUMULATOR *totals,
                            COLUMN_PARAMETERS) {
    COLUMN
    VEC(ACCUMULATOR) carry = (VEC(ACCUMULATOR))(IDENTITY);
    uint row = first;
    if (lanes == WIDTH) {
        for (; row + UNROLL <= last; row += UNROLL) {
            VEC(COMPUTE(DTYPE)) loaded[UNROLL];
            for (uint u = 0; u < UNROLL; u++) loaded[u] = LOADV(DTYPE, x + (row + u) * x_row);
            for (uint u = 0; u < UNROLL; u++) {
                const VEC(COMPUTE(DTYPE)) v = loaded[u];
                const VEC(ACCUMULATOR) mapped = MAP(v);
                carry = COMBINE_VECTORS(carry, mapped);
            }
        }
    }
    for (; row < last; row++) {
        const VEC(COMPUTE(DTYPE)) v = some(x + row * x_row, lanes);
        const VEC(ACCUMULATOR) mapped = MAP(v);
        carry = COMBINE_VECTORS(carry, mapped);
    }
    totals += ((ulong)slab * parts + part) * columns + column;
    for (uint j = 0; j < lanes; j++) totals[j] = LANE(ACCUMULATOR, carry, j);
}

__kernel void reduction_scan_columns(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(OUT_DTYPE) *out,
                           const ulong out_offset,
#if PARTS
                           __global const ACCUMULATOR *totals,
#endif
                           COLUMN_PARAMETERS) {
    COLUMN
    out += out_offset + (ulong)slab * length * columns + column;
    VEC(ACCUMULATOR) carry = (VEC(ACCUMULATOR))(IDENTITY);
#if PARTS
    for (uint p = 0; p < part; p++) {
        VEC(ACCUMULATOR) before = (VEC(ACCUMULATOR))(IDENTITY);
        for (uint j = 0; j < lanes; j++) {
            LANE(ACCUMULATOR, before, j) = totals[((ulong)slab * parts + p) * columns + column + j];
        }
        carry = COMBINE_VECTORS(carry, before);
    }
#endif
    uint row = first;
    if (lanes == WIDTH) {
        for (; row + UNROLL <= last; row += UNROLL) {
            VEC(COMPUTE(DTYPE)) loaded[UNROLL];
            for (uint u = 0; u < UNROLL; u++) loaded[u] = LOADV(DTYPE, x + (row + u) * x_row);
            for (uint u = 0; u < UNROLL; u++) {
                const VEC(COMPUTE(DTYPE)) v = loaded[u];
                const VEC(ACCUMULATOR) mapped = MAP(v);
                carry = COMBINE_VECTORS(carry, mapped);
                STOREV(OUT_DTYPE, carry, out + (ulong)(row + u) * columns);
            }
        }
    }
    for (; row < last; row++) {
        const VEC(COMPUTE(DTYPE)) v = some(x + row * x_row, lanes);
        const VEC(ACCUMULATOR) mapped = MAP(v);
        carry = COMBINE_VECTORS(carry, mapped);
        for (uint j = 0; j < lanes; j++) {
            STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))LANE(ACCUMULATOR, carry, j), out, (ulong)row * columns + j);
        }
    }
}
