// Copy an operand of attention to contiguous rows of reals at distance `pitch`, head after head, zero-padded past the
// last feature. A work-item copies `rows_each` rows.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#ifndef WIDTH
#define WIDTH 16
#endif
#define ALIGNED 0
#include "attention/geometry.h"
#include "lib/vectors.h"

typedef struct {
    STRIDES(x);
    uint length, features, pitch, rows_each, batch1, batch2;
} PackGeometry;

__kernel NO_AUTOVEC void attention_cpu_pack(OPERAND(DTYPE, x), __global REAL *packed, const PackGeometry geometry) {
    const uint features = geometry.features, pitch = geometry.pitch;
    const uint first = get_global_id(0) * geometry.rows_each, head = get_global_id(1);
    HEAD_INDICES(head);
    SELECT_HEAD(x);
    packed += (ulong)head * geometry.length * pitch;
    for (uint row = first; row < min(first + geometry.rows_each, geometry.length); row++) {
        __global const STORAGE(DTYPE) *from = x + (long)row * x_row;
        __global REAL *to = packed + (ulong)row * pitch;
        uint c = 0;
        if (x_column == 1)
            for (; c + WIDTH <= features; c += WIDTH) VECTOR_STORE(REAL, LOADV(DTYPE, from + c), to + c);
        for (; c < features; c++) to[c] = LOAD(DTYPE, from, c * x_column);
        for (; c < pitch; c++) to[c] = 0;
    }
}
