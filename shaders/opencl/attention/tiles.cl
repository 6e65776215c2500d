// softmax(q k^T * scale + mask) v on a GPU without tensor cores (flash attention): the scores are never written to memory.
// A group takes a query block of ROWS and loops over key blocks of COLUMNS with an online softmax: per query a running
// maximum, a running sum and an output accumulator, rescaled when the maximum grows. The copy of the next operand
// overlaps with the use of the current one. Source: Dao et al., arXiv:2205.14135.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/visibility.h"
#include "attention/local_tile.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global REAL *lse,
    const ulong lse_offset, const REAL scale, const AttentionGeometry geometry) {
    __local REAL queries[ROWS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL keys[COLUMNS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL values[COLUMNS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL weights[ROWS * WEIGHTS_PITCH] __attribute__((aligned(32)));
    DECLARE_LENGTHS;
    const uint x = LANE_X, y = LANE_Y;
    const uint head = get_group_id(1);
    HEAD_INDICES(head);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    // Under a causal mask the last query blocks attend to the most keys, so they start first.
    const uint first = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint end = VISIBLE_KEYS(min(first + ROWS, t));
    const REAL score_scale = scale * SCORE_UNIT;
    Vec4 acc[ITEM_ROWS][VECTORS(VALUES)];
    REAL running_max[ITEM_ROWS], running_sum[ITEM_ROWS];
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++) {
        running_max[i] = -INFINITY;
        running_sum[i] = 0;
#pragma unroll
        for (uint j = 0; j < VECTORS(VALUES); j++) acc[i][j] = (Vec4)(0);
    }
    LOAD_ROWS(DTYPE, queries, FEATURES, q, first, ROWS, t, d);
    LOAD_ROWS(DTYPE, keys, FEATURES, k, 0, COLUMNS, end, d);
    COPIES_COMMIT();
    LOAD_ROWS(DTYPE, values, VALUES, v, 0, COLUMNS, end, e);
    COPIES_COMMIT();
    for (uint key = 0; key < end; key += COLUMNS) {
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL scores[ITEM_ROWS][ITEM_COLUMNS];
        multiply_rows(queries, keys, FEATURES, scores);
#pragma unroll
        for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) scores[i][j] *= score_scale;
        if (!ALL_VISIBLE(first, ROWS, key, COLUMNS)) {
#pragma unroll
            for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
                for (uint j = 0; j < ITEM_COLUMNS; j++) {
                    const uint row = first + y + i * LANES_Y, column = key + x + j * LANES_X;
                    if (!VISIBLE(row, column)) scores[i][j] = -INFINITY;
#if MASK == 2
                    else scores[i][j] += MASK_BIAS(row, column);
#endif
                }
        }
        REAL new_max[ITEM_ROWS];
#pragma unroll
        for (uint i = 0; i < ITEM_ROWS; i++) {
            new_max[i] = running_max[i];
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) new_max[i] = fmax(new_max[i], scores[i][j]);
        }
        reduce_rows_max(new_max, weights);
#pragma unroll
        for (uint i = 0; i < ITEM_ROWS; i++) {
            // While all keys so far are masked, 0 is subtracted: 2^(-inf - 0) is 0.
            const REAL shift = new_max[i] == -INFINITY ? 0 : new_max[i];
            const REAL rescale = WEIGHT(running_max[i] - shift);
            running_max[i] = new_max[i];
            running_sum[i] *= rescale;
#pragma unroll
            for (uint j = 0; j < ITEM_COLUMNS; j++) {
                scores[i][j] = WEIGHT(scores[i][j] - shift);
                running_sum[i] += scores[i][j];
            }
#pragma unroll
            for (uint j = 0; j < VECTORS(VALUES); j++) acc[i][j] *= rescale;
        }
        store_weights(scores, weights);
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < end) LOAD_ROWS(DTYPE, keys, FEATURES, k, key + COLUMNS, COLUMNS, end, d);
        COPIES_COMMIT();
        ACCUMULATE_ROWS(acc, weights, values, VALUES);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < end) LOAD_ROWS(DTYPE, values, VALUES, v, key + COLUMNS, COLUMNS, end, e);
        COPIES_COMMIT();
    }
    reduce_rows_sum(running_sum, weights);
    REAL inverses[ITEM_ROWS];
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++) inverses[i] = running_sum[i] == 0 ? 0 : 1 / running_sum[i];
    SELECT_RESULT(out);
    STORE_ROWS(OUT_DTYPE, acc, inverses[i_], out, first, t, e, VALUES);
    if (x == 0)
#pragma unroll
        for (uint i = 0; i < ITEM_ROWS; i++) {
            const uint row = first + y + i * LANES_Y;
            if (row < t)
                STORE_LOGSUMEXP(lse + lse_offset + 2 * ((ulong)head * t + row), running_max[i] / SCORE_UNIT, running_sum[i])
        }
}
