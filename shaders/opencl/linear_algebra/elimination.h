// LU factors with partial pivoting of a matrix in local memory, as LAPACK's getrf: the right sides of a system follow its rows.

#ifndef POLYHAL_ELIMINATION
#define POLYHAL_ELIMINATION
#include "linear_algebra/matrices.h"

// Address space of the right sides.
#if IN_GLOBAL
#define RIGHT_SPACE __global
#else
#define RIGHT_SPACE __local
#endif

// The first row from `first` with the largest element of a column. A NaN counts as infinity.
FORCE_INLINE uint pivot_row(__local const REAL *tile, const uint column, const uint first, const uint rows) {
    REAL best = -1;
    uint found = first;
    for (uint i = first; i < rows; i++) {
        const REAL element = fabs(tile[i * PITCH + column]);
        const REAL size = isnan(element) ? INFINITY : element;
        if (size > best) {
            best = size;
            found = i;
        }
    }
    return found;
}

// Replaces a matrix by its factors and applies the same steps to `width` columns of right sides. `pivots` receives the row that
// each step exchanges. Returns the number of the first pivot that is 0, or 0.
FORCE_INLINE uint eliminate(__local REAL *tile, const uint rows, const uint columns, const uint exchange,
                            RIGHT_SPACE REAL *right, const uint width, const uint right_pitch, __local uint *pivots) {
    uint info = 0;
    for (uint j = 0; j < min(rows, columns); j++) {
        SYNC;
        const uint chosen = exchange ? pivot_row(tile, j, j, rows) : j;
        const REAL pivot = tile[chosen * PITCH + j];
        if (ITEM == 0) pivots[j] = chosen;
        if (pivot == 0 && !info) info = j + 1;
        if (chosen != j) {
            SYNC;
            FOR_OWN(c, 0, columns) {
                const REAL value = tile[j * PITCH + c];
                tile[j * PITCH + c] = tile[chosen * PITCH + c];
                tile[chosen * PITCH + c] = value;
            }
            FOR_OWN(c, 0, width) {
                const REAL value = right[j * right_pitch + c];
                right[j * right_pitch + c] = right[chosen * right_pitch + c];
                right[chosen * right_pitch + c] = value;
            }
        }
        SYNC;
        FOR_OWN(i, j + 1, rows) {
            const REAL below = tile[i * PITCH + j], factor = pivot == 0 ? below : below / pivot;
            tile[i * PITCH + j] = factor;
            SUBTRACT_MULTIPLE(tile + i * PITCH, tile + j * PITCH, factor, j + 1, columns)
            SUBTRACT_MULTIPLE(right + i * right_pitch, right + j * right_pitch, factor, 0, width)
        }
    }
    SYNC;
    return info;
}

#endif
