// QR factors of a batch of small matrices by Householder reflections, as LAPACK's geqrf and orgqr. A group factors one matrix.
// Each work-item has columns of its own, to which it applies the reflections.
//
// linear_algebra_qr: R above and Householder vectors below the diagonal, and their scales tau. qr_factors: Q (rows x
// kept) and R (kept x columns), where kept is the number of rows of R; Q is in local memory, or with IN_GLOBAL in the result, or with
// WITH_Q 0 not computed.

#ifndef WITH_Q
#define WITH_Q 1
#endif
#include "linear_algebra/householder.h"

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns;
} HouseholderGeometry;

typedef struct {
    MATRIX_MEMBERS(a);
    BATCH_MEMBERS;
    uint rows, columns, kept;
} QrGeometry;

__kernel NO_AUTOVEC void linear_algebra_qr(OPERAND(a), RESULT(DTYPE, out), RESULT(DTYPE, tau), const HouseholderGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS], scales[SIZE];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, steps = min(rows, columns);
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, columns)
    reflect(tile, rows, columns, scales);
    STORE_TILE(tile, out, matrix, rows, columns)
    FOR_OWN(j, 0, steps) STORE(DTYPE, scales[j], tau, tau_offset + matrix * steps + j);
}

__kernel NO_AUTOVEC void qr_factors(OPERAND(a),
#if WITH_Q
                         RESULT(DTYPE, q),
#endif
                         RESULT(DTYPE, r), const QrGeometry geometry) {
    __local REAL tile[TILE_ELEMENTS], scales[SIZE];
    const ulong matrix = get_group_id(0);
    const uint rows = geometry.rows, columns = geometry.columns, kept = geometry.kept, steps = min(rows, columns);
    LOAD_TILE(tile, a, MATRIX_OF(a, matrix), rows, columns)
    reflect(tile, rows, columns, scales);
    r += r_offset + matrix * kept * columns;
    for (uint index = ITEM; index < kept * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        STORE(DTYPE, i <= j ? tile[i * PITCH + j] : (REAL)0, r, index);
    }
#if WITH_Q
    __global REAL *out = q + q_offset + matrix * rows * kept;
#if IN_GLOBAL
    form_q(tile, scales, steps, out, rows, kept, kept);
#else
    __local REAL formed[TILE_ELEMENTS];
    form_q(tile, scales, steps, formed, rows, kept, PITCH);
    SYNC;
    for (uint index = ITEM; index < rows * kept; index += GROUP) {
        const uint i = index / kept, j = index - i * kept;
        STORE(DTYPE, formed[i * PITCH + j], out, index);
    }
#endif
#endif
}
