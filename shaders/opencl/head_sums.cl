// out = the sum over splits, in order, of partial rows that lie `pitch` apart, a whole number of vectors. A work-item makes
// `rows_each` rows.

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
#include "dtypes.h"
#include "vectors.h"

typedef VEC(REAL) V;

__kernel AS_WRITTEN void head_sums(__global const REAL *partial, __global STORAGE(DTYPE) *out,
                                   const ulong out_offset, const uint rows, const uint features,
                                   const uint pitch, const uint splits, const uint rows_each) {
    const uint first = get_global_id(0) * rows_each;
    for (uint row = first; row < min(first + rows_each, rows); row++) {
        __global STORAGE(DTYPE) *to = out + out_offset + (ulong)row * features;
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
