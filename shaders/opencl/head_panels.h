// Register tiles of attention on a CPU: MR rows by NR columns of scores, from rows that lie feature by feature in private memory and
// columns that matmul_pack.cl has packed into panels, zeros past the ends.

#ifndef POLYHAL_HEAD_PANELS
#define POLYHAL_HEAD_PANELS

#ifndef WIDTH
#define WIDTH 16
#endif
#ifndef MR
#define MR 6
#endif
#ifndef VECTORS
#define VECTORS 4
#endif
// Vectors per panel of the features of keys and of values.
#ifndef KEY_VECTORS
#define KEY_VECTORS 4
#endif
#ifndef VALUE_VECTORS
#define VALUE_VECTORS 4
#endif
// Bounds of the lengths of a key and of a value, rounded up to whole panels.
#ifndef MAX_FEATURES
#define MAX_FEATURES 64
#endif
#ifndef MAX_VALUES
#define MAX_VALUES 64
#endif
// Features lie side by side in whole panels of the type of the sums, so that what is gathered needs no packing.
#ifndef IN_PLACE
#define IN_PLACE 0
#endif
#define ALIGNED 0
#include "dtypes.h"
#include "vectors.h"
#include "exponential.h"

typedef VEC(REAL) V;
#include "lanes.h"
#define NR (VECTORS * WIDTH)
#define KEY_PANEL (KEY_VECTORS * WIDTH)
#define VALUE_PANEL (VALUE_VECTORS * WIDTH)

// Reads MR rows from `row` on of an operand, times `factor`, feature by feature; those from `limit` on repeat the last one.
#define READ_ROWS(D, rows, name, row, limit, length, factor)                                       \
    for (uint r_ = 0; r_ < MR; r_++) {                                                             \
        __global const STORAGE(D) *from_ = name + (long)min((row) + r_, (limit)-1) * name##_row;   \
        for (uint c_ = 0; c_ < (length); c_++) (rows)[c_ * MR + r_] = LOAD(D, from_, c_ * name##_column) * (factor); \
    }

// tile = rows x panel: MR rows by NR columns over `depth` features.
inline void multiply_panel(__private const REAL *rows, __global const REAL *panel, const uint depth, __private REAL *tile) {
    V sums[MR][VECTORS];
#pragma unroll
    for (uint r = 0; r < MR; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) sums[r][v] = (V)(0);
    __global const V *right = (__global const V *)panel;
    for (uint c = 0; c < depth; c++) {
        V b[VECTORS];
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) b[v] = right[v];
#pragma unroll
        for (uint r = 0; r < MR; r++)
#pragma unroll
            for (uint v = 0; v < VECTORS; v++) sums[r][v] += (V)(rows[r]) * b[v];
        right += VECTORS;
        rows += MR;
    }
#pragma unroll
    for (uint r = 0; r < MR; r++)
#pragma unroll
        for (uint v = 0; v < VECTORS; v++) ((__private V *)tile)[r * VECTORS + v] = sums[r][v];
}

// results = results FACTOR + tile x panels: `columns` rows of features that lie `pitch` apart, PER vectors of them in each of the panels,
// which lie `next` apart.
#define GATHER_PANELS(name, PER, FACTOR)                                                                        \
    inline void name(__private const REAL *tile, __global const REAL *panels, const uint count, const ulong next, \
                     const ulong pitch, const uint columns, __private const REAL *factors, __private V *results) { \
        const uint held = count * PER;                                                                          \
        for (uint panel = 0; panel < count; panel++) {                                                          \
            __global const REAL *right = panels + panel * next;                                                 \
            V sums[MR][PER];                                                                                    \
            _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                     \
                _Pragma("unroll") for (uint v = 0; v < PER; v++) sums[r][v] = results[r * held + panel * PER + v] FACTOR; \
            for (uint c = 0; c < columns; c++) {                                                                \
                V b[PER];                                                                                       \
                _Pragma("unroll") for (uint v = 0; v < PER; v++) b[v] = VECTOR_LOAD(REAL, right + v * WIDTH);   \
                _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                 \
                    _Pragma("unroll") for (uint v = 0; v < PER; v++) sums[r][v] += (V)(tile[r * NR + c]) * b[v]; \
                right += pitch;                                                                                 \
            }                                                                                                   \
            _Pragma("unroll") for (uint r = 0; r < MR; r++)                                                     \
                _Pragma("unroll") for (uint v = 0; v < PER; v++) results[r * held + panel * PER + v] = sums[r][v]; \
        }                                                                                                       \
    }

#endif
