// Split-K reduction: out[i] = sum over splits of partial[split][i], in a fixed order, with an epilogue. A work-item
// computes WIDTH neighbours of a row; with WIDTH > 1 everything that it accesses is aligned to that.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#define ALIGNED (WIDTH > 1)
#include "lib/dtypes.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"

__kernel void gemm_split_k_reduce(__global const REAL *partial, EPILOGUE_PARAMETERS
                                  __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const ulong size,
                                  const uint n, const uint splits, const uint m, const uint batch1,
                                  const uint batch2) {
    UNPACK_EPILOGUE
    const ulong i = get_global_id(0) * WIDTH;
    if (i >= size) return;
    VEC(REAL) sum = VECTOR_LOAD(REAL, partial + i);
#pragma unroll 4
    for (uint s = 1; s < splits; s++) sum += VECTOR_LOAD(REAL, partial + s * size + i);
#if EPILOGUE
    const uint column = i % n, row = i / n % m, batch = i / n / m;
    const uint i2 = batch % batch2, i1 = batch / batch2 % batch1, i0 = batch / batch2 / batch1;
    EPILOGUE_STEPS(sum, row, column, i0, i1, i2, WIDTH)
#endif
    STOREV(OUT_DTYPE, sum, out + out_offset + i);
}
