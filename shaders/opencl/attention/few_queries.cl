// softmax(q k^T * scale + mask) v for few queries that share keys, as in token-by-token generation, on matrix units: bound by
// the memory traffic of keys and values. Each warp of a group takes every KEY_WARPS-th block of COLUMNS keys of the group's range,
// and copies the next blocks while it multiplies one. The parts are combined in local memory: of the warps of a group, then
// of the groups of a cluster. Where further groups share the keys (SPLIT), attention/split_reduce.cl combines their parts.
// Source: Dao et al., Flash-Decoding for long-context inference, 2023.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// Warps of a group. A warp is a row of work-items: for the tiles below a group has one warp.
#ifndef KEY_WARPS
#define KEY_WARPS 2
#endif
#define WARPS 1
#define ROW_TILES 1
// 1: the fragments of the queries stay in registers.
#ifndef ROWS_IN_REGISTERS
#define ROWS_IN_REGISTERS 1
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#include "attention/visibility.h"
#include "attention/mma_tile.h"
#include "attention/online_softmax.h"
#include "lib/clusters.h"

// A partial result in global memory: the accumulated features, then the maximum and the sum of exponentials.
#define PARTIAL_STATISTICS 2
#define KEY_WORDS BLOCK_WORDS(COLUMNS, FEATURES)
#define VALUE_WORDS BLOCK_WORDS(COLUMNS, VALUES)
// The factor of a part whose scores are relative to `maximum`.
#define PART_FACTOR(maximum, largest) ((maximum) == -INFINITY ? 0 : WEIGHT((maximum) - (largest)))

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(WARP, KEY_WARPS, 1))) void attention_few_queries(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND
#if SPLIT
    __global float *partial,
#else
    RESULT(OUT_DTYPE, out), __global float *lse, const ulong lse_offset,
#endif
    const uint keys_per_group, const float scale, const AttentionGeometry geometry) {
    __local uint queries[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(16)));
    __local uint keys[KEY_WARPS * STAGES * KEY_WORDS] __attribute__((aligned(16)));
    // Later the sums of each warp, and of the group in the place of the first one.
    __local uint values[KEY_WARPS * STAGES * VALUE_WORDS] __attribute__((aligned(16)));
    __local float maxima[KEY_WARPS * ROWS], totals[KEY_WARPS * ROWS], group_max[ROWS], group_total[ROWS];
    __local uint scratch[KEY_WARPS * SCRATCH_WORDS];
    DECLARE_LENGTHS;
    const uint head = get_group_id(1), group_row = get_group_id(2) * ROWS, warp_row = group_row;
    HEAD_INDICES(head);
    SELECT_HEAD(q);
    SELECT_HEAD(k);
    SELECT_HEAD(v);
    SELECT_MASK;
    const uint warp = get_local_id(1);
    __local uint *const my_keys = keys + warp * STAGES * KEY_WORDS, *const my_values = values + warp * STAGES * VALUE_WORDS;
    __local uint *const my_scratch = scratch + warp * SCRATCH_WORDS;
    const uint begin = get_group_id(0) * keys_per_group;
    const uint end = min(begin + keys_per_group, VISIBLE_KEYS(min(group_row + ROWS, t)));
    const uint steps = begin < end ? (end - begin + KEY_WARPS * COLUMNS - 1) / (KEY_WARPS * COLUMNS) : 0;
    const float score_scale = SCORE_SCALE;
    float acc[ROW_TILES][VALUES / 16][SUMS];
    float running_max[ROW_TILES][HALVES], running_sum[ROW_TILES][HALVES];
    CLEAR(acc, VALUES / 16);
    UNROLL for (uint h = 0; h < HALVES; h++) {
        running_max[0][h] = -INFINITY;
        running_sum[0][h] = 0;
    }
#define BLOCK_OF_STEP(step) (begin + ((step) * KEY_WARPS + warp) * COLUMNS)
// Copy the warp's block of keys and values of a step to a stage.
#define LOAD_BLOCK(stage, step)                                                                            \
    LOAD_ROWS((my_keys + (stage) * KEY_WORDS), FEATURES, k, BLOCK_OF_STEP(step), COLUMNS, end, d);         \
    LOAD_ROWS((my_values + (stage) * VALUE_WORDS), VALUES, v, BLOCK_OF_STEP(step), COLUMNS, end, e);       \
    COPIES_COMMIT()
#define AHEAD (STAGES - 1)
    if (warp == 0) LOAD_ROWS(queries, FEATURES, q, group_row, ROWS, t, d);
    COPIES_COMMIT();
    UNROLL for (uint stage = 0; stage < AHEAD; stage++) { LOAD_BLOCK(stage, stage); }
    COPIES_WAIT(AHEAD);
    barrier(CLK_LOCAL_MEM_FENCE);
#if ROWS_IN_REGISTERS
    Fragment query_fragments[ROW_TILES][FEATURES / 16];
    LOAD_FRAGMENTS(query_fragments, queries, 0, FEATURES);
