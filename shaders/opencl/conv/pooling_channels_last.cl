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

__kernel void max_pool_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                            const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    V best = (V)(-INFINITY);
    for (int r = 0; r < kernel_h; r++)
        for (int s = 0; s < kernel_w; s++) {
            const int ty = y + r * dilation_h, tx = at + s * dilation_w;
            if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
            const V value = READ(x, ty * x_row + tx * x_column);
            best = SELECT(best, value, REPLACES(value, best));
        }
    WRITE(best, out, out_offset + RESULT_AT(down * across));
}

// The tap of each window's maximum, an element that no later one replaces and that replaces all before it; NO_TAP if a window
// covers only padding.
#define NO_TAP 0xffff
typedef VEC(ushort) Taps;
__kernel void max_pool_choose_last(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global ushort *taps,
                                   STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    DECLARE_PLACE(down * across);
    x += IMAGE_OF(x);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    V best = (V)(0);
    VEC(MASK) chosen = (VEC(MASK))(NO_TAP);
    for (int r = 0; r < kernel_h; r++)
        for (int s = 0; s < kernel_w; s++) {
            const int ty = y + r * dilation_h, tx = at + s * dilation_w;
            if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
            const V value = READ(x, ty * x_row + tx * x_column);
            const VEC(MASK) later = REPLACES(value, best) | (chosen == NO_TAP);
            best = SELECT(best, value, later);
            chosen = SELECT(chosen, (VEC(MASK))(r * kernel_w + s), later);
        }
    *(__global Taps *)(taps + RESULT_AT(down * across)) = CONCAT(convert_, VEC(ushort))(chosen);
}

// A window's gradient goes to its maximum.
__kernel void max_pool_grad_last(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const ushort *taps,
                                 __global STORAGE(DTYPE) *dx, const ulong dx_offset, STRIDES(g),
                                 const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    DECLARE_PLACE(height * width);
    g += IMAGE_OF(g);
    taps += (ulong)image * down * across * channels + channel;
    const int y = (int)(pixel / width) + padding_h, at = (int)(pixel % width) + padding_w;
    const int reach_h = (kernel_h - 1) * dilation_h, reach_w = (kernel_w - 1) * dilation_w;
    V sum = (V)(0);
    for (int py = max(0, (y - reach_h + stride_h - 1) / stride_h); py < down && py * stride_h <= y; py++) {
        const int from_top = y - py * stride_h;
        if (dilation_h > 1 && from_top % dilation_h) continue;
        for (int px = max(0, (at - reach_w + stride_w - 1) / stride_w); px < across && px * stride_w <= at; px++) {
            const int from_left = at - px * stride_w;
            if (dilation_w > 1 && from_left % dilation_w) continue;
            const ushort mine = (ushort)(from_top / dilation_h * kernel_w + from_left / dilation_w);
            const V slope = READ(g, py * g_row + px * g_column);
            const VEC(MASK) chosen = CONCAT(convert_, VEC(MASK))(*(__global const Taps *)(taps + (py * across + px) * channels));
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
