// Products of resident groups (recurrent/resident_tiles.cl): ROWS sequences by COLUMNS columns of a weight that stays in local
// memory, with TERMS terms that come through the second-level cache.
//
// Each of eight warps computes 64 rows by all columns, over one of SLICES parts of the terms, and fetches its own
// operands, so warps synchronize only where slices are added. A work-item has 8 rows by LANE_COLUMNS columns; those
// whose numbers differ by 1 share columns, by 2 rows, as in gemm/tiles.cl.

#ifndef POLYHAL_RECURRENT_RESIDENT_PRODUCT
#define POLYHAL_RECURRENT_RESIDENT_PRODUCT
#include "lib/async_copy.h"

#ifndef ROW_BLOCKS
#define ROW_BLOCKS 1
#endif
#ifndef TERMS
#define TERMS 64
#endif
#define GROUP 256
#define ROWS (64 * ROW_BLOCKS)
#define COLUMNS (4 * LANE_COLUMNS)
#define SLICES (8 / ROW_BLOCKS)
#define LANES (32 * ROW_BLOCKS)
#define SLICE_TERMS (TERMS / SLICES)
// Terms that are copied at a time, and how many such chunks are in flight or in use.
#define DEPTH 8
#define STAGES 4
#define CHUNKS (SLICE_TERMS / DEPTH)
// Rows of a work-item that each slice adds up.
#define SLICE_ROWS (8 / SLICES)
#define TOTALS (SLICE_ROWS * LANE_COLUMNS)
#define STAGED (8 * STAGES * DEPTH * 64)

#if ASYNC_COPIES
#define WARP_BARRIER() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
FORCE_INLINE uint load_acquire(__global volatile uint *place) {
    uint value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"((ulong)(size_t)place) : "memory");
    return value;
}
#define DEVICE_FENCE() asm volatile("fence.acq_rel.gpu;" ::: "memory")
#else
#define WARP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define load_acquire(place) (*(place))
#define DEVICE_FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif

// Signals that this group has stored its values number `count`; contains a barrier for the group.
FORCE_INLINE void announce(__global volatile uint *flag, const uint count) {
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        DEVICE_FENCE();
        *flag = count;
    }
}

// Waits until each of `groups` has stored its values number `count`; contains a barrier for the group.
FORCE_INLINE void await(__global volatile uint *flags, const uint groups, const uint count) {
    for (uint i = get_local_id(0); i < groups; i += GROUP)
        while (load_acquire(flags + i) < count);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

// Row within the tile of row i of this work-item, and its number among the four along the columns.
#define ROW_OF(me, i) ((me) / 32 % ROW_BLOCKS * 64 + (i) / 4 * 32 + ((me) % 2 + (me) % 32 / 8 * 2) * 4 + (i) % 4)
#define COLUMN_LANE(me) ((me) / 2 % 4)
#define SLICE_OF(me) ((me) / LANES)

FORCE_INLINE void copy_chunk(__local float *to, __global const float *from) {
    const uint lane = get_local_id(0) % 32;
#pragma unroll
    for (uint i = 0; i < DEPTH / 2; i++) {
        const uint line = i * 2 + lane / 16, at = lane % 16 * 4;
        COPY16(to + line * 64 + at, from + line * ROWS + at, true);
    }
}

// totals = this slice's rows of the product of `from` (TERMS, ROWS) and `weight` (TERMS, COLUMNS), both term by term.
// Each group begins reading at a different chunk. `staged` has room for STAGED values.
FORCE_INLINE void resident_product(__local float *staged, __local const float *weight, __global const float *from,
                                   const uint rotation, __private float *totals) {
    const uint me = get_local_id(0), slice = SLICE_OF(me), warp = me / 32;
    const uint row4 = (me % 2 + me % 32 / 8 * 2) * 4;
    __local float *stages = staged + warp * (STAGES * DEPTH * 64);
    from += (ulong)slice * SLICE_TERMS * ROWS + warp % ROW_BLOCKS * 64;
    weight += slice * SLICE_TERMS * COLUMNS + COLUMN_LANE(me) * LANE_COLUMNS;
    float sums[8][LANE_COLUMNS];
#pragma unroll
    for (uint i = 0; i < 8; i++)
#pragma unroll
        for (uint j = 0; j < LANE_COLUMNS; j++) sums[i][j] = 0;
    uint chunk = rotation % CHUNKS, fetched = chunk;
#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        if (s < CHUNKS) copy_chunk(stages + s * DEPTH * 64, from + fetched * DEPTH * ROWS);
        COPIES_COMMIT();
        fetched = fetched + 1 == CHUNKS ? 0 : fetched + 1;
    }
    for (uint c = 0; c < CHUNKS; c++) {
        COPIES_WAIT(STAGES - 2);
        WARP_BARRIER();
        if (c + STAGES - 1 < CHUNKS)
            copy_chunk(stages + (c + STAGES - 1) % STAGES * DEPTH * 64, from + fetched * DEPTH * ROWS);
        COPIES_COMMIT();
        fetched = fetched + 1 == CHUNKS ? 0 : fetched + 1;
        __local const float *left = stages + c % STAGES * DEPTH * 64 + row4;
        __local const float *right = weight + chunk * DEPTH * COLUMNS;
#pragma unroll
        for (uint p = 0; p < DEPTH; p++) {
            const float4 low = *(__local const float4 *)(left + p * 64), high = *(__local const float4 *)(left + p * 64 + 32);
            const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            float y[LANE_COLUMNS];
#if LANE_COLUMNS % 4 == 0
#pragma unroll
            for (uint j = 0; j < LANE_COLUMNS; j += 4) {
                const float4 w = *(__local const float4 *)(right + p * COLUMNS + j);
                y[j] = w.x;
                y[j + 1] = w.y;
                y[j + 2] = w.z;
                y[j + 3] = w.w;
            }
#else
#pragma unroll
            for (uint j = 0; j < LANE_COLUMNS; j += 2) {
                const float2 w = *(__local const float2 *)(right + p * COLUMNS + j);
                y[j] = w.x;
                y[j + 1] = w.y;
            }
#endif
#pragma unroll
            for (uint i = 0; i < 8; i++)
#pragma unroll
                for (uint j = 0; j < LANE_COLUMNS; j++) sums[i][j] += x[i] * y[j];
        }
        chunk = chunk + 1 == CHUNKS ? 0 : chunk + 1;
    }
    COPIES_WAIT(0);
    // Slices exchange their sums through the memory of the chunks; each adds up its own rows.
    barrier(CLK_LOCAL_MEM_FENCE);
    __local float2 *shared = (__local float2 *)staged + me % LANES;
#pragma unroll
    for (uint target = 0; target < SLICES; target++)
#pragma unroll
        for (uint i = 0; i < TOTALS; i += 2) {
            const uint row = target * SLICE_ROWS + i / LANE_COLUMNS, column = i % LANE_COLUMNS;
            shared[((target * SLICES + slice) * (TOTALS / 2) + i / 2) * LANES] =
                (float2)(sums[row][column], sums[row][column + 1]);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < TOTALS; i += 2) {
        float2 total = 0;
#pragma unroll
        for (uint source = 0; source < SLICES; source++)
            total += shared[((slice * SLICES + source) * (TOTALS / 2) + i / 2) * LANES];
        totals[i] = total.x;
        totals[i + 1] = total.y;
    }
}

#endif