#define QUERY(t, k, term) query_fragments[t][k]
#else
#define QUERY(t, k, term) ROWS_FRAGMENT(queries, term, 0, k, FEATURES)
#endif
    for (uint step = 0; step < steps; step++) {
        const uint key = BLOCK_OF_STEP(step), stage = step % STAGES;
        COPIES_WAIT(AHEAD - 1);
        WARP_BARRIER();
        LOAD_BLOCK((stage + AHEAD) % STAGES, step + AHEAD);
#if TENSOR_CORES
        if (key >= end) break;
#endif
        float scores[ROW_TILES][BLOCKS][SUMS];
        MULTIPLY_ROWS(scores, QUERY, my_keys + stage * KEY_WORDS, FEATURES);
        if (!ALL_VISIBLE(warp_row, WARP_ROWS, key, COLUMNS)) {
            PREPARE_MASK(key);
            APPLY_MASK(scores, key)
        }
#if !TENSOR_CORES
        // All warps make the same steps here, because of barriers; this block is another group's.
        if (key >= end)
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++) scores[0][n][i] = -INFINITY;
#endif
        float rescale[ROW_TILES][HALVES];
        online_softmax(scores, running_max, running_sum, rescale, score_scale, my_scratch);
        RESCALE(acc, rescale, VALUES);
        BEGIN_ACCUMULATE(acc, scores, my_values + stage * VALUE_WORDS, VALUES, my_scratch);
        END_ACCUMULATE(acc, VALUES);
    }
    COPIES_WAIT(0);
    WARP_BARRIER();
    reduce_rows_sum(running_sum, my_scratch);

    // Combine the warps.
    __local float *const sums = (__local float *)my_values, *const group_sums = (__local float *)values;
    UNROLL for (uint n = 0; n < VALUES / 16; n++)
        UNROLL for (uint i = 0; i < SUMS; i++) sums[TILE_ROW(0, i) * VALUES + TILE_COLUMN(n, i)] = acc[0][n][i];
    if (WARP_LANE % 4 == 0)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            maxima[warp * ROWS + TILE_ROW(0, 2 * h)] = running_max[0][h] == -INFINITY ? -INFINITY : running_max[0][h] * score_scale;
            totals[warp * ROWS + TILE_ROW(0, 2 * h)] = running_sum[0][h];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint me = warp * WARP + get_local_id(0), count = min(t - group_row, (uint)ROWS) * VALUES;
    for (uint at = me; at < count; at += WARP * KEY_WARPS) {
        const uint row = at / VALUES;
        float largest = -INFINITY, total = 0, sum = 0;
        UNROLL for (uint w = 0; w < KEY_WARPS; w++) largest = fmax(largest, maxima[w * ROWS + row]);
        UNROLL for (uint w = 0; w < KEY_WARPS; w++) {
            const float factor = PART_FACTOR(maxima[w * ROWS + row], largest);
            total += factor * totals[w * ROWS + row];
            sum += factor * group_sums[w * STAGES * VALUE_WORDS + at];
        }
        group_sums[at] = sum;
        if (at % VALUES == 0) {
            group_max[row] = largest;
            group_total[row] = total;
        }
    }
    // Combine the groups of the cluster. Each takes some of the results.
    CLUSTER_EXCHANGE();
    const uint rank = cluster_rank();
#if !SPLIT
    SELECT_RESULT(out);
#endif
    for (uint at = rank * WARP * KEY_WARPS + me; at < count; at += CLUSTER * WARP * KEY_WARPS) {
        const uint row = at / VALUES, column = at % VALUES;
        float largest = -INFINITY, total = 0, sum = 0;
        UNROLL for (uint r = 0; r < CLUSTER; r++) largest = fmax(largest, value_of_group(group_max + row, r));
        UNROLL for (uint r = 0; r < CLUSTER; r++) {
            const float factor = PART_FACTOR(value_of_group(group_max + row, r), largest);
            total += factor * value_of_group(group_total + row, r);
            sum += factor * value_of_group(group_sums + at, r);
        }
        const float natural = largest == -INFINITY ? -INFINITY : largest / SCORE_UNIT;
#if SPLIT
        __global float *const to = partial + (((ulong)head * t + group_row + row) * (get_num_groups(0) / CLUSTER) +
                                              get_group_id(0) / CLUSTER) * (e + PARTIAL_STATISTICS);
        if (column < e) to[column] = sum;
        if (column == 0) {
            to[e] = natural;
            to[e + 1] = total;
        }
#else
        if (column < e) STORE(OUT_DTYPE, total == 0 ? 0 : sum / total, out, (group_row + row) * out_row + column);
        if (column == 0) STORE_LOGSUMEXP(lse + lse_offset + 2 * ((ulong)head * t + group_row + row), natural, total)
#endif
    }
    // The local memory of a group exists until all others have read it.
    CLUSTER_BARRIER();
}
