// Position of the first extreme element: LANES work-items share a row and keep, each, the best term and its position.
//
// Rows are numbered over two kept axes, terms over two reduced axes, in the order in which positions count (arguments as in
// reduce_rows.cl). A NaN counts as the extreme.

#include "dtypes.h"

#ifndef DTYPE
#define DTYPE float32
#define OUT_DTYPE int64
#endif
#ifndef BETTER
#define BETTER >
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef GROUP
#define GROUP 64
#endif

#define T COMPUTE(DTYPE)

// Whether term (a, i) comes before (b, j): NaN first, then the extreme, then the smaller position.
inline int precedes(T a, ulong i, T b, ulong j) {
    const int a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a != b) return a BETTER b;
    return i < j;
}

__kernel void reduce_arg(__global const STORAGE(DTYPE) *x, const ulong x_offset, __global STORAGE(OUT_DTYPE) *out,
                         const ulong out_offset, const ulong k0, const long k0s, const ulong k1, const long k1s,
                         const long r0s, const ulong r1, const long r1s, const ulong length) {
    const ulong row = get_global_id(0) / LANES;
    const uint lane = get_global_id(0) % LANES;
    const bool active = row < k0 * k1;
    T best = 0;
    ulong place = ULONG_MAX;
    if (active) {
        x += x_offset;
        x += (long)(row / k1) * k0s + (long)(row % k1) * k1s;
        ulong outer = lane / r1;
        ulong inner = lane - outer * r1;
        if (lane < length) {
            place = lane;
            best = LOAD(DTYPE, x, (long)outer * r0s + (long)inner * r1s);
        }
        for (ulong i = lane + LANES; i < length; i += LANES) {
            inner += LANES;
            while (inner >= r1) {
                inner -= r1;
                outer++;
            }
            const T value = LOAD(DTYPE, x, (long)outer * r0s + (long)inner * r1s);
            // Later positions win only by a better value, or by being the first NaN.
            if (value BETTER best || (value != value && best == best)) {
                best = value;
                place = i;
            }
        }
    }
#if LANES > 1
    __local T values[GROUP];
    __local ulong places[GROUP];
    const uint id = get_local_id(0);
    values[id] = best;
    places[id] = place;
    for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < distance && places[id + distance] != ULONG_MAX &&
            (places[id] == ULONG_MAX || precedes(values[id + distance], places[id + distance], values[id], places[id]))) {
            values[id] = values[id + distance];
            places[id] = places[id + distance];
        }
    }
    place = places[id];
#endif
    if (active && lane == 0) STORE(OUT_DTYPE, place, out, out_offset + row);
}
