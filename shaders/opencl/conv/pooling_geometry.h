// The geometry of a pooling, and the number of elements that an average counts.

#ifndef POLYHAL_CONV_POOLING_GEOMETRY
#define POLYHAL_CONV_POOLING_GEOMETRY

// 1: averages count the padding.
#ifndef INCLUDE_PADDING
#define INCLUDE_PADDING 1
#endif

// An image of height by width is pooled to down by across.
typedef struct {
    uint channels;
    int height, width, down, across, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
} PoolingGeometry;
// A lowering may define the window as constants, so that loops are unrolled and divisions become shifts or products.
#ifdef KERNEL_H
#define OF_WINDOW(member, constant) (constant)
#else
#define OF_WINDOW(member, constant) geometry.member
#endif
#define DECLARE_GEOMETRY                                                                                      \
    const uint channels = geometry.channels;                                                                  \
    const int height = geometry.height, width = geometry.width;                                               \
    const int down = geometry.down, across = geometry.across;                                                 \
    const int kernel_h = OF_WINDOW(kernel_h, KERNEL_H), kernel_w = OF_WINDOW(kernel_w, KERNEL_W);             \
    const int stride_h = OF_WINDOW(stride_h, STRIDE_H), stride_w = OF_WINDOW(stride_w, STRIDE_W);             \
    const int padding_h = OF_WINDOW(padding_h, PADDING_H), padding_w = OF_WINDOW(padding_w, PADDING_W);       \
    const int dilation_h = OF_WINDOW(dilation_h, DILATION_H), dilation_w = OF_WINDOW(dilation_w, DILATION_W)

// Elements of [from, from + length) inside [0, limit).
static inline int elements_inside(const int from, const int length, const int limit) {
    return min(from + length, limit) - max(from, 0);
}

// In ceil mode the last windows extend beyond the padding; elements there are not counted.
#if INCLUDE_PADDING
#define COUNT(y, at) ((min(y + kernel_h, height + padding_h) - (y)) * (min(at + kernel_w, width + padding_w) - (at)))
#else
#define COUNT(y, at) (elements_inside(y, kernel_h, height) * elements_inside(at, kernel_w, width))
#endif

#endif
