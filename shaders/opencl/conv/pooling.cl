// Max and average pooling of images (planes, height, width), and their gradients. A work-item makes one element of the
// result. The gradients gather from all windows that contain their element, so that nothing is added atomically.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// The dtype of positions.
#ifndef OUT_DTYPE
#define OUT_DTYPE int64
#endif
#include "lib/dtypes.h"
#include "conv/pooling_geometry.h"

#define STRIDES(name) const long name##_image, const long name##_channel, const long name##_row, const long name##_column
#define PLANE_OF(name, plane) \
    ((long)name##_offset + (long)((plane) / channels) * name##_image + (long)((plane) % channels) * name##_channel)

// True if `later`, after `value` in a window, replaces it as the maximum: of NaN, the last is the maximum.
static inline bool replaces(const REAL later, const REAL value) { return later > value || isnan(later); }

__kernel void max_pool(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                       const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const uint pixel = get_global_id(0), plane = get_global_id(1);
    if (pixel >= (uint)(down * across)) return;
    x += PLANE_OF(x, plane);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    REAL best = -INFINITY;
    for (int r = 0; r < kernel_h; r++)
        for (int s = 0; s < kernel_w; s++) {
            const int ty = y + r * dilation_h, tx = at + s * dilation_w;
            if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
            const REAL value = LOAD(DTYPE, x, ty * x_row + tx * x_column);
            if (replaces(value, best)) best = value;
        }
    STORE(DTYPE, best, out, out_offset + (ulong)plane * down * across + pixel);
}

// The position of each window's maximum in its plane; for a window that covers only padding, its first position.
__kernel void max_pool_indices(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(OUT_DTYPE) *out,
                               const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const uint pixel = get_global_id(0), plane = get_global_id(1);
    if (pixel >= (uint)(down * across)) return;
    x += PLANE_OF(x, plane);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    REAL best = 0;
    bool found = false;
    int place = y * width + at;
    for (int r = 0; r < kernel_h; r++)
        for (int s = 0; s < kernel_w; s++) {
            const int ty = y + r * dilation_h, tx = at + s * dilation_w;
            if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
            const REAL value = LOAD(DTYPE, x, ty * x_row + tx * x_column);
            if (found && !replaces(value, best)) continue;
            found = true;
            best = value;
            place = ty * width + tx;
        }
    STORE(OUT_DTYPE, place, out, out_offset + (ulong)plane * down * across + pixel);
}

// A window's gradient goes to its maximum: an element that no later one replaces and that replaces all before it.
__kernel void max_pool_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global const STORAGE(DTYPE) *x,
                            const ulong x_offset, __global STORAGE(DTYPE) *dx, const ulong dx_offset, STRIDES(g),
                            STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const uint pixel = get_global_id(0), plane = get_global_id(1);
    if (pixel >= (uint)(height * width)) return;
    g += PLANE_OF(g, plane);
    x += PLANE_OF(x, plane);
    const int my_y = (int)(pixel / width), my_x = (int)(pixel % width);
    const REAL mine = LOAD(DTYPE, x, my_y * x_row + my_x * x_column);
    const int y = my_y + padding_h, at = my_x + padding_w;
    const int reach_h = (kernel_h - 1) * dilation_h, reach_w = (kernel_w - 1) * dilation_w;
    REAL sum = 0;
    for (int py = max(0, (y - reach_h + stride_h - 1) / stride_h); py < down && py * stride_h <= y; py++) {
        const int top = py * stride_h - padding_h;
        if (dilation_h > 1 && (my_y - top) % dilation_h) continue;
        for (int px = max(0, (at - reach_w + stride_w - 1) / stride_w); px < across && px * stride_w <= at; px++) {
            const int left = px * stride_w - padding_w;
            if (dilation_w > 1 && (my_x - left) % dilation_w) continue;
            bool chosen = true;
            for (int ty = top; ty <= top + reach_h; ty += dilation_h)
                for (int tx = left; tx <= left + reach_w; tx += dilation_w) {
                    if (ty < 0 || ty >= height || tx < 0 || tx >= width || (ty == my_y && tx == my_x)) continue;
                    const REAL other = LOAD(DTYPE, x, ty * x_row + tx * x_column);
                    const bool before = ty < my_y || (ty == my_y && tx < my_x);
                    chosen &= before ? replaces(mine, other) : !replaces(other, mine);
                }
            if (chosen) sum += LOAD(DTYPE, g, py * g_row + px * g_column);
        }
    }
    STORE(DTYPE, sum, dx, dx_offset + (ulong)plane * height * width + pixel);
}

