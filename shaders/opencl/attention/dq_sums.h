// The partial gradients of queries that attention/fused_grad.cl adds up in global memory: tiles of COLUMNS queries, in the order
// of the accumulators of two warpgroups with 64 x 64 sums each. The warpgroups share COLUMNS of 128 queries, or 128 features.

#ifndef POLYHAL_ATTENTION_DQ_SUMS
#define POLYHAL_ATTENTION_DQ_SUMS

#define SUMS_OF_TILE (2 * 64 * 64)
#define TILE_OF_SUMS(head, block) (((ulong)(head) * ((t + COLUMNS - 1) / COLUMNS) + (block)) * SUMS_OF_TILE)
// The 64 queries and the 64 features of a warpgroup.
#define PANEL_OF_PARTS(warpgroup) (COLUMNS == 128 ? (warpgroup) : 0)
#define PANEL_OF_KEYS(warpgroup) (COLUMNS == 128 ? 0 : (warpgroup))

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
#define BULK_DONE() asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
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
