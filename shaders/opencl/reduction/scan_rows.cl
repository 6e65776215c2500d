// Prefix sums, products or extrema of rows: a group of GROUP work-items scans one split of a row, a tile of GROUP vectors at a time, and
// carries the total of the tiles before. In a tile every work-item scans its vector, then the group scans their totals.
//
// Rows, strides and vectors as in lib/rows.h, but out has elements of OUT_DTYPE. Each of `splits` splits of a row has
// `split_length` elements. With SPLIT, scan_totals computes the total of each, and each scan starts from those before it. Totals
// of tiles are added in blocks, see reduction/running.h.

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE float32
#define ACCUMULATOR float
#define MAP(v) (v)
#define OPERATION sum
#define IDENTITY 0
#endif
#ifndef REAL
#define REAL ACCUMULATOR
#endif
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#include "lib/rows.h"
#include "lib/combine.h"
#include "reduction/running.h"
#include "reduction/scanned.h"

typedef struct {
    STRIDE_MEMBERS(x);
    ROW_MEMBERS;
    uint splits, split_length;
} ScanTotalsGeometry;
typedef struct {
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(out);
    ROW_MEMBERS;
    uint splits, split_length;
} ScanGeometry;

// The elements [begin, end) of a row that the group scans.
#define DECLARE_SPLIT                                                                                 \
    const uint splits = geometry.splits, split_length = geometry.split_length;                        \
    const ulong task = get_group_id(0), row = task / splits;                                          \
    const uint split = task - row * splits;                                                           \
    const uint begin = min(split * split_length, length), end = min(begin + split_length, length);    \
    const uint vectors = (end - begin) / WIDTH;                                                       \
    const long x_at = ROW_OF(x, row) + (long)begin * x_step

#if GROUP > 1
// Exclusive prefix over the group in `before`, and its total in `all` (Hillis and Steele, 1986).
#define SCAN_GROUP(mine, before, all) \
    { \
        barrier(CLK_LOCAL_MEM_FENCE); \
        scratch[LANE_ID] = mine; \
        for (uint reach = 1; reach < GROUP; reach *= 2) { \
            barrier(CLK_LOCAL_MEM_FENCE); \
            const A other = LANE_ID >= reach ? scratch[LANE_ID - reach] : (A)IDENTITY; \
            const A own = scratch[LANE_ID]; \
            barrier(CLK_LOCAL_MEM_FENCE); \
            scratch[LANE_ID] = COMBINE_SCALARS(other, own); \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        before = LANE_ID > 0 ? scratch[LANE_ID - 1] : (A)IDENTITY; \
        all = scratch[GROUP - 1]; \
    }
#define SCRATCH __local A scratch[GROUP];
#else
#define SCAN_GROUP(mine, before, all) \
    { \
        before = IDENTITY; \
        all = mine; \
    }
#define SCRATCH
#endif

// Tiles of a block. Their totals are added one after another.
#define TILES_OF_BLOCK 32

__kernel void scan_totals(OPERAND(x), __global A *totals, const ScanTotalsGeometry geometry) {
    SCRATCH
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_SPLIT;
    VA sums = (VA)(IDENTITY), near = sums;
    for (uint i = LANE_ID; i < vectors;) {
        for (const uint block_end = i + BLOCK * GROUP; i < min(block_end, vectors); i += GROUP) {
            const VA v = mapped(READ(x, x_at, i));
            near = COMBINE_VECTORS(near, v);
        }
        FOLD_VECTORS(sums, near)
    }
    sums = COMBINE_VECTORS(sums, near);
    A total = LAST(scanned(sums));
    for (uint i = vectors * WIDTH + LANE_ID; i < end - begin; i += GROUP) {
        const A value = mapped1(LOAD(DTYPE, x, x_at + (long)i * x_step));
        total = COMBINE_SCALARS(total, value);
    }
    A before, all;
    SCAN_GROUP(total, before, all)
    if (LANE_ID == 0) totals[task] = all;
}

__kernel void reduction_scan_rows(OPERAND(x), OUTPUT(out),
#if SPLIT
                                  __global const A *totals,
#endif
                                  const ScanGeometry geometry) {
    SCRATCH
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(out);
    DECLARE_SPLIT;
    const long out_at = ROW_OF(out, row) + (long)begin * out_step;
    A carry = IDENTITY, near = IDENTITY;
#if SPLIT
    A total = IDENTITY, smaller;
    for (uint p = LANE_ID; p < split; p += GROUP) {
        const A other = totals[row * splits + p];
        total = COMBINE_SCALARS(total, other);
    }
    SCAN_GROUP(total, smaller, carry)
#endif
    for (uint tile = 0; tile < vectors; tile += GROUP) {
        const uint i = tile + LANE_ID;
        VA v = (VA)(IDENTITY);
        if (i < vectors) v = scanned(mapped(READ(x, x_at, i)));
        A before, all;
        SCAN_GROUP(LAST(v), before, all)
        const A base = COMBINE_SCALARS(carry, near);
        before = GROUP > 1 ? COMBINE_SCALARS(base, before) : base;
        near = COMBINE_SCALARS(near, all);
        if (tile / GROUP % TILES_OF_BLOCK == TILES_OF_BLOCK - 1) FOLD_SCALARS(carry, near)
        if (i < vectors) WRITE_OUT(COMBINE_VECTORS((VA)(before), v), out_at, i);
    }
    // Fewer than WIDTH elements are left, unless the splits are shorter.
    if (LANE_ID == 0) {
        for (uint i = vectors * WIDTH; i < end - begin; i++) {
            const A value = mapped1(LOAD(DTYPE, x, x_at + (long)i * x_step));
            near = COMBINE_SCALARS(near, value);
            const A prefix = COMBINE_SCALARS(carry, near);
            STORE(OUT_DTYPE, (COMPUTE(OUT_DTYPE))prefix, out, out_at + (long)i * out_step);
            if (i % BLOCK == BLOCK - 1) FOLD_SCALARS(carry, near)
        }
    }
}
