// Tiles of a convolution by wgmma whose operands the copy engine copies: boxes of 64 pixels and 64 channels, see
// lib/bulk_copy.h. A cluster computes CLUSTER * WARPGROUPS blocks of 64 rows, each of its groups WARPGROUPS of them, by WIDE
// columns. A group has WARPGROUPS warpgroups that multiply, a block each, and one that only starts copies: it fills STAGES
// k-tiles in turn, and continues with the group's next tile while the others store results. Every group of a cluster
// copies its own rows, and a part of the columns for all groups.
//
// A plane of pixels is divided into boxes of BOX_WIDTH x BOX_HEIGHT pixels of BOX_IMAGES images, 64 pixels in all.
//
// The including kernel defines LEFT_K_MAJOR, RIGHT_K_MAJOR and MAP_OF_LEFT, MAP_OF_RIGHT (the arguments of build_image_map
// after the first one), and
//   DECLARE_TILE         the variables of tile `number`, k-tiles `first_step` to `last_step` among them;
//   COPY_K_TILE(step)    start the copies of k-tile `step` of the tile;
//   STORE_TILE           store `sums`.

#ifndef POLYHAL_CONV_WGMMA_BOXES
#define POLYHAL_CONV_WGMMA_BOXES

#ifndef DTYPE
#define DTYPE bfloat16
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
#ifndef BOX_WIDTH
#define BOX_WIDTH 8
#endif
#ifndef BOX_HEIGHT
#define BOX_HEIGHT 8
#endif
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
#include "lib/fragment_store.h"
#include "lib/column_moments.h"
#include "conv/geometry.h"

#define BOX_IMAGES (64 / BOX_WIDTH / BOX_HEIGHT)
#define BLOCK_WORDS (64 * LINE_WORDS)
#define LEFT_WORDS (WARPGROUPS * BLOCK_WORDS)
#define WORDS (LEFT_WORDS + WIDE * LINE_WORDS)
// Columns that a group copies for its cluster.
#define PART (WIDE / CLUSTER)
#define MAPS 2
#define LEFT(stage) (k_tiles + (stage)*WORDS)
#define RIGHT(stage) (k_tiles + (stage)*WORDS + LEFT_WORDS)
#define FULL(stage) (barriers + (stage))
#define EMPTY(stage) (barriers + STAGES + (stage))
#define WARP_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#define NEXT_STAGE              \
    if (++stage == STAGES) {    \
        stage = 0, parity ^= 1; \
    }

// The box of pixels number `box`: its first pixel, and its first image.
#define DECLARE_BOX(box, name)                                                   \
    const int name##_x = (int)((box) % boxes_across * BOX_WIDTH);                \
    const int name##_y = (int)((box) / boxes_across % boxes_down * BOX_HEIGHT);  \
    const int name##_image = (int)((box) / boxes_across / boxes_down * BOX_IMAGES);

#if TENSOR_CORES
#define PREPARE                                                                                      \
    __local ulong built[MAPS * MAP_WORDS] __attribute__((aligned(128)));                             \
    if (get_local_id(0) == 0) {                                                                      \
        for (uint s = 0; s < STAGES; s++) {                                                          \
            barrier_init(FULL(s), 1);                                                                \
            barrier_init(EMPTY(s), CLUSTER * WARPGROUPS);                                            \
        }                                                                                            \
        BARRIERS_SEEN();                                                                             \
    }                                                                                                \
    __global ulong *const left_map = maps + get_group_id(0) * MAPS * MAP_WORDS;                      \
    __global ulong *const right_map = left_map + MAP_WORDS;                                          \
    const uint warp = get_local_id(0) / 32;                                                          \
    if (warp < MAPS) {                                                                               \
        __local ulong *const mine = built + warp * MAP_WORDS;                                        \
        if (WARPGROUP_LANE % 32 < MAP_WORDS) mine[WARPGROUP_LANE % 32] = 0;                          \
        WARP_SYNC();                                                                                 \
        if (WARPGROUP_LANE % 32 == 0) {                                                              \
            if (warp == 0) build_image_map(mine, MAP_OF_LEFT);                                       \
            if (warp == 1) build_image_map(mine, MAP_OF_RIGHT);                                      \
        }                                                                                            \
        WARP_SYNC();                                                                                 \
        PUBLISH_MAP(left_map + warp * MAP_WORDS, mine);                                              \
    }                                                                                                \
    CLUSTER_BARRIER();
