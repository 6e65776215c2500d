// Lower triangles with ones on the diagonal of a batch of matrices. A work-item computes one element of `size`.

#include "linear_algebra/matrices.h"

typedef struct {
    ulong size;
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns;
} UnitLowerGeometry;

__kernel void linear_algebra_unit_lower(OPERAND(a), RESULT(DTYPE, out), const UnitLowerGeometry geometry) {
    const ulong item = get_global_id(0);
    if (item >= geometry.size) return;
    const ulong row = item / geometry.columns, matrix = row / geometry.rows;
    const uint j = item - row * geometry.columns, i = row - matrix * geometry.rows;
    const long a_at = MATRIX_OF(a, matrix);
    STORE(DTYPE, i > j ? ELEMENT(a, a_at, i, j) : (REAL)(i == j), out, out_offset + item);
}
