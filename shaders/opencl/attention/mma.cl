// softmax(q k^T * scale + mask) v for 16-bit elements, or for float32 in three parts of 16 bits, on matrix units, never holding the
// scores: a group takes ROWS queries, which may stay in registers, and passes over the keys COLUMNS at a time, with a running maximum, sum
// and result per query. `scale` must be above 0 unless the mask is added. Source: Dao, arXiv:2307.08691.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// Queries stay in registers; where there is no room, and for more than one part, they are read from local memory each time.
#ifndef HELD
#define HELD 1
#endif
#include "attention/arguments.h"
#include "attention/mma_tile.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_mma(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global float *lse,
    const ulong lse_offset, LENGTHS, PLACES(out), STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    __local uint queries[TILE_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint keys[STAGES * TILE_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint values[STAGES * TILE_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
    __local uint scratch[SCRATCH_WORDS];
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND(q);
    FIND(k);
    FIND(v);
    FIND_MASK;
    // The last tiles have the most keys under a causal mask, so they start first.
    const uint first = (get_num_groups(0) - 1 - get_group_id(0)) * ROWS;
    const uint stop = KEYS_SEEN(min(first + ROWS, t));
    const uint mine = get_local_id(0) / WARP * WARP_ROWS, begin = first + mine;
#if TENSOR_CORES && !WGMMA_UNITS
    // A warp skips what none of its queries sees; the twin has barriers on the way.
    const uint seen = KEYS_SEEN(min(begin + WARP_ROWS, t));
#endif
    // Scores are multiplied by `unit` within the exponent, unless a mask had to be added to them before.
#if MASK == 2
    const float unit = 1;
#else
    const float unit = scale * LOG2E;
#endif
    float results[TILES][VALUES / 16][SUMS];
    float tops[TILES][HALVES], totals[TILES][HALVES];
    CLEAR(results, VALUES / 16);
    UNROLL for (uint t_ = 0; t_ < TILES; t_++)
        UNROLL for (uint h = 0; h < HALVES; h++) {
            tops[t_][h] = -INFINITY;
            totals[t_][h] = 0;
        }
    LOAD_ROWS(queries, FEATURES, q, first, ROWS, t, d);
    COPIES_COMMIT();
    LOAD_ROWS(keys, FEATURES, k, 0, COLUMNS, stop, d);
    LOAD_ROWS(values, VALUES, v, 0, COLUMNS, stop, e);
    COPIES_COMMIT();
#if HELD && !WGMMA_UNITS
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment held[TILES][FEATURES / 16];
    HOLD_ROWS(held, queries, mine, FEATURES);
#define QUERY(t, k, part) held[t][k]
#else
#define QUERY(t, k, part) ROWS_FRAGMENT(queries, part, mine + 16 * (t), k, FEATURES)
#endif
    for (uint key = 0; key < stop; key += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : key / COLUMNS % STAGES, next = (stage + 1) % STAGES;
        COPIES_WAIT(0);
        SEE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
        float scores[TILES][BLOCKS][SUMS];
#if STAGES > 1
#define LOAD_NEXT                                                                                                    \
    LOAD_ROWS((keys + next * TILE_WORDS(COLUMNS, FEATURES)), FEATURES, k, key + COLUMNS, COLUMNS, stop, d);             \
    LOAD_ROWS((values + next * TILE_WORDS(COLUMNS, VALUES)), VALUES, v, key + COLUMNS, COLUMNS, stop, e);               \
    COPIES_COMMIT()
#else
#define LOAD_NEXT
#endif
#if WGMMA_UNITS
        // Nothing but straight code may stand between the beginning of a product and its end, or the compiler waits at once.
        BEGIN_MULTIPLY(scores, queries + mine / 64 * 64 * LINE_WORDS, ROWS, keys + stage * TILE_WORDS(COLUMNS, FEATURES), FEATURES);
        LOAD_NEXT;
        END_MULTIPLY(0, scores);
        const bool busy = true;
#else
        LOAD_NEXT;
#if TENSOR_CORES
        const bool busy = key < seen;
#else
        const bool busy = true;
#endif
#endif
        if (busy) {
#if !WGMMA_UNITS
            MULTIPLY_ROWS(scores, QUERY, keys + stage * TILE_WORDS(COLUMNS, FEATURES), FEATURES);
#endif
            if (!ALL_SEEN(begin, WARP_ROWS, key, COLUMNS)) {
                UNROLL for (uint t_ = 0; t_ < TILES; t_++)
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i++) {
                            const uint row = begin + TILE_ROW(t_, i), column = key + BLOCK_COLUMN(n, i);
#if MASK == 2
                            scores[t_][n][i] = SEEN(row, column)
                                                   ? scores[t_][n][i] * (scale * LOG2E) + LOG2E * ADDED(row, column)
                                                   : -INFINITY;
#else
                            if (!SEEN(row, column)) scores[t_][n][i] = -INFINITY;
#endif
                        }
            }
            float highest[TILES][HALVES];
            UNROLL for (uint t_ = 0; t_ < TILES; t_++)
                UNROLL for (uint h = 0; h < HALVES; h++) {
                    highest[t_][h] = tops[t_][h];
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i += 2)
                            if (HALF_OF(i) == h)
                                highest[t_][h] = fmax(highest[t_][h], fmax(scores[t_][n][i], scores[t_][n][i + 1]));
                }
            rows_max(highest, scratch);
            UNROLL for (uint t_ = 0; t_ < TILES; t_++)
                UNROLL for (uint h = 0; h < HALVES; h++) {
                    // While everything was masked there is nothing to subtract: 2^(-inf - 0) is 0.
                    const float subtracted = highest[t_][h] == -INFINITY ? 0 : highest[t_][h] * unit;
                    const float shrink = power_of_two(tops[t_][h] * unit - subtracted);
                    tops[t_][h] = highest[t_][h];
                    totals[t_][h] *= shrink;
                    UNROLL for (uint n = 0; n < BLOCKS; n++)
                        UNROLL for (uint i = 0; i < SUMS; i += 2)
                            if (HALF_OF(i) == h) {
                                scores[t_][n][i] = power_of_two(scores[t_][n][i] * unit - subtracted);
                                scores[t_][n][i + 1] = power_of_two(scores[t_][n][i + 1] * unit - subtracted);
                                totals[t_][h] += scores[t_][n][i] + scores[t_][n][i + 1];
                            }
                    UNROLL for (uint n = 0; n < VALUES / 16; n++)
                        UNROLL for (uint i = 0; i < SUMS; i++)
                            if (HALF_OF(i) == h) results[t_][n][i] *= shrink;
                }
            BEGIN_GATHER(results, scores, values + stage * TILE_WORDS(COLUMNS, VALUES), VALUES, scratch);
            END_GATHER(results, VALUES);
        }
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (key + COLUMNS < stop) {
            LOAD_ROWS(keys, FEATURES, k, key + COLUMNS, COLUMNS, stop, d);
            LOAD_ROWS(values, VALUES, v, key + COLUMNS, COLUMNS, stop, e);
        }
        COPIES_COMMIT();
#endif
    }
#if !TENSOR_CORES
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    rows_sum(totals, scratch);
    FIND(out);
#define INVERSE(t, h) (totals[t][h] == 0 ? 0 : 1 / totals[t][h])
    STORE_ROWS(results, INVERSE, out, begin, t, e, VALUES);
    if (WARP_LANE % 4 == 0)
        UNROLL for (uint t_ = 0; t_ < TILES; t_++)
            UNROLL for (uint h = 0; h < HALVES; h++) {
                const uint row = begin + TILE_ROW(t_, 2 * h);
                if (row < t)
                    lse[lse_offset + (ulong)head * t + row] =
                        log(totals[t_][h]) + (tops[t_][h] == -INFINITY ? 0 : tops[t_][h] * unit * LN2);
            }
}
