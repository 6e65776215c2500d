// Max pooling of any windows, and its gradient, on CPUs, WIDTH windows of a row at a time. A work-item copies one plane after the
// other to a frame of its own, whose borders are -infinity, so that no window leaves it.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#define MASK int
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
// The distance of neighbouring windows if it is 1 or 2, else 0.
#ifndef STRIDE
#define STRIDE 0
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/vectors.h"

typedef VEC(REAL) V;
typedef VEC(MASK) Places;
typedef struct __attribute__((packed)) {
    V lanes;
} UnalignedVector;
#define VECTOR_AT(p) (((__global UnalignedVector *)(p))->lanes)
#define LANE(type, v, j) (((__private type *)&(v))[j])

// The image has height x width pixels, the frame rows x pitch.
typedef struct {
    int height, width, down, across, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    int rows, pitch;
} PoolGeometry;
#define STRIDES(name) const long name##_image, const long name##_channel, const long name##_row, const long name##_column
#define PLANE_OF(name, plane) \
    (name + name##_offset + (long)((plane) / channels) * name##_image + (long)((plane) % channels) * name##_channel)
// True if `later`, after `value` in a window, replaces it as the maximum: of NaN, the last is the maximum.
#define REPLACES(later, value) (((later) > (value)) | ((later) != (later)))

// A frame has some vectors to spare at its end, so its rows may be filled by whole vectors.
FORCE_INLINE void fill(__global REAL *frame, const REAL value, const int length) {
    for (int i = 0; i < length; i += WIDTH) VECTOR_AT(frame + i) = (V)(value);
}

FORCE_INLINE void copy_to_frame(__global const STORAGE(DTYPE) *x, const long x_row, const long x_column,
                                const PoolGeometry *g, __global REAL *frame) {
    const int pitch = g->pitch, width = g->width;
    frame += g->padding_h * pitch + g->padding_w;
    for (int y = 0; y < g->height; y++, x += x_row, frame += pitch) {
        int i = 0;
        if (x_column == 1)
            for (; i + WIDTH <= width; i += WIDTH) VECTOR_AT(frame + i) = LOADV(DTYPE, x + i);
        for (; i < width; i++) frame[i] = LOAD(DTYPE, x, i * x_column);
    }
}

// One element, at the same index, of WIDTH neighbouring windows.
FORCE_INLINE V elements(__global const REAL *p, const int stride) {
#if STRIDE == 1
    return VECTOR_AT(p);
#elif STRIDE == 2
    const V low = VECTOR_AT(p), high = VECTOR_AT(p + WIDTH);
    return (V)(low.even, high.even);
#else
    V found;
    for (int j = 0; j < WIDTH; j++) LANE(REAL, found, j) = p[j * stride];
    return found;
#endif
}

__kernel NO_AUTOVEC void conv_cpu_max_pool(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                           __global STORAGE(DTYPE) *out, const ulong out_offset, __global REAL *frames,
                                           const uint planes, const uint planes_each, const uint channels, STRIDES(x),
                                           const PoolGeometry geometry, const uint frame_length) {
    const PoolGeometry *g = &geometry;
    const uint first = get_global_id(0) * planes_each;
    __global REAL *frame = frames + (ulong)get_global_id(0) * frame_length;
    fill(frame, -INFINITY, g->rows * g->pitch);
    for (uint plane = first; plane < min(first + planes_each, planes); plane++) {
        copy_to_frame(PLANE_OF(x, plane), x_row, x_column, g, frame);
        __global STORAGE(DTYPE) *to = out + out_offset + (ulong)plane * g->down * g->across;
        for (int row = 0; row < g->down; row++, to += g->across)
            for (int column = 0; column < g->across; column += WIDTH) {
                __global const REAL *window = frame + row * g->stride_h * g->pitch + column * g->stride_w;
                V best = elements(window, g->stride_w);
                for (int r = 0; r < g->kernel_h; r++)
                    for (int s = 0; s < g->kernel_w; s++) {
                        const int offset = r * g->dilation_h * g->pitch + s * g->dilation_w;
                        const V value = elements(window + offset, g->stride_w);
                        best = SELECT(best, value, REPLACES(value, best));
                    }
                if (column + WIDTH <= g->across) STOREV(DTYPE, best, to + column);
                else
                    for (int j = 0; column + j < g->across; j++) STORE(DTYPE, LANE(REAL, best, j), to, column + j);
            }
    }
}

// The index, in a window that begins at `start` with steps of `step`, of the first element inside the image.
FORCE_INLINE int first_inside(const int start, const int step) { return start < 0 ? (step - 1 - start) / step : 0; }

// A window's gradient goes to its maximum: the last element that replaces those before it, or, if all are -infinity, the
// first one inside the image.
__kernel NO_AUTOVEC void conv_cpu_max_pool_grad(__global const STORAGE(DTYPE) *g, const ulong g_offset,
                                                __global const STORAGE(DTYPE) *x, const ulong x_offset,
                                                __global STORAGE(DTYPE) *dx, const ulong dx_offset, __global REAL *frames,
                                                const uint planes, const uint planes_each, const uint channels,
                                                STRIDES(g), STRIDES(x), const PoolGeometry geometry,
                                                const uint frame_length) {
    const PoolGeometry *p = &geometry;
    const int pitch = p->pitch, stride_w = p->stride_w;
    const uint first = get_global_id(0) * planes_each;
    __global REAL *frame = frames + (ulong)get_global_id(0) * 2 * frame_length, *sums = frame + frame_length;
    fill(frame, -INFINITY, p->rows * pitch);
    for (uint plane = first; plane < min(first + planes_each, planes); plane++) {
        copy_to_frame(PLANE_OF(x, plane), x_row, x_column, p, frame);
        fill(sums, 0, p->rows * pitch);
        __global const STORAGE(DTYPE) *from = PLANE_OF(g, plane);
        for (int row = 0; row < p->down; row++, from += g_row)
            for (int column = 0; column < p->across; column += WIDTH) {
                const int start = row * p->stride_h * pitch + column * stride_w;
                V best = elements(frame + start, stride_w);
                Places places = (Places)(0);
                for (int r = 0; r < p->kernel_h; r++)
                    for (int s = 0; s < p->kernel_w; s++) {
                        const int offset = r * p->dilation_h * pitch + s * p->dilation_w;
                        const V value = elements(frame + start + offset, stride_w);
                        const Places replaces = REPLACES(value, best);
                        best = SELECT(best, value, replaces);
                        places = (places & ~replaces) | ((Places)(offset) & replaces);
                    }
                for (int j = 0; j < min(WIDTH, p->across - column); j++) {
                    int place = LANE(MASK, places, j);
                    if (LANE(REAL, best, j) == -INFINITY)
                        place = first_inside(row * p->stride_h - p->padding_h, p->dilation_h) * p->dilation_h * pitch +
                                first_inside((column + j) * stride_w - p->padding_w, p->dilation_w) * p->dilation_w;
                    sums[start + j * stride_w + place] += LOAD(DTYPE, from, (column + j) * g_column);
                }
            }
        __global const REAL *sum = sums + p->padding_h * pitch + p->padding_w;
        __global STORAGE(DTYPE) *to = dx + dx_offset + (ulong)plane * p->height * p->width;
        for (int y = 0; y < p->height; y++, sum += pitch, to += p->width) {
            int i = 0;
            for (; i + WIDTH <= p->width; i += WIDTH) {
                const V value = VECTOR_AT(sum + i);
                STOREV(DTYPE, value, to + i);
            }
            for (; i < p->width; i++) STORE(DTYPE, sum[i], to, i);
        }
    }
}
