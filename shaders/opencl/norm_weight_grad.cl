// Gradients of norm_rows.cl with respect to weight and bias: sums over all rows of g * (x - mean) * scale and of g, in two stages of
// fixed order. In the first a work-item sums `chunk` rows of BLOCK columns into partial (chunk, 2, length); in the
// second a work-item adds up the chunks of one column.

#ifndef DTYPE
#define DTYPE float32
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
#ifndef VECTORS
#define VECTORS 1
#endif
#ifndef CENTRED
#define CENTRED 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#include "dtypes.h"
#include "vectors.h"

#define BLOCK (WIDTH * VECTORS)
#define ROWS_UNDER_WAY (VECTORS == 1 ? 4 : 1)
typedef VEC(REAL) V;

__kernel void norm_weight_partial(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x,
                                  const ulong x_offset,
#if CENTRED
                                  __global const REAL *means, const ulong means_offset,
#endif
                                  __global const REAL *scales, const ulong scales_offset, __global REAL *partial,
                                  const uint rows, const uint length, const uint chunk, const long g_row, const long x_row) {
    const uint column = get_global_id(0) * BLOCK;
    const uint part = get_global_id(1);
    if (column >= length) return;
    const uint first = part * chunk, last = min(first + chunk, rows);
    g += g_offset + column;
    x += x_offset + column;
    partial += (ulong)part * 2 * length + column;
    if (column + BLOCK <= length) {
        V weights[VECTORS], biases[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) weights[v] = biases[v] = (V)(0);
#pragma unroll ROWS_UNDER_WAY
        for (uint row = first; row < last; row++) {
#if CENTRED
            const REAL mean = means[means_offset + row];
#else
            const REAL mean = 0;
#endif
            const REAL scale = scales[scales_offset + row];
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) {
#if WIDTH == 1
                const V slope = LOAD(DTYPE, g, row * g_row + v);
                weights[v] += slope * ((LOAD(DTYPE, x, row * x_row + v) - mean) * scale);
#else
                const V slope = LOADV(DTYPE, g + row * g_row + v * WIDTH);
                weights[v] += slope * ((LOADV(DTYPE, x + row * x_row + v * WIDTH) - mean) * scale);
#endif
                biases[v] += slope;
            }
        }
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
#if WIDTH == 1
            partial[v] = weights[v];
            partial[length + v] = biases[v];
#else
            VECTOR_STORE(REAL, weights[v], partial + v * WIDTH);
            VECTOR_STORE(REAL, biases[v], partial + length + v * WIDTH);
#endif
        }
    } else {
        for (uint c = 0; c < length - column; c++) {
            REAL weight = 0, bias = 0;
            for (uint row = first; row < last; row++) {
#if CENTRED
                const REAL mean = means[means_offset + row];
#else
                const REAL mean = 0;
#endif
                const REAL slope = LOAD(DTYPE, g, row * g_row + c);
                weight += slope * ((LOAD(DTYPE, x, row * x_row + c) - mean) * scales[scales_offset + row]);
                bias += slope;
            }
            partial[c] = weight;
            partial[length + c] = bias;
        }
    }
}

__kernel void norm_weight_total(__global const REAL *partial, __global STORAGE(OUT_DTYPE) *weight, const ulong weight_offset,
#if CENTRED
                                __global STORAGE(OUT_DTYPE) *bias, const ulong bias_offset,
#endif
                                const uint length, const uint parts) {
    const uint column = get_global_id(0);
    if (column >= length) return;
    REAL w = 0, b = 0;
    for (uint part = 0; part < parts; part++) {
        w += partial[(ulong)part * 2 * length + column];
        b += partial[(ulong)(part * 2 + 1) * length + column];
    }
    STORE(OUT_DTYPE, w, weight, weight_offset + column);
#if CENTRED
    STORE(OUT_DTYPE, b, bias, bias_offset + column);
#endif
}
