// How the operands a and b of a batched matrix product lie, as lowering/matmul_arguments.py says it to kernels.

#ifndef POLYHAL_PRODUCTS
#define POLYHAL_PRODUCTS

// The distances of neighbours in a row and in a column, the two inner lengths of the batch, and the distances of
// matrices along its three axes.
#define OPERAND_PARAMETERS                                                                                       \
    const long a_row, const long a_column, const long b_row, const long b_column, const uint batch1,             \
        const uint batch2, const long a_batch0, const long a_batch1, const long a_batch2, const long b_batch0,   \
        const long b_batch1, const long b_batch2

// Where a matrix of the batch begins, counted along each axis.
#define MATRIX_OF_A(i0, i1, i2) (a + ((long)(i0) * a_batch0 + (long)(i1) * a_batch1 + (long)(i2) * a_batch2))
#define MATRIX_OF_B(i0, i1, i2) (b + ((long)(i0) * b_batch0 + (long)(i1) * b_batch1 + (long)(i2) * b_batch2))

#endif
