// A convolution or its input gradient on Hopper's tensor cores, as an implicit matrix product: rows are pixels of the result,
// columns its channels, k is (tap, channel of x); see conv/wgmma_tile.h.
//
// conv/wgmma_pack.cl has packed both operands channels-last, `pitch` channels per pixel, so that eight k of a row are one
// copy: x is (term, group, image, y, x, channel), `weight` (term, group, column, tap, channel). With SPLIT (split-K) the
// groups of a tile share the k axis and write to `partial` (split, group, column, row), which conv/split_k_reduce.cl adds up
// in a fixed order. With CHANNELS_LAST the channels of a pixel of the result are contiguous, are stored as vectors, and
// partial results are (split, group, row, column).

#include "conv/wgmma_tile.h"
#include "lib/dependent_launch.h"
#include "conv/geometry.h"
#include "conv/output_index.h"

#ifndef BIAS_DTYPE
#define BIAS_DTYPE OUT_DTYPE
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
// The result is contiguous with channels last.
#ifndef DENSE
#define DENSE 0
#endif
// Operands that are read in place may be views.
#ifndef X_IN_PLACE
#define X_IN_PLACE 0
#endif
#ifndef WEIGHT_IN_PLACE
#define WEIGHT_IN_PLACE 0
#endif
#define K_CONTIGUOUS 1
#define LINES_OF_ROWS !CHANNELS_LAST
#define UNROLL_LINES _Pragma("unroll 4")
// Copies of eight k. A work-item copies the same eight of each slice, for every STEP-th row.
#define ROW_COPIES (DEPTH / 8)
#define STEP (ITEMS / ROW_COPIES)
#define LOADS (ROWS / STEP)

#if BIAS && CHANNELS_LAST
static inline VEC(float) lanes_of_bias(__global const STORAGE(BIAS_DTYPE) *bias, const ulong at) {
    union {
        float each[OUT_LANES];
        VEC(float) all;
    } lanes;
#pragma unroll
    for (uint e = 0; e < OUT_LANES; e++) lanes.each[e] = LOAD(BIAS_DTYPE, bias, at + e);
    return lanes.all;
}
#endif

// `k` is the padded length of the k axis. x_group_size, x_term_size and weight_term_size are distances in the packed operands.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma(
    __global const STORAGE(DTYPE) *x,
#if X_IN_PLACE
    const ulong x_offset,
#endif
    __global const STORAGE(DTYPE) *weight,
#if WEIGHT_IN_PLACE
    const ulong weight_offset,
#endif
#if BIAS
    __global const STORAGE(BIAS_DTYPE) *bias, const ulong bias_offset,
#endif
#if SPLIT
    __global float *partial,
#else
    __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const long out_first,
#endif
    const uint k_per_split, const uint pitch, const ulong x_group_size, const ulong x_term_size,
    const ulong weight_term_size, const ConvGeometry geometry, const OutputGeometry output) {
    START_NEXT
    AWAIT_INPUTS
    __local uint slices[STAGES * SLOT_WORDS] __attribute__((aligned(1024)));
    const uint rows = geometry.n, columns = geometry.m, k = geometry.k;
    const uint column_height = geometry.column_height, column_width = geometry.column_width;
    const uint taps_across = geometry.term_width;
    const int height = geometry.height, width = geometry.width, origin_y = geometry.origin_y, origin_x = geometry.origin_x;
    const int step_y = geometry.column_step_y, step_x = geometry.column_step_x;
    const int tap_step_y = geometry.term_step_y, tap_step_x = geometry.term_step_x;
    const uint me = get_local_id(0), warpgroup = me / WARPGROUP, group = get_group_id(2);
    const uint across = (columns + WIDE - 1) / WIDE;
    const uint first_row = get_group_id(0) / across * ROWS, first_column = get_group_id(0) % across * WIDE;
    const uint start = get_group_id(1) * k_per_split, end = min(start + k_per_split, k);
    x += group * x_group_size;
    weight += (ulong)group * columns * k;
#if X_IN_PLACE
    x += x_offset;
#endif
#if WEIGHT_IN_PLACE
    weight += weight_offset;
#endif

    int window_offset[LOADS], window[LOADS];
    const int last = LAST_PIXEL(height, width);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const uint row = first_row + me / ROW_COPIES + i * STEP;
        const uint image = row / (column_width * column_height);
        const int y = (int)(row / column_width % column_height) * step_y + origin_y;
        const int z = (int)(row % column_width) * step_x + origin_x;
        window_offset[i] = (((int)image * height + y) * width + z) * (int)pitch;
        window[i] = row < rows ? PIXEL_AT(y, z) : OUTSIDE;
    }
    const uint my_k = me % ROW_COPIES * 8;
    uint next = start;

