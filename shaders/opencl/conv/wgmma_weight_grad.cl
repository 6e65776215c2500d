// The weight gradient of a convolution on Hopper's tensor cores: rows are (tap, channel of x), columns filters, k the pixels
// of the output's gradient g; see conv/wgmma_tile.h.
//
// conv/wgmma_pack.cl has packed both operands channels-last: x is (term, group, image, y, x, channel), g (term, group, pixel,
// filter), with x_pitch and g_pitch elements per pixel. The groups of a tile share the k axis (split-K) and write to `partial`
// (split, group, row, column), which conv/wgmma_split_k_reduce.cl adds up in a fixed order and transposes.

#define SPLIT 1
#include "conv/wgmma_tile.h"
#include "lib/dependent_launch.h"
#include "conv/geometry.h"

// Operands that are read in place may be views.
#ifndef X_IN_PLACE
#define X_IN_PLACE 0
#endif
#ifndef G_IN_PLACE
#define G_IN_PLACE 0
#endif
#define K_CONTIGUOUS 0
#define LINES_OF_ROWS 0
#define UNROLL_LINES _Pragma("unroll 1")
// Copies of eight rows. A work-item copies the same eight of each slice, for every STEP-th pixel.
#define PIXEL_COPIES (ROWS / 8)
#define STEP (ITEMS / PIXEL_COPIES)
#define LOADS (DEPTH / STEP)

// `rows` are padded. x_group_size, x_term_size, g_group_size and g_term_size are distances in the packed operands.
__kernel NO_AUTOVEC __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv_wgmma_weight_grad(
    __global const STORAGE(DTYPE) *x,
#if X_IN_PLACE
    const ulong x_offset,
#endif
    __global const STORAGE(DTYPE) *g,
#if G_IN_PLACE
    const ulong g_offset,
#endif
    __global float *partial, const uint rows, const uint k_per_split, const uint x_pitch, const uint g_pitch, const ulong x_group_size, const ulong x_term_size,
    const ulong g_group_size, const ulong g_term_size, const ConvGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    __local uint slices[STAGES * SLOT_WORDS] __attribute__((aligned(1024)));
    const uint columns = geometry.m, k = geometry.k;
    const uint lines = geometry.term_height, line_length = geometry.term_width, taps_across = geometry.column_width;
    const int height = geometry.height, width = geometry.width, origin_y = geometry.origin_y, origin_x = geometry.origin_x;
    const int step_y = geometry.term_step_y, step_x = geometry.term_step_x;
    const int tap_step_y = geometry.column_step_y, tap_step_x = geometry.column_step_x;
    const uint me = get_local_id(0), warpgroup = me / WARPGROUP, group = get_group_id(2);
    const uint across = (columns + WIDE - 1) / WIDE;
    const uint first_row = get_group_id(0) / across * ROWS, first_column = get_group_id(0) % across * WIDE;
    const uint start = get_group_id(1) * k_per_split, end = min(start + k_per_split, k);
    x += group * x_group_size;
    g += group * g_group_size;
#if X_IN_PLACE
    x += x_offset;
#endif
#if G_IN_PLACE
    g += g_offset;
#endif

    const int last = LAST_PIXEL(height, width);
    const uint my_row = me % PIXEL_COPIES * 8;
    uint next = start;

// The tap and channel of a row, and the tap's displacement; the position of the window of pixel k_.
#define DECLARE_TAP(row)                                                              \
    const uint tap = (row) / x_pitch;                                                 \
    const int channel = (int)((row)-tap * x_pitch), tap_y = (int)(tap / taps_across); \
    const int move_y = tap_y * tap_step_y, move_x = (int)(tap - tap_y * taps_across) * tap_step_x;
#define DECLARE_WINDOW(k_)                                               \
    const uint image = (k_) / (lines * line_length);                     \
    const int y = (int)((k_) / line_length % lines) * step_y + origin_y; \
    const int z = (int)((k_) % line_length) * step_x + origin_x;
    DECLARE_TAP(first_row + my_row)
    const int move = (move_y * width + move_x) * (int)x_pitch + channel;
    const int displaced = first_row + my_row < rows ? PIXEL_AT(move_y, move_x) : OUTSIDE;
#define LOAD_SLICE(slot)                                                                                   \
    {                                                                                                      \
        _Pragma("unroll") for (int i = 0; i < LOADS; i++) {                                                \
            const uint k_ = next + me / PIXEL_COPIES + i * STEP;                                           \
            DECLARE_WINDOW(k_)                                                                             \
            const int exists = k_ < end && IS_INSIDE(PIXEL_AT(y, z) + displaced, last);                    \
            const uint word = WORD_OF(K_CONTIGUOUS, ROWS, me / PIXEL_COPIES + i * STEP, my_row);           \
            const int at = (((int)image * height + y) * width + z) * (int)x_pitch + move;                  \
            _Pragma("unroll") for (uint term = 0; term < BF16_TERMS; term++) {                             \
                COPY16(LEFT(slot, term) + word, x + term * x_term_size + at, exists);                      \
            }                                                                                              \
        }                                                                                                  \
        _Pragma("unroll") for (uint term = 0; term < BF16_TERMS; term++)                                   \
            stage(RIGHT(slot, term), g + term * g_term_size, 1, g_pitch, first_column, columns, next, end, \
                  K_CONTIGUOUS, WIDE, 16, 0, 1);                                                           \
        next += DEPTH;                                                                                     \
    }
    ACCUMULATE

    EXCHANGE_ACC
    __global float *to =
        partial + ((ulong)get_group_id(1) * get_num_groups(2) + group) * rows * columns + first_column + LINE_POSITION;
#define LINE_OFFSET(line) ((ulong)(first_row + (line)) * columns)
#define PLUS_BIAS(column)
#define EXISTS(row, column) ((row) < rows && (column) < columns)
#define RECOMPUTE(row, column)                                                                                \
    DECLARE_TAP(row)                                                                                          \
    for (uint k_ = start; k_ < end; k_++) {                                                                   \
        DECLARE_WINDOW(k_)                                                                                    \
        if (!IS_INSIDE(PIXEL_AT(y + move_y, z + move_x), last)) continue;                                     \
        sum += sum_of_terms(x, x_term_size,                                                                   \
                            (((long)image * height + y + move_y) * width + z + move_x) * x_pitch + channel) * \
               sum_of_terms(g, g_term_size, (long)k_ * g_pitch + (column));                                   \
    }
    STORE_ACC
}
