// The rows of an operand of attention as reals, `pitch` apart, head after head; features past the last are zeros. A work-item
// makes `rows_each` rows.

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
#include "attention/arguments.h"
#include "lib/vectors.h"

typedef VEC(REAL) V;

__kernel NO_AUTOVEC void attention_cpu_pack(OPERAND(DTYPE, x), __global REAL *rows, const uint length,
                                   const uint features, const uint pitch, const uint rows_each,
                                   const uint batch1, const uint batch2, STRIDES(x)) {
    const uint first = get_global_id(0) * rows_each, head = get_global_id(1);
    HEAD_NUMBERS(head);
    FIND(x);
    rows += (ulong)head * length * pitch;
    for (uint row = first; row < min(first + rows_each, length); row++) {
        __global const STORAGE(DTYPE) *from = x + (long)row * x_row;
        __global REAL *to = rows + (ulong)row * pitch;
        uint c = 0;
        if (x_column == 1)
            for (; c + WIDTH <= features; c += WIDTH) VECTOR_STORE(REAL, LOADV(DTYPE, from + c), to + c);
        for (; c < features; c++) to[c] = LOAD(DTYPE, from, c * x_column);
        for (; c < pitch; c++) to[c] = 0;
    }
}
