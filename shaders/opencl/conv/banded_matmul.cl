// The product of a banded matrix with x along one axis, which is how axes are resampled: x has the shape (outer, length, inner),
// and out[o, r, i] is the sum over taps t of weights[r, t] * x[o, starts[r] + t, i]. A weight of 0 reads nothing.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
#include "lib/dtypes.h"

// One element per work-item: (rows * inner, outer).
__kernel void banded_matmul(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(int32) *starts,
                            const ulong starts_offset, __global const STORAGE(WEIGHT_DTYPE) *weights,
                            const ulong weights_offset, __global STORAGE(DTYPE) *out, const ulong out_offset,
                            const uint rows, const uint inner, const uint taps, const long x_outer, const long x_axis,
                            const long x_inner) {
    const uint item = get_global_id(0), o = get_global_id(1);
    if (item >= rows * inner) return;
    const uint row = item / inner, i = item - row * inner;
    x += (long)x_offset + (long)o * x_outer + (long)starts[starts_offset + row] * x_axis + (long)i * x_inner;
    weights += weights_offset + (ulong)row * taps;
    REAL sum = 0;
    for (uint t = 0; t < taps; t++) {
        const REAL weight = LOAD(WEIGHT_DTYPE, weights, t);
        if (weight != 0) sum += weight * LOAD(DTYPE, x, (long)t * x_axis);
    }
    STORE(DTYPE, sum, out, out_offset + (ulong)o * rows * inner + item);
}
