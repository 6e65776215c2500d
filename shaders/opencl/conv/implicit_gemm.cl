// A convolution or its input gradient as an implicit matrix product of packed weights and windows of images, which are never
// written to memory: a group makes a tile of ROWS (channels of the result) by COLUMNS (its pixels); see
// conv/tile_accumulate.h.
//
// conv/implicit_gemm_pack.cl has packed the weights, padded to whole tiles and k-slices, and the offsets of the k axis:
// element (k, column) of the right operand is the pixel of x at that offset from the column's window, or 0 outside the
// image. Neighbouring work-items read neighbouring pixels of one k. With SPLIT (split-K) the groups of a tile share the k
// axis and write to `partial` (split, group, m, n), which conv/split_k_reduce.cl adds up in a fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef ROWS
#define ROWS 64
#endif
#ifndef COLUMNS
#define COLUMNS 128
#endif
#ifndef ROW_BLOCKS
#define ROW_BLOCKS 2
#endif
#ifndef COLUMN_BLOCKS
#define COLUMN_BLOCKS 1
#endif
#ifndef DEPTH
#define DEPTH 8
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef BF16_TERMS
#define BF16_TERMS 0
#endif
#define LEFT_PACKED (BF16_TERMS > 0)
#ifndef OUT_LANES
#define OUT_LANES 1
#endif
#ifndef ABSENT_TAPS
#define ABSENT_TAPS 0
#endif
#define REORDERABLE_COPIES 1
#include "lib/async_copy.h"
#include "lib/dtypes.h"
#include "conv/geometry.h"
#include "conv/tile_accumulate.h"
#include "conv/output_index.h"
#include "conv/pipeline.h"
#include "conv/absent_taps.h"

#define LEFT_LOADS ((LEFT_LINES * ROWS / 4 + GROUP - 1) / GROUP)
// Columns that a work-item loads, and the k indices of each slice that it loads for them.
#define LOAD_COLUMNS ((COLUMNS + GROUP - 1) / GROUP)
#define K_STEP (GROUP * LOAD_COLUMNS / COLUMNS)
#define K_LOADS (DEPTH / K_STEP)
// Offsets of the k axis that are kept in local memory at a time.
#define CACHED_OFFSETS 512

