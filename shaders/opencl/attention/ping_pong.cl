// softmax(q k^T * scale + mask) v on Hopper's tensor cores, for 16-bit elements, with operands copied by the copy engine.
// STAGES blocks of keys and of values are filled in turn. The warpgroups that multiply take turns at the tensor cores: the
// softmax of one overlaps with the products of another. Within a warpgroup the softmax of a block overlaps with the product of
// the weights and values of the block before.
// `scale` must be positive unless the mask is added. Source: Shah et al., FlashAttention-3, arXiv:2407.08608.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#define USE_WGMMA 1
#include "attention/visibility.h"
#include "lib/dependent_launch.h"
#include "attention/mma_tile.h"
#include "attention/online_softmax.h"
#include "attention/bulk_tiles.h"

#define MAPS 3
#define KEY_BYTES (4 * BLOCK_WORDS(COLUMNS, FEATURES))
#define VALUE_BYTES (4 * BLOCK_WORDS(COLUMNS, VALUES))
#define QUERY_BYTES (4 * BLOCK_WORDS(ROWS, FEATURES))
#define KEYS(stage) (keys + (stage) * BLOCK_WORDS(COLUMNS, FEATURES))
#define VALUES_OF(stage) (values + (stage) * BLOCK_WORDS(COLUMNS, VALUES))
#define MY_QUERIES (queries + first_word)
#define FULL_KEYS(stage) (barriers + (stage))
#define EMPTY_KEYS(stage) (barriers + STAGES + (stage))
#define FULL_VALUES(stage) (barriers + 2 * STAGES + (stage))
#define EMPTY_VALUES(stage) (barriers + 3 * STAGES + (stage))
#define FULL_QUERIES (barriers + 4 * STAGES)
#define EMPTY_QUERIES (barriers + 4 * STAGES + 1)

// Under a causal mask the last blocks attend to the most keys, so they come first.
#define GET_TILE                                                        \
    GET_HEAD(t);                                                        \
    const uint group_row = (blocks_of_head - 1 - block_of_head) * ROWS; \
    const uint end = VISIBLE_KEYS(min(group_row + ROWS, t)), count = max((end + COLUMNS - 1) / COLUMNS, 1u)

// Wait for the turn at the tensor cores, and end it. The first warpgroup has the first turn.
#if TENSOR_CORES && WARPGROUPS == 2
#define TAKE_TURN() asm volatile("bar.sync %0, 256;" ::"r"(1 + my_warpgroup) : "memory")
#define GIVE_TURN() asm volatile("bar.arrive %0, 256;" ::"r"(2 - my_warpgroup) : "memory")
#define FIRST_TURN() \
    if (my_warpgroup == 1) asm volatile("bar.arrive 1, 256;" ::: "memory")
#elif TENSOR_CORES && WARPGROUPS == 3
#define TAKE_TURN() asm volatile("bar.sync %0, 384;" ::"r"(1 + my_warpgroup) : "memory")
#define GIVE_TURN()                                                                                 \
    asm volatile("bar.arrive %0, 384;" ::"r"(my_warpgroup == 2 ? 1 : 2 + my_warpgroup) : "memory"); \
    asm volatile("bar.arrive %0, 384;" ::"r"(my_warpgroup == 0 ? 3 : my_warpgroup) : "memory")
#define FIRST_TURN()                                                       \
    if (my_warpgroup > 0) asm volatile("bar.arrive 1, 384;" ::: "memory"); \
    if (my_warpgroup > 1) asm volatile("bar.arrive 2, 384;" ::: "memory")
