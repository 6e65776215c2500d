// out = sum of the split-K partials of a gradient, in order. Partial rows are at distance `pitch`, a multiple of WIDTH;
// each head has `length` of the `rows` rows. A work-item makes `rows_each` rows.

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

typedef VEC(REAL) V;

typedef struct {
    ROW_STRIDES(out);
    uint rows, length, features, pitch, splits, rows_each, batch1, batch2;
} ReduceGeometry;

__kernel NO_AUTOVEC void attention_cpu_split_reduce(__global const REAL *partial, __global STORAGE(DTYPE) *out,
                                                    const ulong out_offset, const ReduceGeometry geometry) {
    const uint rows = geometry.rows, length = geometry.length, features = geometry.features, pitch = geometry.pitch;
    const uint splits = geometry.splits, first = get_global_id(0) * geometry.rows_each;
    for (uint row = first; row < min(first + geometry.rows_each, rows); row++) {
        HEAD_INDICES(row / length);
        __global STORAGE(DTYPE) *to = out + out_offset + i0 * geometry.out_batch0 + i1 * geometry.out_batch1 +
                                      i2 * geometry.out_batch2 + row % length * geometry.out_row;
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