// `k` is the padded length of the k axis. Every `rows_per_table` rows have their own k offsets.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_implicit_gemm(
    __global const LEFT *packed, __global const int2 *k_offsets, __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint k_per_split, const uint rows_per_table, const ConvGeometry geometry, const OutputGeometry output) {
    __local LEFT left[STAGES * LEFT_SLICE] __attribute__((aligned(32)));
    __local REAL right[STAGES * RIGHT_SLICE] __attribute__((aligned(32)));
    const uint m = geometry.m, n = geometry.n, k = geometry.k;
    const uint column_height = geometry.column_height, column_width = geometry.column_width;
    const int x_image = geometry.x_column, x_down = geometry.x_down, x_across = geometry.x_across;
    const uint me = get_local_id(0);
    const uint down = (m + ROWS - 1) / ROWS;
    const uint first_row = get_group_id(0) % down * ROWS, first_column = get_group_id(0) / down * COLUMNS;
    const uint group = get_group_id(2);
    const uint start = get_group_id(1) * k_per_split, end = min(start + k_per_split, k);
    x += (long)x_offset + group * geometry.x_group;
    k_offsets += first_row / rows_per_table * k;
    packed += (ulong)group * (k / DEPTH * LEFT_LINES) * (down * ROWS) + first_row;
#if ASYNC_COPIES
    __local int2 cached_offsets[CACHED_OFFSETS];
#endif

    // The columns' windows: their offsets in memory and their positions in the image.
    int window_offset[LOAD_COLUMNS], window[LOAD_COLUMNS];
    const int last = LAST_PIXEL(geometry.height, geometry.width);
    UNROLLED(j, LOAD_COLUMNS) {
        const uint column = first_column + me % COLUMNS + j * GROUP;
        const uint image = column / (column_width * column_height);
        const int y = (int)(column / column_width % column_height) * geometry.column_step_y + geometry.origin_y;
        const int z = (int)(column % column_width) * geometry.column_step_x + geometry.origin_x;
        window_offset[j] = (int)image * x_image + y * x_down + z * x_across;
        window[j] = column < n ? PIXEL_AT(y, z) : OUTSIDE;
    }
    const uint first_k = me / COLUMNS;
    DECLARE_ACC

#define LEFT_LINE(i) ((me + (i)*GROUP) / (ROWS / 4))
#define LEFT_QUAD(i) ((me + (i)*GROUP) % (ROWS / 4) * 4)
#define LEFT_EXISTS(i) (LEFT_LINES * ROWS / 4 % GROUP == 0 || LEFT_LINE(i) < LEFT_LINES)
#define LEFT_SOURCE(i, from) (packed + (ulong)((from) / DEPTH * LEFT_LINES + LEFT_LINE(i)) * (down * ROWS) + LEFT_QUAD(i))
#define LEFT_TARGET(i, s) (left + (s)*LEFT_SLICE + LEFT_LINE(i) * LEFT_PITCH + LEFT_QUAD(i))
#define RIGHT_TARGET(i, j, s) \
    (right + (s)*RIGHT_SLICE + (first_k + (i)*K_STEP) * RIGHT_PITCH + me % COLUMNS + (j)*GROUP)
#define FIND_PIXEL(i, j, from)                                \
    const int2 offset = K_OFFSET(from, first_k + (i)*K_STEP); \
    const int inside = IS_INSIDE(window[j] + offset.y, last); \
    __global const STORAGE(DTYPE) *pixel = x + (window_offset[j] + offset.x);
#define RESET

#if ASYNC_COPIES
// Offsets are prefetched to local memory: otherwise each slice would wait for them.
#define CACHE_OFFSETS(from)                                                   \
    if (((from)-start) % CACHED_OFFSETS == 0) {                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        for (uint i = me; i < CACHED_OFFSETS && (from) + i < end; i += GROUP) \
            cached_offsets[i] = k_offsets[(from) + i];                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
    }
#define K_OFFSET(from, i) cached_offsets[((from)-start) % CACHED_OFFSETS + (i)]
#define LOAD_LEFT(i, from, s) COPY16(LEFT_TARGET(i, s), LEFT_SOURCE(i, from), 1)
#define LOAD_PIXEL(i, j, s) COPY4(RIGHT_TARGET(i, j, s), pixel, inside)
#else
#define CACHE_OFFSETS(from)
#define K_OFFSET(from, i) k_offsets[(from) + (i)]
    LeftQuad left_next[LEFT_LOADS];
    REAL right_next[K_LOADS][LOAD_COLUMNS];
#define LOAD_LEFT(i, from, s) left_next[i] = *(__global const LeftQuad *)LEFT_SOURCE(i, from)
#define LOAD_PIXEL(i, j, s) right_next[i][j] = inside ? LOAD(DTYPE, pixel, 0) : (REAL)0
#endif
#define LOAD_SLICE(from, s)                                            \
    CACHE_OFFSETS(from)                                                \
    UNROLLED(i, LEFT_LOADS) if (LEFT_EXISTS(i)) LOAD_LEFT(i, from, s); \
    UNROLLED(i, K_LOADS) UNROLLED(j, LOAD_COLUMNS) {                   \
        FIND_PIXEL(i, j, from)                                         \
        LOAD_PIXEL(i, j, s);                                           \
    }
#define STORE_SLICE(s)                                                                                     \
    {                                                                                                      \
        UNROLLED(i, LEFT_LOADS) if (LEFT_EXISTS(i)) *(__local LeftQuad *)LEFT_TARGET(i, s) = left_next[i]; \
        UNROLLED(i, K_LOADS) UNROLLED(j, LOAD_COLUMNS) *RIGHT_TARGET(i, j, s) = right_next[i][j];          \
    }
    ACCUMULATE
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + group) * m * n;
#else
    out += (long)out_offset + group * output.out_group;
#endif
    STORE_ACC
#if ABSENT_TAPS
    REPAIR
#endif
}
