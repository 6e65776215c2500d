// Scales and rounds the gradients of queries that attention/fused_grad.cl has added up. A group takes a tile of COLUMNS queries.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#define USE_WGMMA 1
#define GRADIENT 1
// 1: results have 16 bits, and rows consist of whole aligned octets, which are stored at once: pairs fill no sector of the
// second-level cache.
#ifndef OCTETS
#define OCTETS 0
#endif
// A warpgroup takes a panel of attention/dq_sums.h.
#ifndef SUM_PANELS
#define SUM_PANELS 2
#endif
#define WARPS (4 * SUM_PANELS)
#include "attention/visibility.h"
#include "attention/mma_tile.h"
#include "attention/dq_sums.h"

#if OCTETS && TENSOR_CORES
#define PAIR_float16 pair_of_halves
#define PAIR_bfloat16 bfloats_of_floats
#define PAIR(x, i) CONCAT(PAIR_, OUT_DTYPE)((x)[i], (x)[(i) + 1])
#define STORE_OCTET(x, to) *(__global uint4 *)(to) = (uint4)(PAIR(x, 0), PAIR(x, 2), PAIR(x, 4), PAIR(x, 6))
#elif OCTETS
#define STORE_OCTET(x, to) \
    for (uint i_ = 0; i_ < 8; i_++) STORE(OUT_DTYPE, (x)[i_], to, i_)
#endif

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_fused_grad_queries(
    __global const float *dq_sums, RESULT(OUT_DTYPE, dq), const float scale, const AttentionGeometry geometry) {
    DECLARE_LENGTHS;
    const uint head = get_group_id(1), panel = get_local_id(0) / WARPGROUP;
    HEAD_INDICES(head);
    SELECT_RESULT(dq);
    __global const float4 *const sums = (__global const float4 *)(dq_sums + TILE_OF_SUMS(head, get_group_id(0))) +
                                        panel * SUMS_OF_PANEL / 4;
    const uint first = get_group_id(0) * COLUMNS + PANEL_OF_PARTS(panel) * 64 + get_local_id(0) % WARPGROUP / WARP * 16;
    const uint first_feature = PANEL_OF_KEYS(panel) * 64;
    dq += first_feature;
    const uint left = d > first_feature ? d - first_feature : 0;
#if OCTETS
    // Four neighbours hold eight features of two rows, eight times. Each of them stores whole octets.
    UNROLL for (uint part = 0; part < 2; part++) {
        const uint octet = part * 4 + get_local_id(0) % 4, row = first + SUM_ROW(0), column = 8 * octet;
        __global const float4 *const from = sums + octet * WARPGROUP + get_local_id(0) % WARPGROUP / 4 * 4;
        float upper[8], lower[8];
        UNROLL for (uint i = 0; i < 4; i++) {
            upper[2 * i] = scale * from[i].s0, upper[2 * i + 1] = scale * from[i].s1;
            lower[2 * i] = scale * from[i].s2, lower[2 * i + 1] = scale * from[i].s3;
        }
        if (column < left && row < t) STORE_OCTET(upper, dq + row * dq_row + column);
        if (column < left && row + 8 < t) STORE_OCTET(lower, dq + (row + 8) * dq_row + column);
    }
#else
    float acc[1][4][SUMS];
    UNROLL for (uint i = 0; i < 8; i++) {
        const float4 four = sums[i * WARPGROUP + get_local_id(0) % WARPGROUP];
        acc[0][i / 2][i % 2 * 4] = four.s0, acc[0][i / 2][i % 2 * 4 + 1] = four.s1;
        acc[0][i / 2][i % 2 * 4 + 2] = four.s2, acc[0][i / 2][i % 2 * 4 + 3] = four.s3;
    }
#define BY_SCALE(t, h) scale
    STORE_ROWS(acc, BY_SCALE, dq, first, t, left, 64);
#endif
}
