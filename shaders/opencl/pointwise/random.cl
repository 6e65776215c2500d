// Random tensors from Philox: a work-item makes the four elements of one block.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
// 0: the words themselves; 1: uniform in [0, 1); 2: standard normal, two elements from two words.
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

__kernel void pointwise_random(__global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const ulong size, const ulong seed,
                     const ulong offset) {
    const ulong first = (ulong)get_global_id(0) * 4;
    if (first >= size) return;
    uint words[4];
    philox(offset + get_global_id(0), seed, words);
#if DISTRIBUTION == 0
    const uint values[4] = {words[0], words[1], words[2], words[3]};
#elif DISTRIBUTION == 1
    float values[4];
#pragma unroll
    for (uint i = 0; i < 4; i++) values[i] = (float)(words[i] >> 8) * 0x1p-24f;
#else
    // Box and Muller. The first word of a pair becomes a number in (0, 1], so that its logarithm is finite.
    float values[4];
#pragma unroll
    for (uint i = 0; i < 4; i += 2) {
        const float radius = sqrt(-2.0f * log((float)((words[i] >> 8) + 1) * 0x1p-24f));
        const float turns = (float)(words[i + 1] >> 8) * 0x1p-23f;
        values[i] = radius * cospi(turns);
        values[i + 1] = radius * sinpi(turns);
    }
#endif
    out += out_offset + first;
    const ulong left = size - first;
    if (left >= 4) {
        STOREV(OUT_DTYPE, (VEC(COMPUTE(OUT_DTYPE)))(values[0], values[1], values[2], values[3]), out);
    } else {
        for (uint i = 0; i < left; i++) STORE(OUT_DTYPE, values[i], out, i);
    }
}
