// Split-K reduction: out[i] = sum over splits of partial[split][i], in a fixed order, with an epilogue. A work-item
// computes WIDTH neighbours of a row; with WIDTH > 1 everything that it accesses is aligned to that. With ROW_SUMS more
// work-items do the same with row sums, (splits, m) behind the partial results, without an epilogue.

#ifndef OUT_DTYPE
#define OUT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef ROW_SUMS
#define ROW_SUMS 0
#endif
#define ALIGNED (WIDTH > 1)
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"
#include "lib/vectors.h"
#include "lib/epilogue.h"

__kernel void gemm_split_k_reduce(__global const REAL *partial, EPILOGUE_PARAMETERS
                                  __global STORAGE(OUT_DTYPE) *out, const ulong out_offset, const ulong size,
                                  const uint n, const uint splits, const uint m, const uint batch1,
                                  const uint batch2
#if ROW_SUMS
                                  ,
                                  __global STORAGE(OUT_DTYPE) *row_sums, const ulong row_sums_offset
#endif
) {
    START_NEXT
    AWAIT_INPUTS
    UNPACK_EPILOGUE
    const ulong i = get_global_id(0) * WIDTH;
#if ROW_SUMS
    if (i >= size) {
        const ulong row = get_global_id(0) - size / WIDTH;
        if (row >= m) return;
        REAL total = 0;
        for (uint s = 0; s < splits; s++) total += partial[splits * size + s * m + row];
        STORE(OUT_DTYPE, total, row_sums, row_sums_offset + row);
    }
#endif
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
