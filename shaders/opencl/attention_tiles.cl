// softmax(q k^T * scale + mask) v on a GPU, without ever holding the scores: a group of 256 work-items takes TILE queries and passes
// over the keys TILE at a time, with a running maximum, sum and result per query that are rescaled when the maximum
// grows. Operands pass through local memory in slices of DEPTH. Source: Dao et al., arXiv:2205.14135.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
// The features of a value, rounded up to VALUE_QUADS times 64.
#ifndef VALUE_QUADS
#define VALUE_QUADS 1
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
#include "dtypes.h"

#define GROUP 256
#define SIDE 16
#define TILE 64
#define DEPTH 16
#define PITCH (TILE + 4)
#define VALUES (64 * VALUE_QUADS)
#define VALUE_PITCH (VALUES + 4)
typedef CONCAT(REAL, 4) Quad;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles(
    __global const STORAGE(DTYPE) *q, const ulong q_offset, __global const STORAGE(DTYPE) *k, const ulong k_offset,
    __global const STORAGE(DTYPE) *v, const ulong v_offset,
#if MASK
    __global const STORAGE(MASK_DTYPE) *mask, const ulong mask_offset,
#endif
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, __global REAL *lse, const ulong lse_offset, const uint t,
    const uint s, const uint d, const uint e, const REAL scale, const uint batch1, const uint batch2, const long q_batch0,
    const long q_batch1, const long q_batch2, const long q_row, const long q_column, const long k_batch0, const long k_batch1,
    const long k_batch2, const long k_row, const long k_column, const long v_batch0, const long v_batch1,
    const long v_batch2, const long v_row, const long v_column
#if MASK
    , const long mask_batch0, const long mask_batch1, const long mask_batch2, const long mask_row, const long mask_column
#endif
) {
    __local REAL left[DEPTH * PITCH] __attribute__((aligned(32)));
    __local REAL right[DEPTH * VALUE_PITCH] __attribute__((aligned(32)));
    __local REAL scores[TILE * PITCH] __attribute__((aligned(32)));
    __local REAL parts[TILE * (SIDE + 1)], tops[TILE], totals[TILE], shrinks[TILE];
    const uint me = get_local_id(0);
    const uint batch = get_group_id(1);
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    q += (long)q_offset + (long)i0 * q_batch0 + (long)i1 * q_batch1 + (long)i2 * q_batch2;
    k += (long)k_offset + (long)i0 * k_batch0 + (long)i1 * k_batch1 + (long)i2 * k_batch2;
    v += (long)v_offset + (long)i0 * v_batch0 + (long)i1 * v_batch1 + (long)i2 * v_batch2;
#if MASK
    mask += (long)mask_offset + (long)i0 * mask_batch0 + (long)i1 * mask_batch1 + (long)i2 * mask_batch2;
#endif
    // The last tiles have the most keys under a causal mask, so they start first.
    const uint first = (get_num_groups(0) - 1 - get_group_id(0)) * TILE;
    const uint row4 = me / SIDE * 4, column4 = me % SIDE * 4;
    const long shift = (long)s - (long)t;
    Quad results[4][VALUE_QUADS];
#pragma unroll
    for (uint i = 0; i < 4; i++)
#pragma unroll
        for (uint j = 0; j < VALUE_QUADS; j++) results[i][j] = (Quad)(0);
    if (me < TILE) {
        tops[me] = -INFINITY;
        totals[me] = 0;
    }
#if CAUSAL
    const long seen = (long)min(first + TILE, t) + shift;
    const uint stop = seen <= 0 ? 0 : (uint)min(seen, (long)s);
#else
    const uint stop = s;
#endif
    for (uint key = 0; key < stop; key += TILE) {
        Quad sums[4];
#pragma unroll
        for (uint i = 0; i < 4; i++) sums[i] = (Quad)(0);
        for (uint from = 0; from < d; from += DEPTH) {
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (uint i = 0; i < TILE * DEPTH / GROUP; i++) {
                const uint at = me + i * GROUP, c = from + at % DEPTH, r = at / DEPTH;
                left[at % DEPTH * PITCH + r] =
                    c < d && first + r < t ? LOAD(DTYPE, q, (first + r) * q_row + c * q_column) * scale : (REAL)0;
                right[at % DEPTH * PITCH + r] =
                    c < d && key + r < s ? LOAD(DTYPE, k, (key + r) * k_row + c * k_column) : (REAL)0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (uint p = 0; p < DEPTH; p++) {
                const Quad x = *(__local const Quad *)&left[p * PITCH + row4];
                const Quad y = *(__local const Quad *)&right[p * PITCH + column4];
                sums[0] += x.s0 * y;
                sums[1] += x.s1 * y;
                sums[2] += x.s2 * y;
                sums[3] += x.s3 * y;
            }
        }
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            REAL line[4] = {sums[i].s0, sums[i].s1, sums[i].s2, sums[i].s3};
            REAL top = -INFINITY;
#pragma unroll
            for (uint j = 0; j < 4; j++) {
                const uint row = first + row4 + i, column = key + column4 + j;
                bool visible = row < t && column < s;
#if CAUSAL
                visible = visible && (long)column <= (long)row + shift;
#endif
#if MASK == 1
                visible = visible && mask[row * mask_row + column * mask_column];
#elif MASK == 2
                if (visible) line[j] += LOAD(MASK_DTYPE, mask, row * mask_row + column * mask_column);
#endif
                line[j] = visible ? line[j] : (REAL)-INFINITY;
                top = fmax(top, line[j]);
            }
            sums[i] = (Quad)(line[0], line[1], line[2], line[3]);
            parts[(row4 + i) * (SIDE + 1) + me % SIDE] = top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < TILE) {
            REAL top = tops[me];
            for (uint i = 0; i < SIDE; i++) top = fmax(top, parts[me * (SIDE + 1) + i]);
            // While everything was masked there is nothing to subtract: exp(-inf - 0) is 0.
            shrinks[me] = tops[me] == -INFINITY ? 0 : exp(tops[me] - top);
            tops[me] = top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const REAL top = tops[row4 + i];
            const Quad p = exp(sums[i] - (top == -INFINITY ? 0 : top));
            *(__local Quad *)&scores[(row4 + i) * PITCH + column4] = p;
            parts[(row4 + i) * (SIDE + 1) + me % SIDE] = (p.s0 + p.s1) + (p.s2 + p.s3);
            const REAL shrink = shrinks[row4 + i];
#pragma unroll
            for (uint j = 0; j < VALUE_QUADS; j++) results[i][j] *= shrink;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < TILE) {
            REAL total = 0;
            for (uint i = 0; i < SIDE; i++) total += parts[me * (SIDE + 1) + i];
            totals[me] = totals[me] * shrinks[me] + total;
        }
        for (uint from = 0; from < TILE && key + from < stop; from += DEPTH) {
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (uint i = 0; i < VALUES * DEPTH / GROUP; i++) {
                const uint at = me + i * GROUP, c = at % VALUES, r = key + from + at / VALUES;
                right[at / VALUES * VALUE_PITCH + c] = c < e && r < s ? LOAD(DTYPE, v, r * v_row + c * v_column) : (REAL)0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (uint p = 0; p < DEPTH; p += 4) {
                Quad x[4];
#pragma unroll
                for (uint i = 0; i < 4; i++) x[i] = *(__local const Quad *)&scores[(row4 + i) * PITCH + from + p];
#pragma unroll
                for (uint j = 0; j < VALUE_QUADS; j++) {
                    __local const REAL *values = &right[p * VALUE_PITCH + j * 64 + column4];
                    const Quad y0 = *(__local const Quad *)values, y1 = *(__local const Quad *)(values + VALUE_PITCH);
                    const Quad y2 = *(__local const Quad *)(values + 2 * VALUE_PITCH),
                               y3 = *(__local const Quad *)(values + 3 * VALUE_PITCH);
#pragma unroll
                    for (uint i = 0; i < 4; i++) {
                        results[i][j] += x[i].s0 * y0;
                        results[i][j] += x[i].s1 * y1;
                        results[i][j] += x[i].s2 * y2;
                        results[i][j] += x[i].s3 * y3;
                    }
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    out += out_offset + (ulong)batch * t * e;
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        const uint row = first + row4 + i;
        if (row >= t) continue;
        const REAL total = totals[row4 + i], inverse = total == 0 ? 0 : 1 / total;
#pragma unroll
        for (uint j = 0; j < VALUE_QUADS; j++) {
            const REAL line[4] = {results[i][j].s0, results[i][j].s1, results[i][j].s2, results[i][j].s3};
#pragma unroll
            for (uint c = 0; c < 4; c++) {
                const uint column = j * 64 + column4 + c;
                if (column < e) STORE(OUT_DTYPE, line[c] * inverse, out, (ulong)row * e + column);
            }
        }
    }
    if (me < TILE && first + me < t)
        lse[lse_offset + (ulong)batch * t + first + me] = log(totals[me]) + (tops[me] == -INFINITY ? 0 : tops[me]);
}
