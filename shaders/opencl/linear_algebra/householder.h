// Householder reflections I - tau v v^T of a matrix in local memory; v has a 1 on the diagonal and is stored below it.

#ifndef POLYHAL_HOUSEHOLDER
#define POLYHAL_HOUSEHOLDER
#include "linear_algebra/matrices.h"

#if IN_GLOBAL
#define Q_SPACE __global
#else
#define Q_SPACE __local
#endif

// The reflection that maps a column (alpha, x) to (beta, 0): v = (1, x * scale). LAPACK's larfg.
typedef struct {
    REAL beta, tau, scale;
} Reflection;

FORCE_INLINE Reflection reflection(const REAL alpha, const REAL largest, const REAL squares) {
    Reflection found;
    if (largest == 0) {
        found.beta = alpha;
        found.tau = 0;
        found.scale = 0;
        return found;
    }
    // `squares` is the sum of the squares of x / largest.
    const REAL norm = hypot(alpha, largest * sqrt(squares));
    found.beta = alpha >= 0 ? -norm : norm;
    found.tau = (found.beta - alpha) / found.beta;
    found.scale = 1 / (alpha - found.beta);
    return found;
}

// Reduces a matrix to R above and the vectors v below its diagonal.
FORCE_INLINE void reflect(__local REAL *tile, const uint rows, const uint columns, __local REAL *scales) {
    for (uint j = 0; j < min(rows, columns); j++) {
        SYNC;
        // Each work-item computes the reflection: that needs no exchange.
        REAL largest = 0, squares = 0;
        for (uint i = j + 1; i < rows; i++) {
            const REAL size = fabs(tile[i * PITCH + j]);
            largest = size > largest || size != size ? size : largest;
        }
        for (uint i = j + 1; i < rows; i++) {
            const REAL part = tile[i * PITCH + j] / largest;
            squares += part * part;
        }
        const Reflection h = reflection(tile[j * PITCH + j], largest, squares);
#if GROUP == 1
        REAL along[SIZE];
        for (uint c = j + 1; c < columns; c++) along[c] = tile[j * PITCH + c];
        for (uint i = j + 1; i < rows; i++)
            SUBTRACT_MULTIPLE(along, tile + i * PITCH, -tile[i * PITCH + j] * h.scale, j + 1, columns)
        for (uint c = j + 1; c < columns; c++) tile[j * PITCH + c] -= along[c] * h.tau;
        for (uint i = j + 1; i < rows; i++)
            SUBTRACT_MULTIPLE(tile + i * PITCH, along, tile[i * PITCH + j] * h.scale * h.tau, j + 1, columns)
#else
        FOR_OWN(c, j + 1, columns) {
            REAL along = tile[j * PITCH + c];
            for (uint i = j + 1; i < rows; i++) along += tile[i * PITCH + j] * h.scale * tile[i * PITCH + c];
            along *= h.tau;
            tile[j * PITCH + c] -= along;
            for (uint i = j + 1; i < rows; i++) tile[i * PITCH + c] -= tile[i * PITCH + j] * h.scale * along;
        }
#endif
        SYNC;
        FOR_OWN(i, j + 1, rows) tile[i * PITCH + j] *= h.scale;
        if (ITEM == 0) {
            tile[j * PITCH + j] = h.beta;
            scales[j] = h.tau;
        }
    }
    SYNC;
}

// The first `columns` columns of the product of `steps` reflections.
FORCE_INLINE void form_q(__local const REAL *tile, __local const REAL *scales, const uint steps, Q_SPACE REAL *q,
                         const uint rows, const uint columns, const uint pitch) {
#if GROUP == 1
    REAL along[SIZE];
    for (uint i = 0; i < rows; i++)
        for (uint c = 0; c < columns; c++) q[i * pitch + c] = i == c;
    for (uint j = min(steps, columns); j-- > 0;) {
        for (uint c = j; c < columns; c++) along[c] = q[j * pitch + c];
        for (uint i = j + 1; i < rows; i++)
            SUBTRACT_MULTIPLE(along, q + i * pitch, -tile[i * PITCH + j], j, columns)
        for (uint c = j; c < columns; c++) q[j * pitch + c] -= along[c] * scales[j];
        for (uint i = j + 1; i < rows; i++)
            SUBTRACT_MULTIPLE(q + i * pitch, along, tile[i * PITCH + j] * scales[j], j, columns)
    }
#else
    FOR_OWN(c, 0, columns) {
        for (uint i = 0; i < rows; i++) q[i * pitch + c] = i == c;
        for (uint j = min(steps, c + 1); j-- > 0;) {
            REAL along = q[j * pitch + c];
            for (uint i = j + 1; i < rows; i++) along += tile[i * PITCH + j] * q[i * pitch + c];
            along *= scales[j];
            q[j * pitch + c] -= along;
            for (uint i = j + 1; i < rows; i++) q[i * pitch + c] -= tile[i * PITCH + j] * along;
        }
    }
#endif
}

#endif
