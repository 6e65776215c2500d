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
// Taps of a row, if few; 0: a kernel argument has their number.
#ifndef TAPS
#define TAPS 0
#endif
// 1: neighbors in the first dimension of the range are neighbors along `inner`, not along the axis, so that they share
// weights.
#ifndef INNER_FIRST
#define INNER_FIRST 1
#endif
// 1: neighbors along `inner` are contiguous.
#ifndef UNIT_INNER
#define UNIT_INNER 0
#endif
#include "lib/dtypes.h"

// One element per work-item: (inner, rows, outer), or (rows, inner, outer).
__kernel void banded_matmul(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(int32) *starts,
                            const ulong starts_offset, __global const STORAGE(WEIGHT_DTYPE) *weights,
                            const ulong weights_offset, __global STORAGE(DTYPE) *out, const ulong out_offset,
                            const uint rows, const uint inner, const uint taps, const long x_outer, const long x_axis,
                            const long x_inner) {
    const uint i = get_global_id(INNER_FIRST ? 0 : 1), row = get_global_id(INNER_FIRST ? 1 : 0), o = get_global_id(2);
    if (row >= rows || i >= inner) return;
    x += (long)x_offset + (long)o * x_outer + (long)starts[starts_offset + row] * x_axis + (long)i * (UNIT_INNER ? 1 : x_inner);
    const uint count = TAPS ? TAPS : taps;
    weights += weights_offset + (ulong)row * count;
    REAL sum = 0;
    for (uint t = 0; t < count; t++) {
        const REAL weight = LOAD(WEIGHT_DTYPE, weights, t), term = weight * LOAD(DTYPE, x, (long)t * x_axis);
        sum += weight == 0 ? (REAL)0 : term;
    }
    STORE(DTYPE, sum, out, out_offset + ((ulong)o * rows + row) * inner + i);
}
