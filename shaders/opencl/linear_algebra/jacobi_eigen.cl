// Eigenvalues, ascending, and eigenvectors of a batch of small symmetric matrices by Jacobi's method, and 1 for matrices with an element
// that is not finite, or 0. A group diagonalizes one matrix. It reads the lower triangle of a.

#ifndef WITH_VECTORS
#define WITH_VECTORS 1
#endif
#include "linear_algebra/jacobi.h"

#define PAIRS (SIZE / 2)

// Numbers k <= l of two pairs, for an index below PAIRS / 2 * (PAIRS + 1): row k of this triangle and its k-th last row together
// have PAIRS + 1 elements.
FORCE_INLINE uint2 two_pairs(const uint index) {
    const uint row = index / (PAIRS + 1), at = index - row * (PAIRS + 1), length = PAIRS - row;
    return at < length ? (uint2)(row, row + at) : (uint2)(length - 1, at - 1);
}

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows;
} JacobiEigenGeometry;

__kernel NO_AUTOVEC void linear_algebra_jacobi_eigen(OPERAND(a), RESULT(DTYPE, values),
#if WITH_VECTORS
                                                     RESULT(DTYPE, vectors),
#endif
                                                     RESULT(int32, info), const JacobiEigenGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS], largest[SIZE];
    __local Rotation rotations[SIZE / 2];
    __local uint failed, rotated;
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, even = rows + rows % 2, pairs = even / 2;
    const long a_at = MATRIX_OF(a, matrix);
    // A matrix with an odd number of rows gets another one of zeros.
    for (uint index = ITEM; index < even * even; index += GROUP) {
        const uint i = index / even, j = index - i * even;
        const bool inside = i < rows && j < rows;
        tile[i * PITCH + j] = inside ? ELEMENT(a, a_at, max(i, j), min(i, j)) : (REAL)0;
    }
#if WITH_VECTORS
    __local REAL basis[TILE_ELEMENTS];
    set_identity(basis, even);
#endif
    const int exponent = scale_exponent(tile, rows, rows, largest, &failed);
    scale_tile(tile, rows, rows, exponent);
    for (uint sweep = 0; sweep < MAX_SWEEPS && !failed; sweep++) {
        SYNC;
        if (ITEM == 0) rotated = 0;
        for (uint round = 0; round + 1 < even; round++) {
            SYNC;
            FOR_OWN(k, 0, pairs) {
                const uint2 pair = column_pair(round, k, even);
                const REAL first = tile[pair.x * PITCH + pair.x], second = tile[pair.y * PITCH + pair.y];
                const REAL between = tile[pair.x * PITCH + pair.y];
                Rotation chosen;
                chosen.sine = chosen.half_tangent = 0;
                if (fabs(between) > UNIT / 4 * fmax(fabs(first), fabs(second))) {
                    chosen = rotation(first, second, between);
                    rotated = 1;
                }
                rotations[k] = chosen;
            }
            SYNC;
            // Both rotations of the 2 x 2 block of two pairs, and of its mirror image.
            for (uint index = ITEM; index < PAIRS / 2 * (PAIRS + 1); index += GROUP) {
                const uint2 both = two_pairs(index);
                const uint k = both.x, l = both.y;
                if (l >= pairs) continue;
                const Rotation left = rotations[k], right = rotations[l];
                if (left.sine == 0 && right.sine == 0) continue;
                const uint2 i = column_pair(round, k, even), j = column_pair(round, l, even);
                const REAL xx = tile[i.x * PITCH + j.x], xy = tile[i.x * PITCH + j.y];
                const REAL yx = tile[i.y * PITCH + j.x], yy = tile[i.y * PITCH + j.y];
                const REAL upper_x = TURNED_FIRST(left, xx, yx), upper_y = TURNED_FIRST(left, xy, yy);
                const REAL lower_x = TURNED_SECOND(left, xx, yx), lower_y = TURNED_SECOND(left, xy, yy);
                const REAL new_xx = TURNED_FIRST(right, upper_x, upper_y);
                const REAL new_yy = TURNED_SECOND(right, lower_x, lower_y);
                const bool diagonal = k == l && left.sine != 0;
                const REAL new_xy = diagonal ? (REAL)0 : TURNED_SECOND(right, upper_x, upper_y);
                const REAL new_yx = diagonal ? (REAL)0 : TURNED_FIRST(right, lower_x, lower_y);
                tile[i.x * PITCH + j.x] = tile[j.x * PITCH + i.x] = new_xx;
                tile[i.x * PITCH + j.y] = tile[j.y * PITCH + i.x] = new_xy;
                if (k != l) tile[i.y * PITCH + j.x] = tile[j.x * PITCH + i.y] = new_yx;
                tile[i.y * PITCH + j.y] = tile[j.y * PITCH + i.y] = new_yy;
            }
#if WITH_VECTORS
            for (uint index = ITEM; index < SIZE * PAIRS; index += GROUP) {
                const uint k = index / SIZE, i = index % SIZE;
                if (k >= pairs || i >= rows || rotations[k].sine == 0) continue;
                turn_columns(basis, i, column_pair(round, k, even), rotations[k]);
            }
#endif
        }
        SYNC;
        if (!rotated) break;
    }
    SYNC;
    FOR_OWN(j, 0, rows) {
        const REAL value = tile[j * PITCH + j];
        uint place = 0;
        for (uint i = 0; i < rows; i++) {
            const REAL other = tile[i * PITCH + i];
            place += other < value || (other == value && i < j);
        }
        place = failed ? j : place;
        STORE(DTYPE, failed ? (REAL)NAN : ldexp(value, exponent), values, values_offset + matrix * rows + place);
#if WITH_VECTORS
        __global STORAGE(DTYPE) *to = vectors + vectors_offset + matrix * rows * rows;
        for (uint i = 0; i < rows; i++) STORE(DTYPE, basis[i * PITCH + j], to, i * rows + place);
#endif
    }
    if (ITEM == 0) info[info_offset + matrix] = failed;
}
