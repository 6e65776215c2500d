// out = a x b with an epilogue, for float16 and bfloat16 on Hopper's tensor cores by wgmma, with operands copied by the
// copy engine. A group computes a tile of ROWS x WIDE results. It has WARPGROUPS warpgroups (four warps) that multiply, and
// one that only starts copies: it fills STAGES k-tiles of DEPTH terms in turn, and continues with the terms of the group's
// next tile while the others store results.
//
// A multiplying warpgroup computes 64 * BLOCKS rows: with TURNS 0 of the same tile as the others, with TURNS 1 a tile of its
// own, so that one of two warpgroups multiplies while the other one stores results (ping-pong). They multiply in turn: a
// barrier of a stage distinguishes only two phases.
//
// A cluster computes a tile of CLUSTER * ROWS x WIDE results, each of its groups ROWS rows of it. Every group copies its own
// rows of a, and a part of the columns of b for all groups.
//
// With MOMENTS 1 the moments of columns are stored, too (lib/column_moments.h).
//
// With SPLIT_K clusters divide the terms of a tile and write partial sums to `out` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.
//
// With ROW_SUMS groups also add up the rows of a, which is MN-major, while tensor cores multiply; with SPLIT_K to `out` behind the
// partial sums, as (splits, m). The groups of one tile of columns add up ROW_CHUNKS * 8 of each 64 rows, the next ones others.

#ifndef DTYPE
#define DTYPE float16
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef TURNS
#define TURNS 0
#endif
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 0
#endif
// 1: pairs of neighbouring results are stored at once.
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SPLIT_K
#define SPLIT_K 0
#endif
// 1: also compute the row sums of a.
#ifndef ROW_SUMS
#define ROW_SUMS 0
#endif
// 8, 4 or 2: at least as many tiles of columns as 8 / ROW_CHUNKS.
#ifndef ROW_CHUNKS
#define ROW_CHUNKS 8
#endif
#define DEPTH 64
#include "lib/dependent_launch.h"
#include "lib/wgmma.h"
#include "lib/bulk_copy.h"
#define ITEMS (WARPGROUP * (WARPGROUPS + 1))
#define ROWS (64 * BLOCKS * (TURNS ? 1 : WARPGROUPS))
#define TILE_ROWS (CLUSTER * ROWS)
#define TILE_COLUMNS WIDE
#include "gemm/persistent_tiles.h"
#include "lib/fragment_store.h"
#include "lib/column_moments.h"

#define LEFT_WORDS (ROWS * LINE_WORDS)
#define RIGHT_WORDS (WIDE * LINE_WORDS)
#define WORDS (LEFT_WORDS + RIGHT_WORDS)
// Columns of b that a group copies for its cluster.
#define PART (WIDE / CLUSTER)
#define MAPS 2
#define LEFT(stage) (k_tiles + (stage) * WORDS)
#define RIGHT(stage) (k_tiles + (stage) * WORDS + LEFT_WORDS)
#define FULL(stage) (barriers + (stage))
#define EMPTY(stage) (barriers + STAGES + (stage))
// Registers move from the warpgroup that copies to the ones that multiply.
#if WARPGROUPS == 2
#define GIVE_REGISTERS() asm volatile(SM_90A "setmaxnreg.dec.sync.aligned.u32 40;")
#define TAKE_REGISTERS() asm volatile(SM_90A "setmaxnreg.inc.sync.aligned.u32 232;")
#else
#define GIVE_REGISTERS()
#define TAKE_REGISTERS()
#endif
#define WARP_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#define NEXT_STAGE              \
    if (++stage == STAGES) {    \
        stage = 0, parity ^= 1; \
    }

