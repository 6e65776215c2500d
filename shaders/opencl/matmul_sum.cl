// The second stage of a product whose terms were shared out: out[i] = sum over splits of partial[split][i] (+ bias), in order.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef DTYPE
#define DTYPE OUT_DTYPE
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef BIAS
#define BIAS 0
#endif
#include "dtypes.h"

__kernel void matmul_sum(__global const REAL *partial,
#if BIAS
                         __global const STORAGE(DTYPE) *bias, const ulong bias_offset,
#endif
                         __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const ulong size, const uint n,
                         const uint splits) {
    const ulong i = get_global_id(0);
    if (i >= size) return;
    REAL sum = partial[i];
    for (uint s = 1; s < splits; s++) sum += partial[s * size + i];
#if BIAS
    sum += LOAD(DTYPE, bias, bias_offset + i % n);
#endif
    STORE(OUT_DTYPE, sum, out, out_offset + i);
}