#define COPY_ALL_TILES                                                                               \
    if (WARPGROUP_LANE < 32) {                                                                       \
        SEE_MAP(left_map);                                                                           \
        SEE_MAP(right_map);                                                                          \
        if (WARPGROUP_LANE == 0) {                                                                   \
            for (uint number = first; number < work_tiles; number += clusters) {                     \
                DECLARE_TILE                                                                         \
                for (uint step = first_step; step < last_step; step++) {                             \
                    BARRIER_WAIT(EMPTY(stage), parity ^ 1)                                           \
                    barrier_expect(FULL(stage), 4 * WORDS);                                          \
                    COPY_K_TILE(step)                                                                \
                    NEXT_STAGE                                                                       \
                }                                                                                    \
            }                                                                                        \
            /* All groups of the cluster have arrived at this group's barriers before it ends. */    \
            for (uint s = 0; s < STAGES; s++) {                                                      \
                BARRIER_WAIT(EMPTY(stage), parity ^ 1)                                               \
                NEXT_STAGE                                                                           \
            }                                                                                        \
        }                                                                                            \
    }
#define AWAIT_K_TILE(step) BARRIER_WAIT(FULL(stage), parity)
#define FREE_PREVIOUS \
    if (previous < STAGES && WARPGROUP_LANE < CLUSTER) barrier_arrive(EMPTY(previous), WARPGROUP_LANE);
#define MULTIPLIES (warpgroup < WARPGROUPS)
#else
#define PREPARE const ImageTensor left_map = {MAP_OF_LEFT}, right_map = {MAP_OF_RIGHT};
#define COPY_ALL_TILES
#define AWAIT_K_TILE(step)         \
    barrier(CLK_LOCAL_MEM_FENCE);  \
    COPY_K_TILE(step)              \
    barrier(CLK_LOCAL_MEM_FENCE);  \
    if (warpgroup == WARPGROUPS) continue;
#define FREE_PREVIOUS
#define MULTIPLIES 1
#endif

#define RUN_TILES                                                                                                  \
    __local uint k_tiles[STAGES * WORDS] __attribute__((aligned(1024)));                                           \
    __local ulong barriers[2 * STAGES];                                                                            \
    DECLARE_MOMENTS                                                                                                \
    const uint warpgroup = get_local_id(0) / WARPGROUP, rank = cluster_rank();                                     \
    const uint first = get_group_id(0) / CLUSTER, clusters = get_num_groups(0) / CLUSTER;                          \
    uint stage = 0, parity = 0;                                                                                    \
    PREPARE                                                                                                        \
    if (MULTIPLIES) {                                                                                              \
        for (uint number = first; number < work_tiles; number += clusters) {                                       \
            DECLARE_TILE                                                                                           \
            float sums[SUMS];                                                                                      \
            _Pragma("unroll") for (uint i = 0; i < SUMS; i++) sums[i] = 0;                                         \
            uint previous = STAGES;                                                                                \
            for (uint step = first_step; step < last_step; step++) {                                               \
                AWAIT_K_TILE(step)                                                                                 \
                WGMMA_BEGIN();                                                                                     \
                MULTIPLY_WIDE(sums, 1, LEFT(stage) + warpgroup * BLOCK_WORDS, LEFT_K_MAJOR, RIGHT(stage),          \
                              RIGHT_K_MAJOR)                                                                       \
                WGMMA_COMMIT();                                                                                    \
                WGMMA_WAIT(1);                                                                                     \
                FREE_PREVIOUS                                                                                      \
                previous = stage;                                                                                  \
                if (TENSOR_CORES) {                                                                                \
                    NEXT_STAGE                                                                                     \
                }                                                                                                  \
            }                                                                                                      \
            WGMMA_WAIT(0);                                                                                         \
            WGMMA_READ(sums);                                                                                      \
            FREE_PREVIOUS                                                                                          \
            if (warpgroup < WARPGROUPS) {                                                                          \
                STORE_TILE                                                                                         \
            }                                                                                                      \
            STORE_MOMENTS(first_box + warpgroup, first_column)                                                     \
        }                                                                                                          \
    } else {                                                                                                       \
        COPY_ALL_TILES                                                                                             \
    }                                                                                                              \
    /* Groups stay until no other group of the cluster copies to their memory or arrives at their barriers. */     \
    CLUSTER_BARRIER();

#endif
