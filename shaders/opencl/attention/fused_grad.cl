// All gradients of attention in one pass on Hopper's tensor cores, for 16-bit elements, with operands copied by the copy
// engine. A group owns ROWS keys, 64 per warpgroup, and loops over blocks of COLUMNS queries: probabilities are recomputed
// once, so that there are five products instead of seven. Partial gradients of queries are added in global memory by the copy
// engine, in no fixed order, to `dq_sums`, which starts at zero; attention/fused_grad_queries.cl scales and rounds them.
// Another warpgroup copies: its first warp starts copies of operands, the second copies the statistics of queries, the
// third starts additions.
//
// Where the sums of both dk and dv need more registers than there are (WIDE), one launch computes dv (WRITE_V), and another one dq
// and dk (WRITE_QK), with six products in all, and adds dq from registers. If local memory has room for one block of queries only,
// the product with the gradients of the output comes first: meanwhile queries arrive.
// Source: Shah et al., FlashAttention-3, arXiv:2407.08608.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#define USE_WGMMA 1
#define ROWS_ARE_KEYS 1
#define FUSE_DQ 1
#ifndef WARPS
#define WARPS 8
#endif
#ifndef COLUMNS
#define COLUMNS 64
#endif
#ifndef WIDE
#define WIDE 0
#endif
#include "attention/grad_roles.h"
#include "attention/bulk_tiles.h"
#include "attention/dq_sums.h"

#define MAPS 4
#define QUERIES_OF(stage) (queries + (stage) * BLOCK_WORDS(COLUMNS, FEATURES))
#define OUTPUTS_OF(stage) (outputs + (stage) * BLOCK_WORDS(COLUMNS, VALUES))
#define ROW_BYTES (4 * (BLOCK_WORDS(ROWS, FEATURES) + WRITE_QK * BLOCK_WORDS(ROWS, VALUES)))
#define COLUMN_BYTES (4 * (BLOCK_WORDS(COLUMNS, FEATURES) + BLOCK_WORDS(COLUMNS, VALUES)))
#define FULL(stage) (barriers + (stage))
#define EMPTY(stage) (barriers + STAGES + (stage))
#define FULL_ROWS (barriers + 2 * STAGES)
#define EMPTY_ROWS (barriers + 2 * STAGES + 1)
// 1: gradients of the output have barriers of their own; else those of queries count both.
#define APART (WIDE && WRITE_QK && STAGES == 1)
#define FULL_OUTPUTS (barriers + 2 * STAGES + 2)
#define EMPTY_OUTPUTS (barriers + 2 * STAGES + 3)
#define OUTPUT_BYTES (4 * BLOCK_WORDS(COLUMNS, VALUES))
// The logsumexps of a block of queries, then its deltas; both for the work-item's own columns.
#define STATISTICS_OF(stage) (staged + (stage) * COLUMNS * STATISTICS)
#define LOGSUMEXP_AT(n, i) mine[16 * (n) + (i) % 2 + (i) / 4 * 8]
#define DELTA_AT(n, i) mine[COLUMNS + 16 * (n) + (i) % 2 + (i) / 4 * 8]

