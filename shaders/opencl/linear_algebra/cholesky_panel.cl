// Steps of the right-looking Cholesky factorization of large matrices in place (LAPACK's potrf): columns [first, first + SIZE) of the
// factor, then linear_algebra/rank_update.cl for the columns to the right.
//
// A group has the diagonal block and SIZE rows below it in local memory, a work-item one row. Each group factors the diagonal block
// for itself, which takes no longer than a wait for another group would. BLOCK columns at a time, each work-item factors
// the block of the diagonal in registers and solves for its own row, so that columns within a block need no barriers.

#ifndef GROUP
#define GROUP 32
#endif
#ifndef UPPER
#define UPPER 0
#endif
#include "linear_algebra/matrices.h"

#define BLOCK 8
#define ROW (SIZE + 4)
#define REAL4 CONCAT(REAL, 4)
#define QUAD(i, j) (*(__local REAL4 *)(tile + (i) * ROW + (j)))

typedef struct {
    long row, column;  // strides of the result
    uint rows, first, tiles, start;
} CholeskyPanelGeometry;

__kernel void linear_algebra_cholesky_panel(RESULT(DTYPE, out), RESULT(int32, info), __global REAL *diagonals,
                                            const CholeskyPanelGeometry geometry) {
    __local REAL4 quads[2 * SIZE * ROW / 4];
    __local REAL *tile = (__local REAL *)quads;
    const uint rows = geometry.rows, first = geometry.first, own = get_group_id(0) % geometry.tiles;
    const ulong matrix = get_group_id(0) / geometry.tiles;
    const uint width = min(rows - first, (uint)SIZE), below = first + (own + 1) * SIZE;
    const uint own_rows = below < rows ? min(rows - below, (uint)SIZE) : 0;
    __global REAL *to = out + out_offset + matrix * rows * rows;
    for (uint index = ITEM; index < 2 * SIZE * SIZE; index += GROUP) {
#if UPPER
        const uint i = index % (2 * SIZE), j = index / (2 * SIZE);
#else
        const uint i = index / SIZE, j = index % SIZE;
#endif
        const uint row = i < SIZE ? first + i : below + i - SIZE;
        const bool present = i < SIZE ? i < width && j <= i : i - SIZE < own_rows;
        tile[i * ROW + j] = present ? to[row * geometry.row + (first + j) * geometry.column] : (REAL)(i == j);
    }
    SYNC;
    uint failed = 0;
    for (uint block = 0; block < SIZE; block += BLOCK) {
        REAL corner[BLOCK][BLOCK], inverse[BLOCK], mine[BLOCK];
        _Pragma("unroll") for (uint i = 0; i < BLOCK; i++)
            _Pragma("unroll") for (uint j = 0; j <= i; j++) corner[i][j] = tile[(block + i) * ROW + block + j];
        _Pragma("unroll") for (uint j = 0; j < BLOCK; j++) {
            if (!(corner[j][j] > 0) && !failed) failed = block + j + 1;
            inverse[j] = rsqrt(corner[j][j]);
            corner[j][j] *= inverse[j];
            _Pragma("unroll") for (uint i = j + 1; i < BLOCK; i++) corner[i][j] *= inverse[j];
            _Pragma("unroll") for (uint i = j + 1; i < BLOCK; i++)
                _Pragma("unroll") for (uint t = j + 1; t <= i; t++) corner[i][t] -= corner[i][j] * corner[t][j];
        }
        const uint i = ITEM;
        if (i >= block + BLOCK) {
            _Pragma("unroll") for (uint j = 0; j < BLOCK; j++) mine[j] = tile[i * ROW + block + j];
            _Pragma("unroll") for (uint j = 0; j < BLOCK; j++) {
                mine[j] *= inverse[j];
                _Pragma("unroll") for (uint t = j + 1; t < BLOCK; t++) mine[t] -= mine[j] * corner[t][j];
            }
        } else {
            _Pragma("unroll") for (uint a = 0; a < BLOCK; a++)
                if (i == block + a)
                    _Pragma("unroll") for (uint j = 0; j < BLOCK; j++) mine[j] = j <= a ? corner[a][j] : (REAL)0;
        }
        SYNC;
        if (i >= block)
            _Pragma("unroll") for (uint j = 0; j < BLOCK; j++) tile[i * ROW + block + j] = mine[j];
        SYNC;
        if (i >= block + BLOCK) {
            for (uint c = block + BLOCK; c < SIZE && c <= i; c += 4) {
                REAL4 sum = QUAD(i, c);
                REAL sums[4] = {sum.s0, sum.s1, sum.s2, sum.s3};
                _Pragma("unroll") for (uint k = 0; k < 4; k++) {
                    const REAL4 low = QUAD(c + k, block), high = QUAD(c + k, block + 4);
                    sums[k] -= mine[0] * low.s0 + mine[1] * low.s1 + mine[2] * low.s2 + mine[3] * low.s3 +
                               mine[4] * high.s0 + mine[5] * high.s1 + mine[6] * high.s2 + mine[7] * high.s3;
                }
                QUAD(i, c) = (REAL4)(sums[0], sums[1], sums[2], sums[3]);
            }
        }
        SYNC;
    }
    // Other groups may still read the diagonal block: its factor moves to the result at the end.
    if (own == 0) {
        for (uint index = ITEM; index < width * SIZE; index += GROUP) {
            const uint i = index / SIZE, j = index % SIZE;
            diagonals[(matrix * rows + first + i) * SIZE + j] = tile[i * ROW + j];
        }
        if (ITEM == 0 && failed && info[info_offset + matrix] == 0)
            info[info_offset + matrix] = geometry.start + first + failed;
    }
    for (uint index = ITEM; index < SIZE * SIZE; index += GROUP) {
#if UPPER
        const uint i = index % SIZE, j = index / SIZE;
#else
        const uint i = index / SIZE, j = index % SIZE;
#endif
        if (i < own_rows) to[(below + i) * geometry.row + (first + j) * geometry.column] = tile[(SIZE + i) * ROW + j];
    }
}
