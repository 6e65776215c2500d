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
#define DECLARE_GEOMETRY                                                      \
    const uint channels = geometry.channels;                                  \
    const int height = geometry.height, width = geometry.width;               \
    const int down = geometry.down, across = geometry.across;                 \
    const int kernel_h = geometry.kernel_h, kernel_w = geometry.kernel_w;     \
    const int stride_h = geometry.stride_h, stride_w = geometry.stride_w;     \
    const int padding_h = geometry.padding_h, padding_w = geometry.padding_w; \
    const int dilation_h = geometry.dilation_h, dilation_w = geometry.dilation_w

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
