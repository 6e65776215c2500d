// Gradients of attention on a GPU without tensor cores, from the saved logsumexp: the probabilities are computed again, tile by tile, and
// are never in memory. A group takes ROWS rows and passes over the columns COLUMNS at a time, adding to the rows' gradients.
//
// KEYS 0: rows are queries and columns keys; a row gathers dq = sum over keys of ds * k. KEYS 1: rows are keys and columns queries; a row
// gathers dk = sum over queries of ds * q and dv = sum over queries of p * g. Here p = exp(scale * q k^T + mask - lse) and
// ds = scale * p * (g v^T - delta). No sum crosses groups, so that the result is the same every time.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef KEYS
#define KEYS 0
#endif
#include "heads.h"
#include "head_tiles.h"

// `first` is what keys are compared by, `second` what values are; of the rows (own) and of the columns (other).
#if KEYS
#define OWN_FIRST k
#define OWN_SECOND v
#define OTHER_FIRST q
#define OTHER_SECOND g
#define OWN_LENGTH s
#define OTHER_LENGTH t
#else
#define OWN_FIRST q
#define OWN_SECOND g
#define OTHER_FIRST k
#define OTHER_SECOND v
#define OWN_LENGTH t
#define OTHER_LENGTH s
#endif
// The macros of head_tiles.h make names of their arguments.
#define LOAD_NAMED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(DTYPE, memory, features, name, first, count, limit, length)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles_grad(
    OPERAND(DTYPE, g), OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND __global const REAL *lse,
    const ulong lse_offset, __global const REAL *delta,
#if KEYS
    RESULT(DTYPE, dk), RESULT(DTYPE, dv),
#else
    RESULT(DTYPE, dq),
#endif
    LENGTHS, STRIDES(g), STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    __local REAL own_first[ROWS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL own_second[ROWS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL other_first[COLUMNS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL other_second[COLUMNS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL weights[ROWS * WEIGHTS_PITCH] __attribute__((aligned(32)));
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND(g);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    lse += lse_offset + (ulong)head * t;
    delta += (ulong)head * t;
    // Under a causal mask the last queries see the most keys, and the first keys are seen by the most queries: those start first.
#if KEYS
    const uint first = get_group_id(0) * ROWS;
    const uint begin = FIRST_QUERY(first) / COLUMNS * COLUMNS, end = t;
#else
    const uint first = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint begin = 0, end = KEYS_SEEN(min(first + ROWS, t));
#endif
    const REAL factor = scale * LOG2E;
    Quad first_results[R][VECTORS(FEATURES)];
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) first_results[i][j] = (Quad)(0);
#if KEYS
    Quad second_results[R][VECTORS(VALUES)];
#pragma unroll
    for (uint i = 0; i < R; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(VALUES); j++) second_results[i][j] = (Quad)(0);
#endif
    LOAD_NAMED(own_first, FEATURES, OWN_FIRST, first, ROWS, OWN_LENGTH, d);
    LOAD_NAMED(own_second, VALUES, OWN_SECOND, first, ROWS, OWN_LENGTH, e);
    for (uint column = begin; column < end; column += COLUMNS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_NAMED(other_first, FEATURES, OTHER_FIRST, column, COLUMNS, OTHER_LENGTH, d);
        COPIES_COMMIT();
        LOAD_NAMED(other_second, VALUES, OTHER_SECOND, column, COLUMNS, OTHER_LENGTH, e);
        COPIES_COMMIT();
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL p[R][C], ds[R][C];
        multiply_rows(own_first, other_first, FEATURES, p);
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_rows(own_second, other_second, VALUES, ds);
        const bool whole = KEYS ? ALL_SEEN(column, COLUMNS, first, ROWS) : ALL_SEEN(first, ROWS, column, COLUMNS);
#pragma unroll
        for (uint i = 0; i < R; i++)
#pragma unroll
            for (uint j = 0; j < C; j++) {
                const uint own = first + team + i * DOWN, other = column + me + j * LANES;
                const uint query = KEYS ? other : own, key = KEYS ? own : other;
                const uint at = min(query, t - 1);
                // A query that sees nothing has an lse of minus infinity; its scores are too, and so are taken away as 0.
                const REAL logsum = lse[at] == -INFINITY ? 0 : lse[at] * LOG2E;
                REAL score = p[i][j] * factor;
                if (!whole) {
                    if (!SEEN(query, key)) score = -INFINITY;
#if MASK == 2
                    else score += LOG2E * ADDED(query, key);
#endif
                }
                p[i][j] = power_of_two(score - logsum);
                ds[i][j] = p[i][j] * (ds[i][j] - delta[at]) * scale;
            }
        spread_weights(ds, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        GATHER_ROWS(first_results, weights, other_first, FEATURES);
#if KEYS
        barrier(CLK_LOCAL_MEM_FENCE);
        spread_weights(p, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        GATHER_ROWS(second_results, weights, other_second, VALUES);
#endif
    }
#if KEYS
    dk += dk_offset + (ulong)head * s * d;
    dv += dv_offset + (ulong)head * s * e;
    STORE_ROWS(DTYPE, first_results, (REAL)1, dk, first, s, d, FEATURES);
    STORE_ROWS(DTYPE, second_results, (REAL)1, dv, first, s, e, VALUES);
#else
    dq += dq_offset + (ulong)head * t * d;
    STORE_ROWS(DTYPE, first_results, (REAL)1, dq, first, t, d, FEATURES);
#endif
}
