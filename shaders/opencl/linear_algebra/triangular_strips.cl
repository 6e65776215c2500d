// Solutions of systems of equations with large lower triangular matrices, from the inverses of their diagonal blocks of BLOCK rows
// (linear_algebra/triangular_inverse.cl). A group solves COLUMNS right sides, which it has in local memory: a block of the
// solution is a product with an inverse, and the rows below it follow by products with GROUP rows of the matrix at a time.
// Strides may be negative: an upper triangle is a lower one from the other end.
//
// Such solutions are as accurate as substitution unless a diagonal block is far worse conditioned than its equations show (Du Croz,
// Higham 1992, Stability of methods for matrix inversion).

#ifndef GROUP
#define GROUP 256
#endif
#ifndef COLUMNS
#define COLUMNS 8
#endif
// 1: neighbouring elements of a column of the matrix are neighbours in memory.
#ifndef ALONG_ROWS
#define ALONG_ROWS 0
#endif
#include "linear_algebra/matrices.h"

#define BLOCK 32
#define A_PITCH (BLOCK + 1)
// From one of the elements that a work-item copies to the next.
#define NEXT_ROW (ALONG_ROWS ? 0 : GROUP / BLOCK)
#define NEXT_COLUMN (ALONG_ROWS ? 1 : 0)
#if COLUMNS == 1
#define V REAL
#else
#define V CONCAT(REAL, COLUMNS)
#endif

typedef struct {
    MATRIX_MEMBERS(a);
    MATRIX_MEMBERS(b);
    long out_matrix, out_row;  // signed strides of the result
    BATCH_MEMBERS;
    uint rows, columns, strips, blocks;
} TriangularStripsGeometry;

__kernel void linear_algebra_triangular_strips(OPERAND(a), OPERAND(b), RESULT(DTYPE, out), __global const REAL *inverses,
                                               const TriangularStripsGeometry geometry) {
    __local V solution[SIZE];
    __local REAL tile[GROUP * A_PITCH], *x = (__local REAL *)solution;
    const ulong matrix = get_group_id(0) / geometry.strips;
    const uint rows = geometry.rows, first = get_group_id(0) % geometry.strips * COLUMNS;
    const uint width = min(geometry.columns - first, (uint)COLUMNS);
    const long a_at = MATRIX_OF(a, matrix), b_at = MATRIX_OF(b, matrix);
    for (uint index = ITEM; index < SIZE * COLUMNS; index += GROUP) {
        const uint i = index / COLUMNS, c = index % COLUMNS;
        x[index] = i < rows && c < width ? ELEMENT(b, b_at, i, first + c) : (REAL)0;
    }
    inverses += matrix * geometry.blocks * BLOCK * BLOCK;
    const uint own_row = ITEM / COLUMNS, own_column = ITEM % COLUMNS;
    const uint from_row = ALONG_ROWS ? ITEM : ITEM / BLOCK, from_column = ALONG_ROWS ? 0 : ITEM % BLOCK;
    const long step = NEXT_ROW * geometry.a_row + NEXT_COLUMN * geometry.a_column;
    for (uint block = 0; block < rows; block += BLOCK, inverses += BLOCK * BLOCK) {
        // The inverse is read while others still work on the rows below the previous block.
        REAL inverse[BLOCK], sum = 0;
        if (own_row < BLOCK)
            _Pragma("unroll") for (uint t = 0; t < BLOCK; t++) inverse[t] = inverses[own_row * BLOCK + t];
        SYNC;
        if (own_row < BLOCK)
            _Pragma("unroll") for (uint t = 0; t < BLOCK; t++)
                sum += t <= own_row ? inverse[t] * x[(block + t) * COLUMNS + own_column] : (REAL)0;
        SYNC;
        if (own_row < BLOCK) x[(block + own_row) * COLUMNS + own_column] = sum;
        for (uint row = block + BLOCK; row < rows; row += GROUP) {
            REAL elements[BLOCK];
            const long at = a_at + (row + from_row) * geometry.a_row + (block + from_column) * geometry.a_column;
            _Pragma("unroll") for (uint k = 0; k < BLOCK; k++)
                elements[k] = row + from_row + k * NEXT_ROW < rows ? LOAD(DTYPE, a, at + k * step) : (REAL)0;
            SYNC;
            _Pragma("unroll") for (uint k = 0; k < BLOCK; k++)
                tile[(from_row + k * NEXT_ROW) * A_PITCH + from_column + k * NEXT_COLUMN] = elements[k];
            SYNC;
            if (row + ITEM < rows) {
                V sum = solution[row + ITEM];
                _Pragma("unroll 8") for (uint t = 0; t < BLOCK; t++) sum -= tile[ITEM * A_PITCH + t] * solution[block + t];
                solution[row + ITEM] = sum;
            }
        }
    }
    SYNC;
    out += (long)out_offset + (long)matrix * geometry.out_matrix;
    for (uint index = ITEM; index < rows * COLUMNS; index += GROUP) {
        const uint i = index / COLUMNS, c = index % COLUMNS;
        if (c < width) STORE(DTYPE, x[index], out, (long)i * geometry.out_row + (long)(first + c));
    }
}
