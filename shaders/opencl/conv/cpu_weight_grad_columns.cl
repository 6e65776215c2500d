// The weight gradient of a convolution on a CPU as a matrix product, after BLIS (Van Zee and van de Geijn, 2015): the gradient
// of the results, whose planes are read in place, times the pixels that each tap reads for each result (im2col). Only
// one panel of that matrix is materialized at a time:
//
//     out[filter][c][r][s] = sum over images and results (y, x) of
//         grad[filter][y][x] * image[c][y * stride_h + r * dilation_h - padding_h][x * stride_w + s - padding_w]
//
// A segment is a row of a kernel: TAPS neighbouring weights, for which a result reads TAPS neighbouring pixels. A work-item
// makes the weights of SEGMENTS segments and all filters. It packs their pixels for up to KC results, one result after the
// other, which stay in the nearest caches while the gradients of all filters stream past.

#ifndef REAL
#define REAL float
#endif
#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// Registers: ROWS * VECTORS accumulators, VECTORS of pixels and one of a gradient; 29 of AVX-512's 32.
#ifndef ROWS
#define ROWS 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
// Columns of a kernel, at most 8.
#ifndef TAPS
#define TAPS 3
#endif
// Results of a pass, at most.
#ifndef KC
#define KC 128
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/prefetch.h"

typedef VEC(REAL) V;
#define NR (VECTORS * WIDTH)
// Whole segments of a panel.
#define SEGMENTS (NR / TAPS)
// Pixels that are copied for a segment: the excess is overwritten by the next segment, or lands past the last one.
#define COPIED (TAPS <= 4 ? 4 : 8)
// Reals from one result of a panel to the next.
#define PITCH (NR + WIDTH)
typedef struct __attribute__((packed)) {
    V lanes;
} Unaligned;
typedef struct __attribute__((packed)) {
    CONCAT(REAL, 4) lanes;
} UnalignedFour;
#define VECTOR_AT(p) (((__global Unaligned *)(p))->lanes)

// Strides count elements, and those of `x` are not negative; no element after `x_last` may be read. `segments` are all of a group; `splits` work-items share the images of a sum.
typedef struct {
    long g_image, g_channel, x_image, x_channel, x_row, x_last;
    uint images, groups, channels, filters, segments, kernel_h, down, across, height, width, stride_h, stride_w, padding_h,
        padding_w, dilation_h, splits;
} ColumnsGeometry;

// Copy the pixels of a segment and some excess pixels behind them, or zeros.
FORCE_INLINE void copy_segment(__private REAL *to, __global const REAL *from) {
    const CONCAT(REAL, 4) zero = (CONCAT(REAL, 4))(0);
#pragma unroll
    for (uint i = 0; i < COPIED; i += 4)
        ((__private UnalignedFour *)(to + i))->lanes = from ? ((__global const UnalignedFour *)(from + i))->lanes : zero;
}

// Copy the pixels of a segment that begins at column `at`, with zeros for columns outside a row of `width` pixels.
FORCE_INLINE void copy_inside(__private REAL *to, __global const REAL *from, const int at, const int width) {
#pragma unroll
    for (int s = 0; s < TAPS; s++) to[s] = at + s >= 0 && at + s < width ? from[s] : 0;
}

// Pack the pixels that results `first` to `first` + `count` read for segments `segment` to `segment` + `segments`. `x`
// is the element `x_before` of the tensor, where the channels of an image begin.
FORCE_INLINE void pack_columns(__global const REAL *x, const long x_before, const ColumnsGeometry *g, const uint segment,
                               const uint segments, const uint first, const uint count, __private REAL *panel) {
    const int across = g->across, stride = g->stride_w, padding = g->padding_w, width = g->width;
    const uint first_row = first / across, first_column = first - first_row * across;
    // Results `left` to `right` of a row read no padding.
    const int left = min((padding + stride - 1) / stride, across);
    const int right = width + padding >= TAPS ? clamp((width + padding - TAPS) / stride + 1, left, across) : left;
    for (uint i = 0; i < segments; i++) {
        const uint channel = (segment + i) / g->kernel_h, r = (segment + i) % g->kernel_h;
        __private REAL *to = panel + i * TAPS;
        int column = first_column;
        uint y = first_row;
        for (uint done = 0; done < count; y++, column = 0) {
            const int end = min(across, column + (int)(count - done));
            const int row = (int)(y * g->stride_h + r * g->dilation_h) - (int)g->padding_h;
            done += end - column;
            if (row < 0 || row >= (int)g->height) {
                for (; column < end; column++, to += PITCH) copy_segment(to, 0);
                continue;
            }
            const long start = channel * g->x_channel + row * g->x_row - padding;
            // Fewer pixels than a whole copy follow the last pixels of the tensor, so these are copied one by one.
            const bool near_end = x_before + start + (right - 1) * stride + COPIED > g->x_last + 1;
            const int begin_copies = near_end ? end : clamp(left, column, end);
            const int end_copies = near_end ? end : clamp(right, begin_copies, end);
            __global const REAL *from = x + start + column * stride;
            for (; column < begin_copies; column++, from += stride, to += PITCH)
                copy_inside(to, from, column * stride - padding, width);
            for (; column < end_copies; column++, from += stride, to += PITCH) copy_segment(to, from);
            for (; column < end; column++, from += stride, to += PITCH)
                copy_inside(to, from, column * stride - padding, width);
        }
    }
}

