// Arguments of the kernels for products with two banded matrices. x has the shape (plane, height, width), and out[p, r,
// c] is the sum over taps t, u of
//
//     down_weights[r, t] * across_weights[c, u] * x[p, down_starts[r] + t, across_starts[c] + u].
//
// A weight of 0 reads nothing.

#ifndef POLYHAL_CONV_BANDED_PLANES
#define POLYHAL_CONV_BANDED_PLANES

#ifndef WEIGHT_DTYPE
#define WEIGHT_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// Taps of a row of each matrix.
#ifndef TAPS_DOWN
#define TAPS_DOWN 2
#endif
#ifndef TAPS_ACROSS
#define TAPS_ACROSS 2
#endif

#define UNROLLED(i, n) _Pragma("unroll") for (uint i = 0; i < (n); i++)

#define BANDED_PLANES_PARAMETERS                                                                                  \
    __global const STORAGE(DTYPE) *x, const ulong x_offset, __global const STORAGE(int32) *down_starts,           \
    const ulong down_starts_offset, __global const STORAGE(WEIGHT_DTYPE) *down_weights,                           \
    const ulong down_weights_offset, __global const STORAGE(int32) *across_starts,                                \
    const ulong across_starts_offset, __global const STORAGE(WEIGHT_DTYPE) *across_weights,                       \
    const ulong across_weights_offset, __global STORAGE(DTYPE) *out, const ulong out_offset, const uint rows,      \
    const uint columns, const uint rows_each, const long x_plane, const long x_down, const long x_across

#endif
