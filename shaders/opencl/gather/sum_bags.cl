// Sums of rows by bags of indices: out[b, :] = sum of x[index[i], :] * scales[i] over the elements i of bag b
// (gather/bags.h). A work-item has VECTORS vectors of WIDTH columns of a bag in registers. Indices out of range add nothing.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef VECTORS
#define VECTORS 8
#endif
// Rows that are prefetched ahead of the one that is added, on CPUs.
#ifndef ROWS_AHEAD
#define ROWS_AHEAD 0
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
#define PREFETCH_DISTANCE ROWS_AHEAD
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "gather/bags.h"

typedef VEC(REAL) V;

__kernel NO_AUTOVEC void gather_sum_bags(__global const STORAGE(DTYPE) *x, const ulong x_offset, BAG_PARAMETERS
                                         __global STORAGE(DTYPE) *out, const ulong out_offset, const long x_row,
                                         const BagGeometry geometry) {
    const uint chunks = geometry.width / (VECTORS * WIDTH);
    const uint bag = get_global_id(0) / chunks, column = (get_global_id(0) - bag * chunks) * VECTORS * WIDTH;
    if (bag >= geometry.bags) return;
    index += index_offset;
    x += x_offset + column;
#if SCALES
    scales += scales_offset;
#endif
    const long last = END_OF(bag);
    V acc[VECTORS];
#pragma unroll
    for (uint v = 0; v < VECTORS; v++) acc[v] = (V)(0);
    for (long i = FIRST_OF(bag); i < last; i++) {
        const long row = (long)index[i * geometry.index_step];
#if ROWS_AHEAD
        const ulong ahead = (ulong)index[min(i + ROWS_AHEAD, (long)geometry.count - 1) * geometry.index_step];
        if (ahead < geometry.rows)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) { PREFETCH_READ(x + ahead * x_row + v * WIDTH) }
#endif
        if (row < 0 || (ulong)row >= geometry.rows) continue;
        __global const STORAGE(DTYPE) *from = x + row * x_row;
#if SCALES
        const REAL scale = LOAD(DTYPE, scales, i * geometry.scales_step);
#endif
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) {
#if SCALES
            acc[v] += scale * LOADV(DTYPE, from + v * WIDTH);
#else
            acc[v] += LOADV(DTYPE, from + v * WIDTH);
#endif
        }
    }
    out += out_offset + (ulong)bag * geometry.width + column;
#pragma unroll
    for (uint v = 0; v < VECTORS; v++) STOREV(DTYPE, acc[v], out + v * WIDTH);
}