// Starts the copies of the k-tile from term `from` of the tile at (row, column) to stage `stage`.
#define COPY_K_TILE                                                                                                   \
    {                                                                                                                 \
        const uint lines_a = A_K_MAJOR ? ROWS : 64, lines_b = B_K_MAJOR ? PART : 64;                                  \
        _Pragma("unroll") for (uint i = 0; i < ROWS; i += lines_a)                                                    \
            copy_box(LEFT(stage) + i * LINE_WORDS, map_a, A_K_MAJOR ? from : row + i, A_K_MAJOR ? row : from,         \
                     a_batch2 ? w.i2 : 0, lines_a, FULL(stage));                                                      \
        FOR_PARTS(part, rank)                                                                                         \
        _Pragma("unroll") for (uint i = part * PART; i < (part + 1) * PART; i += lines_b)                             \
            copy_box_to_cluster(RIGHT(stage) + i * LINE_WORDS, map_b, B_K_MAJOR ? from : column + i,                  \
                                B_K_MAJOR ? column + i : from, b_batch2 ? w.i2 : 0, lines_b, FULL(stage));            \
    }
#define K_TILES(w) ((w.end - w.start + DEPTH - 1) / DEPTH)
// A warpgroup waits for its turn, which the other one gives it after the last k-tile of its own tile.
#if TURNS && TENSOR_CORES
#define AWAIT_TURN() asm volatile("bar.sync %0, 256;" ::"r"(2 + warpgroup) : "memory")
#define GIVE_TURN() asm volatile("bar.arrive %0, 256;" ::"r"(3 - warpgroup) : "memory")
#else
#define AWAIT_TURN()
#define GIVE_TURN()
#endif
// A work-item of a warpgroup adds up a chunk, 8 rows of a block, in some lines of a k-tile; the parts are added up at the end of a
// tile. Without tensor cores a work-item adds up a whole row. Chunk c of line l is at place c ^ l % 8, so that eight work-items
// read 8 / ROW_CHUNKS lines with a distance of ROW_CHUNKS from different banks.
#if ROW_SUMS
#if SPLIT_K
#define STORE_ROW_SUM(row, value) \
    out[((k + split_terms - 1) / split_terms * (ulong)n + w.matrix) * m + (row)] = value;
#else
#define STORE_ROW_SUM(row, value) STORE(OUT_DTYPE, value, row_sums, row_sums_offset + (row));
#endif
#endif
#if ROW_SUMS && TENSOR_CORES
#define ROW_PARTS (WARPGROUP / ROW_CHUNKS)
#define ROW_SHARE (8 * ROW_CHUNKS)
#define ADDS_ROWS (column / WIDE < 8 / ROW_CHUNKS)
#define LINE_OF(part) \
    ((part) % (8 / ROW_CHUNKS) * ROW_CHUNKS + (part) / (8 / ROW_CHUNKS) % ROW_CHUNKS + (part) / 8 * 8)
static inline float2 two_of_word_float16(uint word) {
    float2 two;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(two.s0), "=f"(two.s1)
        : "r"(word));
    return two;
}
static inline float2 two_of_word_bfloat16(uint word) {
    return (float2)(as_float(word << 16), as_float(word & 0xffff0000));
}
#define DECLARE_ROW_SUMS                                                  \
    float2 row_sums_of[BLOCKS][4];                                        \
    _Pragma("unroll") for (uint h = 0; h < BLOCKS; h++) {                 \
        _Pragma("unroll") for (uint i = 0; i < 4; i++) row_sums_of[h][i] = 0; \
    }
