// Max and average pooling of images (planes, height, width) and their gradients. A thread computes one element of the result.
// The gradients gather over all windows that contain their element, so no atomic additions are needed.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float32
#endif
// True if average pooling counts padding.
#ifndef INCLUDE_PADDING
#define INCLUDE_PADDING 1
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define GEOMETRY \
    const uint64 items, const uint32 channels, const int32 height, const int32 width, const int32 down, \
        const int32 across, const int32 kernel_h, const int32 kernel_w, const int32 stride_h, const int32 stride_w, \
        const int32 padding_h, const int32 padding_w, const int32 dilation_h, const int32 dilation_w
#define STEPS(name) \
    const int64 name##_image, const int64 name##_channel, const int64 name##_row, const int64 name##_column
#define PLANE_OF(name) (name + (plane / channels) * name##_image + (plane % channels) * name##_channel)
// Locates this thread's element of the result: (own_y, own_x) of `plane`, whose images have `columns` columns.
#define LOCATE(lines, columns) \
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x; \
    if (item >= items) return; \
    const int64 plane = item / ((uint64)(lines) * (columns)); \
    const int32 pixel = item % ((uint64)(lines) * (columns)), own_y = pixel / (columns), own_x = pixel % (columns);

typedef REAL real;

inline int32 smaller(int32 a, int32 b) { return a < b ? a : b; }
inline int32 larger(int32 a, int32 b) { return a > b ? a : b; }
// True if a value replaces the best so far. NaN wins over any number and is never replaced.
inline bool replaces(real value, real best) { return !(value <= best) && best == best; }

KERNEL max_pool(const DTYPE *x, DTYPE *out, GEOMETRY, STEPS(x)) {
    LOCATE(down, across)
    x = PLANE_OF(x);
    const int32 top = own_y * stride_h - padding_h, left = own_x * stride_w - padding_w;
    real best = -INFINITY;
    for (int32 r = 0; r < kernel_h; r++)
        for (int32 s = 0; s < kernel_w; s++) {
            const int32 ty = top + r * dilation_h, tx = left + s * dilation_w;
            if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
            const real value = (real)widen(x[ty * x_row + tx * x_column]);
            if (replaces(value, best)) best = value;
        }
    out[item] = narrow<DTYPE>(best);
}

// The gradient of a window goes to its first largest element; NaN counts as largest.
KERNEL max_pool_grad(const DTYPE *g, const DTYPE *x, DTYPE *dx, GEOMETRY, STEPS(g), STEPS(x)) {
    LOCATE(height, width)
    g = PLANE_OF(g);
    x = PLANE_OF(x);
    real sum = 0;
    for (int32 r = 0; r < kernel_h; r++)
        for (int32 s = 0; s < kernel_w; s++) {
            // The window in which this element is at (r, s).
            const int32 top = own_y + padding_h - r * dilation_h, left = own_x + padding_w - s * dilation_w;
            if (top < 0 || left < 0 || top % stride_h || left % stride_w) continue;
            const int32 py = top / stride_h, px = left / stride_w;
            if (py >= down || px >= across) continue;
            int32 position = -1;
            real best = 0;
            for (int32 i = 0; i < kernel_h * kernel_w; i++) {
                const int32 ty = top - padding_h + i / kernel_w * dilation_h,
                            tx = left - padding_w + i % kernel_w * dilation_w;
                if (ty < 0 || ty >= height || tx < 0 || tx >= width) continue;
                const real value = (real)widen(x[ty * x_row + tx * x_column]);
                if (position < 0 || replaces(value, best)) {
                    best = value;
                    position = i;
                }
            }
            if (position == r * kernel_w + s) sum += (real)widen(g[py * g_row + px * g_column]);
        }
    dx[item] = narrow<DTYPE>(sum);
}

inline int32 overlap(int32 start, int32 length, int32 limit) { return smaller(start + length, limit) - larger(start, 0); }

// In ceil mode the last windows reach beyond the padding, whose elements are not counted.
#if INCLUDE_PADDING
#define COUNT(top, left) \
    ((min(top + kernel_h, height + padding_h) - (top)) * (min(left + kernel_w, width + padding_w) - (left)))
#else
#define COUNT(top, left) (overlap(top, kernel_h, height) * overlap(left, kernel_w, width))
#endif

KERNEL avg_pool(const DTYPE *x, DTYPE *out, GEOMETRY, STEPS(x)) {
    LOCATE(down, across)
    x = PLANE_OF(x);
    const int32 top = own_y * stride_h - padding_h, left = own_x * stride_w - padding_w;
    real sum = 0;
    for (int32 ty = larger(top, 0); ty < smaller(top + kernel_h, height); ty++)
        for (int32 tx = larger(left, 0); tx < smaller(left + kernel_w, width); tx++)
            sum += (real)widen(x[ty * x_row + tx * x_column]);
    out[item] = narrow<DTYPE>(sum / COUNT(top, left));
}

KERNEL avg_pool_grad(const DTYPE *g, DTYPE *dx, GEOMETRY, STEPS(g)) {
    LOCATE(height, width)
    g = PLANE_OF(g);
    const int32 y = own_y + padding_h, x = own_x + padding_w;
    real sum = 0;
    for (int32 py = larger(0, (y - kernel_h + stride_h) / stride_h); py < down && py * stride_h <= y; py++)
        for (int32 px = larger(0, (x - kernel_w + stride_w) / stride_w); px < across && px * stride_w <= x; px++)
            sum += (real)widen(g[py * g_row + px * g_column]) /
                   COUNT(py * stride_h - padding_h, px * stride_w - padding_w);
    dx[item] = narrow<DTYPE>(sum);
}
