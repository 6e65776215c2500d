// Products of the same rows x with several matrices in one launch, and an RMS norm of x before them.
//
// MATRICES is the number of matrices y, y1, y2 (n, k), which have equal strides. Without PAIRS the columns of y1 begin at
// column `first1` of the result, those of y2 at `first2`, and SELECT_MATRIX(column) moves `y` to the matrix of a group's
// columns. With PAIRS every column of the result has a sum for y, `sum`, and one for y1, `other`, which the epilogue reads.
//
// With NORM the terms of x are multiplied by `scale` (k), and sums by 1 / sqrt(mean of the squares of x + eps).

#ifndef POLYHAL_JOINED
#define POLYHAL_JOINED

#ifndef MATRICES
#define MATRICES 1
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef NORM
#define NORM 0
#endif
// Type of the elements of a matrix in memory; strides are in elements.
#ifndef MATRIX_TYPE
#define MATRIX_TYPE STORAGE(DTYPE)
#endif

#if MATRICES > 1
#define SECOND_MATRIX __global const MATRIX_TYPE *y1, const ulong y1_offset, const uint first1,
#else
#define SECOND_MATRIX
#endif
#if MATRICES > 2
#define THIRD_MATRIX __global const MATRIX_TYPE *y2, const ulong y2_offset, const uint first2,
#else
#define THIRD_MATRIX
#endif
#if NORM
#define NORM_WEIGHT __global const STORAGE(DTYPE) *scale, const ulong scale_offset, const float eps,
#define LOCATE_SCALE scale += scale_offset;
#define NORM_FACTOR(squares, terms) (1 / sqrt((squares) / (terms) + eps))
#else
#define NORM_WEIGHT
#define LOCATE_SCALE
#endif
#define JOINED_PARAMETERS SECOND_MATRIX THIRD_MATRIX NORM_WEIGHT

#if PAIRS
#define SELECT_MATRIX(column) __global const MATRIX_TYPE *const paired = y1 + y1_offset;
#define MATRIX_OF(second) ((second) ? paired : y)
#elif MATRICES == 3
#define SELECT_MATRIX(column)                                                 \
    if ((column) >= first2) y = y2 + y2_offset - (long)first2 * y_column;     \
    else if ((column) >= first1) y = y1 + y1_offset - (long)first1 * y_column;
#define MATRIX_OF(second) y
#elif MATRICES == 2
#define SELECT_MATRIX(column) \
    if ((column) >= first1) y = y1 + y1_offset - (long)first1 * y_column;
#define MATRIX_OF(second) y
#else
#define SELECT_MATRIX(column)
#define MATRIX_OF(second) y
#endif

#endif
