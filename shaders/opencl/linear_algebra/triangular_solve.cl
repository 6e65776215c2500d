// Solutions of a batch of small systems of equations with lower triangular matrices, by substitution. A group solves TILE_COLUMNS
// right sides, COLUMNS at a time: its work-items form COLUMNS columns and share the rows of each. Strides may be
// negative: an upper triangle is a lower one from the other end.

#ifndef COLUMNS
#define COLUMNS 1
#endif
#ifndef TILE_COLUMNS
#define TILE_COLUMNS 1
#endif
#include "linear_algebra/matrices.h"

#define ROW_ITEMS (GROUP / COLUMNS)
#define X_PITCH (TILE_COLUMNS + 1)

typedef struct {
    MATRIX_MEMBERS(a);
    MATRIX_MEMBERS(b);
    long out_matrix, out_row;  // signed strides of the result
    BATCH_MEMBERS;
    uint rows, columns, tiles, unit;
} TriangularSolveGeometry;

__kernel NO_AUTOVEC void linear_algebra_triangular_solve(OPERAND(a), OPERAND(b), RESULT(DTYPE, out),
                                              const TriangularSolveGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS];
    __local REAL x[SIZE * X_PITCH];
    const ulong matrix = get_group_id(0) / geometry.tiles;
    const uint rows = geometry.rows, first = (get_group_id(0) - matrix * geometry.tiles) * TILE_COLUMNS;
    const uint width = min(geometry.columns - first, (uint)TILE_COLUMNS);
    const uint own_column = ITEM % COLUMNS, own_row = ITEM / COLUMNS;
    const long a_at = MATRIX_OF(a, matrix), b_at = MATRIX_OF(b, matrix);
    for (uint index = ITEM; index < rows * rows; index += GROUP) {
        const uint i = index / rows, j = index - i * rows;
        if (j <= i) tile[i * PITCH + j] = ELEMENT(a, a_at, i, j);
    }
    for (uint index = ITEM; index < rows * TILE_COLUMNS; index += GROUP) {
        const uint i = index / TILE_COLUMNS, c = index % TILE_COLUMNS;
        if (c < width) x[i * X_PITCH + c] = ELEMENT(b, b_at, i, first + c);
    }
    SYNC;
    for (uint j = 0; j < rows; j++) {
        const REAL pivot = geometry.unit ? (REAL)1 : tile[j * PITCH + j];
        if (own_row == j % ROW_ITEMS)
            for (uint c = own_column; c < width; c += COLUMNS) x[j * X_PITCH + c] /= pivot;
        SYNC;
        for (uint i = j + 1 + (own_row + ROW_ITEMS - (j + 1) % ROW_ITEMS) % ROW_ITEMS; i < rows; i += ROW_ITEMS) {
            const REAL factor = tile[i * PITCH + j];
#if GROUP == 1
            SUBTRACT_MULTIPLE(x + i * X_PITCH, x + j * X_PITCH, factor, 0, width)
#else
            for (uint c = own_column; c < width; c += COLUMNS) x[i * X_PITCH + c] -= factor * x[j * X_PITCH + c];
#endif
        }
    }
    SYNC;
    out += (long)out_offset + (long)matrix * geometry.out_matrix;
    for (uint index = ITEM; index < rows * TILE_COLUMNS; index += GROUP) {
        const uint i = index / TILE_COLUMNS, c = index % TILE_COLUMNS;
        if (c < width) STORE(DTYPE, x[i * X_PITCH + c], out, (long)i * geometry.out_row + (long)(first + c));
    }
}
