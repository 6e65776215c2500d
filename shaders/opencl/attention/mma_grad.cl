// Gradients of attention for 16-bit elements, or for float32 in three parts of 16 bits, on matrix units, from the saved logsumexp: the
// probabilities are computed again, tile by tile, and are never in memory. See attention/grad_arguments.h for who gathers what.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
// The rows' operands stay in registers; only for one part, and not for Hopper's units, which read them from local memory.
#ifndef HELD
#define HELD 1
#endif
#include "attention/grad_arguments.h"
#include "attention/mma_tile.h"

// The macros of attention/mma_tile.h make names of their arguments.
#define LOAD_NAMED(memory, features, name, first, count, limit, length) \
    LOAD_ROWS(memory, features, name, first, count, limit, length)
#define STORE_NAMED(results, factor, name, first, limit, length, features) \
    STORE_ROWS(results, factor, name, first, limit, length, features)

// `statistics` are what attention/delta.cl makes of each query: its logsumexp, for a power of two, and delta.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_mma_grad(
    OPERANDS, MASK_OPERAND __global const float2 *statistics, GRADIENTS(OUT_DTYPE), LENGTHS, GRADIENT_PLACES, ALL_STRIDES MASK_STRIDES) {
    __local uint own_first[TILE_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint other_first[STAGES * TILE_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint other_second[STAGES * TILE_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
#if FIRST
    __local uint own_second[TILE_WORDS(ROWS, VALUES)] __attribute__((aligned(1024)));
#endif
    __local float2 facts[KEYS ? STAGES * COLUMNS : ROWS] __attribute__((aligned(16)));
    __local uint scratch[SCRATCH_WORDS];
    const uint head = get_group_id(1);
    HEAD_NUMBERS(head);
    FIND_OPERANDS;
    statistics += (ulong)head * t;
    const uint first = FIRST_ROW, begin = FIRST_COLUMN(first), end = END_OF_COLUMNS(first);
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
#define LOAD_FACTS(to, query, count)                              \
    for (uint i_ = get_local_id(0); i_ < (count); i_ += GROUP) \
        COPY8(&facts[(to) + i_], statistics + (query) + i_, (query) + i_ < t);
#if !KEYS
    LOAD_FACTS(0, first, ROWS)
#endif
    COPIES_COMMIT();
#define FACTS(t, n, i) facts[KEYS ? stage * COLUMNS + BLOCK_COLUMN(n, i) : mine + TILE_ROW(t, i)]
#define LOAD_OTHERS(column, stage)                                                                                          \
    LOAD_NAMED((other_first + (stage) * TILE_WORDS(COLUMNS, FEATURES)), FEATURES, OTHER_FIRST, column, COLUMNS, OTHER_LENGTH, d); \
    LOAD_NAMED((other_second + (stage) * TILE_WORDS(COLUMNS, VALUES)), VALUES, OTHER_SECOND, column, COLUMNS, OTHER_LENGTH, e);   \
    if (KEYS) LOAD_FACTS((stage) * COLUMNS, column, COLUMNS)                                                                \
    COPIES_COMMIT()
    LOAD_OTHERS(begin, 0);
#if HELD && !WGMMA_UNITS
    COPIES_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    Fragment held_first[TILES][FEATURES / 16];
    HOLD_ROWS(held_first, own_first, mine, FEATURES);
#if FIRST
    Fragment held_second[TILES][VALUES / 16];
    HOLD_ROWS(held_second, own_second, mine, VALUES);
#endif
#define OWN_first(t, k, part) held_first[t][k]
#define OWN_second(t, k, part) held_second[t][k]
#else
#define OWN_first(t, k, part) ROWS_FRAGMENT(own_first, part, mine + 16 * (t), k, FEATURES)
#define OWN_second(t, k, part) ROWS_FRAGMENT(own_second, part, mine + 16 * (t), k, VALUES)
#endif
#if WGMMA_UNITS
#define BEGIN_OWN(sums, name, other, features) \
    BEGIN_MULTIPLY(sums, own_##name + mine / 64 * 64 * LINE_WORDS, ROWS, other, features)
#else
#define BEGIN_OWN(sums, name, other, features) MULTIPLY_ROWS(sums, OWN_##name, other, features)
#endif
    for (uint column = begin; column < end; column += COLUMNS) {
        const uint stage = STAGES == 1 ? 0 : (column - begin) / COLUMNS % STAGES, next = (stage + 1) % STAGES;
        COPIES_WAIT(0);
        SEE_COPIES();
        barrier(CLK_LOCAL_MEM_FENCE);
#if STAGES > 1
        if (column + COLUMNS < end) {
            LOAD_OTHERS(column + COLUMNS, next);
        }
#endif
        // Nothing but straight code may stand between the beginning of a product and its end, or the compiler waits at once.
        const bool whole = TILE_SEEN(own, WARP_ROWS, column, COLUMNS);
        float p[TILES][BLOCKS][SUMS];
        BEGIN_OWN(p, first, other_first + stage * TILE_WORDS(COLUMNS, FEATURES), FEATURES);
#if FIRST
        float ds[TILES][BLOCKS][SUMS];
        BEGIN_OWN(ds, second, other_second + stage * TILE_WORDS(COLUMNS, VALUES), VALUES);
#endif
#if FIRST && MASK != 2
        END_MULTIPLY(1, p);
#else
        END_MULTIPLY(0, p);
#endif
        UNROLL for (uint t_ = 0; t_ < TILES; t_++)
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++) {
                    float score = p[t_][n][i] * factor - FACTS(t_, n, i).s0;
#if MASK == 2
                    const uint row = own + TILE_ROW(t_, i), other = column + BLOCK_COLUMN(n, i);
                    if (PAIR_SEEN(row, other)) score += LOG2E * PAIR_ADDED(row, other);
#endif
                    p[t_][n][i] = power_of_two(score);
                }
#if FIRST
        END_MULTIPLY(0, ds);
#endif
        if (!whole) {
            UNROLL for (uint t_ = 0; t_ < TILES; t_++)
                UNROLL for (uint n = 0; n < BLOCKS; n++)
                    UNROLL for (uint i = 0; i < SUMS; i++)
                        if (!PAIR_SEEN(own + TILE_ROW(t_, i), column + BLOCK_COLUMN(n, i))) p[t_][n][i] = 0;
        }
#if SECOND
        BEGIN_GATHER(second_results, p, other_second + stage * TILE_WORDS(COLUMNS, VALUES), VALUES, scratch);
#endif
#if FIRST
        UNROLL for (uint t_ = 0; t_ < TILES; t_++)
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++) ds[t_][n][i] = p[t_][n][i] * (ds[t_][n][i] - FACTS(t_, n, i).s1);
        BEGIN_GATHER(first_results, ds, other_first + stage * TILE_WORDS(COLUMNS, FEATURES), FEATURES, scratch);
        END_GATHER(first_results, FEATURES);
#endif
#if SECOND
        END_GATHER(second_results, VALUES);
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
#if FIRST
    FIND_NAMED(FIRST_GRADIENT);
    STORE_NAMED(first_results, BY_SCALE, FIRST_GRADIENT, own, OWN_LENGTH, d, FEATURES);
#endif
#if SECOND
    FIND(dv);
    STORE_ROWS(second_results, AS_IT_IS, dv, own, s, e, VALUES);
#endif
}
