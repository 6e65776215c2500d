// Gradients of attention on matrix units, for 16-bit elements or for float32 as three bfloat16 terms, from the saved
// logsumexp: the probabilities are recomputed block by block and never written to memory. See attention/grad_roles.h for
// the roles of the operands.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// 1: the fragments of the rows' operands stay in registers. Only with one term, and not for wgmma, which reads them
// from local memory.
#ifndef ROWS_IN_REGISTERS
#define ROWS_IN_REGISTERS 1
#endif
#include "attention/grad_roles.h"
#include "attention/mma_tile.h"

// These macros paste `name`, so an argument that is itself a macro needs one more expansion.
#define LOAD_ROWS_EXPANDED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(memory, features, name, first, count, limit, length)
#define STORE_ROWS_EXPANDED(acc, factor, name, first, limit, length, features) \
    STORE_ROWS(acc, factor, name, first, limit, length, features)

// `statistics` are the numbers per query that attention/delta.cl computes.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_mma_grad(
    OPERANDS, MASK_OPERAND __global const float *statistics, GRADIENTS(OUT_DTYPE), const float scale,
    const AttentionGeometry geometry) {
    __local uint row_qk[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint column_qk[STAGES * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint column_vg[STAGES * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
#if WRITE_QK
    __local uint row_vg[BLOCK_WORDS(ROWS, VALUES)] __attribute__((aligned(1024)));
#endif
    __local float staged[(ROWS_ARE_KEYS ? STAGES * COLUMNS : ROWS) * STATISTICS] __attribute__((aligned(16)));
    __local uint scratch[SCRATCH_WORDS];
    DECLARE_LENGTHS;
    const uint head = get_group_id(1);
    HEAD_INDICES(head);
    SELECT_OPERANDS;
    statistics += (ulong)head * t * STATISTICS;
    const uint group_row = FIRST_ROW, begin = FIRST_COLUMN(group_row), end = END_COLUMN(group_row);
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS, warp_row = group_row + warp_offset;
    const float score_scale = scale * SCORE_UNIT;
#if WRITE_QK
    float qk_acc[ROW_TILES][FEATURES / 16][SUMS];
    CLEAR(qk_acc, FEATURES / 16);
#endif
#if WRITE_V
    float v_acc[ROW_TILES][VALUES / 16][SUMS];
    CLEAR(v_acc, VALUES / 16);
#endif
    LOAD_ROWS_EXPANDED(row_qk, FEATURES, ROW_QK, group_row, ROWS, ROW_COUNT, d);
#if WRITE_QK
    LOAD_ROWS_EXPANDED(row_vg, VALUES, ROW_VG, group_row, ROWS, ROW_COUNT, e);
#endif
#if MASK == 2
#define COPY_STATISTICS COPY16
#else
#define COPY_STATISTICS COPY8
#endif
#define LOAD_STATISTICS(to, query, count)                      \
    for (uint i_ = get_local_id(0); i_ < (count); i_ += GROUP) \
        COPY_STATISTICS(&staged[((to) + i_) * STATISTICS], statistics + ((query) + i_) * STATISTICS, (query) + i_ < t);
#if !ROWS_ARE_KEYS
    LOAD_STATISTICS(0, group_row, ROWS)
#endif
    COPIES_COMMIT();
#define MY_STATISTICS(t, n, i) \
    (staged + (ROWS_ARE_KEYS ? stage * COLUMNS + TILE_COLUMN(n, i) : warp_offset + TILE_ROW(t, i)) * STATISTICS)
#define LOAD_COLUMNS(column, stage)                                                                                  \
    LOAD_ROWS_EXPANDED((column_qk + (stage) * BLOCK_WORDS(COLUMNS, FEATURES)), FEATURES, COLUMN_QK, column, COLUMNS, \
                       COLUMN_COUNT, d);                                                                             \
    LOAD_ROWS_EXPANDED((column_vg + (stage) * BLOCK_WORDS(COLUMNS, VALUES)), VALUES, COLUMN_VG, column, COLUMNS,     \
                       COLUMN_COUNT, e);                                                                             \
    if (ROWS_ARE_KEYS) LOAD_STATISTICS((stage) * COLUMNS, column, COLUMNS)                                           \
    COPIES_COMMIT()
    LOAD_COLUMNS(begin, 0);
#if ROWS_IN_REGISTERS && !USE_WGMMA
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment qk_fragments[ROW_TILES][FEATURES / 16];
    LOAD_FRAGMENTS(qk_fragments, row_qk, warp_offset, FEATURES);
#if WRITE_QK
    Fragment vg_fragments[ROW_TILES][VALUES / 16];
    LOAD_FRAGMENTS(vg_fragments, row_vg, warp_offset, VALUES);
#endif
#define FRAGMENT_qk(t, k, term) qk_fragments[t][k]
#define FRAGMENT_vg(t, k, term) vg_fragments[t][k]
#else
#define FRAGMENT_qk(t, k, term) ROWS_FRAGMENT(row_qk, term, warp_offset + 16 * (t), k, FEATURES)
#define FRAGMENT_vg(t, k, term) ROWS_FRAGMENT(row_vg, term, warp_offset + 16 * (t), k, VALUES)
#endif
#if USE_WGMMA
#define MULTIPLY_WARP_ROWS(sums, name, columns, features) \
    BEGIN_MULTIPLY(sums, row_##name + warp_offset / 64 * 64 * LINE_WORDS, ROWS, columns, features)
#else
#define MULTIPLY_WARP_ROWS(sums, name, columns, features) MULTIPLY_ROWS(sums, FRAGMENT_##name, columns, features)
#endif
    for (uint column = begin; column < end; column += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : (column - begin) / COLUMNS % STAGES, next = (stage + 1) % STAGES;
        COPIES_WAIT(0);
        FENCE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
#if STAGES > 1
        if (column + COLUMNS < end) {
            LOAD_COLUMNS(column + COLUMNS, next);
        }
#endif
        // Keep the code between the start and the end of an asynchronous product branch-free, or the compiler inserts
        // the wait right after the start.
        const bool all_visible = BLOCK_VISIBLE(warp_row, WARP_ROWS, column, COLUMNS);
        float p[ROW_TILES][BLOCKS][SUMS];
        MULTIPLY_WARP_ROWS(p, qk, column_qk + stage * BLOCK_WORDS(COLUMNS, FEATURES), FEATURES);
#if WRITE_QK
        float ds[ROW_TILES][BLOCKS][SUMS];
        MULTIPLY_WARP_ROWS(ds, vg, column_vg + stage * BLOCK_WORDS(COLUMNS, VALUES), VALUES);
#endif
        LOAD_BITS(bits, warp_row, column, ROW_COUNT);
#if WRITE_QK && MASK != 2
        END_MULTIPLY(1, p);
#else
        END_MULTIPLY(0, p);
#endif
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++) {
                    float score = p[t_][n][i] * score_scale;
#if MASK == 2
                    const uint my_row = warp_row + TILE_ROW(t_, i), my_column = column + TILE_COLUMN(n, i);
                    if (PAIR_VISIBLE(my_row, my_column)) score += PAIR_BIAS(my_row, my_column);
#endif
                    p[t_][n][i] = NORMALIZED_WEIGHT(score, MY_STATISTICS(t_, n, i));
                }
#if WRITE_QK
        END_MULTIPLY(0, ds);
#endif
        if (!all_visible) {
            UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
                UNROLL for (uint n = 0; n < BLOCKS; n++)
                    UNROLL for (uint i = 0; i < SUMS; i++)
#if MASK == 3
                        if (!BIT(bits, t_, n, i)) p[t_][n][i] = 0;
#else
                        if (!PAIR_VISIBLE(warp_row + TILE_ROW(t_, i), column + TILE_COLUMN(n, i))) p[t_][n][i] = 0;
#endif
        }
#if WRITE_V
        BEGIN_ACCUMULATE(v_acc, p, column_vg + stage * BLOCK_WORDS(COLUMNS, VALUES), VALUES, scratch);
#endif
#if WRITE_QK
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++)
                    ds[t_][n][i] = p[t_][n][i] * (ds[t_][n][i] - DELTA(MY_STATISTICS(t_, n, i)));
        BEGIN_ACCUMULATE(qk_acc, ds, column_qk + stage * BLOCK_WORDS(COLUMNS, FEATURES), FEATURES, scratch);
        END_ACCUMULATE(qk_acc, FEATURES);
#endif
#if WRITE_V
        END_ACCUMULATE(v_acc, VALUES);
#endif
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (column + COLUMNS < end) {
            LOAD_COLUMNS(column + COLUMNS, 0);
        }
#endif
    }
#define BY_SCALE(t, h) scale
#define BY_ONE(t, h) 1
#if WRITE_QK
    SELECT_RESULT_EXPANDED(GRAD_QK);
    STORE_ROWS_EXPANDED(qk_acc, BY_SCALE, GRAD_QK, warp_row, ROW_COUNT, d, FEATURES);
#endif
#if WRITE_V
    SELECT_RESULT(dv);
    STORE_ROWS(v_acc, BY_ONE, dv, warp_row, s, e, VALUES);
#endif
}