// The tap and channel of a k index, and the tap's displacement.
#define DECLARE_TAP(k_)                                                            \
    const uint tap = (k_) / pitch;                                                 \
    const int channel = (int)((k_)-tap * pitch), tap_y = (int)(tap / taps_across); \
    const int move_y = tap_y * tap_step_y, move_x = (int)(tap - tap_y * taps_across) * tap_step_x;
#define LOAD_SLICE(slot)                                                                                         \
    {                                                                                                            \
        const uint k_ = next + my_k;                                                                             \
        DECLARE_TAP(k_)                                                                                          \
        const int move = (move_y * width + move_x) * (int)pitch + channel, displaced = PIXEL_AT(move_y, move_x); \
        _Pragma("unroll") for (int i = 0; i < LOADS; i++) {                                                      \
            const int exists = k_ < end && IS_INSIDE(window[i] + displaced, last);                               \
            const uint word = WORD_OF(K_CONTIGUOUS, ROWS, me / ROW_COPIES + i * STEP, my_k);                     \
            _Pragma("unroll") for (uint term = 0; term < BF16_TERMS; term++) {                                   \
                COPY16(LEFT(slot, term) + word, x + term * x_term_size + (window_offset[i] + move), exists);     \
            }                                                                                                    \
        }                                                                                                        \
        _Pragma("unroll") for (uint term = 0; term < BF16_TERMS; term++)                                         \
            stage(RIGHT(slot, term), weight + term * weight_term_size, k, 1, first_column, columns, next, end,   \
                  K_CONTIGUOUS, WIDE, 16, 0, 1);                                                                 \
        next += DEPTH;                                                                                           \
    }
    ACCUMULATE

    EXCHANGE_ACC
#define PIXEL_OFFSET(row)                                      \
    ((row) / (column_width * column_height) * output.out_image + \
     (row) / column_width % column_height * output.out_down + (row) % column_width * output.out_across)
#if SPLIT
    __global float *to = partial + ((ulong)get_group_id(1) * get_num_groups(2) + group) * rows * columns + LINE_POSITION;
#if CHANNELS_LAST
    to += first_column;
#define LINE_OFFSET(line) ((ulong)(first_row + (line)) * columns)
#else
    to += first_row;
#define LINE_OFFSET(line) ((ulong)(first_column + (line)) * rows)
#endif
#else
    __global STORAGE(OUT_DTYPE) *to = out + (long)out_offset + out_first + group * output.out_group;
#if CHANNELS_LAST
    to += first_column + LINE_POSITION;
#if DENSE
#define LINE_OFFSET(line) ((first_row + (line)) * columns)
#else
#define LINE_OFFSET(line) PIXEL_OFFSET(first_row + (line))
#endif
#else
    to += PIXEL_OFFSET(first_row + LINE_POSITION);
#define LINE_OFFSET(line) ((first_column + (line)) * output.out_channel)
#endif
#endif
#if !BIAS
#define PLUS_BIAS(column)
#elif CHANNELS_LAST
#define PLUS_BIAS(column) +lanes_of_bias(bias, bias_offset + group * columns + (column))
#else
#define PLUS_BIAS(column) +LOAD(BIAS_DTYPE, bias, bias_offset + group * columns + (column))
#endif
#define EXISTS(row, column) ((row) < rows && (column) < columns)
#define RECOMPUTE(row, column)                                                                              \
    const uint image = (row) / (column_width * column_height);                                              \
    const int y = (int)((row) / column_width % column_height) * step_y + origin_y;                          \
    const int z = (int)((row) % column_width) * step_x + origin_x;                                          \
    for (uint k_ = start; k_ < end; k_++) {                                                                 \
        DECLARE_TAP(k_)                                                                                     \
        if (!IS_INSIDE(PIXEL_AT(y + move_y, z + move_x), last)) continue;                                   \
        sum += sum_of_terms(x, x_term_size,                                                                 \
                            (((long)image * height + y + move_y) * width + z + move_x) * pitch + channel) * \
               sum_of_terms(weight, weight_term_size, (long)(column)*k + k_);                               \
    }
    STORE_ACC
}
