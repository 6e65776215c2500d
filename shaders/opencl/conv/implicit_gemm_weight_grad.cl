// The gradient of a convolution's weight: tiles of ROWS filters by COLUMNS taps (channel, down, across), added up over the pixels
// of the result; see conv/tile_accumulate.h and conv/pipeline.h.
//
// Eight neighbouring work-items read eight neighbouring pixels, of the result's gradient for a filter and of x, where it is displaced
// by a tap. With SPLIT groups share out the pixels and write their sums to `partial` (split, group, m, n), which
// conv/split_k_reduce.cl adds up in a fixed order.

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
#include "conv/tile_accumulate.h"
#include "conv/output_index.h"
#include "conv/pipeline.h"

// Pixels that neighbours read, and how many such runs there are in a strip.
#define RUN 8
#define RUNS (DEPTH / RUN)
#define STEP (GROUP / RUN)
#define ROW_LOADS ((ROWS + STEP - 1) / STEP)
#define COLUMN_LOADS ((COLUMNS + STEP - 1) / STEP)

__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(GROUP, 1, 1))) void conv_implicit_gemm_weight_grad(
    __global const STORAGE(DTYPE) *slope, const ulong slope_offset, __global const STORAGE(DTYPE) *x, const ulong x_offset,
#if SPLIT
    __global REAL *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
#endif
    const uint m, const uint n, const uint k, const uint share, const uint lines, const uint across,
    const long slope_group, const int slope_image, const int slope_row, const int slope_down, const int slope_across,
    const long x_group, const int x_image, const int x_channel, const int x_down, const int x_across, const int height,
    const int width, const uint kernel_h, const uint kernel_w, const int stride_y, const int stride_x,
    const int padding_y, const int padding_x, const int dilation_y, const int dilation_x, PLACES) {
    __local REAL left[STAGES * LEFT_STRIP] __attribute__((aligned(32)));
    __local REAL right[STAGES * RIGHT_STRIP] __attribute__((aligned(32)));
    // How far a tap is from the place of a pixel's window, in memory and in the image.
    __local int2 taps[COLUMNS];
    const uint me = get_local_id(0);
    const uint down = (m + ROWS - 1) / ROWS;
    const uint first_row = get_group_id(0) % down * ROWS, first_column = get_group_id(0) / down * COLUMNS;
    const uint group = get_group_id(2);
    const uint start = get_group_id(1) * share, end = min(start + share, k);
    for (uint i = me; i < COLUMNS; i += GROUP) {
        const uint column = first_column + i;
        const int tap_y = (int)(column / kernel_w % kernel_h) * dilation_y, tap_x = (int)(column % kernel_w) * dilation_x;
        const int channel = (int)(column / (kernel_w * kernel_h));
        taps[i] = (int2)(channel * x_channel + tap_y * x_down + tap_x * x_across,
                         column < n ? PIXEL_AT(tap_y, tap_x) : 0x7fff0000);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    slope += (long)slope_offset + group * slope_group + (int)first_row * slope_row;
    x += (long)x_offset + group * x_group;

    const int last = LAST_PIXEL(height, width);
    const uint line = me / RUN, place = me % RUN;
    // The pixel of each run, and how much DEPTH pixels are in images, lines and places.
    uint image[RUNS], pixel_y[RUNS], pixel_x[RUNS];
    const uint step_x = DEPTH % across, step_y = DEPTH / across % lines, step_image = DEPTH / (across * lines);
    DECLARE_SUMS

#define RESTART                                                         \
    UNROLLED(run, RUNS) {                                               \
        const uint pixel = start + run * RUN + place;                   \
        pixel_x[run] = pixel % across;                                  \
        pixel_y[run] = pixel / across % lines;                          \
        image[run] = pixel / (across * lines);                          \
    }
#define ADVANCE(run)                                                    \
    pixel_x[run] += step_x;                                             \
    pixel_y[run] += step_y + (pixel_x[run] >= across ? 1 : 0);          \
    pixel_x[run] -= pixel_x[run] >= across ? across : 0;                \
    image[run] += step_image + (pixel_y[run] >= lines ? 1 : 0);         \
    pixel_y[run] -= pixel_y[run] >= lines ? lines : 0;
#define LEFT_TARGET(run, i, stage) (left + (stage)*LEFT_STRIP + ((run)*RUN + place) * LEFT_PITCH + line + (i)*STEP)
#define RIGHT_TARGET(run, i, stage) (right + (stage)*RIGHT_STRIP + ((run)*RUN + place) * RIGHT_PITCH + line + (i)*STEP)

#if ASYNC_COPIES
#define BRING(D, target, register, source, wanted) COPY4(target, source, wanted)
#else
    REAL left_next[RUNS][ROW_LOADS], right_next[RUNS][COLUMN_LOADS];
#define BRING(D, target, register, source, wanted) register = (wanted) ? LOAD(D, source, 0) : (REAL)0
#define KEEP(stage)                                                                                               \
    UNROLLED(run, RUNS) {                                                                                         \
        UNROLLED(i, ROW_LOADS) if (line + i * STEP < ROWS) *LEFT_TARGET(run, i, stage) = left_next[run][i];       \
        UNROLLED(i, COLUMN_LOADS) if (line + i * STEP < COLUMNS) *RIGHT_TARGET(run, i, stage) = right_next[run][i]; \
    }
#endif
#define FETCH(from, stage)                                                                                        \
    UNROLLED(run, RUNS) {                                                                                         \
        const int wanted = (from) + run * RUN + place < end;                                                      \
        const int y = (int)pixel_y[run] * stride_y - padding_y, z = (int)pixel_x[run] * stride_x - padding_x;     \
        __global const STORAGE(DTYPE) *a = slope + ((int)image[run] * slope_image + (int)pixel_y[run] * slope_down + \
                                                    (int)pixel_x[run] * slope_across);                            \
        const int at = (int)image[run] * x_image + y * x_down + z * x_across;                                    \
        const int window = wanted ? PIXEL_AT(y, z) : NOWHERE;                                                     \
        UNROLLED(i, ROW_LOADS) if (line + i * STEP < ROWS)                                                        \
            BRING(DTYPE, LEFT_TARGET(run, i, stage), left_next[run][i], a + (int)(line + i * STEP) * slope_row,   \
                  wanted && first_row + line + i * STEP < m);                                                     \
        UNROLLED(i, COLUMN_LOADS) if (line + i * STEP < COLUMNS) {                                                \
            const int2 tap = taps[line + i * STEP];                                                               \
            BRING(DTYPE, RIGHT_TARGET(run, i, stage), right_next[run][i], x + (at + tap.x),                       \
                  IS_INSIDE(window + tap.y, last));                                                               \
        }                                                                                                         \
        ADVANCE(run)                                                                                              \
    }
    ADD_STRIPS
#if SPLIT
    partial += ((ulong)get_group_id(1) * get_num_groups(2) + group) * m * n;
#else
    out += (long)out_offset + group * out_group;
#endif
    PUT_SUMS
}
