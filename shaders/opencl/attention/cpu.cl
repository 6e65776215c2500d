// softmax(q k^T * scale + mask) v on a CPU (flash attention): the scores are never written to memory. A work-item takes one
// query block and loops over key blocks with an online softmax: per query a running maximum, a running sum and an output
// accumulator, rescaled when the maximum grows. With LENGTHS the keys are a cache, and only filled positions are read.
// Source: Dao et al., arXiv:2205.14135; Milakov and Gimelshein, arXiv:1805.02867.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/cpu_tile.h"

DEFINE_ACCUMULATE(accumulate_values, private, VALUE_VECTORS, QUERIES, 1, *factors[r])

__kernel NO_AUTOVEC void attention_cpu(__global const REAL *q, const ulong q_offset, __global const REAL *k,
                                       const ulong k_offset, __global const REAL *v, const ulong v_offset,
                                       MASK_OPERAND
#if LENGTHS
                                       __global const int *lengths, const ulong lengths_offset, const CacheGeometry cache,
                                       RESULT(OUT_DTYPE, out),
#else
                                       RESULT(OUT_DTYPE, out), __global REAL *lse, const ulong lse_offset,
#endif
                                       const REAL scale, const AttentionGeometry geometry) {
    const uint row = get_global_id(0) * QUERIES, head = get_global_id(1);
#if LENGTHS
    const uint t = geometry.t, d = geometry.d, e = geometry.e;
    SELECT_LENGTH(head);
#else
    DECLARE_LENGTHS;
#endif
    if (row >= t) return;
    HEAD_INDICES(head);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    const uint rows = min((uint)QUERIES, t - row), value_width = PADDED(e);
    REAL queries[MAX_FEATURES * QUERIES] __attribute__((aligned(64)));
    REAL acc[QUERIES * MAX_VALUES] __attribute__((aligned(64)));
    REAL scores[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL rescales[QUERIES] __attribute__((aligned(64)));
    V running_max[VECTORS], running_sum[VECTORS];
    transpose_rows(q + row * q_row, q_row, rows, d, scale, queries);
    for (uint i = 0; i < QUERIES * value_width; i += WIDTH) *(__private V *)(acc + i) = (V)(0);
#pragma unroll
    for (uint i = 0; i < VECTORS; i++) {
        running_max[i] = (V)(-INFINITY);
        running_sum[i] = (V)(0);
    }
    const uint end = VISIBLE_KEYS(row + rows);
    for (uint key = 0; key < end; key += KEYS) {
        const uint keys = min((uint)KEYS, end - key);
        for (uint j = 0; j < keys; j += MR) {
            multiply_tile(k + (key + j) * k_row, k_row, s - key - j, queries, d, scores + j * QUERIES);
            MASK_TILE(scores + j * QUERIES, row, key + j)
        }
#pragma unroll
        for (uint i = 0; i < VECTORS; i++) {
            __private V *column = (__private V *)scores + i;
            V new_max = running_max[i];
            for (uint j = 0; j < keys; j++) new_max = LARGER(new_max, column[j * VECTORS]);
            // While all keys so far are masked, 0 is subtracted: exp(-inf - 0) is 0.
            const V shift = new_max == (V)(-INFINITY) ? (V)(0) : new_max;
            const V rescale = EXP_FAST(running_max[i] - shift);
            V sum = (V)(0);
            for (uint j = 0; j < keys; j++) {
                const V p = EXP_FAST(column[j * VECTORS] - shift);
                sum += p;
                column[j * VECTORS] = p;
            }
            *(__private V *)(rescales + i * WIDTH) = rescale;
            running_sum[i] = running_sum[i] * rescale + sum;
            running_max[i] = new_max;
        }
        for (uint i = 0; i < rows; i += MR) {
            const uint visible = min(keys, max(VISIBLE_KEYS(row + i + MR), key) - key);
            accumulate_values(scores + i, v + key * v_row, v_row, visible, value_width, MR, rescales + i,
                              acc + i * value_width, value_width);
        }
    }
    REAL inverses[QUERIES] __attribute__((aligned(64)));
#pragma unroll
    for (uint i = 0; i < VECTORS; i++)
        ((__private V *)inverses)[i] = running_sum[i] == (V)(0) ? (V)(0) : 1 / running_sum[i];
    SELECT_RESULT(out);
    out += (long)row * out_row;
    for (uint i = 0; i < rows; i++) STORE_ROW(OUT_DTYPE, acc + i * value_width, e, inverses[i], out + i * out_row)
#if !LENGTHS
    lse += lse_offset + 2 * ((ulong)head * t + row);
    for (uint i = 0; i < rows; i++)
        STORE_LOGSUMEXP(lse + 2 * i, ((__private const REAL *)running_max)[i], ((__private const REAL *)running_sum)[i])
#endif
}
