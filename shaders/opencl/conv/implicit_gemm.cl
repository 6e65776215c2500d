// A convolution, or the gradient of its input, as the product of packed weights and windows of images that are never laid out: a
// group of work-items makes a tile of ROWS (channels of the result) by COLUMNS (its pixels); see conv/tile_accumulate.h.
//
// conv/implicit_gemm_pack.cl has laid out the weights, padded to whole tiles and strips, and the displacements of the terms: element
// (term, column) of the right operand is the pixel of x that far from the column's own place, or 0 outside the image. Work-items
// read neighbouring pixels for one term at a time. With SPLIT the groups of a tile share out the terms and write their
// sums to `partial` (split, group, m, n), which conv/split_k_reduce.cl adds up in a fixed order.

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
#ifndef PARTS
#define PARTS 0
#endif
#define LEFT_PACKED (PARTS > 0)
#ifndef OUT_LANES
#define OUT_LANES 1
#endif
#define REORDERABLE_COPIES 1
#include "lib/async_copy.h"
#include "lib/dtypes.h"
#include "conv/tile_accumulate.h"
#include "conv/output_index.h"
#include "conv/pipeline.h"

#define LEFT_LOADS ((LEFT_LINES * ROWS / 4 + GROUP - 1) / GROUP)
// Columns of a work-item, and terms of each strip that it reads for them.
#define MINE ((COLUMNS + GROUP - 1) / GROUP)
#define TERM_STEP (GROUP * MINE / COLUMNS)
#define TERM_LOADS (DEPTH / TERM_STEP)
#define HELD 512

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_implicit_gemm(
    __global const LEFT *packed, __global const int2 *terms, __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if BIAS
    __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint m, const uint n, const uint k, const uint share, const long x_group, const int x_image, const int x_down,
    const int x_across, const int height, const int width, const int origin_y, const int origin_x, const int step_y,
    const int step_x, PLACES) {
    __local LEFT left[STAGES * LEFT_STRIP] __attribute__((aligned(32)));
    __local REAL right[STAGES * RIGHT_STRIP] __attribute__((aligned(32)));
    const uint me = get_local_id(0);
    const uint down = (m + ROWS - 1) / ROWS;
    const uint first_row = get_group_id(0) % down * ROWS, first_column = get_group_id(0) / down * COLUMNS;
    const uint group = get_group_id(2);
    const uint start = get_group_id(1) * share, end = min(start + share, k);
    x += (long)x_offset + group * x_group;
    packed += (ulong)group * (k / DEPTH * LEFT_LINES) * (down * ROWS) + first_row;
#if ASYNC_COPIES
    __local int2 held[HELD];
#endif

    int at[MINE], window[MINE];
    const int last = LAST_PIXEL(height, width);
    UNROLLED(j, MINE) {
        const uint column = first_column + me % COLUMNS + j * GROUP;
        const uint image = column / (column_across * column_lines);
        const int y = (int)(column / column_across % column_lines) * step_y + origin_y;
        const int z = (int)(column % column_across) * step_x + origin_x;
        at[j] = (int)image * x_image + y * x_down + z * x_across;
        window[j] = column < n ? PIXEL_AT(y, z) : NOWHERE;
    }
    const uint first_term = me / COLUMNS;
    DECLARE_SUMS

#define LEFT_LINE(i) ((me + (i)*GROUP) / (ROWS / 4))
#define LEFT_QUAD(i) ((me + (i)*GROUP) % (ROWS / 4) * 4)
#define LEFT_EXISTS(i) (LEFT_LINES * ROWS / 4 % GROUP == 0 || LEFT_LINE(i) < LEFT_LINES)
#define LEFT_SOURCE(i, from) (packed + (ulong)((from) / DEPTH * LEFT_LINES + LEFT_LINE(i)) * (down * ROWS) + LEFT_QUAD(i))
#define LEFT_TARGET(i, s) (left + (s)*LEFT_STRIP + LEFT_LINE(i) * LEFT_PITCH + LEFT_QUAD(i))
#define RIGHT_TARGET(i, j, s) \
    (right + (s)*RIGHT_STRIP + (first_term + (i)*TERM_STEP) * RIGHT_PITCH + me % COLUMNS + (j)*GROUP)
#define PIXEL(i, j, from)                                                                       \
    const int2 term = TERM(from, first_term + (i)*TERM_STEP);                                   \
    const int inside = IS_INSIDE(window[j] + term.y, last);                                     \
    __global const STORAGE(DTYPE) *pixel = x + (at[j] + term.x);
#define RESTART

#if ASYNC_COPIES
// The displacements of the next HELD terms wait in local memory: each strip would otherwise wait for them.
#define HOLD_TERMS(from)                                                                        \
    if (((from)-start) % HELD == 0) {                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        for (uint i = me; i < HELD && (from) + i < end; i += GROUP) held[i] = terms[(from) + i]; \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
    }
#define TERM(from, i) held[((from)-start) % HELD + (i)]
#define BRING_LEFT(i, from, s) COPY16(LEFT_TARGET(i, s), LEFT_SOURCE(i, from), 1)
#define BRING_PIXEL(i, j, s) COPY4(RIGHT_TARGET(i, j, s), pixel, inside)
#else
#define HOLD_TERMS(from)
#define TERM(from, i) terms[(from) + (i)]
    LeftQuad left_next[LEFT_LOADS];
    REAL right_next[TERM_LOADS][MINE];
#define BRING_LEFT(i, from, s) left_next[i] = *(__global const LeftQuad *)LEFT_SOURCE(i, from)
#define BRING_PIXEL(i, j, s) right_next[i][j] = inside ? LOAD(DTYPE, pixel, 0) : (REAL)0
#endif
#define FETCH(from, s)                                                                          \
    HOLD_TERMS(from)                                                                            \
    UNROLLED(i, LEFT_LOADS) if (LEFT_EXISTS(i)) BRING_LEFT(i, from, s);                         \
    UNROLLED(i, TERM_LOADS) UNROLLED(j, MINE) {                                                 \
        PIXEL(i, j, from)                                                                       \
        BRING_PIXEL(i, j, s);                                                                   \
    }
#define KEEP(s)                                                                                                  \
    {                                                                                                            \
        UNROLLED(i, LEFT_LOADS) if (LEFT_EXISTS(i)) *(__local LeftQuad *)LEFT_TARGET(i, s) = left_next[i];       \
        UNROLLED(i, TERM_LOADS) UNROLLED(j, MINE) *RIGHT_TARGET(i, j, s) = right_next[i][j];                     \
    }
    ADD_STRIPS
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + group) * m * n;
#else
    out += (long)out_offset + group * out_group;
#endif
    PUT_SUMS
}
