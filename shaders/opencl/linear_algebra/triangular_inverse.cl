// Inverses of the diagonal blocks of lower triangular matrices, of SIZE rows each. A group inverts one block, a work-item a column.

#ifndef SIZE
#define SIZE 32
#endif
#ifndef GROUP
#define GROUP 32
#endif
#include "linear_algebra/matrices.h"

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, blocks, unit;
} TriangularInverseGeometry;

__kernel void linear_algebra_triangular_inverse(OPERAND(a), __global REAL *inverses,
                                                const TriangularInverseGeometry geometry) {
    __local REAL tile[SIZE * PITCH];
    const ulong matrix = get_group_id(0) / geometry.blocks;
    const uint first = get_group_id(0) % geometry.blocks * SIZE, rows = min(geometry.rows - first, (uint)SIZE);
    const long a_at = MATRIX_OF(a, matrix);
    for (uint index = ITEM; index < SIZE * SIZE; index += GROUP) {
        const uint i = index / SIZE, j = index % SIZE;
        const bool present = i < rows && (j < i || (i == j && !geometry.unit));
        tile[i * PITCH + j] = present ? ELEMENT(a, a_at, first + i, first + j) : (REAL)(i == j);
    }
    SYNC;
    inverses += (ulong)get_group_id(0) * SIZE * SIZE;
    REAL x[SIZE];
    _Pragma("unroll") for (uint i = 0; i < SIZE; i++) x[i] = i == ITEM;
    _Pragma("unroll") for (uint j = 0; j < SIZE; j++) {
        x[j] /= tile[j * PITCH + j];
        // Zeros above the diagonal remain zeros, whatever is below it.
        if (ITEM <= j)
            _Pragma("unroll") for (uint i = j + 1; i < SIZE; i++) x[i] -= tile[i * PITCH + j] * x[j];
        inverses[j * SIZE + ITEM] = ITEM <= j ? x[j] : (REAL)0;
    }
}
