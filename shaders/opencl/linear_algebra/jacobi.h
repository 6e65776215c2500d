// Jacobi's method: rotations of pairs of columns in rounds. In a round all columns are in pairs, so that the rotations are
// independent, and the rounds of a sweep pair every two columns once (Brent and Luk 1985).

#ifndef POLYHAL_JACOBI
#define POLYHAL_JACOBI
#include "linear_algebra/matrices.h"

#define UNIT_float32 FLT_EPSILON
#define UNIT_float64 DBL_EPSILON
#define UNIT CONCAT(UNIT_, DTYPE)
#define MAX_EXPONENT_float32 120
#define MAX_EXPONENT_float64 1000
#define MAX_EXPONENT CONCAT(MAX_EXPONENT_, DTYPE)
// Convergence is quadratic: matrices of up to 64 rows take up to 10 sweeps.
#define MAX_SWEEPS 30

// Pair number k of a round of `even` columns, an even number; the columns in order.
FORCE_INLINE uint2 column_pair(const uint round, const uint k, const uint even) {
    const uint others = even - 1, above = round + k, below = round + others - k;
    const uint first = k == 0 ? others : above < others ? above : above - others;
    const uint second = below < others ? below : below - others;
    return first < second ? (uint2)(first, second) : (uint2)(second, first);
}

// A rotation by its sine and the tangent of half its angle: rounding errors of turned elements are proportional to the sine, so
// that the small rotations of the last sweeps preserve orthogonality (Rutishauser 1966).
typedef struct {
    REAL sine, half_tangent;
} Rotation;

#define TURNED_FIRST(turn, x, y) ((x) - (turn).sine * ((y) + (turn).half_tangent * (x)))
#define TURNED_SECOND(turn, x, y) ((y) + (turn).sine * ((x) - (turn).half_tangent * (y)))

// Turns the elements of two columns in one row.
FORCE_INLINE void turn_columns(__local REAL *tile, const uint row, const uint2 pair, const Rotation turn) {
    const REAL x = tile[row * PITCH + pair.x], y = tile[row * PITCH + pair.y];
    tile[row * PITCH + pair.x] = TURNED_FIRST(turn, x, y);
    tile[row * PITCH + pair.y] = TURNED_SECOND(turn, x, y);
}

// The rotation by the smaller angle that makes the product or the element `between` of two columns 0.
FORCE_INLINE Rotation rotation(const REAL first, const REAL second, const REAL between) {
    const REAL ratio = (second - first) / (2 * between);
    const REAL tangent = (ratio < 0 ? -1 : 1) / (fabs(ratio) + sqrt(1 + ratio * ratio));
    const REAL cosine = 1 / sqrt(1 + tangent * tangent);
    Rotation found;
    found.sine = tangent * cosine;
    found.half_tangent = found.sine / (1 + cosine);
    return found;
}

// The binary exponent of the largest element of a matrix, by which it is scaled so that no square over- or underflows. Each
// work-item calls it. `failed` becomes 1 if an element is not finite.
FORCE_INLINE int scale_exponent(__local const REAL *tile, const uint rows, const uint columns, __local REAL *largest,
                                __local uint *failed) {
    if (ITEM == 0) *failed = 0;
    SYNC;
    FOR_OWN(i, 0, rows) {
        REAL found = 0;
        for (uint j = 0; j < columns; j++) {
            const REAL size = fabs(tile[i * PITCH + j]);
            if (!IS_FINITE(REAL, size)) *failed = 1;
            found = size > found ? size : found;
        }
        largest[i] = found;
    }
    SYNC;
    REAL found = 0;
    for (uint i = 0; i < rows; i++) found = largest[i] > found ? largest[i] : found;
    const int exponent = found > 0 && !*failed ? ilogb(found) : 0;
    SYNC;
    return clamp(exponent, -MAX_EXPONENT, MAX_EXPONENT);
}

FORCE_INLINE void scale_tile(__local REAL *tile, const uint rows, const uint columns, const int exponent) {
    for (uint index = ITEM; index < rows * columns; index += GROUP) {
        const uint i = index / columns, j = index - i * columns;
        tile[i * PITCH + j] = ldexp(tile[i * PITCH + j], -exponent);
    }
    SYNC;
}

FORCE_INLINE void set_identity(__local REAL *tile, const uint size) {
    for (uint index = ITEM; index < size * size; index += GROUP) {
        const uint i = index / size, j = index - i * size;
        tile[i * PITCH + j] = i == j;
    }
}

#endif
