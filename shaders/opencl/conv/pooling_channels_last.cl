// Max and average pooling of images with channels last, and their gradients, as conv/pooling.cl. A work-item makes WIDTH
// neighbouring channels of a pixel of the result, whose channels are contiguous as the operands' are.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef MASK
#define MASK int
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif
// The type of the taps of windows, and the tap of a window without elements.
#ifndef TAP
#define TAP uchar
#endif
#ifndef NO_TAP
#define NO_TAP 0xff
#endif
// 1: PTX has a maximum of two floats, which is NaN if one is.
#ifndef PTX_MAXIMUM
#define PTX_MAXIMUM 0
#endif
#include "lib/dependent_launch.h"
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "conv/pooling_geometry.h"

typedef VEC(REAL) V;
#if WIDTH == 1
#define READ(name, i) LOAD(DTYPE, name, i)
#define WRITE(value, name, i) STORE(DTYPE, value, name, i)
#else
#define READ(name, i) LOADV(DTYPE, (name) + (i))
#define WRITE(value, name, i) STOREV(DTYPE, value, (name) + (i))
#endif
#define STRIDES(name) const long name##_image, const long name##_row, const long name##_column
// The image, pixel and first channel of a work-item, of images with `pixels` pixels.
#define DECLARE_PLACE(pixels)                                               \
    const uint vectors = channels / WIDTH, image = get_global_id(1);        \
    const uint pixel = get_global_id(0) / vectors;                          \
    const uint channel = (get_global_id(0) - pixel * vectors) * WIDTH;      \
    if (pixel >= (uint)(pixels)) return
#define IMAGE_OF(name) ((long)name##_offset + image * name##_image + channel)
#define RESULT_AT(pixels) (((ulong)image * (pixels) + pixel) * channels + channel)

// True if `later`, after `value` in a window, replaces it as the maximum: of NaN, the last is the maximum.
#define REPLACES(later, value) (((later) > (value)) | ((later) != (later)))
// The maximum alone takes one instruction per element.
static inline REAL larger(const REAL value, const REAL later) {
#if PTX_MAXIMUM
    REAL maximum;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(maximum) : "f"(value), "f"(later));
    return maximum;
#else
    return REPLACES(later, value) ? later : value;
#endif
}
// Comparisons of scalars become predicates, by operators that do not branch.
#define LANE(vector, i) (((REAL *)&(vector))[i])
#define EACH_LANE _Pragma("unroll") for (uint i = 0; i < WIDTH; i++)

// Loops over small windows are unrolled. Their loads are unconditional, at a position inside of the image, so that all are in
// flight at once; `inside` is a mask of all bits or none.
#if KERNEL_H * KERNEL_W <= 16
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif
#define EACH_TAP \
    UNROLL for (int r = 0; r < kernel_h; r++) UNROLL for (int s = 0; s < kernel_w; s++)
#define READ_TAP                                                                                        \
    const int ty = y + r * dilation_h, tx = at + s * dilation_w;                                        \
    const int inside = -(int)(ty >= 0 && ty < height && tx >= 0 && tx < width);                         \
    V value = READ(x, min(max(ty, 0), height - 1) * x_row + min(max(tx, 0), width - 1) * x_column)

__kernel void max_pool_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                            const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    V best = (V)(-INFINITY);
    EACH_TAP {
        READ_TAP;
        EACH_LANE LANE(best, i) = inside ? larger(LANE(best, i), LANE(value, i)) : LANE(best, i);
    }
    WRITE(best, out, out_offset + RESULT_AT(down * across));
}

// The first tap of a window along an axis that is not before the image.
static inline int first_tap(const int start, const int dilation) { return start < 0 ? (dilation - 1 - start) / dilation : 0; }

// The tap of each window's maximum, an element that no later one replaces and that replaces all before it; NO_TAP if a window
// covers only padding.
typedef VEC(TAP) Taps;
__kernel void max_pool_choose_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global TAP *taps,
                                   STRIDES(x), const PoolingGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    const int top = first_tap(y, dilation_h), left = first_tap(at, dilation_w);
    const bool any_inside = top < kernel_h && left < kernel_w && y + top * dilation_h < height &&
                            at + left * dilation_w < width;
    // Negative infinity does not replace the first element.
    V best = (V)(-INFINITY);
    uint chosen[WIDTH];
    EACH_LANE chosen[i] = any_inside ? top * kernel_w + left : NO_TAP;
    EACH_TAP {
        READ_TAP;
        EACH_LANE {
            const int later = (inside != 0) & REPLACES(LANE(value, i), LANE(best, i));
            LANE(best, i) = later ? LANE(value, i) : LANE(best, i);
            chosen[i] = later ? r * kernel_w + s : chosen[i];
        }
    }
    Taps found;
    EACH_LANE ((TAP *)&found)[i] = (TAP)chosen[i];
    *(__global Taps *)(taps + RESULT_AT(down * across)) = found;
}

