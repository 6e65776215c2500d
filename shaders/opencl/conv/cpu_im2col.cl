// Images as the columns of a matrix (im2col), for gemm/cpu_panels.cl: line (channel, tap) has, for every image and result, the
// pixel that the tap reads, or 0 outside the image. With one tap this gathers the pixels of all images by channel.

#include "conv/cpu_gather.h"

// `chunks` has, for each tap, `chunks_each` times three numbers: the first of WIDTH results, the offset of its pixel in
// the plane, and a bit for each result that reads a pixel inside the image. No element after `x_last` may be read.
__kernel NO_AUTOVEC void conv_cpu_im2col(__global const ELEMENT *x, const ulong x_offset, __global ELEMENT *columns,
                                         __global const int *chunks, const uint chunks_each, const uint images,
                                         const uint channels, const uint channels_each, const uint taps, const uint results,
                                         const long x_image, const long x_channel, const long x_last) {
    const uint first = get_global_id(0) * channels_each, last = min(first + channels_each, channels);
    x += (long)x_offset;
    for (uint channel = first; channel < last; channel++)
        for (uint image = 0; image < images; image++) {
            const long plane = image * x_image + channel * x_channel;
            __global ELEMENT *line = columns + ((ulong)channel * taps * images + image) * results;
            __global const int *chunk = chunks;
            for (uint tap = 0; tap < taps; tap++, line += (ulong)images * results)
                for (uint i = 0; i < chunks_each; i++, chunk += 3) {
                    const Elements pixels = gather(x, plane + chunk[1], x_last, chunk[2]);
                    ((__global UnalignedElements *)(line + chunk[0]))->lanes = pixels;
                }
        }
}
