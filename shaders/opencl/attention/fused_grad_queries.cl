// Scales and rounds the gradients of queries that attention/fused_grad.cl has added up. A group takes a tile of COLUMNS queries.

#ifndef DTYPE
#define DTYPE float16
#endif
#define REAL float
#define USE_WGMMA 1
#define GRADIENT 1
#ifndef WARPS
#define WARPS 8
#endif
#include "attention/visibility.h"
#include "attention/mma_tile.h"
#include "attention/dq_sums.h"

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void attention_fused_grad_queries(
    __global const float *dq_sums, RESULT(OUT_DTYPE, dq), const float scale, const AttentionGeometry geometry) {
    DECLARE_LENGTHS;
    const uint head = get_group_id(1), my_warpgroup = get_local_id(0) / WARPGROUP;
    HEAD_INDICES(head);
    SELECT_RESULT(dq);
    const uint first = get_group_id(0) * COLUMNS + PANEL_OF_PARTS(my_warpgroup) * 64 + get_local_id(0) % WARPGROUP / WARP * 16;
    const uint first_feature = PANEL_OF_KEYS(my_warpgroup) * 64;
    float acc[1][4][SUMS];
    UNROLL for (uint i = 0; i < 8; i++) {
        const float4 four = ((__global const float4 *)(dq_sums + TILE_OF_SUMS(head, get_group_id(0))))
            [(my_warpgroup * 8 + i) * WARPGROUP + get_local_id(0) % WARPGROUP];
        acc[0][i / 2][i % 2 * 4] = four.s0, acc[0][i / 2][i % 2 * 4 + 1] = four.s1;
        acc[0][i / 2][i % 2 * 4 + 2] = four.s2, acc[0][i / 2][i % 2 * 4 + 3] = four.s3;
    }
#define BY_SCALE(t, h) scale
    dq += first_feature;
    const uint left = d > first_feature ? d - first_feature : 0;
    STORE_ROWS(acc, BY_SCALE, dq, first, t, left, 64);
}
