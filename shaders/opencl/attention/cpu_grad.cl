// Gradients of attention on a CPU, from the saved logsumexp: the probabilities are computed again, block by block, and are
// never in memory. A work-item takes every `splits`-th block of the queries of a head and passes over the keys:
// p = exp(scale * q k^T + mask - lse) and ds = scale * p * (g v^T - delta) with delta = sum(g * out) of each query, and then
// dq += ds k, dk += ds^T q and dv += p^T g, five products in all. dk and dv gather in memory that belongs to the work-item
// alone, in a fixed order: in the results themselves where nobody else adds to them, else (PARTIAL) in sums that attention/cpu_split_reduce.cl
// adds up.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef PARTIAL
#define PARTIAL 0
#endif
#include "attention/cpu_tile.h"

GATHER(gather_keys, private, KEY_VECTORS, QUERIES, 1, )
GATHER(gather_queries, global, KEY_VECTORS, 1, QUERIES, )
GATHER(gather_slopes, global, VALUE_VECTORS, 1, QUERIES, )

__kernel NO_AUTOVEC void attention_cpu_grad(
    __global const REAL *g, const ulong g_offset, __global const REAL *q, const ulong q_offset, __global const REAL *k,
    const ulong k_offset, __global const REAL *v, const ulong v_offset, MASK_OPERAND OPERAND(DTYPE, out),
    __global const REAL *lse, const ulong lse_offset, RESULT(DTYPE, dq), __global REAL *dk, const ulong dk_offset,
    __global REAL *dv, const ulong dv_offset, LENGTHS, PLACES(out), PLACES(dq), PLACES(dk), PLACES(dv), const uint splits,
    STRIDES(g), STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    const uint split = get_global_id(0), head = get_global_id(1);
    HEAD_NUMBERS(head);
    FIND(g);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    const uint key_width = PADDED(d), value_width = PADDED(e);
    FIND(out);
    FIND(dq);
    lse += lse_offset + (ulong)head * t;
#if PARTIAL
    const ulong own = (ulong)split * get_global_size(1) + head;
    dk += dk_offset + own * s * key_width;
    dv += dv_offset + own * s * value_width;
    const ulong key_pitch = key_width, value_pitch = value_width;
#else
    FIND(dk);
    FIND(dv);
    const ulong key_pitch = dk_row, value_pitch = dv_row;
#endif
    for (uint j = 0; j < s; j++) {
        for (uint i = 0; i < key_width; i += WIDTH) VECTOR_STORE(REAL, (V)(0), dk + j * key_pitch + i);
        for (uint i = 0; i < value_width; i += WIDTH) VECTOR_STORE(REAL, (V)(0), dv + j * value_pitch + i);
    }
    REAL queries[MAX_FEATURES * QUERIES] __attribute__((aligned(64)));
    REAL slopes[MAX_VALUES * QUERIES] __attribute__((aligned(64)));
    REAL results[QUERIES * MAX_FEATURES] __attribute__((aligned(64)));
    REAL p[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL ds[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL subtracted[QUERIES] __attribute__((aligned(64)));
    REAL centres[QUERIES] __attribute__((aligned(64)));
    for (uint row = split * QUERIES; row < t; row += splits * QUERIES) {
        const uint rows = min((uint)QUERIES, t - row);
        __global const REAL *q_rows = q + row * q_row, *g_rows = g + row * g_row;
        turn_rows(q_rows, q_row, rows, d, scale, queries);
        turn_rows(g_rows, g_row, rows, e, 1, slopes);
        for (uint i = 0; i < QUERIES; i++) {
            const uint at = min(i, rows - 1);
            // A query that sees nothing has an lse of minus infinity; its scores are too, and so are taken away as 0.
            const REAL value = lse[row + at];
            subtracted[i] = value == -INFINITY ? 0 : value;
            __global const REAL *g_at = g_rows + at * g_row;
            __global const STORAGE(DTYPE) *out_at = out + (long)(row + at) * out_row;
            V sums = (V)(0);
            uint c = 0;
            for (; c + WIDTH <= e; c += WIDTH) sums += VECTOR_LOAD(REAL, g_at + c) * LOADV(DTYPE, out_at + c);
            REAL sum = LANES_SUM(sums);
            for (; c < e; c++) sum += g_at[c] * LOAD(DTYPE, out_at, c);
            centres[i] = sum;
        }
        for (uint i = 0; i < QUERIES * key_width; i += WIDTH) *(__private V *)(results + i) = (V)(0);
        const uint stop = KEYS_SEEN(row + rows);
        for (uint key = 0; key < stop; key += KEYS) {
            const uint keys = min((uint)KEYS, stop - key);
            for (uint j = 0; j < keys; j += MR) {
                __private REAL *p_tile = p + j * QUERIES, *ds_tile = ds + j * QUERIES;
                multiply_tile(k + (key + j) * k_row, k_row, s - key - j, queries, d, p_tile);
                multiply_tile(v + (key + j) * v_row, v_row, s - key - j, slopes, e, ds_tile);
                MASK_TILE(p_tile, row, key + j)
                for (uint r = 0; r < MR; r++)
#pragma unroll
                    for (uint i = 0; i < VECTORS; i++) {
                        __private V *share = (__private V *)(p_tile + r * QUERIES) + i;
                        __private V *slope = (__private V *)(ds_tile + r * QUERIES) + i;
                        *share = EXP_FAST(*share - ((__private const V *)subtracted)[i]);
                        *slope = *share * (*slope - ((__private const V *)centres)[i]) * scale;
                    }
            }
            for (uint i = 0; i < rows; i += MR) {
                const uint seen = min(keys, max(KEYS_SEEN(row + i + MR), key) - key);
                gather_keys(ds + i, k + key * k_row, k_row, seen, key_width, MR, 0, results + i * key_width, key_width);
            }
            for (uint j = 0; j < keys; j += MR) {
                // What the first queries do not see adds nothing.
                const uint first = max(FIRST_QUERY(key + j), row) - row, held = min((uint)MR, s - key - j);
                if (first >= rows) continue;
                gather_queries(ds + j * QUERIES + first, q_rows + first * q_row, q_row, rows - first, key_width, held, 0,
                               dk + (key + j) * key_pitch, key_pitch);
                gather_slopes(p + j * QUERIES + first, g_rows + first * g_row, g_row, rows - first, value_width, held, 0,
                              dv + (key + j) * value_pitch, value_pitch);
            }
        }
        for (uint i = 0; i < rows; i++) STORE_ROW(DTYPE, results + i * key_width, d, 1, dq + (long)(row + i) * dq_row)
    }
}