// The gradient of max pooling for windows that do not overlap: a work-item makes one cell of stride_h by stride_w
// elements, which holds at most one window.
__kernel void max_pool_disjoint_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                     __global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *dx,
                                     const ulong dx_offset, STRIDES(g), STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const int cells = (width + stride_w - 1) / stride_w;
    const int cell = get_global_id(0), py = cell / cells, px = cell - py * cells, top = py * stride_h, left = px * stride_w;
    const uint plane = get_global_id(1);
    if (top >= height) return;
    g += PLANE_OF(g, plane);
    x += PLANE_OF(x, plane) + top * x_row + left * x_column;
    dx += dx_offset + ((ulong)plane * height + top) * width + left;
    const bool whole = py < down && px < across;
    int best_y = -1, best_x = -1;
    if (whole) {
        REAL best = 0;
        for (int r = 0; r < kernel_h; r++)
            for (int s = 0; s < kernel_w; s++) {
                const REAL value = LOAD(DTYPE, x, r * x_row + s * x_column);
                if (best_y < 0 || replaces(value, best)) {
                    best = value;
                    best_y = r;
                    best_x = s;
                }
            }
    }
    const REAL grad = whole ? LOAD(DTYPE, g, py * g_row + px * g_column) : 0;
    for (int r = 0; r < min(stride_h, height - top); r++)
        for (int s = 0; s < min(stride_w, width - left); s++) {
            STORE(DTYPE, (r == best_y && s == best_x ? grad : (REAL)0), dx, r * width + s);
        }
}

__kernel void avg_pool(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(DTYPE) *out,
                       const ulong out_offset, STRIDES(x), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const uint pixel = get_global_id(0), plane = get_global_id(1);
    if (pixel >= (uint)(down * across)) return;
    x += PLANE_OF(x, plane);
    const int y = (int)(pixel / across) * stride_h - padding_h, at = (int)(pixel % across) * stride_w - padding_w;
    REAL sum = 0;
    for (int ty = max(y, 0); ty < min(y + kernel_h, height); ty++)
        for (int tx = max(at, 0); tx < min(at + kernel_w, width); tx++) sum += LOAD(DTYPE, x, ty * x_row + tx * x_column);
    STORE(DTYPE, sum / COUNT(y, at), out, out_offset + (ulong)plane * down * across + pixel);
}

__kernel void avg_pool_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset, __global STORAGE(DTYPE) *dx,
                            const ulong dx_offset, STRIDES(g), const PoolingGeometry geometry) {
    DECLARE_GEOMETRY;
    const uint pixel = get_global_id(0), plane = get_global_id(1);
    if (pixel >= (uint)(height * width)) return;
    g += PLANE_OF(g, plane);
    const int y = (int)(pixel / width) + padding_h, at = (int)(pixel % width) + padding_w;
    REAL sum = 0;
    for (int py = max(0, (y - kernel_h + stride_h) / stride_h); py < down && py * stride_h <= y; py++)
        for (int px = max(0, (at - kernel_w + stride_w) / stride_w); px < across && px * stride_w <= at; px++)
            sum += LOAD(DTYPE, g, py * g_row + px * g_column) / COUNT(py * stride_h - padding_h, px * stride_w - padding_w);
    STORE(DTYPE, sum, dx, dx_offset + (ulong)plane * height * width + pixel);
}
