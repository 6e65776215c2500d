// Gradients of attention on a GPU without tensor cores, from the saved logsumexp: the probabilities are recomputed tile by
// tile and never written to memory. See attention/grad_roles.h for the roles of the operands.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#include "attention/grad_roles.h"
#include "attention/local_tile.h"
#if FUSE_DQ
#include "lib/atomic_add.h"
// Vectors of four columns for which a work-item accumulates dq, out of COLUMNS / LANES_Y columns.
#define DQ_VECTORS (COLUMNS / LANES_Y / 4)
#endif

// These macros paste `name`, so an argument that is itself a macro needs one more expansion.
#define LOAD_ROWS_EXPANDED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(DTYPE, memory, features, name, first, count, limit, length)
#define STORE_ROWS_EXPANDED(D, values, factor, name, first, limit, length, features) \
    STORE_ROWS(D, values, factor, name, first, limit, length, features)

#if FUSE_DQ
// acc[4 * i + c][j] = sum over all rows of the weights of column 4 * (y + i * LANES_Y) + c times vector x + j * LANES_X
// of the rows of `left`.
static inline void accumulate_columns(Vec4 acc[4 * DQ_VECTORS][VECTORS(FEATURES)], __local const REAL *weights,
                                      __local const REAL *left) {
    const uint x = LANE_X, y = LANE_Y;
#pragma unroll
    for (uint i = 0; i < 4 * DQ_VECTORS; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) acc[i][j] = (Vec4)(0);
#pragma unroll 4
    for (uint r = 0; r < ROWS; r++) {
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) {
            const uint at = min((uint)(x + j * LANES_X), (uint)(FEATURES / 4 - 1)) * 4;
            const Vec4 features = VEC4_AT(left, r * PITCH(FEATURES) + at);
#pragma unroll
            for (uint i = 0; i < DQ_VECTORS; i++) {
                const Vec4 w = VEC4_AT(weights, r * WEIGHTS_PITCH + (y + i * LANES_Y) * 4);
                acc[4 * i][j] += w.s0 * features;
                acc[4 * i + 1][j] += w.s1 * features;
                acc[4 * i + 2][j] += w.s2 * features;
                acc[4 * i + 3][j] += w.s3 * features;
            }
        }
    }
}
#endif

// `statistics` are the numbers per query that attention/delta.cl computes.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_tiles_grad(
    OPERANDS, MASK_OPERAND __global const REAL *statistics, GRADIENTS(DTYPE), const REAL scale,
    const AttentionGeometry geometry) {
    __local REAL row_qk[ROWS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL row_vg[ROWS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL column_qk[COLUMNS * PITCH(FEATURES)] __attribute__((aligned(32)));
    __local REAL column_vg[COLUMNS * PITCH(VALUES)] __attribute__((aligned(32)));
    __local REAL weights[ROWS * WEIGHTS_PITCH] __attribute__((aligned(32)));
    DECLARE_LENGTHS;
    const uint x = LANE_X, y = LANE_Y;
    const uint head = get_group_id(1);
    HEAD_INDICES(head);
    SELECT_OPERANDS;
    statistics += (ulong)head * t * STATISTICS;
    const uint first = FIRST_ROW, begin = FIRST_COLUMN(first), end = END_COLUMN(first);
#if FUSE_DQ
    SELECT_RESULT(dq);
#endif
    const REAL score_scale = scale * SCORE_UNIT;
    Vec4 qk_acc[ITEM_ROWS][VECTORS(FEATURES)];
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(FEATURES); j++) qk_acc[i][j] = (Vec4)(0);
#if ROWS_ARE_KEYS
    Vec4 v_acc[ITEM_ROWS][VECTORS(VALUES)];
#pragma unroll
    for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
        for (uint j = 0; j < VECTORS(VALUES); j++) v_acc[i][j] = (Vec4)(0);
#endif
    LOAD_ROWS_EXPANDED(row_qk, FEATURES, ROW_QK, first, ROWS, ROW_COUNT, d);
    LOAD_ROWS_EXPANDED(row_vg, VALUES, ROW_VG, first, ROWS, ROW_COUNT, e);
    for (uint column = begin; column < end; column += COLUMNS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_ROWS_EXPANDED(column_qk, FEATURES, COLUMN_QK, column, COLUMNS, COLUMN_COUNT, d);
        COPIES_COMMIT();
        LOAD_ROWS_EXPANDED(column_vg, VALUES, COLUMN_VG, column, COLUMNS, COLUMN_COUNT, e);
        COPIES_COMMIT();
        COPIES_WAIT(1);
        barrier(CLK_LOCAL_MEM_FENCE);
        REAL p[ITEM_ROWS][ITEM_COLUMNS], ds[ITEM_ROWS][ITEM_COLUMNS];
        multiply_rows(row_qk, column_qk, FEATURES, p);
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_rows(row_vg, column_vg, VALUES, ds);
#include "attention/pair_weights.h"
        store_weights(ds, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        ACCUMULATE_ROWS(qk_acc, weights, column_qk, FEATURES);
#if FUSE_DQ
        Vec4 dq_acc[4 * DQ_VECTORS][VECTORS(FEATURES)];
        accumulate_columns(dq_acc, weights, row_qk);
#pragma unroll
        for (uint i = 0; i < 4 * DQ_VECTORS; i++) {
            const uint query = column + (y + i / 4 * LANES_Y) * 4 + i % 4;
#pragma unroll
            for (uint j = 0; j < VECTORS(FEATURES); j++) {
                const uint feature = (x + j * LANES_X) * 4;
                const float line[4] = {dq_acc[i][j].s0, dq_acc[i][j].s1, dq_acc[i][j].s2, dq_acc[i][j].s3};
#pragma unroll
                for (uint k_ = 0; k_ < 4; k_++)
                    if (query < t && feature + k_ < d) add_atomically(dq + query * dq_row + feature + k_, line[k_] * scale);
            }
        }
#endif
#if ROWS_ARE_KEYS
        barrier(CLK_LOCAL_MEM_FENCE);
        store_weights(p, weights);
        barrier(CLK_LOCAL_MEM_FENCE);
        ACCUMULATE_ROWS(v_acc, weights, column_vg, VALUES);
#endif
    }
    SELECT_RESULT_EXPANDED(GRAD_QK);
    STORE_ROWS_EXPANDED(DTYPE, qk_acc, scale, GRAD_QK, first, ROW_COUNT, d, FEATURES);
#if ROWS_ARE_KEYS
    SELECT_RESULT(dv);
    STORE_ROWS(DTYPE, v_acc, (REAL)1, dv, first, s, e, VALUES);
#endif
}
