// The partial gradients of queries that attention/fused_grad.cl adds up in global memory: tiles of COLUMNS queries, each of
// SUM_PANELS panels of 64 x 64 sums, in the order of the accumulators of a warpgroup. The panels divide COLUMNS of 128 queries, or
// the features.

#ifndef POLYHAL_ATTENTION_DQ_SUMS
#define POLYHAL_ATTENTION_DQ_SUMS

#ifndef SUM_PANELS
#define SUM_PANELS 2
#endif
#define SUMS_OF_PANEL (64 * 64)
#define SUMS_OF_TILE (SUM_PANELS * SUMS_OF_PANEL)
#define TILE_OF_SUMS(head, block) (((ulong)(head) * ((t + COLUMNS - 1) / COLUMNS) + (block)) * SUMS_OF_TILE)
// The 64 queries and the 64 features of a panel.
#define PANEL_OF_PARTS(panel) (COLUMNS == 128 ? (panel) : 0)
#define PANEL_OF_KEYS(panel) (COLUMNS == 128 ? 0 : (panel))

// With up to four panels of features, each of two warpgroups computes MY_PANELS, in QUERY_PRODUCTS products of MY_FEATURES features.
// An odd number is rounded up: the last panel is then computed twice.
#define MY_PANELS ((SUM_PANELS + 1) / 2)
#define MY_PANEL(i) min(my_warpgroup * MY_PANELS + (i), SUM_PANELS - 1u)
#define MY_FEATURES CONCAT(MY_FEATURES_, SUM_PANELS)
#define MY_FEATURES_1 64
#define MY_FEATURES_2 64
#define MY_FEATURES_3 64
#define MY_FEATURES_4 128
#define QUERY_PRODUCTS CONCAT(QUERY_PRODUCTS_, SUM_PANELS)
#define QUERY_PRODUCTS_1 1
#define QUERY_PRODUCTS_2 1
#define QUERY_PRODUCTS_3 2
#define QUERY_PRODUCTS_4 1

#if TENSOR_CORES
#define PACKED_PAIR(fragments, n, i) ((fragments)[n].r[(i) / 2])
// Adds floats in local memory to floats in global memory, by one work-item.
#define ADD_BULK(to, from, bytes)                                                                               \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"((ulong)(size_t)(to)), \
                 "r"((uint)(size_t)(from)), "r"(bytes)                                                          \
                 : "memory")
#define BULK_READ()                                           \
    asm volatile("cp.async.bulk.commit_group;" ::: "memory"); \
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
// Adds four floats in registers to floats in global memory.
#define ADD_FOUR(to, a, b, c, d)                                                                                       \
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"((ulong)(size_t)(to)), "f"(a), "f"(b), "f"(c), "f"(d) \
                 : "memory")
#define BULK_DONE() asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
// sums (+)= queries x features: rows of `parts` are keys, the reduction axis, and so are rows of `keys`.
#define MULTIPLY_TT_64(TYPE, s, x, y, more)                                  \
    asm volatile(WGMMA(64, TYPE, NAMES32, "34") "%32, %33, p, 1, 1, 1, 1; }" \
                 : OUT32(s, 0)                                               \
                 : "l"(x), "l"(y), "r"(more))
#define MULTIPLY_TT_128(TYPE, s, x, y, more)                                  \
    asm volatile(WGMMA(128, TYPE, NAMES64, "66") "%64, %65, p, 1, 1, 1, 1; }" \
                 : OUT64(s, 0)                                                \
                 : "l"(x), "l"(y), "r"(more))
#define BEGIN_QUERY_SUMS(features, sums, parts_, keys_)                                                     \
    {                                                                                                       \
        const ulong x_ = panel_descriptor(parts_, ROWS * 8), y_ = panel_descriptor(keys_, ROWS * 8);        \
        WGMMA_FENCE();                                                                                      \
        UNROLL for (uint k_ = 0; k_ < ROWS / 16; k_++)                                                      \
            CONCAT(MULTIPLY_TT_, features)(WGMMA_TYPE, sums, x_ + k_ * 128, y_ + k_ * 128, (int)(k_ > 0));  \
        WGMMA_COMMIT();                                                                                     \
    }
#else
#include "lib/atomic_add.h"
#define PACKED_PAIR(weights, n, i) packed_pair((weights)[0][n] + (i))
static inline uint packed_pair(const float *two) {
    uint pair;
    STORAGE(DTYPE) *halves = (STORAGE(DTYPE) *)&pair;
    STORE(DTYPE, two[0], halves, 0);
    STORE(DTYPE, two[1], halves, 1);
    return pair;
}
#endif

#endif
