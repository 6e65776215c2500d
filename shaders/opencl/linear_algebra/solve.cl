// Solutions of a batch of small systems of equations, by elimination with partial pivoting and back substitution, and the number
// of the first pivot that is 0, or 0. With INVERSE the right sides are identity matrices. A group solves one system. Its right
// sides, up to RIGHT_SIZE columns, are in local memory, or with IN_GLOBAL in the result.

#ifndef INVERSE
#define INVERSE 0
#endif
#ifndef RIGHT_SIZE
#define RIGHT_SIZE 16
#endif
#include "linear_algebra/elimination.h"

#if INVERSE
#define RIGHT_SIDE(i, j) ((REAL)((i) == (j)))
#else
#define RIGHT_SIDE(i, j) ELEMENT(b, b_at, i, j)
#endif

typedef struct {
    MATRIX_MEMBERS(a);
#if !INVERSE
    MATRIX_MEMBERS(b);
#endif
    BATCH_MEMBERS;
    uint rows, columns;  // of the right sides
} SolveGeometry;

__kernel NO_AUTOVEC void linear_algebra_solve(OPERAND(a),
#if !INVERSE
                                   OPERAND(b),
#endif
                                   RESULT(DTYPE, out), RESULT(int32, info), const SolveGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS];
    __local uint chosen[SIZE];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns;
#if IN_GLOBAL
    __global REAL *right = out + out_offset + matrix * rows * columns;
    const uint pitch = columns;
#else
    __local REAL right[SIZE * (RIGHT_SIZE + 1)];
    const uint pitch = RIGHT_SIZE + 1;
#endif
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, rows)
#if !INVERSE
    const long b_at = MATRIX_OF(b, matrix);
#endif
    for (uint index = ITEM; index < rows * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        right[i * pitch + j] = RIGHT_SIDE(i, j);
    }
    const uint failed = eliminate(tile, rows, rows, 1, right, columns, pitch, chosen);
    for (uint j = rows; j-- > 0;) {
        const REAL pivot = tile[j * PITCH + j];
        FOR_OWN(c, 0, columns) right[j * pitch + c] /= pivot;
        SYNC;
        FOR_OWN(i, 0, j) {
            const REAL factor = tile[i * PITCH + j];
            SUBTRACT_MULTIPLE(right + i * pitch, right + j * pitch, factor, 0, columns)
        }
        SYNC;
    }
#if !IN_GLOBAL
    for (uint index = ITEM; index < rows * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        STORE(DTYPE, right[i * pitch + j], out, out_offset + matrix * rows * columns + index);
    }
#endif
    if (ITEM == 0) info[info_offset + matrix] = failed;
}
