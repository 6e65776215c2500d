// The operands a and b of a batched matrix product, as lowering/gemm/arguments.py passes them. Strides are in elements.

#ifndef POLYHAL_GEMM_OPERANDS
#define POLYHAL_GEMM_OPERANDS

#include "lib/epilogue.h"

typedef struct {
    long a_row, a_column, b_row, b_column;  // from one row, or one column, to the next
    long a_batch[3], b_batch[3];            // from one matrix to the next along the three axes of the batch
    uint m, n, k;                           // out is m x n; every sum has k terms
    uint batch1, batch2;                    // lengths of the last two axes of the batch
} GemmGeometry;

// Members are copied to variables, so that no compiler reloads the struct after each store.
#define UNPACK_GEOMETRY                                                                                        \
    const long a_row = geometry.a_row, a_column = geometry.a_column, b_row = geometry.b_row,                   \
               b_column = geometry.b_column;                                                                   \
    const long a_batch0 = geometry.a_batch[0], a_batch1 = geometry.a_batch[1], a_batch2 = geometry.a_batch[2]; \
    const long b_batch0 = geometry.b_batch[0], b_batch1 = geometry.b_batch[1], b_batch2 = geometry.b_batch[2]; \
    const uint m = geometry.m, n = geometry.n, k = geometry.k;                                                 \
    const uint batch1 = geometry.batch1, batch2 = geometry.batch2;                                             \
    UNPACK_EPILOGUE

// Where the matrices at index (i0, i1, i2) of the batch begin.
#define MATRIX_OF_A(i0, i1, i2) (a + ((long)(i0) * a_batch0 + (long)(i1) * a_batch1 + (long)(i2) * a_batch2))
#define MATRIX_OF_B(i0, i1, i2) (b + ((long)(i0) * b_batch0 + (long)(i1) * b_batch1 + (long)(i2) * b_batch2))

#endif
