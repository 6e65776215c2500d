// Gradients of attention for 16-bit elements on matrix units, from the saved logsumexp: the probabilities are computed again, tile by tile,
// and are never in memory. A group takes ROWS rows and passes over the columns COLUMNS at a time, adding to the rows' gradients.
//
// KEYS 0: rows are queries and columns keys; a row gathers dq = sum over keys of ds * k. KEYS 1: rows are keys and columns queries; a row
// gathers dk = sum over queries of ds * q where FIRST is set, and dv = sum over queries of p * g where SECOND is. Here
// p = exp(scale * q k^T + mask - lse) and ds = scale * p * (g v^T - delta). No sum crosses groups: the result is the same every time.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#ifndef KEYS
#define KEYS 0
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef SECOND
#define SECOND KEYS
#endif
// The rows' operands stay in registers.
#ifndef HELD
#define HELD 1
#endif
#include "heads.h"
#include "head_fragments.h"

// `first` is what keys are compared by, `second` what values are; of the rows (own) and of the columns (other).
#if KEYS
#define OWN_FIRST k
#define OWN_SECOND v
#define OTHER_FIRST q
#define OTHER_SECOND g
#define OWN_LENGTH s
#define OTHER_LENGTH t
#define STATISTICS (2 * STAGES * COLUMNS)
#else
#define OWN_FIRST q
#define OWN_SECOND g
#define OTHER_FIRST k
#define OTHER_SECOND v
#define OWN_LENGTH t
#define OTHER_LENGTH s
#define STATISTICS (2 * ROWS)
#endif
// The macros of head_fragments.h make names of their arguments.
#define LOAD_NAMED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(memory, features, name, first, count, limit, length)
// The logsumexp and delta of queries, for the exponent. One that sees nothing has minus infinity; its scores are too, and so are taken away
// as 0.
#define LOAD_STATISTICS(memory, from, count)                                        \
    for (uint i_ = get_local_id(0); i_ < (count); i_ += GROUP) {                    \
        const float lse_ = (from) + i_ < t ? lse[(from) + i_] : 0;                  \
        (memory)[2 * i_] = lse_ == -INFINITY ? 0 : lse_ * LOG2E;                    \
        (memory)[2 * i_ + 1] = (from) + i_ < t ? delta[(from) + i_] : 0;            \
    }

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_fragments_grad(
    OPERAND(DTYPE, g), OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND __global const float *lse,
    const ulong lse_offset, __global const float *delta,
#if !KEYS
    RESULT(DTYPE, dq),
#else
#if FIRST
    RESULT(DTYPE, dk),
#endif
#if SECOND
    RESULT(DTYPE, dv),
#endif
#endif
    LENGTHS, STRIDES(g), STRIDES(q), STRIDES(k), STRIDES(v) MASK_STRIDES) {
    __local uint own_first[ROWS * PITCH(FEATURES)] __attribute__((aligned(16)));
    __local uint other_first[STAGES * COLUMNS * PITCH(FEATURES)] __attribute__((aligned(16)));
    __local uint other_second[STAGES * COLUMNS * PITCH(VALUES)] __attribute__((aligned(16)));
#if FIRST
    __local uint own_second[ROWS * PITCH(VALUES)] __attribute__((aligned(16)));
#endif
    __local float statistics[STATISTICS] __attribute__((aligned(16)));
    __local uint scratch[SCRATCH_WORDS];
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
    const uint mine = get_local_id(0) / WARP * WARP_ROWS, own = first + mine;
    const float factor = scale * LOG2E;
#if FIRST
    float first_results[TILES][FEATURES / 16][SUMS];
    CLEAR(first_results, FEATURES / 16);
#endif
#if SECOND
    float second_results[TILES][VALUES / 16][SUMS];
    CLEAR(second_results, VALUES / 16);
#endif
    LOAD_NAMED(own_first, FEATURES, OWN_FIRST, first, ROWS, OWN_LENGTH, d);
#if FIRST
    LOAD_NAMED(own_second, VALUES, OWN_SECOND, first, ROWS, OWN_LENGTH, e);
#endif
    COPIES_COMMIT();
#if !KEYS
    LOAD_STATISTICS(statistics, first, ROWS);
#endif
#define LOAD_OTHERS(column, stage)                                                                                      \
    LOAD_NAMED((other_first + (stage) * COLUMNS * PITCH(FEATURES)), FEATURES, OTHER_FIRST, column, COLUMNS, OTHER_LENGTH, d); \
    LOAD_NAMED((other_second + (stage) * COLUMNS * PITCH(VALUES)), VALUES, OTHER_SECOND, column, COLUMNS, OTHER_LENGTH, e);   \
    if (KEYS) LOAD_STATISTICS(statistics + (stage) * 2 * COLUMNS, column, COLUMNS)                                      \
    COPIES_COMMIT()
    LOAD_OTHERS(begin, 0);
#define OWN_ROWS(memory, features, t, k) \
    ALONG_TERMS(DTYPE, memory + (mine + 16 * (t)) * PITCH(features) + 8 * (k), PITCH(features))
#define FIRST_ROWS(t, k) OWN_ROWS(own_first, FEATURES, t, k)
#define SECOND_ROWS(t, k) OWN_ROWS(own_second, VALUES, t, k)
#if HELD
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment held_first[TILES][FEATURES / 16];
#pragma unroll
    for (uint t_ = 0; t_ < TILES; t_++)
#pragma unroll
        for (uint k_ = 0; k_ < FEATURES / 16; k_++) held_first[t_][k_] = FIRST_ROWS(t_, k_);
#undef FIRST_ROWS
#define FIRST_ROWS(t, k) held_first[t][k]
#if FIRST
    Fragment held_second[TILES][VALUES / 16];
#pragma unroll
    for (uint t_ = 0; t_ < TILES; t_++)
#pragma unroll
        for (uint k_ = 0; k_ < VALUES / 16; k_++) held_second[t_][k_] = SECOND_ROWS(t_, k_);
#undef SECOND_ROWS
#define SECOND_ROWS(t, k) held_second[t][k]
#endif
#endif
    for (uint column = begin; column < end; column += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : (column - begin) / COLUMNS % STAGES, next = (stage + 1) % STAGES;
        COPIES_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
#if STAGES > 1
        if (column + COLUMNS < end) {
            LOAD_OTHERS(column + COLUMNS, next);
        }
#endif
#if KEYS
        const bool whole = ALL_SEEN(column, COLUMNS, own, WARP_ROWS);
        __local const float *facts = statistics + stage * 2 * COLUMNS;
#else
        const bool whole = ALL_SEEN(own, WARP_ROWS, column, COLUMNS);
        __local const float *facts = statistics + 2 * mine;
#endif
        float p[TILES][BLOCKS][SUMS];
        CLEAR(p, BLOCKS);
        MULTIPLY_ROWS(p, FIRST_ROWS, other_first + stage * COLUMNS * PITCH(FEATURES), FEATURES);
#if FIRST
        float ds[TILES][BLOCKS][SUMS];
        CLEAR(ds, BLOCKS);
        MULTIPLY_ROWS(ds, SECOND_ROWS, other_second + stage * COLUMNS * PITCH(VALUES), VALUES);
#endif
#pragma unroll
        for (uint t_ = 0; t_ < TILES; t_++)
#pragma unroll
            for (uint n = 0; n < BLOCKS; n++)
#pragma unroll
                for (uint i = 0; i < SUMS; i++) {
                    const uint fact = 2 * (KEYS ? BLOCK_COLUMN(n, i) : TILE_ROW(t_, i));
                    float score = p[t_][n][i] * factor - facts[fact];
                    if (!whole) {
                        const uint row = own + TILE_ROW(t_, i), other = column + BLOCK_COLUMN(n, i);
                        const uint query = KEYS ? other : row, key = KEYS ? row : other;
                        if (!SEEN(query, key)) score = -INFINITY;
#if MASK == 2
                        else score += LOG2E * ADDED(query, key);
#endif
                    }
                    p[t_][n][i] = power_of_two(score);
#if FIRST
                    ds[t_][n][i] = p[t_][n][i] * (ds[t_][n][i] - facts[fact + 1]);
#endif
                }
#if FIRST
        GATHER_ROWS(first_results, ds, other_first + stage * COLUMNS * PITCH(FEATURES), FEATURES, scratch);
#endif
#if SECOND
        GATHER_ROWS(second_results, p, other_second + stage * COLUMNS * PITCH(VALUES), VALUES, scratch);
#endif
#if STAGES == 1
        barrier(CLK_LOCAL_MEM_FENCE);
        if (column + COLUMNS < end) {
            LOAD_OTHERS(column + COLUMNS, 0);
        }
#endif
    }
#define BY_SCALE(t, h) scale
#define AS_IT_IS(t, h) 1
#if !KEYS
    dq += dq_offset + (ulong)head * t * d;
    STORE_ROWS(first_results, BY_SCALE, dq, own, t, d, FEATURES);
#else
#if FIRST
    dk += dk_offset + (ulong)head * s * d;
    STORE_ROWS(first_results, BY_SCALE, dk, own, s, d, FEATURES);
#endif
#if SECOND
    dv += dv_offset + (ulong)head * s * e;
    STORE_ROWS(second_results, AS_IT_IS, dv, own, s, e, VALUES);
#endif
#endif
}
