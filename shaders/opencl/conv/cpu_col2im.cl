// Images from the columns of a matrix (col2im), the transposed operation of conv/cpu_im2col.cl: each pixel is the sum of the
// elements of its channel's lines that a tap would read there, and of a bias. With one tap this distributes lines to images.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "conv/cpu_gather.h"

// `chunks` has, for each of `chunks_each` chunks of WIDTH pixels, the first pixel, and `terms` times two numbers: the
// offset of its element in the channel's lines, without the image's offset, and a bit for each pixel that has such an
// element. `last` is the last element of the columns.
__kernel NO_AUTOVEC void conv_cpu_col2im(__global const ELEMENT *columns,
#if BIAS
                                         __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                                         __global STORAGE(DTYPE) *out, const ulong out_offset, __global const int *chunks,
                                         const uint chunks_each, const uint terms, const uint images, const uint channels,
                                         const uint channels_each, const uint taps, const uint results, const uint pixels,
                                         const long last) {
    const uint first = get_global_id(0) * channels_each, end = min(first + channels_each, channels);
    for (uint channel = first; channel < end; channel++) {
#if BIAS
        const VEC(REAL) begin = (VEC(REAL))(LOAD(DTYPE, bias, bias_offset + channel));
#else
        const VEC(REAL) begin = (VEC(REAL))(0);
#endif
        for (uint image = 0; image < images; image++) {
            const long from = ((long)channel * taps * images + image) * results;
            __global STORAGE(DTYPE) *plane = out + out_offset + ((ulong)image * channels + channel) * pixels;
            __global const int *chunk = chunks;
            for (uint i = 0; i < chunks_each; i++) {
                const uint pixel = *chunk++;
                VEC(REAL) sum = begin;
                for (uint term = 0; term < terms; term++, chunk += 2) {
                    const Elements found = gather(columns, from + chunk[0], last, chunk[1]);
                    sum += AS(REAL, found);
                }
                STOREV(DTYPE, sum, plane + pixel);
            }
        }
    }
}
