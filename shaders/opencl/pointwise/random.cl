// Random tensors from Philox4x32-10. Each work-item computes one block of four words and stores the four elements made of them.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
// 0: random bits; 1: uniform in [0, 1); 2: standard normal.
#ifndef DISTRIBUTION
#define DISTRIBUTION 1
#endif
#define WIDTH 4
#ifndef ALIGNED
#define ALIGNED 0
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/philox.h"
#include "lib/normal.h"

__kernel void pointwise_random(__global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const ulong size, const ulong seed,
                               const ulong counter
#if DISTRIBUTION == 2
                               ,
                               __global const int *table
#endif
) {
    const ulong first = (ulong)get_global_id(0) * 4;
    if (first >= size) return;
    uint words[4];
    philox(counter + get_global_id(0), seed, words);
#if DISTRIBUTION == 0
    const uint values[4] = {words[0], words[1], words[2], words[3]};
#elif DISTRIBUTION == 1
    float values[4];
#pragma unroll
    for (uint i = 0; i < 4; i++) values[i] = (float)(words[i] >> 8) * 0x1p-24f;
#else
    float values[4];
#pragma unroll
    for (uint i = 0; i < 4; i++) values[i] = normal_quantile(words[i], (__global const int4 *)table);
#endif
    out += out_offset + first;
    const ulong left = size - first;
    if (left >= 4) {
        STOREV(OUT_DTYPE, (VEC(COMPUTE(OUT_DTYPE)))(values[0], values[1], values[2], values[3]), out);
    } else {
        for (uint i = 0; i < left; i++) STORE(OUT_DTYPE, values[i], out, i);
    }
}
