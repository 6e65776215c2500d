// x with elements zeroed at random and the others scaled. A thread processes the four elements of one Philox block, so
// that equal seeds and offsets drop the same elements in the gradient.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float32
#endif
// 0: x is contiguous; 1: it has up to three axes, the last two of lengths length1 and length2.
#ifndef STRIDED
#define STRIDED 0
#endif
// True if blocks of four elements are aligned in both tensors.
#ifndef ALIGNED
#define ALIGNED 1
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#include "lib/dtypes.cuh"
#include "lib/philox.cuh"

typedef Pack<DTYPE, 4> Four;

KERNEL dropout(const DTYPE *x, DTYPE *out, const uint64 size, const uint64 seed, const uint64 offset,
               const uint32 threshold, const REAL scale, const uint64 length1, const uint64 length2, const int64 step0,
               const int64 step1, const int64 step2) {
    const uint64 item = (uint64)blockIdx.x * BLOCK + threadIdx.x, first = item * 4;
    if (first >= size) return;
    uint32 words[4];
    philox(offset + item, seed, words);
    const bool vectorized = ALIGNED && !STRIDED && first + 4 <= size;
    Four four = {};
    if (vectorized) four = *(const Four *)(x + first);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint64 at = first + i;
        if (!vectorized && at < size) {
#if STRIDED
            const uint64 row = at / length2;
            four.at[i] =
                x[(int64)(row / length1) * step0 + (int64)(row % length1) * step1 + (int64)(at % length2) * step2];
#else
            four.at[i] = x[at];
#endif
        }
        four.at[i] = narrow<DTYPE>(words[i] >= threshold ? (REAL)widen(four.at[i]) * scale : (REAL)0);
        if (!vectorized && at < size) out[at] = four.at[i];
    }
    if (vectorized) *(Four *)(out + first) = four;
}
