// out = a x b with an epilogue, for float16 and bfloat16 on Hopper's tensor cores by wgmma, with operands copied by the
// copy engine. A cluster computes a tile of CLUSTER * ROWS x WIDE results, each of its groups ROWS rows of it. A group has
// WARPGROUPS warpgroups (four warps) that multiply, 64 rows each, and one that only starts copies: it fills STAGES k-tiles
// of DEPTH terms in turn, and continues with the terms of the group's next tile while the others store results. Every group of
// a cluster copies its own rows of a, and a part of the columns of b for all groups.
//
// With MOMENTS 1 the moments of columns are stored, too (lib/column_moments.h).
//
// With SPLIT_K clusters divide the terms of a tile and write partial sums to `out` (splits, batch, m, n), which
// gemm/split_k_reduce.cl reduces in a fixed order.

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
#define DEPTH 64
#include "lib/wgmma.h"
#include "lib/bulk_copy.h"
#define ITEMS (WARPGROUP * (WARPGROUPS + 1))
#define ROWS (64 * WARPGROUPS)
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
    __global TARGET *out, const ulong out_offset, MOMENTS_PARAMETERS __global ulong *maps, const uint split_terms,
    const uint work_tiles, const GemmGeometry geometry) {
    UNPACK_GEOMETRY
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
            barrier_init(EMPTY(s), CLUSTER * WARPGROUPS);
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
        PUBLISH_MAP(map_a + warp * MAP_WORDS, mine);
    }
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
    {
#endif
        out += out_offset;
        for (uint number = first; number < work_tiles; number += clusters) {
            WorkTile w;
            GET_WORK_TILE(w, number)
            const uint row = w.first_row + rank * ROWS, column = w.first_column;
            float sums[SUMS];
#pragma unroll
            for (uint i = 0; i < SUMS; i++) sums[i] = 0;
            uint previous = STAGES;
            for (uint from = w.start; from < w.end; from += DEPTH) {
#if TENSOR_CORES
                BARRIER_WAIT(FULL(stage), parity)
#else
                barrier(CLK_LOCAL_MEM_FENCE);
                COPY_K_TILE
                barrier(CLK_LOCAL_MEM_FENCE);
                if (warpgroup == WARPGROUPS) continue;
#endif
                WGMMA_BEGIN();
                MULTIPLY_WIDE(sums, 1, LEFT(stage) + warpgroup * 64 * LINE_WORDS, A_K_MAJOR, RIGHT(stage), B_K_MAJOR)
                WGMMA_COMMIT();
                WGMMA_WAIT(1);
#if TENSOR_CORES
                if (previous < STAGES && WARPGROUP_LANE < CLUSTER) barrier_arrive(EMPTY(previous), WARPGROUP_LANE);
                previous = stage;
                NEXT_STAGE
#endif
            }
            WGMMA_WAIT(0);
            WGMMA_READ(sums);
#if TENSOR_CORES
            if (previous < STAGES && WARPGROUP_LANE < CLUSTER) barrier_arrive(EMPTY(previous), WARPGROUP_LANE);
#endif
            const uint i0 = w.i0, i1 = w.i1, i2 = w.i2;
            const uint first_column = column + SUM_COLUMN(0);
#define FIRST(j) sums[4 * (j) + 2 * r]
#define SECOND(j) sums[4 * (j) + 2 * r + 1]
            if (TENSOR_CORES || warpgroup < WARPGROUPS) {
#pragma unroll
                for (uint r = 0; r < 2; r++) {
                    const uint sum_row = row + warpgroup * 64 + SUM_ROW(2 * r);
                    FINISH_ROW(out + ((ulong)w.matrix * m + sum_row) * n + first_column, sum_row, first_column, SUMS / 4,
                               FIRST, SECOND)
                }
            }
            STORE_MOMENTS(row / 64 + warpgroup, column)
        }
    }
    // Groups stay until no other group of the cluster copies to their memory or arrives at their barriers.
    CLUSTER_BARRIER();
}
