// softmax(q k^T * scale + mask) v on Hopper's tensor cores, for 16-bit elements. The warpgroups of a group share blocks of
// keys and values, because the second-level cache is the bottleneck of groups with 64 queries. The scores of the next block
// and the product of weights and values are multiplied at once, and the softmax of the next block overlaps with the latter.
// `scale` must be positive unless the mask is added. Source: Shah et al., FlashAttention-3, arXiv:2407.08608.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#define USE_WGMMA 1
#include "attention/visibility.h"
#include "attention/mma_tile.h"
#include "attention/online_softmax.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_pipelined(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global float *lse,
    const ulong lse_offset, const float scale, const AttentionGeometry geometry) {
    __local uint queries[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint keys[2 * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint values[2 * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
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
    const uint end = VISIBLE_KEYS(min(group_row + ROWS, t)), count = max((end + COLUMNS - 1) / COLUMNS, 1u);
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS, warp_row = group_row + warp_offset;
    // The first blocks, which all queries of the group see as a whole.
#if MASK
    const uint whole = 0;
#elif CAUSAL
    const uint whole = min((uint)clamp((int)group_row + 1 + DIAGONAL, 0, (int)s), s) / COLUMNS;
#else
    const uint whole = s / COLUMNS;
#endif
    const float score_scale = SCORE_SCALE;
    float acc[1][VALUES / 16][SUMS], scores[1][BLOCKS][SUMS];
    float running_max[1][HALVES], running_sum[1][HALVES], rescale[1][HALVES];
    DECLARE_PACKED(packed);
    CLEAR(acc, VALUES / 16);
    UNROLL for (uint h = 0; h < HALVES; h++) {
        running_max[0][h] = -INFINITY;
        running_sum[0][h] = 0;
    }
#define KEYS(stage) (keys + (stage) * BLOCK_WORDS(COLUMNS, FEATURES))
#define VALUES_OF(stage) (values + (stage) * BLOCK_WORDS(COLUMNS, VALUES))
#define MY_QUERIES (queries + warp_offset / 64 * 64 * LINE_WORDS)
    LOAD_ROWS(queries, FEATURES, q, group_row, ROWS, t, d);
    LOAD_ROWS(keys, FEATURES, k, 0, COLUMNS, end, d);
    COPIES_COMMIT();
    LOAD_ROWS(values, VALUES, v, 0, COLUMNS, end, e);
    LOAD_ROWS(KEYS(1), FEATURES, k, COLUMNS, COLUMNS, end, d);
    COPIES_COMMIT();
    COPIES_WAIT(1);
    FENCE_COPIES();
    barrier(CLK_LOCAL_MEM_FENCE);
    BEGIN_MULTIPLY(scores, MY_QUERIES, ROWS, keys, FEATURES);
    END_MULTIPLY(0, scores);
    if (whole == 0) {
        PREPARE_MASK(0);
        APPLY_MASK(scores, 0)
    }
    online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
    PACK_WEIGHTS(packed, scores);
// Begin the scores of block `block` + 1 and the product with the values of block `block`, and copy the blocks behind them.
#define BEGIN_BLOCK(block)                                                                          \
    const uint stage = (block) % 2;                                                                 \
    COPIES_WAIT(0);                                                                                 \
    FENCE_COPIES();                                                                                 \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
    BEGIN_MULTIPLY(scores, MY_QUERIES, ROWS, KEYS(1 - stage), FEATURES);                            \
    BEGIN_ACCUMULATE_PACKED(acc, packed, VALUES_OF(stage), VALUES, scratch);                        \
    LOAD_ROWS(VALUES_OF(1 - stage), VALUES, v, ((block) + 1) * COLUMNS, COLUMNS, end, e);           \
    LOAD_ROWS(KEYS(stage), FEATURES, k, ((block) + 2) * COLUMNS, COLUMNS, end, d);                  \
    COPIES_COMMIT()
    uint block = 0;
    // Keep this loop branch-free, or the compiler waits for products right after their start.
    for (; block + 1 < min(whole, count); block++) {
        BEGIN_BLOCK(block);
        END_MULTIPLY(1, scores);
        online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
        END_ACCUMULATE(acc, VALUES);
        RESCALE(acc, rescale, VALUES);
        PACK_WEIGHTS(packed, scores);
    }
    for (; block + 1 < count; block++) {
        BEGIN_BLOCK(block);
        PREPARE_MASK((block + 1) * COLUMNS);
        END_MULTIPLY(0, scores);
        END_ACCUMULATE(acc, VALUES);
        if (!ALL_VISIBLE(warp_row, WARP_ROWS, (block + 1) * COLUMNS, COLUMNS)) {
            APPLY_MASK(scores, (block + 1) * COLUMNS)
        }
        online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
        RESCALE(acc, rescale, VALUES);
        PACK_WEIGHTS(packed, scores);
    }
    COPIES_WAIT(0);
    FENCE_COPIES();
    barrier(CLK_LOCAL_MEM_FENCE);
    BEGIN_ACCUMULATE_PACKED(acc, packed, VALUES_OF(block % 2), VALUES, scratch);
    END_ACCUMULATE(acc, VALUES);
#if !TENSOR_CORES
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    reduce_rows_sum(running_sum, scratch);
    SELECT_RESULT(out);
    STORE_ATTENTION(acc)
}