#if TENSOR_CORES
// The gradients of scores are in local memory, both warpgroups are past the reads before; the sums of dq are in local memory.
#define PARTS_WRITTEN() asm volatile("bar.sync 1, 256;" ::: "memory")
#define SUMS_WRITTEN() asm volatile("bar.arrive 2, 288;" ::: "memory")
#define SUMS_AWAITED() asm volatile("bar.sync 2, 288;" ::: "memory")
#define SUMS_READ() asm volatile("bar.arrive 3, 288;" ::: "memory")
#define SUMS_MAY_CHANGE() asm volatile("bar.sync 3, 288;" ::: "memory")
#define PARTS_READ() asm volatile("bar.sync 4, 256;" ::: "memory")
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_fused_grad(
    OPERANDS, MASK_OPERAND __global const float *statistics,
#if WRITE_QK
    __global float *dq_sums, RESULT(OUT_DTYPE, dk),
#endif
#if WRITE_V
    RESULT(OUT_DTYPE, dv),
#endif
    __global ulong *maps, const uint tiles, const uint section, const uint head_count,
    const float scale, const AttentionGeometry geometry) {
    __local uint keys[BLOCK_WORDS(ROWS, FEATURES)] __attribute__((aligned(1024)));
#if WRITE_QK
    __local uint values[BLOCK_WORDS(ROWS, VALUES)] __attribute__((aligned(1024)));
    __local uint parts[COLUMNS / LINE * ROWS * LINE_WORDS] __attribute__((aligned(1024)));
#endif
    __local uint queries[STAGES * BLOCK_WORDS(COLUMNS, FEATURES)] __attribute__((aligned(1024)));
    __local uint outputs[STAGES * BLOCK_WORDS(COLUMNS, VALUES)] __attribute__((aligned(1024)));
#if TENSOR_CORES && !WIDE
    __local float sums_of_queries[SUMS_OF_TILE] __attribute__((aligned(128)));
#endif
    __local float staged[STAGES * COLUMNS * STATISTICS] __attribute__((aligned(16)));
    __local uint scratch[SCRATCH_WORDS];
    __local ulong barriers[2 * STAGES + 4];
    DECLARE_LENGTHS;
    const uint my_warpgroup = get_local_id(0) / WARPGROUP;
    uint stage = 0, parity = 0, row_parity = 0;
#define GET_TILE                                 \
    GET_HEAD(s);                                 \
    const uint group_row = block_of_head * ROWS; \
    const uint begin = FIRST_QUERY(group_row) / COLUMNS * COLUMNS
#if TENSOR_CORES
    __local ulong built[MAPS * MAP_WORDS] __attribute__((aligned(128)));
    __global ulong *const map_q = maps + get_group_id(0) * MAPS * MAP_WORDS;
    __global ulong *const map_k = map_q + MAP_WORDS, *const map_v = map_k + MAP_WORDS, *const map_g = map_v + MAP_WORDS;
    if (get_local_id(0) == 0) {
        for (uint s_ = 0; s_ < STAGES; s_++) {
            barrier_init(FULL(s_), 1 + WARP);
            barrier_init(EMPTY(s_), WARPGROUPS);
        }
        barrier_init(FULL_ROWS, 1);
        barrier_init(EMPTY_ROWS, WARPGROUPS);
        barrier_init(FULL_OUTPUTS, 1);
        barrier_init(EMPTY_OUTPUTS, WARPGROUPS);
        BARRIERS_SEEN();
    }
    // Each map by a warp of its own.
    const uint warp = get_local_id(0) / WARP, lane = get_local_id(0) % WARP;
    if (warp < MAPS) {
        __local ulong *const mine = built + warp * MAP_WORDS;
        if (lane < MAP_WORDS) mine[lane] = 0;
        WARP_BARRIER();
        if (lane == 0) {
            if (warp == 0) BUILD_MAP(mine, q, d, t, COLUMNS)
            if (warp == 1) BUILD_MAP(mine, k, d, s, ROWS)
            if (warp == 2) BUILD_MAP(mine, v, e, s, ROWS)
            if (warp == 3) BUILD_MAP(mine, g, e, t, COLUMNS)
        }
        WARP_BARRIER();
        PUBLISH_MAP(map_q + warp * MAP_WORDS, mine);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (my_warpgroup == WARPGROUPS) {
        GIVE_REGISTERS();
        if (warp == WARPS) {
            SEE_MAP(map_q);
            SEE_MAP(map_k);
            SEE_MAP(map_v);
            SEE_MAP(map_g);
            if (lane == 0) {
                FOR_TILES {
                    GET_TILE;
                    BARRIER_WAIT(EMPTY_ROWS, row_parity ^ 1)
                    row_parity ^= 1;
                    barrier_expect(FULL_ROWS, ROW_BYTES);
                    COPY_ROWS(keys, k, FEATURES, group_row, ROWS, FULL_ROWS);
#if WRITE_QK
                    COPY_ROWS(values, v, VALUES, group_row, ROWS, FULL_ROWS);
#endif
                    for (uint column = begin; column < t; column += COLUMNS) {
#if APART
                        BARRIER_WAIT(EMPTY_OUTPUTS, parity ^ 1)
                        barrier_expect(FULL_OUTPUTS, OUTPUT_BYTES);
                        COPY_ROWS(outputs, g, VALUES, column, COLUMNS, FULL_OUTPUTS);
                        BARRIER_WAIT(EMPTY(stage), parity ^ 1)
                        barrier_expect(FULL(stage), COLUMN_BYTES - OUTPUT_BYTES);
#else
                        BARRIER_WAIT(EMPTY(stage), parity ^ 1)
                        barrier_expect(FULL(stage), COLUMN_BYTES);
                        COPY_ROWS(OUTPUTS_OF(stage), g, VALUES, column, COLUMNS, FULL(stage));
#endif
                        COPY_ROWS(QUERIES_OF(stage), q, FEATURES, column, COLUMNS, FULL(stage));
                        NEXT(stage, parity)
                    }
                }
            }
        } else if (warp == WARPS + 1) {
            FOR_TILES {
                GET_TILE;
                __global const float2 *from = (__global const float2 *)statistics + (ulong)head * t;
                for (uint column = begin; column < t; column += COLUMNS) {
                    BARRIER_WAIT(EMPTY(stage), parity ^ 1)
                    UNROLL for (uint i = lane; i < COLUMNS; i += WARP) {
                        const float2 both = column + i < t ? from[column + i] : (float2)(0);
                        STATISTICS_OF(stage)[i] = both.s0, STATISTICS_OF(stage)[COLUMNS + i] = both.s1;
                    }
                    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(LOCAL_ADDRESS(FULL(stage))) : "memory");
                    NEXT(stage, parity)
                }
            }
        }
#if !WIDE
        else if (warp == WARPS + 2) {
            SUMS_READ();
            FOR_TILES {
                GET_TILE;
                for (uint column = begin; column < t; column += COLUMNS) {
                    SUMS_AWAITED();
                    if (lane == 0) {
                        ADD_BULK(dq_sums + TILE_OF_SUMS(head, column / COLUMNS), sums_of_queries, 4 * SUMS_OF_TILE);
                        BULK_READ();
                    }
                    WARP_BARRIER();
                    SUMS_READ();
                }
            }
            if (lane == 0) BULK_DONE();
        }
#endif
        return;
    }
    TAKE_REGISTERS();
#else
    __global const STORAGE(DTYPE) *const all_q = q, *const all_k = k, *const all_v = v, *const all_g = g;
#endif
#if MASK
    __global const STORAGE(MASK_DTYPE) *const all_masks = mask;
#endif
#if WRITE_QK
    __global STORAGE(OUT_DTYPE) *const all_dk = dk;
#endif
#if WRITE_V
    __global STORAGE(OUT_DTYPE) *const all_dv = dv;
#endif
    const float score_scale = scale * SCORE_UNIT;
    const uint warp_offset = get_local_id(0) / WARP * WARP_ROWS;
#define MY_ROWS(memory) (memory + first_word)
    FOR_TILES {
        GET_TILE;
        const uint warp_row = group_row + warp_offset;
#if MASK
        __global const STORAGE(MASK_DTYPE) *mask = all_masks;
        SELECT_MASK;
#endif
#if WRITE_QK
        float dk_acc[1][FEATURES / 16][SUMS];
        CLEAR(dk_acc, FEATURES / 16);
#endif
#if WRITE_V
        float dv_acc[1][VALUES / 16][SUMS];
        CLEAR(dv_acc, VALUES / 16);
#endif
#if TENSOR_CORES
        BARRIER_WAIT(FULL_ROWS, row_parity)
        row_parity ^= 1;
#else
        __global const STORAGE(DTYPE) *q = all_q, *k = all_k, *v = all_v, *g = all_g;
        SELECT_HEAD(q);
        SELECT_HEAD(k);
        SELECT_HEAD(v);
        SELECT_HEAD(g);
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_ROWS(keys, FEATURES, k, group_row, ROWS, s, d);
#if WRITE_QK
        LOAD_ROWS(values, VALUES, v, group_row, ROWS, s, e);
#endif
#endif
        for (uint column = begin; column < t; column += COLUMNS) {
#if TENSOR_CORES && APART
            BARRIER_WAIT(FULL_OUTPUTS, parity)
#elif TENSOR_CORES
            BARRIER_WAIT(FULL(stage), parity)
#else
            barrier(CLK_LOCAL_MEM_FENCE);
            LOAD_ROWS(QUERIES_OF(stage), FEATURES, q, column, COLUMNS, t, d);
            LOAD_ROWS(OUTPUTS_OF(stage), VALUES, g, column, COLUMNS, t, e);
            for (uint i = get_local_id(0); i < COLUMNS * STATISTICS; i += GROUP)
                STATISTICS_OF(stage)[i % 2 * COLUMNS + i / 2] =
                    column + i / 2 < t ? statistics[((ulong)head * t + column) * STATISTICS + i] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            const bool all_visible = BLOCK_VISIBLE(warp_row, WARP_ROWS, column, COLUMNS);
            float p[1][BLOCKS][SUMS];
            __local const float *mine = STATISTICS_OF(stage) + SUM_COLUMN(0);
            uint first_word = my_warpgroup * 64 * LINE_WORDS;
            OPAQUE(first_word);
            LOAD_BITS(bits, warp_row, column, s);
#if WRITE_QK
            float ds[1][BLOCKS][SUMS];
#endif
#if APART
            BEGIN_MULTIPLY(ds, MY_ROWS(values), ROWS, outputs, VALUES);
#if TENSOR_CORES
            BARRIER_WAIT(FULL(stage), parity)
#endif
            BEGIN_MULTIPLY(p, MY_ROWS(keys), ROWS, QUERIES_OF(stage), FEATURES);
            END_MULTIPLY(1, ds);
            ARRIVE(EMPTY_OUTPUTS);
            END_MULTIPLY(0, p);
#else
            BEGIN_MULTIPLY(p, MY_ROWS(keys), ROWS, QUERIES_OF(stage), FEATURES);
#if WRITE_QK
            BEGIN_MULTIPLY(ds, MY_ROWS(values), ROWS, OUTPUTS_OF(stage), VALUES);
#endif
            END_MULTIPLY(WRITE_QK, p);
#endif
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++)
                    p[0][n][i] = NORMALIZED_WEIGHT(p[0][n][i] * score_scale, &LOGSUMEXP_AT(n, i));
#if WRITE_QK && !APART
            END_MULTIPLY(0, ds);
#endif
            if (!all_visible) {
                UNROLL for (uint n = 0; n < BLOCKS; n++)
                    UNROLL for (uint i = 0; i < SUMS; i++)
#if MASK == 3
                        if (!BIT(bits, 0, n, i)) p[0][n][i] = 0;
#else
                        if (!PAIR_VISIBLE(warp_row + TILE_ROW(0, i), column + TILE_COLUMN(n, i))) p[0][n][i] = 0;
#endif
            }
#if WRITE_V
            DECLARE_PACKED(weights);
            PACK_WEIGHTS(weights, p);
#endif
#if WRITE_QK
            DECLARE_PACKED(gradients);
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i++)
                    ds[0][n][i] = p[0][n][i] * (ds[0][n][i] - DELTA_AT(n, i));
            PACK_WEIGHTS(gradients, ds);
            // Pairs of neighbouring queries are words. Rows are keys, in panels of 64 queries.
            uint at_part = SWIZZLED_WORD(warp_offset + TILE_ROW(0, 0), TILE_COLUMN(0, 0), ROWS);
            OPAQUE(at_part);
#if TENSOR_CORES && WIDE
            PARTS_READ();
#endif
            UNROLL for (uint n = 0; n < BLOCKS; n++)
                UNROLL for (uint i = 0; i < SUMS; i += 2)
                    parts[(at_part ^ (n % 4 * 8 + i / 4 * 4)) + i / 2 % 2 * 8 * LINE_WORDS + n / 4 * ROWS * LINE_WORDS] =
                        PACKED_PAIR(gradients, n, i);
#endif
#if WRITE_V
            BEGIN_ACCUMULATE_PACKED(dv_acc, weights, OUTPUTS_OF(stage), VALUES, scratch);
#endif
#if TENSOR_CORES && !WRITE_QK
            END_ACCUMULATE(dv_acc, VALUES);
#elif TENSOR_CORES && WIDE
            FENCE_COPIES();
            PARTS_WRITTEN();
            BEGIN_ACCUMULATE_PACKED(dk_acc, gradients, QUERIES_OF(stage), FEATURES, scratch);
            float dq[MY_PANELS * 32];
            UNROLL for (uint i = 0; i < MY_PANELS; i += MY_FEATURES / 64)
                BEGIN_QUERY_SUMS(MY_FEATURES, dq + 32 * i, parts, keys + MY_PANEL(i) * ROWS * LINE_WORDS);
            CONCAT(WAIT_, FEATURES)(QUERY_PRODUCTS, (&dk_acc[0][0][0]));
            ARRIVE(EMPTY(stage));
            UNROLL for (uint i = 0; i < MY_PANELS; i++) {
                WAIT_64(0, dq + 32 * i);
                __global float *const to = dq_sums + TILE_OF_SUMS(head, column / COLUMNS) + MY_PANEL(i) * SUMS_OF_PANEL +
                                           get_local_id(0) % WARPGROUP * 4;
                if (my_warpgroup * MY_PANELS + i < SUM_PANELS)
                    UNROLL for (uint j = 0; j < 32; j += 4)
                        ADD_FOUR(to + j * WARPGROUP, dq[32 * i + j], dq[32 * i + j + 1], dq[32 * i + j + 2], dq[32 * i + j + 3]);
            }
#elif TENSOR_CORES
            FENCE_COPIES();
            PARTS_WRITTEN();
            float dq[32];
            BEGIN_QUERY_SUMS(64, dq, parts + PANEL_OF_PARTS(2) * first_word, keys + PANEL_OF_KEYS(2) * first_word);
            BEGIN_ACCUMULATE_PACKED(dk_acc, gradients, QUERIES_OF(stage), FEATURES, scratch);
            WAIT_64(1, dq);
            SUMS_MAY_CHANGE();
            UNROLL for (uint i = 0; i < 8; i++)
                ((__local float4 *)sums_of_queries)[(my_warpgroup * 8 + i) * WARPGROUP + get_local_id(0) % WARPGROUP] =
                    (float4)(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
            FENCE_COPIES();
            SUMS_WRITTEN();
            END_ACCUMULATE(dv_acc, VALUES);
            END_ACCUMULATE(dk_acc, FEATURES);
#endif
#if TENSOR_CORES
#if !WIDE || !WRITE_QK
            ARRIVE(EMPTY(stage));
#endif
            NEXT(stage, parity)
#elif WRITE_QK
            BEGIN_ACCUMULATE_PACKED(dk_acc, gradients, QUERIES_OF(stage), FEATURES, scratch);
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint at = get_local_id(0) % WARPGROUP;
            for (uint panel = my_warpgroup; panel < SUM_PANELS; panel += WARPGROUPS)
                for (uint i = 0; i < 32; i++) {
                    const uint query = PANEL_OF_PARTS(panel) * 64 + at / WARP * 16 + SUM_ROW(i % SUMS);
                    const uint feature = PANEL_OF_KEYS(panel) * 64 + i / SUMS * 16 + SUM_COLUMN(i % SUMS);
                    float sum = 0;
                    for (uint key = 0; key < ROWS; key++)
                        sum += element_at(parts, key, query, ROWS) * element_at(keys, key, feature, ROWS);
                    add_atomically(dq_sums + TILE_OF_SUMS(head, column / COLUMNS) +
                                       ((panel * 8 + i / 4) * WARPGROUP + at) * 4 + i % 4,
                                   sum);
                }
#endif
        }
        ARRIVE(EMPTY_ROWS);
#define BY_SCALE(t, h) scale
#define BY_ONE(t, h) 1
#if WRITE_QK
        __global STORAGE(OUT_DTYPE) *dk = all_dk;
        SELECT_RESULT(dk);
        STORE_ROWS(dk_acc, BY_SCALE, dk, warp_row, s, d, FEATURES);
#endif
#if WRITE_V
        __global STORAGE(OUT_DTYPE) *dv = all_dv;
        SELECT_RESULT(dv);
        STORE_ROWS(dv_acc, BY_ONE, dv, warp_row, s, e, VALUES);
#endif
    }
}
