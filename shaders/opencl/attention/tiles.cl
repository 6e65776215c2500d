// softmax(q k^T * scale + mask) v on a GPU without tensor cores, never holding the scores: a group takes ROWS queries and passes over the
// keys COLUMNS at a time, with a running maximum, sum and result per query that are rescaled when the maximum
// grows. While one operand is worked on, the next is on its way. Source: Dao et al., arXiv:2205.14135.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/arguments.h"
#include "attention/local_tile.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global REAL *lse,
    const ulong lse_offset, LENGTHS, PLACES(out), STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    __local REAL queries[ROWS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL keys[COLUMNS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL values[COLUMNS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL weights[ROWS * WEIGHTS_PITCH] __attribute__((aligned(32)));
    const uint me = get_local_id(0) % LANES, team = get_local_id(0) / LANES;
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    // The last tiles have the most keys under a causal mask, so they start first.
    const uint first = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint stop = KEYS_SEEN(min(first + ROWS, t));
    const REAL factor = scale * LOG2E;
    Quad results[R][VECTORS(VALUES)];
    REAL tops[R], totals[R];
#pragma unroll
    for (uint i = 0; i < R; i++) {
        tops[i] = -INFINITY;
        totals[i] = 0;
#pragma unroll
        for (uint j = 0; j < VECTORS(VALUES); j++) results[i][j] = (Quad)(0);
    }
    LOAD_ROWS(DTYPE, queries, FEATURES, q, first, ROWS, t, d);
    LOAD_ROWS(DTYPE, keys, FEATURES, k, 0, COLUMNS, stop, d);
    COPIES_COMMIT();
    LOAD_ROWS(DTYPE, values, VALUES, v, 0, COLUMNS, stop, e);
    COPIES_COMMIT();
    for (uint key = 0; key < stop; key += COLUMNS) {
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL scores[R][C];
        multiply_rows(queries, keys, FEATURES, scores);
#pragma unroll
        for (uint i = 0; i < R; i++)
#pragma unroll
            for (uint j = 0; j < C; j++) scores[i][j] *= factor;
        if (!ALL_SEEN(first, ROWS, key, COLUMNS)) {
#pragma unroll
            for (uint i = 0; i < R; i++)
#pragma unroll
                for (uint j = 0; j < C; j++) {
                    const uint row = first + team + i * DOWN, column = key + me + j * LANES;
                    if (!SEEN(row, column)) scores[i][j] = -INFINITY;
#if MASK == 2
                    else scores[i][j] += LOG2E * ADDED(row, column);
#endif
                }
        }
        REAL highest[R];
#pragma unroll
        for (uint i = 0; i < R; i++) {
            highest[i] = tops[i];
#pragma unroll
            for (uint j = 0; j < C; j++) highest[i] = fmax(highest[i], scores[i][j]);
        }
        team_max(highest, weights);
#pragma unroll
        for (uint i = 0; i < R; i++) {
            // While everything was masked there is nothing to subtract: 2^(-inf - 0) is 0.
            const REAL subtracted = highest[i] == -INFINITY ? 0 : highest[i];
            const REAL shrink = power_of_two(tops[i] - subtracted);
            tops[i] = highest[i];
            totals[i] *= shrink;
#pragma unroll
            for (uint j = 0; j < C; j++) {
                scores[i][j] = power_of_two(scores[i][j] - subtracted);
                totals[i] += scores[i][j];
            }
#pragma unroll
            for (uint j = 0; j < VECTORS(VALUES); j++) results[i][j] *= shrink;
        }
        spread_weights(scores, weights);
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < stop) LOAD_ROWS(DTYPE, keys, FEATURES, k, key + COLUMNS, COLUMNS, stop, d);
        COPIES_COMMIT();
        GATHER_ROWS(results, weights, values, VALUES);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < stop) LOAD_ROWS(DTYPE, values, VALUES, v, key + COLUMNS, COLUMNS, stop, e);
        COPIES_COMMIT();
    }
    team_sum(totals, weights);
    REAL inverses[R];
#pragma unroll
    for (uint i = 0; i < R; i++) inverses[i] = totals[i] == 0 ? 0 : 1 / totals[i];
    FIND(out);
    STORE_ROWS(OUT_DTYPE, results, inverses[i_], out, first, t, e, VALUES);
    if (me == 0)
#pragma unroll
        for (uint i = 0; i < R; i++) {
            const uint row = first + team + i * DOWN;
            if (row < t)
                lse[lse_offset + (ulong)head * t + row] = log(totals[i]) + (tops[i] == -INFINITY ? 0 : tops[i] * LN2);
        }
}
