// Gradients of rowwise/norm.cl with respect to weight and bias. For each column, with sums over all rows:
//
//     dweight = sum of g * (x - mean) * scale
//     dbias = sum of g, for layer norm only (CENTRED; RMS norm has neither mean nor bias)
//
// in two stages of fixed order. norm_weight_partial: a work-item sums `chunk` rows of WIDTH columns into partial (partials, 2,
// length); `length` is a multiple of WIDTH. It is left out if rowwise/norm_grad.cl with WEIGHT_SUMS wrote partial.
// norm_weight_total: a group reduces COLUMNS columns of partial, with SLICES work-items for each.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef G_DTYPE
#define G_DTYPE DTYPE
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#ifndef COLUMNS
#define COLUMNS 1
#endif
#ifndef SLICES
#define SLICES 1
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"

typedef VEC(REAL) V;
#if WIDTH == 1
#define READ(D, p) LOAD(D, p, 0)
#else
#define READ(D, p) LOADV(D, p)
#endif

__kernel void norm_weight_partial(__global const STORAGE(G_DTYPE) *g, const ulong g_offset,
                                  __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if CENTRED
                                  __global const REAL *means, const ulong means_offset,
#endif
                                  __global const REAL *scales, const ulong scales_offset, __global REAL *partial,
                                  const uint rows, const uint length, const uint chunk, const long g_row, const long x_row) {
    START_NEXT
    AWAIT_INPUTS
    const uint column = get_global_id(0) * WIDTH;
    const uint index = get_global_id(1);
    if (column >= length) return;
    const uint first = index * chunk, last = min(first + chunk, rows);
    g += g_offset + column;
    x += x_offset + column;
    partial += (ulong)index * 2 * length + column;
    V weight = (V)(0), bias = (V)(0);
#pragma unroll 4
    for (uint row = first; row < last; row++) {
#if CENTRED
        const REAL mean = means[means_offset + row];
#else
        const REAL mean = 0;
#endif
        const V slope = READ(G_DTYPE, g + row * g_row);
        weight += slope * ((READ(DTYPE, x + row * x_row) - mean) * scales[scales_offset + row]);
        bias += slope;
    }
    VECTOR_STORE(REAL, weight, partial);
    VECTOR_STORE(REAL, bias, partial + length);
}

__kernel void norm_weight_total(__global const REAL *partial, __global STORAGE(OUT_DTYPE) *dweight,
                                const ulong dweight_offset,
#if CENTRED
                                __global STORAGE(OUT_DTYPE) *dbias, const ulong dbias_offset,
#endif
                                const uint length, const uint partials) {
    START_NEXT
    AWAIT_INPUTS
    const uint column = get_global_id(0), here = min(column, length - 1);
    REAL w = 0, b = 0;
#pragma unroll 8
    for (uint index = get_local_id(1); index < partials; index += SLICES) {
        w += partial[(ulong)index * 2 * length + here];
        if (CENTRED) b += partial[(ulong)(index * 2 + 1) * length + here];
    }
#if SLICES > 1
    __local REAL sums[2][SLICES][COLUMNS];
    const uint slice = get_local_id(1), at = get_local_id(0);
    sums[0][slice][at] = w;
    sums[1][slice][at] = b;
    for (uint half_way = SLICES / 2; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slice >= half_way) continue;
        sums[0][slice][at] = w += sums[0][slice + half_way][at];
        sums[1][slice][at] = b += sums[1][slice + half_way][at];
    }
    if (slice > 0) return;
#endif
    if (column >= length) return;
    STORE(OUT_DTYPE, w, dweight, dweight_offset + column);
#if CENTRED
    STORE(OUT_DTYPE, b, dbias, dbias_offset + column);
#endif
}
