// Dropout of contiguous elements on CPUs, with the same results as pointwise/dropout.cl: each work-item computes `each`
// times WIDTH Philox blocks in parallel vector lanes.

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
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/philox_vector.h"
#include "lib/philox.h"

__kernel NO_AUTOVEC void pointwise_cpu_dropout(__global const STORAGE(DTYPE) *x, const ulong x_offset,
                                               __global STORAGE(DTYPE) *out, const ulong out_offset, const ulong size,
                                               const ulong seed, const ulong counter, const uint threshold,
                                               const REAL scale, const uint each) {
    const ulong start = (ulong)get_global_id(0) * each * 4 * WIDTH;
    const ulong end = min(start + (ulong)each * 4 * WIDTH, size);
    x += x_offset;
    out += out_offset;
    ulong at = start;
    for (; at + 4 * WIDTH <= end; at += 4 * WIDTH) {
        VEC(uint) words[4];
        philox_lanes(counter + at / 4, seed, words);
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const VEC(REAL) scaled = LOADV(DTYPE, x + at + i * WIDTH) * scale;
            const VEC(REAL) kept = SELECT((VEC(REAL))(0), scaled, CONVERT(MASK, words[i] >= threshold));
            STOREV(DTYPE, kept, out + at + i * WIDTH);
        }
    }
    for (; at < end; at += 4) {
        uint words[4];
        philox(counter + at / 4, seed, words);
        for (uint i = 0; i < min(end - at, 4UL); i++) {
            const REAL value = LOAD(DTYPE, x, at + i);
            STORE(DTYPE, words[i] >= threshold ? value * scale : (REAL)0, out, at + i);
        }
    }
}
