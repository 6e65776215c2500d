// Random tensors on CPUs, with the same numbers as pointwise/random.cl: each work-item computes `each` times WIDTH
// Philox blocks in parallel vector lanes.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
// 0: random bits; 1: uniform in [0, 1); 2: standard normal.
#ifndef DISTRIBUTION
#define DISTRIBUTION 1
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#define ALIGNED 0
#include "lib/dtypes.h"
#include "lib/philox_vector.h"
#include "lib/philox.h"

#if DISTRIBUTION == 0
#define NUMBERS(words) (words)
#define NUMBER(word) (word)
#elif DISTRIBUTION == 2
#include "lib/normal_vector.h"
#define NUMBERS(words) CONVERT(COMPUTE(OUT_DTYPE), normal_quantiles(words, (__global const int4 *)table))
#define NUMBER(word) normal_quantile(word, (__global const int4 *)table)
#else
#define NUMBERS(words) CONVERT(COMPUTE(OUT_DTYPE), CONVERT(float, (words) >> 8) * 0x1p-24f)
#define NUMBER(word) ((float)((word) >> 8) * 0x1p-24f)
#endif

__kernel NO_AUTOVEC void pointwise_cpu_random(__global STORAGE(OUT_DTYPE) *out, const ulong out_offset,
                                              const ulong size, const ulong seed, const ulong counter, const uint each
#if DISTRIBUTION == 2
                                              ,
                                              __global const int *table
#endif
) {
    const ulong start = (ulong)get_global_id(0) * each * 4 * WIDTH;
    const ulong end = min(start + (ulong)each * 4 * WIDTH, size);
    out += out_offset;
    ulong at = start;
    for (; at + 4 * WIDTH <= end; at += 4 * WIDTH) {
        VEC(uint) words[4];
        philox_lanes(counter + at / 4, seed, words);
#pragma unroll
        for (uint i = 0; i < 4; i++) STOREV(OUT_DTYPE, NUMBERS(words[i]), out + at + i * WIDTH);
    }
    for (; at < end; at += 4) {
        uint words[4];
        philox(counter + at / 4, seed, words);
        for (uint i = 0; i < min(end - at, 4UL); i++) STORE(OUT_DTYPE, NUMBER(words[i]), out, at + i);
    }
}
