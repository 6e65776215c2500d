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
    const V value = READ(x, min(max(ty, 0), height - 1) * x_row + min(max(tx, 0), width - 1) * x_column)

__kernel void max_pool_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                            const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    V best = (V)(-INFINITY);
    EACH_TAP {
        READ_TAP;
        best = SELECT(best, value, REPLACES(value, best) & (VEC(MASK))(inside));
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
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    const int top = first_tap(y, dilation_h), left = first_tap(at, dilation_w);
    const bool any_inside = top < kernel_h && left < kernel_w && y + top * dilation_h < height &&
                            at + left * dilation_w < width;
    // Negative infinity does not replace the first element.
    V best = (V)(-INFINITY);
    VEC(MASK) chosen = (VEC(MASK))(any_inside ? top * kernel_w + left : NO_TAP);
    EACH_TAP {
        READ_TAP;
        const VEC(MASK) later = REPLACES(value, best) & (VEC(MASK))(inside);
        best = SELECT(best, value, later);
        chosen = SELECT(chosen, (VEC(MASK))(r * kernel_w + s), later);
    }
    *(__global Taps *)(taps + RESULT_AT(down * across)) = CONCAT(convert_, VEC(TAP))(chosen);
}

// Windows along an axis that may cover an element.
#define COVERING(axis) ((kernel_##axis - 1) * dilation_##axis / stride_##axis + 1)
// A window's gradient goes to its maximum. The windows that cover an element are added from the first to the last.
__kernel void max_pool_grad_last(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const TAP *taps,
                                 __global STORAGE(DTYPE) *dx, const ulong dx_offset, STRIDES(g),
                                 const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    DECLARE_PLACE(height * width);
    g += IMAGE_OF(g);
    taps += (ulong)image * down * across * channels + channel;
    const uint y = pixel / width + padding_h, at = pixel % width + padding_w;
    V sum = (V)(0);
    UNROLL for (int i = COVERING(h) - 1; i >= 0; i--) {
        const int py = (int)(y / (uint)stride_h) - i;
        const uint from_top = y - py * stride_h;
        if (py < 0 || py >= down || from_top > (kernel_h - 1) * dilation_h || from_top % dilation_h) continue;
        UNROLL for (int j = COVERING(w) - 1; j >= 0; j--) {
            const int px = (int)(at / (uint)stride_w) - j, near = min(max(px, 0), across - 1);
            const uint from_left = at - px * stride_w;
            const bool covers = px == near && from_left <= (kernel_w - 1) * dilation_w && from_left % dilation_w == 0;
            const int mine = covers ? (int)(from_top / dilation_h * kernel_w + from_left / dilation_w) : NO_TAP + 1;
            const V slope = READ(g, py * g_row + near * g_column);
            const Taps found = *(__global const Taps *)(taps + (py * across + near) * channels);
            const VEC(MASK) chosen = CONCAT(convert_, VEC(MASK))(found);
            sum += SELECT((V)(0), slope, chosen == (VEC(MASK))(mine));
        }
    }
    WRITE(sum, dx, dx_offset + RESULT_AT(height * width));
}

__kernel void avg_pool_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                            const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
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
