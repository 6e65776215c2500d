// The weight gradient of a convolution as an implicit matrix product: tiles of ROWS filters by COLUMNS pairs of channel and
// tap, summed over the pixels of the output's gradient g; see conv/tile_accumulate.h and conv/pipeline.h.
//
// RUN neighbouring work-items read RUN neighbouring pixels, of g for a filter and of x displaced by a tap. With SPLIT
// (split-K) groups share the pixels and write to `partial` (split, group, m, n), which conv/split_k_reduce.cl adds up in a
// fixed order.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef OUT_DTYPE
#define OUT_DTYPE DTYPE
#endif
#ifndef REAL
#define REAL float
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
#ifndef OUT_LANES
#define OUT_LANES 1
#endif
#define BIAS 0
#define REORDERABLE_COPIES 1
#include "lib/async_copy.h"
#include "lib/dtypes.h"
#include "conv/geometry.h"
#include "conv/tile_accumulate.h"
#include "conv/output_index.h"
#include "conv/pipeline.h"

// Pixels of a run, runs of a slice, and the distance of the rows or columns that a work-item loads.
#define RUN 8
#define RUNS (DEPTH / RUN)
#define STEP (GROUP / RUN)
#define ROW_LOADS ((ROWS + STEP - 1) / STEP)
#define COLUMN_LOADS ((COLUMNS + STEP - 1) / STEP)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_implicit_gemm_weight_grad(
    __global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint k_per_split, const ConvGeometry geometry, const OutputGeometry output) {
    __local REAL left[STAGES * LEFT_SLICE] __attribute__((aligned(32)));
    __local REAL right[STAGES * RIGHT_SLICE] __attribute__((aligned(32)));
    // The displacement of each column's tap, in memory and in the image.
    __local int2 taps[COLUMNS];
    const uint m = geometry.m, n = geometry.n, k = geometry.k;
    const uint lines = geometry.term_height, across = geometry.term_width;
    const uint kernel_h = geometry.column_height, kernel_w = geometry.column_width;
    const int g_image = geometry.a_term0, g_down = geometry.a_term1, g_across = geometry.a_term2;
    const int g_filter = geometry.a_row, x_image = geometry.x_term, x_channel = geometry.x_column;
    const int x_down = geometry.x_down, x_across = geometry.x_across;
    const int stride_y = geometry.term_step_y, stride_x = geometry.term_step_x;
    const int origin_y = geometry.origin_y, origin_x = geometry.origin_x;
    const uint me = get_local_id(0);
    const uint down = (m + ROWS - 1) / ROWS;
    const uint first_row = get_group_id(0) % down * ROWS, first_column = get_group_id(0) / down * COLUMNS;
    const uint group = get_group_id(2);
    const uint start = get_group_id(1) * k_per_split, end = min(start + k_per_split, k);
    for (uint i = me; i < COLUMNS; i += GROUP) {
        const uint column = first_column + i;
        const int tap_y = (int)(column / kernel_w % kernel_h) * geometry.column_step_y;
        const int tap_x = (int)(column % kernel_w) * geometry.column_step_x;
        const int channel = (int)(column / (kernel_w * kernel_h));
        taps[i] = (int2)(channel * x_channel + tap_y * x_down + tap_x * x_across,
                         column < n ? PIXEL_AT(tap_y, tap_x) : 0x7fff0000);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    g += (long)g_offset + group * geometry.a_group + (int)first_row * g_filter;
    x += (long)x_offset + group * geometry.x_group;

    const int last = LAST_PIXEL(geometry.height, geometry.width);
    const uint line = me / RUN, position = me % RUN;
    // The pixel of each run, and how many images, lines and columns DEPTH pixels are.
    uint image[RUNS], pixel_y[RUNS], pixel_x[RUNS];
    const uint step_x = DEPTH % across, step_y = DEPTH / across % lines, step_image = DEPTH / (across * lines);
    DECLARE_ACC

#define RESET                                            \
    UNROLLED(run, RUNS) {                                \
        const uint pixel = start + run * RUN + position; \
        pixel_x[run] = pixel % across;                   \
        pixel_y[run] = pixel / across % lines;           \
        image[run] = pixel / (across * lines);           \
    }
#define ADVANCE(run)                                            \
    pixel_x[run] += step_x;                                     \
    pixel_y[run] += step_y + (pixel_x[run] >= across ? 1 : 0);  \
    pixel_x[run] -= pixel_x[run] >= across ? across : 0;        \
    image[run] += step_image + (pixel_y[run] >= lines ? 1 : 0); \
    pixel_y[run] -= pixel_y[run] >= lines ? lines : 0;
#define LEFT_TARGET(run, i, stage) (left + (stage)*LEFT_SLICE + ((run)*RUN + position) * LEFT_PITCH + line + (i)*STEP)
#define RIGHT_TARGET(run, i, stage) (right + (stage)*RIGHT_SLICE + ((run)*RUN + position) * RIGHT_PITCH + line + (i)*STEP)

#if ASYNC_COPIES
#define LOAD_ELEMENT(D, target, register, source, exists) COPY4(target, source, exists)
#else
    REAL left_next[RUNS][ROW_LOADS], right_next[RUNS][COLUMN_LOADS];
#define LOAD_ELEMENT(D, target, register, source, exists) register = (exists) ? LOAD(D, source, 0) : (REAL)0
#define STORE_SLICE(stage)                                                                                          \
    UNROLLED(run, RUNS) {                                                                                           \
        UNROLLED(i, ROW_LOADS) if (line + i * STEP < ROWS) *LEFT_TARGET(run, i, stage) = left_next[run][i];         \
        UNROLLED(i, COLUMN_LOADS) if (line + i * STEP < COLUMNS) *RIGHT_TARGET(run, i, stage) = right_next[run][i]; \
    }
#endif
#define LOAD_SLICE(from, stage)                                                                                       \
    UNROLLED(run, RUNS) {                                                                                             \
        const int exists = (from) + run * RUN + position < end;                                                       \
        const int y = (int)pixel_y[run] * stride_y + origin_y, z = (int)pixel_x[run] * stride_x + origin_x;           \
        __global const STORAGE(DTYPE) *a =                                                                            \
            g + ((int)image[run] * g_image + (int)pixel_y[run] * g_down + (int)pixel_x[run] * g_across);              \
        const int window_offset = (int)image[run] * x_image + y * x_down + z * x_across;                              \
        const int window = exists ? PIXEL_AT(y, z) : OUTSIDE;                                                         \
        UNROLLED(i, ROW_LOADS) if (line + i * STEP < ROWS)                                                            \
            LOAD_ELEMENT(DTYPE, LEFT_TARGET(run, i, stage), left_next[run][i], a + (int)(line + i * STEP) * g_filter, \
                         exists && first_row + line + i * STEP < m);                                                  \
        UNROLLED(i, COLUMN_LOADS) if (line + i * STEP < COLUMNS) {                                                    \
            const int2 tap = taps[line + i * STEP];                                                                   \
            LOAD_ELEMENT(DTYPE, RIGHT_TARGET(run, i, stage), right_next[run][i], x + (window_offset + tap.x),         \
                         IS_INSIDE(window + tap.y, last));                                                            \
        }                                                                                                             \
        ADVANCE(run)                                                                                                  \
    }
    ACCUMULATE
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + group) * m * n;
#else
    out += (long)out_offset + group * output.out_group;
#endif
    STORE_ACC
}
