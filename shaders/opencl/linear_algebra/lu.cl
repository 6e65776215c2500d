// LU factors with partial pivoting of a batch of small matrices: L and U in one matrix, pivots numbered from 1, and the number
// of the first pivot that is 0, or 0; numbers include `start` rows before the matrix. A group factors one matrix.

#include "linear_algebra/elimination.h"

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns, exchange, start;
} LuGeometry;

__kernel NO_AUTOVEC void linear_algebra_lu(OPERAND(a), RESULT(DTYPE, out), RESULT(int32, pivots), RESULT(int32, info),
                                const LuGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS];
    __local uint chosen[SIZE];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, steps = min(rows, columns);
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, columns)
    const uint failed = eliminate(tile, rows, columns, geometry.exchange, tile, 0, 0, chosen);
    STORE_TILE(tile, out, matrix, rows, columns)
    FOR_OWN(j, 0, steps) pivots[pivots_offset + matrix * steps + j] = geometry.start + chosen[j] + 1;
    if (ITEM == 0) info[info_offset + matrix] = failed ? geometry.start + failed : 0;
}

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows;
} DeterminantGeometry;

// The determinant of each square matrix; or the sign, and the logarithm of the absolute value, of each.
#define DETERMINANT(STEP, END)                                                                                         \
    __local REAL tile[TILE_ELEMENTS];                                                                                  \
    __local uint chosen[SIZE];                                                                                         \
    const ulong matrix = get_group_id(0);                                                                              \
    const uint rows = geometry.rows;                                                                                   \
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, rows)                                                               \
    const uint failed = eliminate(tile, rows, rows, 1, tile, 0, 0, chosen);                                            \
    if (ITEM == 0) {                                                                                                   \
        REAL product = 1, total = 0;                                                                                   \
        for (uint j = 0; j < rows; j++) {                                                                              \
            const REAL pivot = tile[j * PITCH + j];                                                                    \
            if (chosen[j] != j) product = -product;                                                                    \
            STEP                                                                                                       \
        }                                                                                                              \
        END                                                                                                            \
    }

__kernel NO_AUTOVEC void lu_determinant(OPERAND(a), RESULT(DTYPE, out), const DeterminantGeometry geometry) {
    DETERMINANT(product *= pivot;, STORE(DTYPE, failed ? (REAL)0 : product, out, out_offset + matrix);)
}

__kernel NO_AUTOVEC void lu_log_determinant(OPERAND(a), RESULT(DTYPE, sign), RESULT(DTYPE, logabsdet),
                                 const DeterminantGeometry geometry) {
    DETERMINANT(if (pivot < 0) product = -product; total += log(fabs(pivot));,
                STORE(DTYPE, failed ? (REAL)0 : product, sign, sign_offset + matrix);
                STORE(DTYPE, failed ? -(REAL)INFINITY : total, logabsdet, logabsdet_offset + matrix);)
}