#else
#define TAKE_TURN()
#define GIVE_TURN()
#define FIRST_TURN()
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_ping_pong(
    OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v), MASK_OPERAND RESULT(OUT_DTYPE, out), __global float *lse,
    const ulong lse_offset, __global ulong *maps, const uint tiles, const uint section, const uint head_count,
    const float scale, const AttentionGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    __local uint queries[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
    __local uint keys[STAGES * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint values[STAGES * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
    __local uint scratch[SCRATCH_WORDS];
    __local ulong barriers[4 * STAGES + 2];
    DECLARE_LENGTHS;
    const uint my_warpgroup = get_local_id(0) / WARPGROUP;
    uint key_stage = 0, key_parity = 0, value_stage = 0, value_parity = 0, query_parity = 0;
#if TENSOR_CORES
    __local ulong built[MAPS * MAP_WORDS] __attribute__((aligned(128)));
    __global ulong *const map_q = maps + get_group_id(0) * MAPS * MAP_WORDS;
    __global ulong *const map_k = map_q + MAP_WORDS, *const map_v = map_k + MAP_WORDS;
    if (get_local_id(0) == 0) {
        for (uint s_ = 0; s_ < STAGES; s_++) {
            barrier_init(FULL_KEYS(s_), 1);
            barrier_init(FULL_VALUES(s_), 1);
            barrier_init(EMPTY_KEYS(s_), WARPGROUPS);
            barrier_init(EMPTY_VALUES(s_), WARPGROUPS);
        }
        barrier_init(FULL_QUERIES, 1);
        barrier_init(EMPTY_QUERIES, WARPGROUPS);
        BARRIERS_SEEN();
    }
    // Each map by a warp of its own.
    const uint warp = get_local_id(0) / 32;
    if (warp < MAPS) {
        __local ulong *const mine = built + warp * MAP_WORDS;
        if (get_local_id(0) % 32 < MAP_WORDS) mine[get_local_id(0) % 32] = 0;
        WARP_BARRIER();
        if (get_local_id(0) % 32 == 0) {
            if (warp == 0) BUILD_MAP(mine, q, d, t, ROWS)
            if (warp == 1) BUILD_MAP(mine, k, d, s, COLUMNS)
            if (warp == 2) BUILD_MAP(mine, v, e, s, COLUMNS)
        }
        WARP_BARRIER();
        PUBLISH_MAP(map_q + warp * MAP_WORDS, mine);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (my_warpgroup == WARPGROUPS) {
        GIVE_REGISTERS();
        if (get_local_id(0) % WARPGROUP < 32) {
            SEE_MAP(map_q);
            SEE_MAP(map_k);
            SEE_MAP(map_v);
            if (get_local_id(0) % WARPGROUP == 0) {
                FOR_TILES {
                    GET_TILE;
                    BARRIER_WAIT(EMPTY_QUERIES, query_parity ^ 1)
                    query_parity ^= 1;
                    barrier_expect(FULL_QUERIES, QUERY_BYTES);
                    COPY_ROWS(queries, q, FEATURES, group_row, ROWS, FULL_QUERIES);
                    for (uint block = 0; block < count; block++) {
                        BARRIER_WAIT(EMPTY_KEYS(key_stage), key_parity ^ 1)
                        barrier_expect(FULL_KEYS(key_stage), KEY_BYTES);
                        COPY_ROWS(KEYS(key_stage), k, FEATURES, block * COLUMNS, COLUMNS, FULL_KEYS(key_stage));
                        BARRIER_WAIT(EMPTY_VALUES(key_stage), key_parity ^ 1)
                        barrier_expect(FULL_VALUES(key_stage), VALUE_BYTES);
                        COPY_ROWS(VALUES_OF(key_stage), v, VALUES, block * COLUMNS, COLUMNS, FULL_VALUES(key_stage));
                        NEXT(key_stage, key_parity)
                    }
                }
            }
        }
        return;
    }
    TAKE_REGISTERS();
    FIRST_TURN();
#endif
#if MASK
    __global const STORAGE(MASK_DTYPE) *const all_masks = mask;
#endif
#if !TENSOR_CORES
    __global const STORAGE(DTYPE) *const all_queries = q, *const all_keys = k, *const all_values = v;
#endif
    __global STORAGE(OUT_DTYPE) *const all_results = out;
    const float score_scale = SCORE_SCALE;
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS;
    FOR_TILES {
        GET_TILE;
        const uint warp_row = group_row + warp_offset;
#if MASK
        __global const STORAGE(MASK_DTYPE) *mask = all_masks;
        SELECT_MASK;
#endif
        // The first blocks, which all queries of the group see as a whole.
#if MASK
        const uint whole = 0;
#elif CAUSAL
        const uint whole = min((uint)clamp((int)group_row + 1 + DIAGONAL, 0, (int)s), s) / COLUMNS;
#else
        const uint whole = s / COLUMNS;
#endif
        float acc[1][VALUES / 16][SUMS], scores[1][BLOCKS][SUMS];
        float running_max[1][HALVES], running_sum[1][HALVES], rescale[1][HALVES];
        DECLARE_PACKED(packed);
        uint first_word = my_warpgroup * 64 * LINE_WORDS;
        CLEAR(acc, VALUES / 16);
        UNROLL for (uint h = 0; h < HALVES; h++) {
            running_max[0][h] = -INFINITY;
            running_sum[0][h] = 0;
        }
#if TENSOR_CORES
        BARRIER_WAIT(FULL_QUERIES, query_parity)
        query_parity ^= 1;
        BARRIER_WAIT(FULL_KEYS(key_stage), key_parity)
#else
        __global const STORAGE(DTYPE) *q = all_queries, *k = all_keys, *v = all_values;
        SELECT_HEAD(q);
        SELECT_HEAD(k);
        SELECT_HEAD(v);
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_ROWS(queries, FEATURES, q, group_row, ROWS, t, d);
        LOAD_ROWS(KEYS(key_stage), FEATURES, k, 0, COLUMNS, end, d);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        BEGIN_MULTIPLY(scores, MY_QUERIES, ROWS, KEYS(key_stage), FEATURES);
        END_MULTIPLY(0, scores);
        ARRIVE(EMPTY_KEYS(key_stage));
        NEXT(key_stage, key_parity)
        if (whole == 0) {
            PREPARE_MASK(0);
            APPLY_MASK(scores, 0)
        }
        online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
        PACK_WEIGHTS(packed, scores);
#if TENSOR_CORES
#define WAIT_BLOCK(block)                               \
    BARRIER_WAIT(FULL_KEYS(key_stage), key_parity)      \
    BARRIER_WAIT(FULL_VALUES(value_stage), value_parity)
#else
#define WAIT_BLOCK(block)                                                                           \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
    LOAD_ROWS(KEYS(key_stage), FEATURES, k, ((block) + 1) * COLUMNS, COLUMNS, end, d);              \
    LOAD_ROWS(VALUES_OF(value_stage), VALUES, v, (block) * COLUMNS, COLUMNS, end, e);               \
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
// Begin the scores of block `block` + 1 and the product with the values of block `block`.
#define BEGIN_BLOCK(block)                                                       \
    WAIT_BLOCK(block)                                                            \
    OPAQUE(first_word);                                                          \
    TAKE_TURN();                                                                 \
    BEGIN_MULTIPLY(scores, MY_QUERIES, ROWS, KEYS(key_stage), FEATURES);         \
    BEGIN_ACCUMULATE_PACKED(acc, packed, VALUES_OF(value_stage), VALUES, scratch); \
    GIVE_TURN()
        uint block = 0;
        // Keep the code between the start and the end of products branch-free, or the compiler waits right after the start.
        for (; block + 1 < min(whole, count); block++) {
            BEGIN_BLOCK(block);
            END_MULTIPLY(1, scores);
            ARRIVE(EMPTY_KEYS(key_stage));
            online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
            END_ACCUMULATE(acc, VALUES);
            ARRIVE(EMPTY_VALUES(value_stage));
            RESCALE(acc, rescale, VALUES);
            PACK_WEIGHTS(packed, scores);
            NEXT(key_stage, key_parity)
            NEXT(value_stage, value_parity)
        }
        for (; block + 1 < count; block++) {
            BEGIN_BLOCK(block);
            PREPARE_MASK((block + 1) * COLUMNS);
            END_MULTIPLY(0, scores);
            END_ACCUMULATE(acc, VALUES);
            ARRIVE(EMPTY_KEYS(key_stage));
            ARRIVE(EMPTY_VALUES(value_stage));
            if (!ALL_VISIBLE(warp_row, WARP_ROWS, (block + 1) * COLUMNS, COLUMNS)) {
                APPLY_MASK(scores, (block + 1) * COLUMNS)
            }
            online_softmax(scores, running_max, running_sum, rescale, score_scale, scratch);
            RESCALE(acc, rescale, VALUES);
            PACK_WEIGHTS(packed, scores);
            NEXT(key_stage, key_parity)
            NEXT(value_stage, value_parity)
        }
        ARRIVE(EMPTY_QUERIES);
#if TENSOR_CORES
        BARRIER_WAIT(FULL_VALUES(value_stage), value_parity)
#else
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_ROWS(VALUES_OF(value_stage), VALUES, v, block * COLUMNS, COLUMNS, end, e);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        BEGIN_ACCUMULATE_PACKED(acc, packed, VALUES_OF(value_stage), VALUES, scratch);
        END_ACCUMULATE(acc, VALUES);
        ARRIVE(EMPTY_VALUES(value_stage));
        NEXT(value_stage, value_parity)
#if !TENSOR_CORES
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        reduce_rows_sum(running_sum, scratch);
        __global STORAGE(OUT_DTYPE) *out = all_results;
        SELECT_RESULT(out);
        STORE_ATTENTION(acc)
    }
}
