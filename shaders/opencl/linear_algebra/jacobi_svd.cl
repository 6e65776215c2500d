// Singular values, descending, and vectors of a batch of small matrices with at least as many rows as columns, by one-sided
// Jacobi rotations of columns (Hestenes 1958), and 1 for matrices with an element that is not finite, or 0. A group decomposes one
// matrix; TEAM work-items rotate a pair of columns.
//
// The rotated columns are the left vectors times singular values. Their QR factors make orthonormal vectors of them, also where a
// singular value is 0, and complete these to a basis.

#ifndef WITH_VECTORS
#define WITH_VECTORS 1
#endif
#ifndef TEAM
#define TEAM 8
#endif
#define TEAMS (GROUP / TEAM)
#include "linear_algebra/householder.h"
#include "linear_algebra/jacobi.h"

typedef struct {
    MATRIX_MEMBERS(a);
#if WITH_VECTORS
    ulong left_matrix, left_row, left_column, right_matrix, right_row, right_column;  // strides of the results
#endif
    BATCH_MEMBERS;
    uint rows, columns;
#if WITH_VECTORS
    uint kept;  // left vectors
#endif
} JacobiSvdGeometry;

typedef struct {
    REAL first, second, between;
} Products;

__kernel NO_AUTOVEC void linear_algebra_jacobi_svd(OPERAND(a),
#if WITH_VECTORS
                                                   RESULT(DTYPE, left), RESULT(DTYPE, right),
#endif
                                                   RESULT(DTYPE, values), RESULT(int32, info),
                                                   const JacobiSvdGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS], sizes[SIZE];
    __local Products sums[GROUP];
    __local uint failed, rotated;
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, even = columns + columns % 2, pairs = even / 2;
    const uint team = ITEM / TEAM, lane = ITEM % TEAM;
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, columns)
#if WITH_VECTORS
    __local REAL basis[TILE_ELEMENTS], scales[SIZE];
    __local uint places[SIZE];
    set_identity(basis, columns);
#endif
    SYNC;
    const int exponent = scale_exponent(tile, rows, columns, sizes, &failed);
    scale_tile(tile, rows, columns, exponent);
    const REAL least = UNIT * UNIT, accuracy = UNIT * sqrt((REAL)rows);
    for (uint sweep = 0; sweep < MAX_SWEEPS && !failed; sweep++) {
        SYNC;
        if (ITEM == 0) rotated = 0;
        for (uint round = 0; round + 1 < even; round++) {
            for (uint first_pair = 0; first_pair < pairs; first_pair += TEAMS) {
                const uint k = first_pair + team;
                const uint2 pair = column_pair(round, min(k, pairs - 1), even);
                const bool active = k < pairs && pair.y < columns;
                Products mine;
                mine.first = mine.second = mine.between = 0;
                SYNC;
                if (active)
                    for (uint i = lane; i < rows; i += TEAM) {
                        const REAL x = tile[i * PITCH + pair.x], y = tile[i * PITCH + pair.y];
                        mine.first += x * x;
                        mine.second += y * y;
                        mine.between += x * y;
                    }
                sums[ITEM] = mine;
                SYNC;
                if (active) {
                    mine = sums[team * TEAM];
                    for (uint t = 1; t < TEAM; t++) {
                        mine.first += sums[team * TEAM + t].first;
                        mine.second += sums[team * TEAM + t].second;
                        mine.between += sums[team * TEAM + t].between;
                    }
                    // The largest element is near 1: columns below a unit of it are as good as 0.
                    const REAL sizes_of_both = sqrt(mine.first) * sqrt(mine.second);
                    if (fmin(mine.first, mine.second) > least && fabs(mine.between) > accuracy * sizes_of_both) {
                        const Rotation turn = rotation(mine.first, mine.second, mine.between);
                        rotated = 1;
                        for (uint i = lane; i < rows; i += TEAM) turn_columns(tile, i, pair, turn);
#if WITH_VECTORS
                        for (uint i = lane; i < columns; i += TEAM) turn_columns(basis, i, pair, turn);
#endif
                    }
                }
            }
        }
        SYNC;
        if (!rotated) break;
    }
    SYNC;
    FOR_OWN(j, 0, columns) {
        REAL square = 0;
        for (uint i = 0; i < rows; i++) square += tile[i * PITCH + j] * tile[i * PITCH + j];
        sizes[j] = sqrt(square);
    }
    SYNC;
    FOR_OWN(j, 0, columns) {
        uint place = 0;
        for (uint i = 0; i < columns; i++) place += sizes[i] > sizes[j] || (sizes[i] == sizes[j] && i < j);
        place = failed ? j : place;
        const REAL value = failed ? (REAL)NAN : ldexp(sizes[j], exponent);
        STORE(DTYPE, value, values, values_offset + matrix * columns + place);
#if WITH_VECTORS
        places[j] = place;
#endif
    }
    if (ITEM == 0) info[info_offset + matrix] = failed;
#if WITH_VECTORS
    SYNC;
    right += right_offset + matrix * geometry.right_matrix;
    for (uint index = ITEM; index < columns * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        STORE(DTYPE, basis[i * PITCH + j], right, i * geometry.right_row + places[j] * geometry.right_column);
    }
    SYNC;
    for (uint index = ITEM; index < rows * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        basis[i * PITCH + places[j]] = tile[i * PITCH + j];
    }
    reflect(basis, rows, columns, scales);
    form_q(basis, scales, min(rows, columns), tile, rows, geometry.kept, PITCH);
    SYNC;
    left += left_offset + matrix * geometry.left_matrix;
    for (uint index = ITEM; index < rows * geometry.kept; index += GROUP) {
        const uint i = index / geometry.kept, j = index - i * geometry.kept;
        const bool turned = j < columns && basis[j * PITCH + j] < 0;
        const REAL value = tile[i * PITCH + j];
        STORE(DTYPE, turned ? -value : value, left, i * geometry.left_row + j * geometry.left_column);
    }
#endif
}
