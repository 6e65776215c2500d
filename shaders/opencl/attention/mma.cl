// softmax(q k^T * scale + mask) v on matrix units (flash attention), for 16-bit elements or for float32 as three bfloat16
// terms: the scores are never written to memory. A group takes a query block of ROWS, whose fragments may stay in
// registers, and loops over key blocks of COLUMNS with an online softmax: per query a running maximum, a running sum and
// an output accumulator. `scale` must be positive unless the mask is added. With LENGTHS the keys are a cache: only filled
// positions are read, and the groups of SPLIT share the visible keys. Source: Dao, arXiv:2307.08691.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// 1: the fragments of the queries stay in registers. With more than one term, and where registers do not suffice,
// they are read from local memory for each key block.
#ifndef ROWS_IN_REGISTERS
#define ROWS_IN_REGISTERS 1
#endif
// 1: several groups share the keys of a query block; attention/split_reduce.cl combines their partial results.
#ifndef SPLIT
#define SPLIT 0
#endif
#include "attention/visibility.h"
#include "attention/mma_tile.h"
#include "attention/online_softmax.h"
// A partial result: the accumulated features, then the maximum and the sum of exponentials.
#define PARTIAL_STATISTICS 2

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_mma(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND
#if LENGTHS
    __global const int *lengths, const ulong lengths_offset, const CacheGeometry cache,
#elif SPLIT
    const uint keys_per_group,
#endif
#if SPLIT
    __global float *partial,
#else
    RESULT(OUT_DTYPE, out),
#if !LENGTHS
    __global float *lse, const ulong lse_offset,
#endif
#endif
    const float scale, const AttentionGeometry geometry) {
    __local uint queries[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint keys[STAGES * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint values[STAGES * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
    __local uint scratch[SCRATCH_WORDS];
    const uint head = get_group_id(1);
#if LENGTHS
    const uint t = geometry.t, d = geometry.d, e = geometry.e;
    SELECT_LENGTH(head);
#else
    DECLARE_LENGTHS;
#endif
    HEAD_INDICES(head);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    // Under a causal mask the last query blocks attend to the most keys, so they start first.
    const uint group_row = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint visible_keys = VISIBLE_KEYS(min(group_row + ROWS, t)), first_key = FIRST_KEY(group_row) / COLUMNS * COLUMNS;
#if SPLIT && LENGTHS
    const uint blocks = (visible_keys - first_key + COLUMNS - 1) / COLUMNS;
    const uint keys_per_group = (blocks + get_num_groups(2) - 1) / get_num_groups(2) * COLUMNS;
#endif
#if SPLIT
    const uint begin = first_key + get_group_id(2) * keys_per_group, end = min(begin + keys_per_group, visible_keys);
#else
    const uint begin = first_key, end = visible_keys;
#endif
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS, warp_row = group_row + warp_offset;
#if TENSOR_CORES && !USE_WGMMA
    // A warp skips key blocks that are masked for all of its queries. The fallback cannot: the skipped code would
    // contain barriers.
    const uint warp_end = VISIBLE_KEYS(min(warp_row + WARP_ROWS, t));
#endif
    const float score_scale = SCORE_SCALE;
    float acc[ROW_TILES][VALUES / 16][SUMS];
    float running_max[ROW_TILES][HALVES], running_sum[ROW_TILES][HALVES];
    CLEAR(acc, VALUES / 16);
    UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            running_max[t_][h] = -INFINITY;
            running_sum[t_][h] = 0;
        }
// Copy the block of keys and values that begins at `key` to a stage.
#define LOAD_BLOCK(stage, key)                                                                             \
    LOAD_ROWS((keys + (stage) * BLOCK_WORDS(COLUMNS, FEATURES)), FEATURES, k, key, COLUMNS, end, d); \
    LOAD_ROWS((values + (stage) * BLOCK_WORDS(COLUMNS, VALUES)), VALUES, v, key, COLUMNS, end, e);   \
    COPIES_COMMIT()
// Blocks that are copied before they are used.
#define AHEAD (STAGES == 1 ? 1 : STAGES - 1)
    LOAD_ROWS(queries, FEATURES, q, group_row, ROWS, t, d);
    COPIES_COMMIT();
    UNROLL for (uint stage = 0; stage < AHEAD; stage++) { LOAD_BLOCK(stage, begin + stage * COLUMNS); }
#if ROWS_IN_REGISTERS && !USE_WGMMA
    COPIES_WAIT(AHEAD);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment query_fragments[ROW_TILES][FEATURES / 16];
    LOAD_FRAGMENTS(query_fragments, queries, warp_offset, FEATURES);
#define QUERY(t, k, term) query_fragments[t][k]
#else
#define QUERY(t, k, term) ROWS_FRAGMENT(queries, term, warp_offset + 16 * (t), k, FEATURES)
#endif
    for (uint key = begin; key < end; key += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : (key - begin) / COLUMNS % STAGES, next = (stage + AHEAD) % STAGES;
        COPIES_WAIT(AHEAD - 1);
        FENCE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
        float scores[ROW_TILES][BLOCKS][SUMS];
#if STAGES > 1
#define LOAD_NEXT LOAD_BLOCK(next, key + AHEAD * COLUMNS)
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
                PREPARE_MASK(key);
                APPLY_MASK(scores, key)
            }
            float rescale[ROW_TILES][HALVES];
            online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
            RESCALE(acc, rescale, VALUES);
            BEGIN_ACCUMULATE(acc, scores, values + stage * BLOCK_WORDS(COLUMNS, VALUES), VALUES, scratch);
            END_ACCUMULATE(acc, VALUES);
        }
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < end) { LOAD_BLOCK(0, key + COLUMNS); }
#endif
    }
#if !TENSOR_CORES
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    reduce_rows_sum(running_sum, scratch);
#if SPLIT
    const long out_row = (long)get_num_groups(2) * (e + PARTIAL_STATISTICS);
    __global float *out = partial + (long)head * t * out_row + get_group_id(2) * (e + PARTIAL_STATISTICS);
#define ONE(t, h) 1
    STORE_ROWS(acc, ONE, out, warp_row, t, e, VALUES);
    if (WARP_LANE % 4 == 0)
        UNROLL for (uint t_ = 0; t_ < ROW_TILES; t_++)
            UNROLL for (uint h = 0; h < HALVES; h++) {
                const uint row = warp_row + TILE_ROW(t_, 2 * h);
                if (row < t) {
                    out[row * out_row + e] = NATURAL_MAX(t_, h);
                    out[row * out_row + e + 1] = running_sum[t_][h];
                }
            }
#else
    SELECT_RESULT(out);
    STORE_ATTENTION(acc)
#endif
}