#define ADD_ROWS                                                                                             \
    if (ADDS_ROWS) {                                                                                         \
        _Pragma("unroll") for (uint h = 0; h < BLOCKS; h++) {                                                \
            _Pragma("unroll") for (uint i = 0; i < DEPTH / ROW_PARTS; i++) {                                 \
                const uint line = LINE_OF(WARPGROUP_LANE / ROW_CHUNKS + i * ROW_PARTS);                      \
                const uint chunk = (column / WIDE * ROW_CHUNKS + WARPGROUP_LANE % ROW_CHUNKS) ^ line % 8;    \
                const uint4 words = *(__local const uint4 *)(LEFT(stage) +                                   \
                                                             (first_row + 64 * h + line) * LINE_WORDS + chunk * 4); \
                row_sums_of[h][0] += CONCAT(two_of_word_, DTYPE)(words.s0);                                  \
                row_sums_of[h][1] += CONCAT(two_of_word_, DTYPE)(words.s1);                                  \
                row_sums_of[h][2] += CONCAT(two_of_word_, DTYPE)(words.s2);                                  \
                row_sums_of[h][3] += CONCAT(two_of_word_, DTYPE)(words.s3);                                  \
            }                                                                                                \
        }                                                                                                    \
    }
#define WARPGROUP_BARRIER() asm volatile("bar.sync %0, 128;" ::"r"(4 + warpgroup) : "memory")
#define STORE_ROW_SUMS                                                                                             \
    if (ADDS_ROWS) {                                                                                               \
        __local float *const parts = row_parts + warpgroup * ROW_PARTS * ROW_SHARE * BLOCKS;                       \
        _Pragma("unroll") for (uint h = 0; h < BLOCKS; h++) {                                                      \
            _Pragma("unroll") for (uint i = 0; i < 4; i++)                                                         \
                *(__local float2 *)(parts + (WARPGROUP_LANE / ROW_CHUNKS * BLOCKS + h) * ROW_SHARE +               \
                                    WARPGROUP_LANE % ROW_CHUNKS * 8 + 2 * i) = row_sums_of[h][i];                  \
        }                                                                                                          \
        WARPGROUP_BARRIER();                                                                                       \
        const uint place = WARPGROUP_LANE % ROW_SHARE + column / WIDE * ROW_SHARE;                                 \
        const uint summed = row + first_row + WARPGROUP_LANE / ROW_SHARE * 64 + place;                             \
        if (WARPGROUP_LANE < ROW_SHARE * BLOCKS && summed < m) {                                                   \
            float total = 0;                                                                                       \
            for (uint p = 0; p < ROW_PARTS; p++) total += parts[p * BLOCKS * ROW_SHARE + WARPGROUP_LANE];          \
            STORE_ROW_SUM(summed, total)                                                                           \
        }                                                                                                          \
        WARPGROUP_BARRIER();                                                                                       \
    }
#elif ROW_SUMS
#define DECLARE_ROW_SUMS float row_sum = 0;
#define ADD_ROWS                                                                                            \
    for (uint term = 0; term < DEPTH && WARPGROUP_LANE < 64 * BLOCKS; term++)                               \
        row_sum += element_at(LEFT(stage) + (first_row + WARPGROUP_LANE / 64 * 64) * LINE_WORDS, A_K_MAJOR, \
                              WARPGROUP_LANE % 64, term);
#define STORE_ROW_SUMS                                                                                       \
    if (column / WIDE == WARPGROUP_LANE % 64 / (8 * ROW_CHUNKS) && WARPGROUP_LANE < 64 * BLOCKS &&           \
        row + first_row + WARPGROUP_LANE < m)                                                                \
        STORE_ROW_SUM(row + first_row + WARPGROUP_LANE, row_sum)
#else
#define DECLARE_ROW_SUMS
#define ADD_ROWS
#define STORE_ROW_SUMS
#endif
// The tensors of the operands as copies see them: elements and lines of a matrix, matrices, bytes between them.
#define MAP_OF_A                                                                                                     \
    a + a_offset, A_K_MAJOR ? k : m, A_K_MAJOR ? m : k, a_batch2 ? batch2 : 1, 2 * (A_K_MAJOR ? a_row : a_column), \
        2 * a_batch2, A_K_MAJOR ? ROWS : 64
