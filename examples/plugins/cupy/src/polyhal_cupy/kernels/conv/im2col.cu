// im2col copies the windows of images to the columns of a matrix; col2im adds the columns to their images.
//
// Row p of the columns is (channel, kernel row, kernel column), its element l the window (row, column) of an image. Element
// (p, n, l) is at p * p_step + n * n_step + l.

#ifndef DTYPE
#define DTYPE float32
#endif
// Dtype of the columns that col2im adds.
#ifndef COLUMN_DTYPE
#define COLUMN_DTYPE float32
#endif
#ifndef REAL
#define REAL float32
#endif
// Threads per row of the columns and image.
#ifndef ROW_THREADS
#define ROW_THREADS 64
#endif
// True if the stride is 1.
#ifndef UNIT_STRIDE
#define UNIT_STRIDE 0
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"

#define GEOMETRY \
    const uint64 items, const uint32 images, const uint32 channels, const int32 height, const int32 width, \
        const int32 down, const int32 across, const int32 kernel_h, const int32 kernel_w, const int32 stride_h, \
        const int32 stride_w, const int32 padding_h, const int32 padding_w, const int32 dilation_h, \
        const int32 dilation_w, const int64 p_step, const int64 n_step

KERNEL im2col(const DTYPE *x, const int64 x_offset, DTYPE *columns, GEOMETRY, const int64 x_image,
              const int64 x_channel, const int64 x_row, const int64 x_column) {
    const uint64 item = (uint64)blockIdx.x * (BLOCK / ROW_THREADS) + threadIdx.x / ROW_THREADS;
    if (item >= items) return;
    const uint32 n = item % images, p = item / images;
    const int32 s = p % kernel_w, r = p / kernel_w % kernel_h;
    const int32 top = r * dilation_h - padding_h, left = s * dilation_w - padding_w;
    x += x_offset + (int64)n * x_image + (int64)(p / kernel_w / kernel_h) * x_channel;
    columns += (int64)p * p_step + (int64)n * n_step;
#pragma unroll 4
    for (int32 l = threadIdx.x % ROW_THREADS; l < down * across; l += ROW_THREADS) {
        const int32 row = l / across, y = row * stride_h + top, at = (l - row * across) * stride_w + left;
        DTYPE element = {};
        if (y >= 0 && y < height && at >= 0 && at < width) element = x[y * x_row + at * x_column];
        columns[l] = element;
    }
}

KERNEL col2im(const COLUMN_DTYPE *columns, DTYPE *dx, const int64 dx_offset, GEOMETRY) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items) return;
    const uint32 plane = item / (height * width), pixel = item % (height * width);
    const int32 y = pixel / width, at = pixel - y * width;
    const int64 channel = plane % channels, n = plane / channels;
    columns += channel * kernel_h * kernel_w * p_step + n * n_step;
    REAL sum = 0;
    for (int32 r = 0; r < kernel_h; r++) {
        const int32 top = y + padding_h - r * dilation_h, row = UNIT_STRIDE ? top : top / stride_h;
        if (top < 0 || (!UNIT_STRIDE && top % stride_h) || row >= down) continue;
        for (int32 s = 0; s < kernel_w; s++) {
            const int32 left = at + padding_w - s * dilation_w, column = UNIT_STRIDE ? left : left / stride_w;
            if (left < 0 || (!UNIT_STRIDE && left % stride_w) || column >= across) continue;
            sum += (REAL)widen(columns[(r * kernel_w + s) * p_step + row * across + column]);
        }
    }
    dx[dx_offset + (int64)item] = narrow<DTYPE>((Register<DTYPE>)sum);
}
