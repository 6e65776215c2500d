// Panels of large matrices, with many rows and few columns: a group of GROUP work-items factors one in global memory, in a
// workspace by columns, so that neighboring work-items read neighboring rows.

#ifndef POLYHAL_PANELS
#define POLYHAL_PANELS

#ifndef GROUP
#define GROUP 64
#endif
// The largest number of columns.
#ifndef SIZE
#define SIZE 32
#endif
#define IN_GLOBAL 1
#include "linear_algebra/matrices.h"

#define PANEL_AT(i, j) panel[(ulong)(j) * rows + (i)]

// Copies a matrix to the workspace, and back to the contiguous result.
#define LOAD_PANEL(name, matrix)                                                              \
    {                                                                                         \
        const long at = MATRIX_OF(name, matrix);                                              \
        for (uint j = 0; j < columns; j++) FOR_OWN(i, 0, rows) PANEL_AT(i, j) = ELEMENT(name, at, i, j); \
        SYNC;                                                                                 \
    }
#define STORE_PANEL(name, matrix)                                                             \
    {                                                                                         \
        SYNC;                                                                                 \
        __global REAL *to = name + name##_offset + (matrix) * rows * columns;                 \
        for (uint j = 0; j < columns; j++) FOR_OWN(i, 0, rows) STORE(DTYPE, PANEL_AT(i, j), to, (ulong)i * columns + j); \
    }

// Work-items that each reduce a part of the group's values before all reduce the results.
#define REDUCERS (GROUP < 16 ? GROUP : 16)
#define REDUCED_EACH (GROUP / REDUCERS)

#endif
