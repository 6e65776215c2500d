// The first and the last step of a Cholesky factorization in place. cholesky_begin: the triangle of `a` and no failure.
// cholesky_end: blocks of the diagonal, and zeros in the other triangle, or everywhere if the matrix is not positive definite.
// A work-item has one element of `size`.

#include "linear_algebra/matrices.h"

typedef struct {
    ulong size;
    long row, column;  // strides of the result
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows;
} CholeskyBeginGeometry;

typedef struct {
    ulong size;
    long row, column;
    uint rows;
} CholeskyEndGeometry;

__kernel void cholesky_begin(OPERAND(a), RESULT(DTYPE, out), RESULT(int32, info), const CholeskyBeginGeometry geometry) {
    const ulong item = get_global_id(0);
    if (item >= geometry.size) return;
    const uint rows = geometry.rows;
    const ulong line = item / rows, matrix = line / rows;
    // Neighbouring work-items have neighbouring elements of the result.
    const uint x = item - line * rows, y = line - matrix * rows;
    const uint i = geometry.column == 1 ? y : x, j = geometry.column == 1 ? x : y;
    const long a_at = MATRIX_OF(a, matrix);
    if (j <= i) STORE(DTYPE, ELEMENT(a, a_at, i, j), out, out_offset + item);
    if (x == 0 && y == 0) info[info_offset + matrix] = 0;
}

__kernel void cholesky_end(RESULT(DTYPE, out), RESULT(int32, info), __global const REAL *diagonals,
                           const CholeskyEndGeometry geometry) {
    const ulong item = get_global_id(0);
    if (item >= geometry.size) return;
    const uint rows = geometry.rows;
    const ulong line = item / rows, matrix = line / rows;
    const uint x = item - line * rows, y = line - matrix * rows;
    const uint i = geometry.column == 1 ? y : x, j = geometry.column == 1 ? x : y;
    if (j > i || info[info_offset + matrix])
        STORE(DTYPE, (REAL)0, out, out_offset + item);
    else if (i / SIZE == j / SIZE)
        STORE(DTYPE, diagonals[(matrix * rows + i) * SIZE + j % SIZE], out, out_offset + item);
}