// Items are (blocks of segments, splits of images, groups). `partial` has (filters, NR) for each, with filters rounded up to ROWS.
__kernel NO_AUTOVEC void conv_cpu_weight_grad_columns(__global const REAL *g, const ulong g_offset, __global const REAL *x,
                                                      const ulong x_offset, __global REAL *partial, __global REAL *sums,
                                                      const ulong sums_offset, const ColumnsGeometry geometry) {
    const ColumnsGeometry *const p = &geometry;
    const uint filters = p->filters, segment = get_global_id(0) * SEGMENTS, split = get_global_id(1), group = get_global_id(2);
    if (segment >= p->segments || split >= p->splits || group >= p->groups) return;
    const uint segments = min((uint)SEGMENTS, p->segments - segment), pixels = p->down * p->across;
    const uint first_image = (ulong)p->images * split / p->splits, last_image = (ulong)p->images * (split + 1) / p->splits;
    const uint panels = (filters + ROWS - 1) / ROWS, passes = (pixels + KC - 1) / KC;
    partial += (((ulong)group * p->splits + split) * get_global_size(0) + get_global_id(0)) * panels * ROWS * NR;
    x += x_offset;
    V panel[KC * (VECTORS + 1)];
    for (uint i = 0; i < KC * (VECTORS + 1); i++) panel[i] = (V)(0);
    for (uint image = first_image; image < last_image; image++)
        for (uint pass = 0; pass < passes; pass++) {
            const uint first = (ulong)pixels * pass / passes, terms = (ulong)pixels * (pass + 1) / passes - first;
            const long before = image * p->x_image + (long)(group * p->channels) * p->x_channel;
            pack_columns(x + before, before, p, segment, segments, first, terms, (__private REAL *)panel);
            const bool begins = image == first_image && pass == 0;
            __global const REAL *grads = g + g_offset + image * p->g_image + (long)(group * filters) * p->g_channel + first;
            for (uint filter = 0; filter < filters; filter += ROWS) {
                __global REAL *before_sums = partial + (ulong)filter * NR;
                __global const REAL *grad[ROWS];
                V acc[ROWS][VECTORS];
#pragma unroll
                for (uint r = 0; r < ROWS; r++) {
                    grad[r] = grads + (long)min(filter + r, filters - 1) * p->g_channel;
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) {
                        acc[r][v] = (V)(0);
                        PREFETCH_L1_WRITE(before_sums + r * NR + v * WIDTH);
                    }
                }
                __private const V *from = panel;
                for (uint k = 0; k < terms; k++, from += VECTORS + 1) {
                    V b[VECTORS];
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) b[v] = from[v];
#pragma unroll
                    for (uint r = 0; r < ROWS; r++) {
                        const V d = (V)(grad[r][k]);
#pragma unroll
                        for (uint v = 0; v < VECTORS; v++) acc[r][v] += d * b[v];
                    }
                }
#pragma unroll
                for (uint r = 0; r < ROWS; r++)
#pragma unroll
                    for (uint v = 0; v < VECTORS; v++) {
                        __global REAL *to = before_sums + r * NR + v * WIDTH;
                        VECTOR_AT(to) = begins ? acc[r][v] : acc[r][v] + VECTOR_AT(to);
                    }
            }
        }
    const uint taps = p->segments * TAPS;
    sums += sums_offset + ((ulong)split * p->groups + group) * filters * taps + segment * TAPS;
    for (uint filter = 0; filter < filters; filter++)
        for (uint i = 0; i < segments * TAPS; i++) sums[(ulong)filter * taps + i] = partial[(ulong)filter * NR + i];
}
