// C -= A B for parts A (rows x DEPTH), B (DEPTH x columns) and C of each matrix of a batch, in place: the columns to the right of a panel
// that has been factored. A group has TILE x TILE elements of C, a work-item 4 x 4 of them. With LOWER only tiles that contain
// elements of the lower triangle.

#ifndef GROUP
#define GROUP 256
#endif
#ifndef DEPTH
#define DEPTH 32
#endif
#ifndef LOWER
#define LOWER 0
#endif
// 1: neighbouring elements of an operand are in memory along the DEPTH terms.
#ifndef A_ALONG_DEPTH
#define A_ALONG_DEPTH 1
#endif
#ifndef B_ALONG_DEPTH
#define B_ALONG_DEPTH 0
#endif
#include "linear_algebra/matrices.h"

#define TILE 64
#define LINE (TILE + 4)
#define REAL4 CONCAT(REAL, 4)

typedef struct {
    ulong matrix;  // elements of a matrix
    long a_at, a_row, a_column, b_at, b_row, b_column, c_at, c_row, c_column;
    uint rows, columns, tiles, tile_columns;
} RankUpdateGeometry;

// Copies DEPTH x TILE elements, zeros after the first `count` rows or columns.
#define LOAD_TERMS(to, at, along_depth, depth_step, step, from, count)                          \
    for (uint index = ITEM; index < DEPTH * TILE; index += GROUP) {                             \
        const uint k = along_depth ? index % DEPTH : index / TILE, i = along_depth ? index / DEPTH : index % TILE; \
        to[k * LINE + i] = (from) + i < (count) ? matrix[(at) + (long)k * (depth_step) + (long)((from) + i) * (step)] : (REAL)0; \
    }

__kernel void linear_algebra_rank_update(RESULT(DTYPE, out), const RankUpdateGeometry geometry) {
    __local REAL4 quads[2 * DEPTH * LINE / 4];
    __local REAL *a = (__local REAL *)quads, *b = a + DEPTH * LINE;
    const ulong number = get_group_id(0) / geometry.tiles;
    const uint tile = get_group_id(0) % geometry.tiles;
    const uint first_row = tile / geometry.tile_columns * TILE, first_column = tile % geometry.tile_columns * TILE;
    if (LOWER && first_column > first_row) return;
    __global REAL *matrix = out + out_offset + number * geometry.matrix;
    LOAD_TERMS(a, geometry.a_at, A_ALONG_DEPTH, geometry.a_column, geometry.a_row, first_row, geometry.rows)
    LOAD_TERMS(b, geometry.b_at, B_ALONG_DEPTH, geometry.b_row, geometry.b_column, first_column, geometry.columns)
    SYNC;
    const uint i = ITEM / (TILE / 4) * 4, j = ITEM % (TILE / 4) * 4;
    REAL4 sums[4] = {0, 0, 0, 0};
    _Pragma("unroll 8") for (uint k = 0; k < DEPTH; k++) {
        const REAL4 x = quads[(k * LINE + i) / 4], y = quads[((DEPTH + k) * LINE + j) / 4];
        sums[0] += x.s0 * y;
        sums[1] += x.s1 * y;
        sums[2] += x.s2 * y;
        sums[3] += x.s3 * y;
    }
    _Pragma("unroll") for (uint r = 0; r < 4; r++) {
        const uint row = first_row + i + r, column = first_column + j;
        const REAL values[4] = {sums[r].s0, sums[r].s1, sums[r].s2, sums[r].s3};
        if (row < geometry.rows)
            _Pragma("unroll") for (uint c = 0; c < 4; c++)
                if (column + c < geometry.columns)
                    matrix[geometry.c_at + row * geometry.c_row + (column + c) * geometry.c_column] -= values[c];
    }
}
