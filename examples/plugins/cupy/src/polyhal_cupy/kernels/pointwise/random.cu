// Random tensors from Philox: a thread computes the four elements of one block.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
// 0: the words themselves; 1: uniform in [0, 1); 2: standard normal.
#ifndef DISTRIBUTION
#define DISTRIBUTION 1
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"
#include "lib/philox.cuh"
#include "lib/normal.cuh"

KERNEL random(OUT_DTYPE *out, const uint64 size, const uint64 seed, const uint64 offset
#if DISTRIBUTION == 2
              ,
              const int32 *table
#endif
) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x, first = item * 4;
    if (first >= size) return;
    uint32 words[4];
    philox(offset + item, seed, words);
    Register<OUT_DTYPE> values[4];
#if DISTRIBUTION == 2
#pragma unroll
    for (int i = 0; i < 4; i++) values[i] = normal_quantile(words[i], table);
#elif DISTRIBUTION == 1
#pragma unroll
    for (int i = 0; i < 4; i++) values[i] = (float)(words[i] >> 8) * 0x1p-24f;
#else
#pragma unroll
    for (int i = 0; i < 4; i++) values[i] = words[i];
#endif
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i < size) out[first + i] = narrow<OUT_DTYPE>(values[i]);
}
