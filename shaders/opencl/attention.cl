// softmax(q k^T * scale + mask) v on a CPU, without ever holding the scores: a work-item takes tiles of MR queries and passes over the
// keys NR at a time, with a running maximum, sum and result per query that are rescaled when the maximum grows.
// Source: Dao et al., arXiv:2205.14135, and Milakov and Gimelshein, arXiv:1805.02867.
//
// matmul_pack.cl has packed k^T into panels of NR keys and v into panels of VALUES features, zeros past the ends.

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
#define WIDTH 16
#endif
#ifndef MR
#define MR 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 4
#endif
// Bounds of the lengths of a key and of a value, the latter rounded up to whole panels.
#ifndef MAX_FEATURES
#define MAX_FEATURES 64
#endif
#ifndef MAX_VALUES
#define MAX_VALUES 64
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
// 0: none; 1: bool, True keeps; 2: added.
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_DTYPE
#define MASK_DTYPE bool_
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "exponential.h"

typedef VEC(REAL) V;
#include "lanes.h"

#define NR (VECTORS * WIDTH)
#define VALUES (VALUE_VECTORS * WIDTH)

__kernel void attention(__global const STORAGE(DTYPE) *q, const ulong q_offset, __global const REAL *keys,
                        __global const REAL *values,
#if MASK
                        __global const STORAGE(MASK_DTYPE) *mask, const ulong mask_offset,
#endif
                        __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, __global REAL *lse, const ulong lse_offset,
                        const uint t, const uint s, const uint d, const uint e, const uint rows_each, const REAL scale,
                        const uint batch1, const uint batch2, const long q_batch0, const long q_batch1, const long q_batch2,
                        const long q_row, const long q_column
#if MASK
                        , const long mask_batch0, const long mask_batch1, const long mask_batch2, const long mask_row,
                        const long mask_column
#endif
) {
    const uint batch = get_global_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    q += (long)q_offset + (long)i0 * q_batch0 + (long)i1 * q_batch1 + (long)i2 * q_batch2;
#if MASK
    mask += (long)mask_offset + (long)i0 * mask_batch0 + (long)i1 * mask_batch1 + (long)i2 * mask_batch2;
#endif
    const uint value_panels = (e + VALUES - 1) / VALUES;
    keys += (ulong)batch * ((s + NR - 1) / NR) * NR * d;
    values += (ulong)batch * value_panels * VALUES * s;
    out += out_offset + (ulong)batch * t * e;
    lse += lse_offset + (ulong)batch * t;
    const uint first = get_global_id(0) * rows_each;
    const uint last = min(first + rows_each, t);
    REAL left[MAX_FEATURES * MR];
    V results[MR * MAX_VALUES / WIDTH];
    REAL tile[MR * NR] __attribute__((aligned(64)));
    for (uint row = first; row < last; row += MR) {
        const uint rows = min((uint)MR, last - row);
        for (uint r = 0; r < MR; r++) {
            __global const STORAGE(DTYPE) *from = q + min(row + r, t - 1) * q_row;
            for (uint c = 0; c < d; c++) left[c * MR + r] = LOAD(DTYPE, from, c * q_column) * scale;
        }
        const uint held = value_panels * VALUE_VECTORS;
        for (uint i = 0; i < MR * held; i++) results[i] = (V)(0);
        REAL tops[MR], totals[MR];
        for (uint r = 0; r < MR; r++) {
            tops[r] = -INFINITY;
            totals[r] = 0;
        }
#if CAUSAL
        // The last key that any row of the tile sees, plus one.
        const long seen = (long)row + rows - 1 + ((long)s - (long)t) + 1;
        const uint stop = seen <= 0 ? 0 : min((uint)seen, s);
#else
        const uint stop = s;
#endif
        for (uint key = 0; key < stop; key += NR) {
            const uint columns = min((uint)NR, s - key);
            {
                V sums[MR][VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
                __global const V *right = (__global const V *)(keys + (ulong)key * d);
                __private const REAL *x = left;
                for (uint c = 0; c < d; c++) {
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = right[v];
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) sums[r][v] += (V)(x[r]) * b[v];
                    right += VECTORS;
                    x += MR;
                }
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) ((__private V *)tile)[r * VECTORS + v] = sums[r][v];
            }
#if MASK == 1
            for (uint r = 0; r < rows; r++)
                for (uint c = 0; c < columns; c++)
                    if (!mask[(row + r) * mask_row + (key + c) * mask_column]) tile[r * NR + c] = -INFINITY;
#elif MASK == 2
            for (uint r = 0; r < rows; r++)
                for (uint c = 0; c < columns; c++)
                    tile[r * NR + c] += LOAD(MASK_DTYPE, mask, (row + r) * mask_row + (key + c) * mask_column);
#endif
#if CAUSAL
            if ((long)key + NR > (long)row + 1 + ((long)s - (long)t))
                for (uint r = 0; r < rows; r++) {
                    const long hidden = (long)row + r + ((long)s - (long)t) + 1 - (long)key;
                    for (uint c = hidden <= 0 ? 0 : (uint)min(hidden, (long)NR); c < NR; c++) tile[r * NR + c] = -INFINITY;
                }
#endif
            if (columns < NR)
                for (uint r = 0; r < MR; r++)
                    for (uint c = columns; c < NR; c++) tile[r * NR + c] = -INFINITY;
            REAL shrink[MR];
            for (uint r = 0; r < MR; r++) {
                __private V *scores = (__private V *)tile + r * VECTORS;
                V high = scores[0];
#pragma unroll
                for (uint v = 1; v < VECTORS; v++) high = LARGER(high, scores[v]);
                const REAL top = fmax(tops[r], LANES_MAX(high));
                // While everything was masked there is nothing to subtract: exp(-inf - 0) is 0.
                const REAL shift = top == -INFINITY ? 0 : top;
                shrink[r] = tops[r] == -INFINITY ? 0 : EXP1(tops[r] - shift);
                V sum = (V)(0);
#pragma unroll
                for (uint v = 0; v < VECTORS; v++) {
                    const V p = EXP(scores[v] - shift);
                    sum += p;
                    scores[v] = p;
                }
                totals[r] = totals[r] * shrink[r] + LANES_SUM(sum);
                tops[r] = top;
            }
            for (uint panel = 0; panel < value_panels; panel++) {
                __global const V *right = (__global const V *)(values + ((ulong)panel * s + key) * VALUES);
                V sums[MR][VALUE_VECTORS];
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VALUE_VECTORS; v++)
                        sums[r][v] = results[r * held + panel * VALUE_VECTORS + v] * shrink[r];
                for (uint c = 0; c < columns; c++) {
                    V b[VALUE_VECTORS];
#pragma unroll
                    for (uint v = 0; v < VALUE_VECTORS; v++) b[v] = right[v];
#pragma unroll
                    for (uint r = 0; r < MR; r++)
#pragma unroll
                        for (uint v = 0; v < VALUE_VECTORS; v++) sums[r][v] += (V)(tile[r * NR + c]) * b[v];
                    right += VALUE_VECTORS;
                }
#pragma unroll
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint v = 0; v < VALUE_VECTORS; v++) results[r * held + panel * VALUE_VECTORS + v] = sums[r][v];
            }
        }
        for (uint r = 0; r < rows; r++) {
            const REAL inverse = totals[r] == 0 ? 0 : 1 / totals[r];
            __private const REAL *from = (__private const REAL *)(results + r * held);
            for (uint c = 0; c < e; c++) STORE(OUT_DTYPE, from[c] * inverse, out, (ulong)(row + r) * e + c);
            lse[row + r] = log(totals[r]) + (tops[r] == -INFINITY ? 0 : tops[r]);
        }
    }
}