// Windows along an axis that may cover an element.
#define COVERING(axis) ((kernel_##axis - 1) * dilation_##axis / stride_##axis + 1)
// Pixels of a work-item along an axis: the distance of windows, or one. Blocks begin at a window of the padded image, so
// that the taps of the windows that cover a pixel of a block are constants.
#ifndef BLOCKS
#define BLOCKS 0
#endif
#define BLOCK(axis) (BLOCKS ? stride_##axis : 1)
#if BLOCKS
#define BLOCK_SUMS sums[STRIDE_H][STRIDE_W]
#else
#define BLOCK_SUMS sums[1][1]
#endif
// A window's gradient goes to its maximum. The windows that cover an element are added from the first to the last.
__kernel void max_pool_grad_last(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const TAP *taps,
                                 __global STORAGE(DTYPE) *dx, const ulong dx_offset, STRIDES(g),
                                 const PoolingGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_GEOMETRY;
    const uint blocks_down = (height + padding_h - 1) / BLOCK(h) + 1, blocks_across = (width + padding_w - 1) / BLOCK(w) + 1;
    DECLARE_PLACE(blocks_down * blocks_across);
    g += IMAGE_OF(g);
    taps += (ulong)image * down * across * channels + channel;
    dx += dx_offset + (ulong)image * height * width * channels + channel;
    const uint block_y = pixel / blocks_across, block_x = pixel - block_y * blocks_across;
    // The last windows that cover the block, and its first pixel in the first of them.
    const int last_y = block_y * BLOCK(h) / (uint)stride_h, last_x = block_x * BLOCK(w) / (uint)stride_w;
    const uint top = BLOCKS ? 0 : block_y - last_y * stride_h, left = BLOCKS ? 0 : block_x - last_x * stride_w;
    V BLOCK_SUMS;
    UNROLL for (int u = 0; u < BLOCK(h); u++) UNROLL for (int v = 0; v < BLOCK(w); v++) sums[u][v] = (V)(0);
    UNROLL for (int i = COVERING(h) - 1; i >= 0; i--) {
        const int py = last_y - i, below = min(max(py, 0), down - 1);
        UNROLL for (int j = COVERING(w) - 1; j >= 0; j--) {
            const int px = last_x - j, near = min(max(px, 0), across - 1);
            const bool exists = py == below && px == near;
            const V slope = READ(g, below * g_row + near * g_column);
            const Taps found = *(__global const Taps *)(taps + (below * across + near) * channels);
            const VEC(MASK) chosen = CONCAT(convert_, VEC(MASK))(found);
            UNROLL for (int u = 0; u < BLOCK(h); u++) UNROLL for (int v = 0; v < BLOCK(w); v++) {
                const uint from_top = top + u + i * stride_h, from_left = left + v + j * stride_w;
                const bool covers = from_top <= (kernel_h - 1) * dilation_h && from_top % dilation_h == 0 &&
                                    from_left <= (kernel_w - 1) * dilation_w && from_left % dilation_w == 0;
                const bool reads = covers && exists;
                const int mine = reads ? (int)(from_top / dilation_h * kernel_w + from_left / dilation_w) : NO_TAP + 1;
                if (!BLOCKS || covers) sums[u][v] += SELECT((V)(0), slope, chosen == (VEC(MASK))(mine));
            }
        }
    }
    UNROLL for (int u = 0; u < BLOCK(h); u++) UNROLL for (int v = 0; v < BLOCK(w); v++) {
        const int y = (int)(block_y * BLOCK(h) + u) - padding_h, at = (int)(block_x * BLOCK(w) + v) - padding_w;
        if (y >= 0 && y < height && at >= 0 && at < width) WRITE(sums[u][v], dx, ((ulong)y * width + at) * channels);
    }
}

__kernel void avg_pool_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                            const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    V sum = (V)(0);
    for (int ty = max(y, 0); ty < min(y + kernel_h, height); ty++)
        for (int tx = max(at, 0); tx < min(at + kernel_w, width); tx++) sum += READ(x, ty * x_row + tx * x_column);
    WRITE(sum / (REAL)COUNT(y, at), out, out_offset + RESULT_AT(down * across));
}

__kernel void avg_pool_grad_last(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global STORAGE(DTYPE) *dx,
                                 const ulong dx_offset, STRIDES(g), const PoolingGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_GEOMETRY;
    DECLARE_PLACE(height * width);
    g += IMAGE_OF(g);
    const int y = (int)(pixel / width) + padding_h, at = (int)(pixel % width) + padding_w;
    V sum = (V)(0);
    for (int py = max(0, (y - kernel_h + stride_h) / stride_h); py < down && py * stride_h <= y; py++)
        for (int px = max(0, (at - kernel_w + stride_w) / stride_w); px < across && px * stride_w <= at; px++)
            sum += READ(g, py * g_row + px * g_column) /
                   (REAL)COUNT(py * stride_h - padding_h, px * stride_w - padding_w);
    WRITE(sum, dx, dx_offset + RESULT_AT(height * width));
}