#define MAP_OF_B                                                                                                     \
    b + b_offset, B_K_MAJOR ? k : n, B_K_MAJOR ? n : k, b_batch2 ? batch2 : 1, 2 * (B_K_MAJOR ? b_column : b_row), \
        2 * b_batch2, B_K_MAJOR ? PART : 64

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_wgmma_clusters(
    __global const STORAGE(DTYPE) *a, const ulong a_offset, __global const STORAGE(DTYPE) *b, const ulong b_offset,
    EPILOGUE_PARAMETERS
    __global TARGET *out, const ulong out_offset,
#if ROW_SUMS && !SPLIT_K
    __global TARGET *row_sums, const ulong row_sums_offset,
#endif
    MOMENTS_PARAMETERS __global ulong *maps, const uint split_terms, const uint work_tiles, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
#if ROW_SUMS && TENSOR_CORES
    __local float row_parts[WARPGROUPS * ROW_PARTS * BLOCKS * ROW_SHARE] __attribute__((aligned(8)));
#endif
    __local uint k_tiles[STAGES * WORDS] __attribute__((aligned(1024)));
    __local ulong barriers[2 * STAGES];
    DECLARE_MOMENTS
    const uint warpgroup = get_local_id(0) / WARPGROUP, rank = cluster_rank();
    const uint first = get_group_id(0) / CLUSTER, clusters = get_num_groups(0) / CLUSTER;
    DECLARE_TILE_SCHEDULER
    uint stage = 0, parity = 0;
#if TENSOR_CORES
    __local ulong built[MAPS * MAP_WORDS] __attribute__((aligned(128)));
    if (get_local_id(0) == 0) {
        for (uint s = 0; s < STAGES; s++) {
            barrier_init(FULL(s), 1);
            barrier_init(EMPTY(s), CLUSTER * (TURNS ? 1 : WARPGROUPS));
        }
        BARRIERS_SEEN();
    }
    __global ulong *const map_a = maps + get_group_id(0) * MAPS * MAP_WORDS, *const map_b = map_a + MAP_WORDS;
    // Each map by a warp of its own.
    const uint warp = get_local_id(0) / 32;
    if (warp < MAPS) {
        __local ulong *const mine = built + warp * MAP_WORDS;
        if (WARPGROUP_LANE % 32 < MAP_WORDS) mine[WARPGROUP_LANE % 32] = 0;
        WARP_SYNC();
        if (WARPGROUP_LANE % 32 == 0) {
            if (warp == 0) build_map(mine, MAP_OF_A);
            if (warp == 1) build_map(mine, MAP_OF_B);
        }
        WARP_SYNC();
    }
    AWAIT_INPUTS
    if (warp < MAPS) PUBLISH_MAP(map_a + warp * MAP_WORDS, built + warp * MAP_WORDS);
    CLUSTER_BARRIER();
    if (warpgroup == WARPGROUPS) {
        GIVE_REGISTERS();
        if (WARPGROUP_LANE < 32) {
            SEE_MAP(map_a);
            SEE_MAP(map_b);
            if (WARPGROUP_LANE == 0) {
                for (uint number = first; number < work_tiles; number += clusters) {
                    WorkTile w;
                    GET_WORK_TILE(w, number)
                    const uint row = w.first_row + rank * ROWS, column = w.first_column;
                    for (uint from = w.start; from < w.end; from += DEPTH) {
                        BARRIER_WAIT(EMPTY(stage), parity ^ 1)
                        barrier_expect(FULL(stage), 4 * WORDS);
                        COPY_K_TILE
                        NEXT_STAGE
                    }
                }
                START_NEXT
                // All groups of the cluster have arrived at the barriers of this group before it ends.
                for (uint s = 0; s < STAGES; s++) {
                    BARRIER_WAIT(EMPTY(stage), parity ^ 1)
                    NEXT_STAGE
                }
            }
        }
    } else {
        TAKE_REGISTERS();
#else
    const Tensor map_a = {MAP_OF_A}, map_b = {MAP_OF_B};
    AWAIT_INPUTS
    {
#endif
        out += out_offset;
        uint turn = 0;
        for (uint number = first; number < work_tiles; number += clusters, turn ^= 1) {
            WorkTile w;
            GET_WORK_TILE(w, number)
            const bool mine = warpgroup < WARPGROUPS && (!TURNS || turn == warpgroup);
#if TENSOR_CORES
            if (!mine) {
                stage += K_TILES(w);
                parity ^= stage / STAGES & 1;
                stage %= STAGES;
                continue;
            }
#endif
            const uint row = w.first_row + rank * ROWS, column = w.first_column;
            float tile_sums[BLOCKS][SUMS];
#pragma unroll
            for (uint h = 0; h < BLOCKS; h++) {
#pragma unroll
                for (uint i = 0; i < SUMS; i++) tile_sums[h][i] = 0;
            }
            const uint first_row = TURNS ? 0 : warpgroup * 64 * BLOCKS;
            DECLARE_ROW_SUMS
            const uint i0 = w.i0, i1 = w.i1, i2 = w.i2;
#pragma unroll
            for (uint r = 0; r < 2 * BLOCKS; r++) {
                const uint sum_row = row + first_row + r / 2 * 64 + SUM_ROW(2 * (r % 2));
                EPILOGUE_PREFETCH(sum_row, column, (uint)WIDE, i0, i1, i2)
            }
            const uint first_column = column + SUM_COLUMN(0);
#define ROW(r) (row + first_row + (r) / 2 * 64 + SUM_ROW(2 * ((r) % 2)))
#define TO(r) (out + ((ulong)w.matrix * m + ROW(r)) * n + first_column)
            FETCH_ROWS(ROW, first_column, SUMS / 4)
            if (number != first) AWAIT_TURN();
            uint previous = STAGES;
            for (uint from = w.start; from < w.end; from += DEPTH) {
#if TENSOR_CORES
                BARRIER_WAIT(FULL(stage), parity)
#else
                barrier(CLK_LOCAL_MEM_FENCE);
                COPY_K_TILE
                barrier(CLK_LOCAL_MEM_FENCE);
                if (!mine) continue;
#endif
                WGMMA_BEGIN();
#pragma unroll
                for (uint h = 0; h < BLOCKS; h++)
                    MULTIPLY_WIDE(tile_sums[h], 1, LEFT(stage) + (first_row + 64 * h) * LINE_WORDS, A_K_MAJOR, RIGHT(stage),
                                  B_K_MAJOR)
                WGMMA_COMMIT();
                ADD_ROWS
                WGMMA_WAIT(1);
#if TENSOR_CORES
                if (previous < STAGES && WARPGROUP_LANE < CLUSTER) barrier_arrive(EMPTY(previous), WARPGROUP_LANE);
                previous = stage;
                NEXT_STAGE
#endif
            }
            if (number + clusters < work_tiles) GIVE_TURN();
            WGMMA_WAIT(0);
#pragma unroll
            for (uint h = 0; h < BLOCKS; h++) WGMMA_READ(tile_sums[h]);
#if TENSOR_CORES
            if (previous < STAGES && WARPGROUP_LANE < CLUSTER) barrier_arrive(EMPTY(previous), WARPGROUP_LANE);
#endif
#define FIRST(j) tile_sums[nth_row / 2][4 * (j) + 2 * (nth_row % 2)]
#define SECOND(j) tile_sums[nth_row / 2][4 * (j) + 2 * (nth_row % 2) + 1]
            if (mine) {
                STORE_ROW_SUMS
                FINISH_ROWS(2 * BLOCKS, TO, ROW, first_column, SUMS / 4, FIRST, SECOND)
            }
// With moments, a warpgroup has one block.
#define sums tile_sums[0]
            STORE_MOMENTS(row / 64 + warpgroup, column)
        }
    }
    // Groups stay until no other group of the cluster copies to their memory or arrives at their barriers.
    CLUSTER_BARRIER();
}
