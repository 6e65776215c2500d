// out = the sum over splits, in order, of partial rows that lie `pitch` apart, a whole number of vectors; each head has `length` of
// the rows. A work-item makes `rows_each` rows.

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

__kernel NO_AUTOVEC void attention_cpu_split_reduce(__global const REAL *partial, __global STORAGE(DTYPE) *out,
                                   const ulong out_offset, const uint rows, const uint features,
                                   const uint pitch, const uint splits, const uint rows_each, const uint length,
                                   const uint batch1, const uint batch2, PLACES(out)) {
    const uint first = get_global_id(0) * rows_each;
    for (uint row = first; row < min(first + rows_each, rows); row++) {
        HEAD_NUMBERS(row / length);
        __global STORAGE(DTYPE) *to = out + out_offset + i0 * out_batch0 + i1 * out_batch1 + i2 * out_batch2 + row % length * out_row;
        for (uint c = 0; c < features; c += WIDTH) {
            V sum = VECTOR_LOAD(REAL, partial + (ulong)row * pitch + c);
            for (uint split = 1; split < splits; split++)
                sum += VECTOR_LOAD(REAL, partial + ((ulong)split * rows + row) * pitch + c);
            if (c + WIDTH <= features) {
                STOREV(DTYPE, sum, to + c);
            } else {
                const uint left = features - c;
                for (uint i = 0; i < left; i++) STORE(DTYPE, ((__private const REAL *)&sum)[i], to, c + i);
            }
        }
    }
}
