// Cholesky factors of a batch of small symmetric matrices, and the order of the first leading minor that is not positive, or 0: the
// factor of such a matrix is 0. A group factors one matrix. It reads the lower triangle of a and computes the transposed factor
// U, so that each step reads rows; the strides of a and of the result exchange the triangles.

#include "linear_algebra/matrices.h"

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows;
    uint out_row, out_column, start;
} CholeskyGeometry;

__kernel NO_AUTOVEC void linear_algebra_cholesky(OPERAND(a), RESULT(DTYPE, out), RESULT(int32, info),
                                      const CholeskyGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows;
    const long a_at = MATRIX_OF(a, matrix);
    for (uint index = ITEM; index < rows * rows; index += GROUP) {
        const uint i = index / rows, j = index - i * rows;
        if (j <= i) tile[j * PITCH + i] = ELEMENT(a, a_at, i, j);
    }
    uint failed = 0;
    for (uint j = 0; j < rows && !failed; j++) {
        SYNC;
        const REAL minor = tile[j * PITCH + j];
        SYNC;
        if (minor > 0) {
            const REAL root = sqrt(minor);
            FOR_OWN(c, j, rows) tile[j * PITCH + c] = c == j ? root : tile[j * PITCH + c] / root;
            SYNC;
            FOR_OWN(i, j + 1, rows) {
                const REAL factor = tile[j * PITCH + i];
                SUBTRACT_MULTIPLE(tile + i * PITCH, tile + j * PITCH, factor, i, rows)
            }
        } else {
            failed = j + 1;
        }
    }
    SYNC;
    out += out_offset + matrix * rows * rows;
    for (uint index = ITEM; index < rows * rows; index += GROUP) {
        const uint i = index / rows, j = index - i * rows;
        const REAL value = j <= i && !failed ? tile[j * PITCH + i] : (REAL)0;
        STORE(DTYPE, value, out, i * geometry.out_row + j * geometry.out_column);
    }
    if (ITEM == 0) info[info_offset + matrix] = failed ? geometry.start + failed : 0;
}
