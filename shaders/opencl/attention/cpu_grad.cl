// Gradients of attention on a CPU, from the saved logsumexp: the probabilities are recomputed block by block and never
// written to memory. A work-item takes every `splits`-th query block of a head and loops over key blocks:
// p = exp(scale * q k^T + mask - logsumexp), ds = scale * p * (g v^T - delta) with delta = sum(g * out) per query, then
// dq += ds k, dk += ds^T q and dv += p^T g: five products in all.
//
// dk and dv are accumulated in memory that one work-item owns, in a fixed order: in the results themselves if no other
// work-item contributes, else (PARTIAL) in split-K partials that attention/cpu_split_reduce.cl adds up.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef PARTIAL
#define PARTIAL 0
#endif
#define GRADIENT 1
#include "attention/cpu_tile.h"

DEFINE_ACCUMULATE(accumulate_dq, private, KEY_VECTORS, QUERIES, 1, )
DEFINE_ACCUMULATE(accumulate_dk, global, KEY_VECTORS, 1, QUERIES, )
DEFINE_ACCUMULATE(accumulate_dv, global, VALUE_VECTORS, 1, QUERIES, )

__kernel NO_AUTOVEC void attention_cpu_grad(
    __global const REAL *g, const ulong g_offset, __global const REAL *q, const ulong q_offset, __global const REAL *k,
    const ulong k_offset, __global const REAL *v, const ulong v_offset, MASK_OPERAND OPERAND(DTYPE, out),
    __global const REAL *lse, const ulong lse_offset, RESULT(DTYPE, dq), __global REAL *dk, const ulong dk_offset,
    __global REAL *dv, const ulong dv_offset, const uint splits, const REAL scale, const AttentionGeometry geometry) {
    DECLARE_LENGTHS;
    const uint split = get_global_id(0), head = get_global_id(1);
    HEAD_INDICES(head);
    SELECT_HEAD(g);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    const uint key_width = PADDED(d), value_width = PADDED(e);
    SELECT_RESULT(out);
    SELECT_RESULT(dq);
    lse += lse_offset + 2 * (ulong)head * t;
#if PARTIAL
    const ulong partial = (ulong)split * get_global_size(1) + head;
    dk += dk_offset + partial * s * key_width;
    dv += dv_offset + partial * s * value_width;
    const ulong dk_pitch = key_width, dv_pitch = value_width;
#else
    SELECT_RESULT(dk);
    SELECT_RESULT(dv);
    const ulong dk_pitch = dk_row, dv_pitch = dv_row;
#endif
    for (uint j = 0; j < s; j++) {
        for (uint i = 0; i < key_width; i += WIDTH) VECTOR_STORE(REAL, (V)(0), dk + j * dk_pitch + i);
        for (uint i = 0; i < value_width; i += WIDTH) VECTOR_STORE(REAL, (V)(0), dv + j * dv_pitch + i);
    }
    REAL queries[MAX_FEATURES * QUERIES] __attribute__((aligned(64)));
    REAL grads[MAX_VALUES * QUERIES] __attribute__((aligned(64)));
    REAL dq_acc[QUERIES * MAX_FEATURES] __attribute__((aligned(64)));
    REAL p[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL ds[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL shifts[QUERIES] __attribute__((aligned(64)));
#if MASK == 2
    REAL logarithms[QUERIES] __attribute__((aligned(64)));
#endif
    REAL deltas[QUERIES] __attribute__((aligned(64)));
    for (uint row = split * QUERIES; row < t; row += splits * QUERIES) {
        const uint rows = min((uint)QUERIES, t - row);
        __global const REAL *q_rows = q + row * q_row, *g_rows = g + row * g_row;
        transpose_rows(q_rows, q_row, rows, d, scale, queries);
        transpose_rows(g_rows, g_row, rows, e, 1, grads);
        for (uint i = 0; i < QUERIES; i++) {
            const uint at = min(i, rows - 1);
            __global const REAL *parts = lse + 2 * (row + at);
#if MASK == 2
            shifts[i] = parts[0];
            logarithms[i] = parts[1];
#else
            shifts[i] = parts[0] + parts[1];
#endif
            __global const REAL *g_at = g_rows + at * g_row;
            __global const STORAGE(DTYPE) *out_at = out + (long)(row + at) * out_row;
            V sums = (V)(0);
            uint c = 0;
            for (; c + WIDTH <= e; c += WIDTH) sums += VECTOR_LOAD(REAL, g_at + c) * LOADV(DTYPE, out_at + c);
            REAL sum = LANES_SUM(sums);
            for (; c < e; c++) sum += g_at[c] * LOAD(DTYPE, out_at, c);
            deltas[i] = sum;
        }
        for (uint i = 0; i < QUERIES * key_width; i += WIDTH) *(__private V *)(dq_acc + i) = (V)(0);
        const uint end = VISIBLE_KEYS(row + rows);
        for (uint key = 0; key < end; key += KEYS) {
            const uint keys = min((uint)KEYS, end - key);
            for (uint j = 0; j < keys; j += MR) {
                __private REAL *p_tile = p + j * QUERIES, *ds_tile = ds + j * QUERIES;
                multiply_tile(k + (key + j) * k_row, k_row, s - key - j, queries, d, p_tile);
                multiply_tile(v + (key + j) * v_row, v_row, s - key - j, grads, e, ds_tile);
                MASK_TILE(p_tile, row, key + j)
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint i = 0; i < VECTORS; i++) {
                        __private V *p_at = (__private V *)(p_tile + r * QUERIES) + i;
                        __private V *ds_at = (__private V *)(ds_tile + r * QUERIES) + i;
                        V score = *p_at - ((__private const V *)shifts)[i];
#if MASK == 2
                        score -= ((__private const V *)logarithms)[i];
#endif
                        *p_at = EXP_FAST(score);
                        *ds_at = *p_at * (*ds_at - ((__private const V *)deltas)[i]) * scale;
                    }
            }
            for (uint i = 0; i < rows; i += MR) {
                const uint visible = min(keys, max(VISIBLE_KEYS(row + i + MR), key) - key);
                accumulate_dq(ds + i, k + key * k_row, k_row, visible, key_width, MR, 0, dq_acc + i * key_width, key_width);
            }
            for (uint j = 0; j < keys; j += MR) {
                // Skip the first queries, for which these keys are masked.
                const uint first = max(FIRST_QUERY(key + j), row) - row, count = min((uint)MR, s - key - j);
                if (first >= rows) continue;
                accumulate_dk(ds + j * QUERIES + first, q_rows + first * q_row, q_row, rows - first, key_width, count, 0,
                              dk + (key + j) * dk_pitch, dk_pitch);
                accumulate_dv(p + j * QUERIES + first, g_rows + first * g_row, g_row, rows - first, value_width, count, 0,
                              dv + (key + j) * dv_pitch, dv_pitch);
            }
        }
        for (uint i = 0; i < rows; i++) STORE_ROW(DTYPE, dq_acc + i * key_width, d, 1, dq + (long)(row + i) * dq_row)
    }
}
