// softmax(q k^T * scale + mask) v on matrix units (flash attention), for 16-bit elements or for float32 as three bfloat16
// terms: the scores are never written to memory. A group takes a query block of ROWS, whose fragments may stay in
// registers, and loops over key blocks of COLUMNS with an online softmax: per query a running maximum, a running sum and
// an output accumulator. `scale` must be positive unless the mask is added. Source: Dao, arXiv:2307.08691.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// 1: the fragments of the queries stay in registers. With more than one term, and where registers do not suffice,
// they are read from local memory for each key block.
#ifndef ROWS_IN_REGISTERS
#define ROWS_IN_REGISTERS 1
#endif
#include "attention/visibility.h"
#include "attention/mma_tile.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_mma(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global float *lse,
    const ulong lse_offset, const float scale, const AttentionGeometry geometry) {
    __local uint queries[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint keys[STAGES * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint values[STAGES * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
    __local uint scratch[SCRATCH_WORDS];
    DECLARE_LENGTHS;
    const uint head = get_group_id(1);
    HEAD_INDICES(head);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    // Under a causal mask the last query blocks attend to the most keys, so they start first.
    const uint group_row = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint end = VISIBLE_KEYS(min(group_row + ROWS, t));
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS, warp_row = group_row + warp_offset;
#if TENSOR_CORES && !USE_WGMMA
    // A warp skips key blocks that are masked for all of its queries. The fallback cannot: the skipped code would
    // contain barriers.
    const uint warp_end = VISIBLE_KEYS(min(warp_row + WARP_ROWS, t));
#endif
    // Scores are scaled within the exponent, unless an added mask required scaling before.
#if MASK == 2
    const float score_scale = 1;
#else
    const float score_scale = scale * SCORE_UNIT;
#endif
    float acc[ROW_TILES][VALUES / 16][SUMS];
    float running_max[ROW_TILES][HALVES], running_sum[ROW_TILES][HALVES];
    CLEAR(acc, VALUES / 16);
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            running_max[t_][h] = -INFINITY;
            running_sum[t_][h] = 0;
        }
    LOAD_ROWS(queries, FEATURES, q, group_row, ROWS, t, d);
    COPIES_COMMIT();
    LOAD_ROWS(keys, FEATURES, k, 0, COLUMNS, end, d);
    LOAD_ROWS(values, VALUES, v, 0, COLUMNS, end, e);
    COPIES_COMMIT();
#if ROWS_IN_REGISTERS && !USE_WGMMA
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment query_fragments[ROW_TILES][FEATURES / 16];
    LOAD_FRAGMENTS(query_fragments, queries, warp_offset, FEATURES);
#define QUERY(t, k, term) query_fragments[t][k]
#else
#define QUERY(t, k, term) ROWS_FRAGMENT(queries, term, warp_offset + 16 * (t), k, FEATURES)
#endif
    for (uint key = 0; key < end; key += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : key / COLUMNS % STAGES, next = (stage + 1) % STAGES;
        COPIES_WAIT(0);
        FENCE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
        float scores[ROW_TILES][BLOCKS][SUMS];
#if STAGES > 1
#define LOAD_NEXT                                                                                           \
    LOAD_ROWS((keys + next * BLOCK_WORDS(COLUMNS, FEATURES)), FEATURES, k, key + COLUMNS, COLUMNS, end, d); \
    LOAD_ROWS((values + next * BLOCK_WORDS(COLUMNS, VALUES)), VALUES, v, key + COLUMNS, COLUMNS, end, e);   \
    COPIES_COMMIT()
#else
#define LOAD_NEXT
#endif
#if USE_WGMMA
        // Keep the code between the start and the end of an asynchronous product branch-free, or the compiler inserts
        // the wait right after the start.
        BEGIN_MULTIPLY(scores, queries + warp_offset / 64 * 64 * LINE_WORDS, ROWS,
                       keys + stage * BLOCK_WORDS(COLUMNS, FEATURES), FEATURES);
        LOAD_NEXT;
        END_MULTIPLY(0, scores);
        const bool busy = true;
#else
        LOAD_NEXT;
#if TENSOR_CORES
        const bool busy = key < warp_end;
#else
        const bool busy = true;
#endif
#endif
        if (busy) {
#if !USE_WGMMA
            MULTIPLY_ROWS(scores, QUERY, keys + stage * BLOCK_WORDS(COLUMNS, FEATURES), FEATURES);
#endif
            if (!ALL_VISIBLE(warp_row, WARP_ROWS, key, COLUMNS)) {
                UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i++) {
                            const uint row = warp_row + TILE_ROW(t_, i), column = key + TILE_COLUMN(n, i);
#if MASK == 2
                            scores[t_][n][i] = VISIBLE(row, column)
                                                   ? scores[t_][n][i] * scale + MASK_BIAS(row, column)
                                                   : -INFINITY;
#else
                            if (!VISIBLE(row, column)) scores[t_][n][i] = -INFINITY;
#endif
                        }
            }
            float new_max[ROW_TILES][HALVES];
            UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
                UNROLL for (uint h = 0; h < HALVES; h++) {
                    new_max[t_][h] = running_max[t_][h];
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i += 2)
                            if (HALF_OF(i) == h)
                                new_max[t_][h] = fmax(new_max[t_][h], fmax(scores[t_][n][i], scores[t_][n][i + 1]));
                }
            reduce_rows_max(new_max, scratch);
            UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
                UNROLL for (uint h = 0; h < HALVES; h++) {
                    // While all keys so far are masked, 0 is subtracted: 2^(-inf - 0) is 0.
                    const float shift = new_max[t_][h] == -INFINITY ? 0 : new_max[t_][h] * score_scale;
                    const float rescale = WEIGHT(running_max[t_][h] * score_scale - shift);
                    running_max[t_][h] = new_max[t_][h];
                    running_sum[t_][h] *= rescale;
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i += 2)
                            if (HALF_OF(i) == h) {
                                scores[t_][n][i] = WEIGHT(scores[t_][n][i] * score_scale - shift);
                                scores[t_][n][i + 1] = WEIGHT(scores[t_][n][i + 1] * score_scale - shift);
                                running_sum[t_][h] += scores[t_][n][i] + scores[t_][n][i + 1];
                            }
                    UNROLL for (uint n = 0; n < VALUES / 16; n++)
                        UNROLL for (uint i = 0; i < SUMS; i++)
                            if (HALF_OF(i) == h) acc[t_][n][i] *= rescale;
                }
            BEGIN_ACCUMULATE(acc, scores, values + stage * BLOCK_WORDS(COLUMNS, VALUES), VALUES, scratch);
            END_ACCUMULATE(acc, VALUES);
        }
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < end) {
            LOAD_ROWS(keys, FEATURES, k, key + COLUMNS, COLUMNS, end, d);
            LOAD_ROWS(values, VALUES, v, key + COLUMNS, COLUMNS, end, e);
        }
        COPIES_COMMIT();
#endif
    }
#if !TENSOR_CORES
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    reduce_rows_sum(running_sum, scratch);
    SELECT_RESULT(out);
#define INVERSE(t, h) (running_sum[t][h] == 0 ? 0 : 1 / running_sum[t][h])
    STORE_ROWS(acc, INVERSE, out, warp_row, t, e, VALUES);
    if (WARP_LANE % 4 == 0)
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
            UNROLL for (uint h = 0; h < HALVES; h++) {
                const uint row = warp_row + TILE_ROW(t_, 2 * h);
                if (row < t)
                    STORE_LOGSUMEXP(lse + lse_offset + 2 * ((ulong)head * t + row),
                                    running_max[t_][h] == -INFINITY ? -INFINITY : running_max[t_][h] * score_scale / SCORE_UNIT,
                                    running_sum[t_][h])
            }
}
