// softmax(q k^T * scale + mask) v on a CPU, without ever holding the scores: a work-item takes a block of queries and passes
// over the keys KEYS at a time, with a running maximum, sum and result per query that are rescaled when the maximum grows.
// Source: Dao et al., arXiv:2205.14135, and Milakov and Gimelshein, arXiv:1805.02867.

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

GATHER(gather_values, private, VALUE_VECTORS, QUERIES, 1, *factors[r])

__kernel NO_AUTOVEC void attention_cpu(
    __global const REAL *q, const ulong q_offset, __global const REAL *k, const ulong k_offset, __global const REAL *v,
    const ulong v_offset, MASK_OPERAND RESULT(OUT_DTYPE, out), __global REAL *lse, const ulong lse_offset, LENGTHS, PLACES(out),
    STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    const uint row = get_global_id(0) * QUERIES, head = get_global_id(1);
    if (row >= t) return;
    HEAD_NUMBERS(head);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    const uint rows = min((uint)QUERIES, t - row), value_width = PADDED(e);
    REAL queries[MAX_FEATURES * QUERIES] __attribute__((aligned(64)));
    REAL results[QUERIES * MAX_VALUES] __attribute__((aligned(64)));
    REAL scores[KEYS * QUERIES] __attribute__((aligned(64)));
    REAL shrinks[QUERIES] __attribute__((aligned(64)));
    V tops[VECTORS], totals[VECTORS];
    turn_rows(q + row * q_row, q_row, rows, d, scale, queries);
    for (uint i = 0; i < QUERIES * value_width; i += WIDTH) *(__private V *)(results + i) = (V)(0);
#pragma unroll
    for (uint i = 0; i < VECTORS; i++) {
        tops[i] = (V)(-INFINITY);
        totals[i] = (V)(0);
    }
    const uint stop = KEYS_SEEN(row + rows);
    for (uint key = 0; key < stop; key += KEYS) {
        const uint keys = min((uint)KEYS, stop - key);
        for (uint j = 0; j < keys; j += MR) {
            multiply_tile(k + (key + j) * k_row, k_row, s - key - j, queries, d, scores + j * QUERIES);
            MASK_TILE(scores + j * QUERIES, row, key + j)
        }
#pragma unroll
        for (uint i = 0; i < VECTORS; i++) {
            __private V *column = (__private V *)scores + i;
            V top = tops[i];
            for (uint j = 0; j < keys; j++) top = LARGER(top, column[j * VECTORS]);
            // While everything was masked there is nothing to subtract: exp(-inf - 0) is 0.
            const V shift = top == (V)(-INFINITY) ? (V)(0) : top;
            const V shrink = EXP_FAST(tops[i] - shift);
            V sum = (V)(0);
            for (uint j = 0; j < keys; j++) {
                const V p = EXP_FAST(column[j * VECTORS] - shift);
                sum += p;
                column[j * VECTORS] = p;
            }
            *(__private V *)(shrinks + i * WIDTH) = shrink;
            totals[i] = totals[i] * shrink + sum;
            tops[i] = top;
        }
        for (uint i = 0; i < rows; i += MR) {
            const uint seen = min(keys, max(KEYS_SEEN(row + i + MR), key) - key);
            gather_values(scores + i, v + key * v_row, v_row, seen, value_width, MR, shrinks + i, results + i * value_width,
                          value_width);
        }
    }
    REAL inverses[QUERIES] __attribute__((aligned(64)));
    REAL statistics[QUERIES] __attribute__((aligned(64)));
#pragma unroll
    for (uint i = 0; i < VECTORS; i++) {
        ((__private V *)inverses)[i] = totals[i] == (V)(0) ? (V)(0) : 1 / totals[i];
        ((__private V *)statistics)[i] = log(totals[i]) + (tops[i] == (V)(-INFINITY) ? (V)(0) : tops[i]);
    }
    FIND(out);
    out += (long)row * out_row;
    lse += lse_offset + (ulong)head * t + row;
    for (uint i = 0; i < rows; i++) {
        STORE_ROW(OUT_DTYPE, results + i * value_width, e, inverses[i], out + i * out_row)
        lse[i] = statistics[i];
    }
}
